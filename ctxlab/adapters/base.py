"""Recognize conversations of frameworks that pass the whole conversation at each call."""

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
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies import Strategy
from ctxlab.tokens.counter import DEFAULT_MODEL

_LOG = logging.getLogger("ctxlab.adapters")
_RESTART_WARNING = (
    "a conversation restarts because its message %d was edited or removed; the strategy loses its "
    "state, for example summaries are written again"
)
_MISSING_MODEL_WARNING = (
    "the request does not name its model; using the limit and the token counts of %s; pass "
    "model=... together with the strategy"
)

_Theirs = TypeVar("_Theirs")


class OutgoingMessage(NamedTuple, Generic[_Theirs]):
    """One message to send, and the framework message that it stands for."""

    message: Message
    "message to send, as a ctxlab message"
    original: _Theirs | None
    "the framework's message; None if there is not exactly one, or its role differs"
    unchanged: bool
    "whether the strategy left the message as it was"

    def to_framework(self, convert: Callable[[Message, _Theirs | None], _Theirs]) -> _Theirs:
        """Return the message in the form of the framework.

        Parameters
        ----------
        convert : callable
            Called with the message and the original (or None) if the message changed or has no
            original.

        Returns
        -------
        object
            The original if it is unchanged, else the result of ``convert``.
        """
        if self.unchanged and self.original is not None:
            return self.original
        return convert(self.message, self.original)


class _ContinuationPoint(NamedTuple):
    start: int
    "number of leading messages that are fixed in this request"
    first_new: int
    "index of the first new message"
    is_full_history: bool
    "the request repeats everything received before, not what was last sent"


@dataclass
class _Conversation(Generic[_Theirs]):
    """A conversation as received so far, and the last request sent for it."""

    model: str
    manager: ContextManager
    received: list[Message] = field(default_factory=list)
    "messages appended to the manager; updated one by one, since a strategy may raise"
    originals: list[_Theirs] = field(default_factory=list)
    "for each of ``received``, the message of the framework"
    last_sent: tuple[list[Message], int] = ([], 0)
    "messages of the last request, and the number of messages received by then"
    restart_warned: bool = False
    "whether a restart of this conversation has been reported"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find_continuation(self, said: Sequence[Message], lead: int) -> _ContinuationPoint | None:
        """Return where ``messages`` continue this conversation, or None if they do not.

        ``leading_system`` is the number of system messages at the beginning of ``messages``. The
        framework has kept either everything that it passed before, or the last request, which may
        begin with system messages that the strategy added.
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
        """Return an entry with the framework message that it stands for."""
        one = not entry.is_aggregate and self.received[entry.start].role == entry.message.role
        theirs = self.originals[entry.start] if one else None
        return OutgoingMessage(entry.message, theirs, entry.form is Form.VERBATIM)


class ConversationPool(Generic[_Theirs]):
    """Context managers for the conversations that a framework holds.

    There is one manager per conversation and model. A request continues a known conversation if it
    repeats either all messages received before, or the last request that was sent. Leading system
    messages and tools may differ between calls: they count towards the budget, are sent unchanged,
    and are not visible to the strategy.

    If a message is edited or removed, the conversation restarts. The strategy then loses its state;
    for example, all summaries are written again. This is logged as a warning, once per conversation.

    A pool may be shared between threads and event loops. Requests of one conversation wait for each
    other, different conversations do not.

    Parameters
    ----------
    strategy : Strategy, str or callable
        The strategy, as for ``ctxlab.ContextManager``.
    model : str, optional
        Model whose tokens are counted. By default, the model that each request names.
    max_conversations : int, default 64
        Number of conversations to keep. The least recently used ones are dropped.
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
        """Return the messages to send for a conversation.

        Parameters
        ----------
        conversation : sequence of (Message, object)
            All messages of the conversation, each with the framework's own message.
        tools : sequence of dict, optional
            Tool definitions of the request. They count towards the budget.
        model : str, optional
            Model that the request names. Ignored if the pool has a model.

        Returns
        -------
        list of OutgoingMessage
            The messages to send.
        """
        said = [message for message, _ in conversation]
        lead = _count_leading_system(said)
        if lead == len(said):  # nothing a strategy could change
            return [OutgoingMessage(message, theirs, True) for message, theirs in conversation]
        model = self._model or model or self._fallback_model()
        while True:
            known = self._find_or_create(said, lead, model)
            with known.lock:
                # Another thread may have continued it differently in the meantime.
                place: _ContinuationPoint | None = _ContinuationPoint(lead, lead, True)
                if known.received:
                    place = known.find_continuation(said, lead)
                if place is not None:
                    return _prepare_request(known, conversation, place, tools)

    def _find_or_create(self, said: list[Message], lead: int, model: str) -> _Conversation[_Theirs]:
        """Return the conversation that the messages continue, or a new one."""
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
        """Log a warning if a conversation restarts and the strategy loses state."""
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
        known.received.append(known.manager.history[-1])  # a copy that nobody edits
        known.originals.append(theirs)
    if place.is_full_history:  # send the newest of equal objects
        known.originals = [theirs for _, theirs in conversation[place.start :]]
    known.manager.set_fixed(tools=tools, system=[each.message for each in fixed])
    entries = known.manager.request_entries()
    known.last_sent = [entry.message for entry in entries], len(known.received)
    return fixed + [known.to_outgoing(entry) for entry in entries]


def _count_leading_system(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))
