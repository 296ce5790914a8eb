"""Context management for frameworks that pass the whole conversation in each model call.

Such a framework does not tell which conversation a call continues. ``ConversationPool`` finds the
conversation by comparing messages. All adapters of this package use ``ConversationPool``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import eq
from typing import Any, Generic, NamedTuple, TypeVar

from ctxlab.agent.manager import SAFE_STRATEGY, ContextManager
from ctxlab.context.history import Entry
from ctxlab.messages.types import Message
from ctxlab.strategies import Strategy
from ctxlab.tokens.counter import DEFAULT_MODEL

_LOG = logging.getLogger("ctxlab.adapters")
_RESTART_WARNING = (
    "a conversation restarts because its message %d was edited or removed; the strategy loses its "
    "state and, for example, writes all summaries again"
)
_MISSING_MODEL_WARNING = (
    "the request does not name its model, so the limit and the token counts of %s are used; pass "
    "model=... together with the strategy"
)

_Theirs = TypeVar("_Theirs")


class OutgoingMessage(NamedTuple, Generic[_Theirs]):
    """A message to send, with the framework's message that it was made from, if there is one."""

    message: Message
    "message to send, as a ctxlab message"
    original: _Theirs | None
    "framework's message that ``message`` replaces; None if there are several or the roles differ"
    unchanged: bool
    "True if the strategy did not change the message"

    def to_framework(self, convert: Callable[[Message, _Theirs | None], _Theirs]) -> _Theirs:
        """Convert the message to a message of the framework.

        Parameters
        ----------
        convert : callable
            Function that takes ``message`` and ``original``, and returns a message of the
            framework. It is called only if the message was changed or has no original.

        Returns
        -------
        object
            ``original`` if the message is unchanged, otherwise the result of ``convert``.
        """
        if self.unchanged and self.original is not None:
            return self.original
        return convert(self.message, self.original)


class _ContinuationPoint(NamedTuple):
    start: int
    "number of system messages at the beginning of the request, which are sent unchanged"
    first_new: int
    "index of the first new message in the request"
    is_full_history: bool
    "True if the request repeats all messages received before, False if it repeats the last request"


@dataclass
class _Conversation(Generic[_Theirs]):
    """State of a conversation: context manager, messages received so far, and last request."""

    model: str
    manager: ContextManager
    received: list[Message] = field(default_factory=list)
    "messages appended to ``manager``; kept up to date even if the strategy raises an error"
    originals: list[_Theirs] = field(default_factory=list)
    "framework's message for each message in ``received``"
    last_sent: tuple[list[Message], int] = ([], 0)
    "messages of the last request, and the number of messages received before it was sent"
    restart_warned: bool = False
    "True if a restart of this conversation was logged"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find_continuation(self, said: Sequence[Message], lead: int) -> _ContinuationPoint | None:
        """Find the position in a request at which new messages of this conversation begin.

        ``said`` contains all messages of the request, which begins with ``lead`` system messages. A
        framework repeats either all messages that it passed before, or the last request that was
        sent to the model. The last request may begin with system messages that the strategy added.
        The result is None if the request does not continue this conversation.
        """
        sent, then = self.last_sent
        as_sent = [*sent, *self.received[then:]]
        lead_sent = lead - _count_leading_system(sent)
        for start, before, whole in ((lead, self.received, True), (lead_sent, as_sent, False)):
            stop = start + len(before)
            if before and start >= 0 and said[start:stop] == before:
                return _ContinuationPoint(start, stop, whole)
        return None

    def to_outgoing(self, entry: Entry) -> OutgoingMessage[_Theirs]:
        """Convert an entry of the request to an ``OutgoingMessage``.

        ``original`` is None if the entry replaces several messages or changes the role.
        """
        one = not entry.is_aggregate and self.received[entry.start].role == entry.message.role
        theirs = self.originals[entry.start] if one else None
        return OutgoingMessage(entry.message, theirs, entry.is_verbatim)


class ConversationPool(Generic[_Theirs]):
    """Pool of context managers, one for each conversation and model.

    A request continues a known conversation if it repeats either all messages received before, or
    the last request that was sent. Otherwise, a new conversation begins. The tools, and the system
    messages at the beginning of a request, may differ between requests. They count towards the
    budget and are sent unchanged. The strategy does not receive them.

    If the framework edits or removes an earlier message, the conversation restarts with a new
    context manager. The strategy then loses its state; for example, all summaries are written
    again. The restart is logged as a warning, once per conversation.

    A pool may be shared between threads and event loops. Requests of the same conversation are
    processed one after another, requests of different conversations in parallel.

    Parameters
    ----------
    strategy : Strategy, str or callable
        Strategy, in any form that ``ctxlab.ContextManager`` accepts.
    model : str, optional
        Name of the model that determines the limit and the token counts. By default, the model that
        each request names.
    max_conversations : int, default 64
        Maximum number of conversations to keep. If there are more, the least recently used
        conversation is removed.
    **options : Any
        Further options of ``ctxlab.ContextManager``.
    """

    def __init__(
        self,
        strategy: Strategy | str | Callable[..., Any] = SAFE_STRATEGY,
        model: str | None = None,
        max_conversations: int = 64,
        **options: Any,
    ) -> None:
        self._make_manager = partial(ContextManager, strategy, **options)
        self._model, self._max_conversations = model, max_conversations
        # Report invalid options here, not at the first call.
        self._make_manager(model=model or DEFAULT_MODEL)
        self._conversations = list[_Conversation[_Theirs]]()
        self._lock = threading.Lock()
        self._missing_model_warned = False

    def prepare_messages(
        self,
        conversation: Sequence[tuple[Message, _Theirs]],
        tools: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
    ) -> list[OutgoingMessage[_Theirs]]:
        """Apply the strategy to a conversation and return the messages to send.

        Parameters
        ----------
        conversation : sequence of (Message, object)
            All messages of the conversation in order, each with the framework's message that it was
            converted from.
        tools : sequence of dict, optional
            Tool definitions of the request. They count towards the budget.
        model : str, optional
            Model that the request names. Ignored if ``model`` was passed to the constructor.

        Returns
        -------
        list of OutgoingMessage
            Messages of the request, in order.
        """
        said = [message for message, _ in conversation]
        lead = _count_leading_system(said)
        if lead == len(said):  # only system messages, sent unchanged
            return [OutgoingMessage(message, theirs, True) for message, theirs in conversation]
        model = self._model or model or self._fallback_model()
        while True:
            known = self._find_or_create(said, lead, model)
            with known.lock:
                # Another thread may have changed the conversation in the meantime.
                place: _ContinuationPoint | None = _ContinuationPoint(lead, lead, True)
                if known.received:
                    place = known.find_continuation(said, lead)
                if place is not None:
                    return _prepare_request(known, conversation, place, tools)

    def _find_or_create(self, said: list[Message], lead: int, model: str) -> _Conversation[_Theirs]:
        """Return the conversation that a request continues, or create a new conversation.

        ``said`` contains all messages of the request, which begins with ``lead`` system messages.
        """
        with self._lock:
            for known in reversed(self._conversations):
                if known.model == model and known.find_continuation(said, lead):
                    self._conversations.remove(known)
                    self._conversations.append(known)
                    return known
            made = _Conversation[_Theirs](model, self._make_manager(model=model))
            self._warn_restart(made, said[lead:])
            self._conversations = [*self._conversations, made][-self._max_conversations :]
            return made

    def _warn_restart(self, made: _Conversation[_Theirs], said: list[Message]) -> None:
        """Log a warning if the new conversation ``made`` seems to be an edited copy of a known one."""
        for known in reversed(self._conversations):
            sent, then = known.last_sent
            same = sum(1 for _ in takewhile(bool, map(eq, known.received, said)))
            # Different conversations may begin with the same question.
            if known.model != made.model or same < 2 or sent == known.received[:then]:
                continue
            if not known.restart_warned:
                _LOG.warning(_RESTART_WARNING, same + 1)
            known.restart_warned = made.restart_warned = True
            return

    def _fallback_model(self) -> str:
        if not self._missing_model_warned:
            self._missing_model_warned = True
            _LOG.warning(_MISSING_MODEL_WARNING, DEFAULT_MODEL)
        return DEFAULT_MODEL


def _prepare_request(
    known: _Conversation[_Theirs],
    conversation: Sequence[tuple[Message, _Theirs]],
    place: _ContinuationPoint,
    tools: Sequence[Mapping[str, Any]],
) -> list[OutgoingMessage[_Theirs]]:
    fixed = [OutgoingMessage(said, theirs, True) for said, theirs in conversation[: place.start]]
    for message, theirs in conversation[place.first_new :]:
        known.manager.append(message)
        known.received.append(known.manager.history[-1])  # the manager's copy, which never changes
        known.originals.append(theirs)
    if place.is_full_history:  # prefer the framework's newest objects
        known.originals = [theirs for _, theirs in conversation[place.start :]]
    known.manager.set_fixed(tools=tools, system=[each.message for each in fixed])
    entries = known.manager.request_entries()
    known.last_sent = [entry.message for entry in entries], len(known.received)
    return fixed + [known.to_outgoing(entry) for entry in entries]


def _count_leading_system(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning of ``messages``."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))
