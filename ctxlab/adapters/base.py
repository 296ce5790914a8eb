"""Frameworks hand over a whole conversation at each call; it is recognised by how it begins."""

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

__all__ = ["ConversationPool", "OutgoingMessage"]

_LOG = logging.getLogger("ctxlab.adapters")

_FrameworkMessage = TypeVar("_FrameworkMessage")


class OutgoingMessage(NamedTuple, Generic[_FrameworkMessage]):
    """One message to send, and what the framework calls the one that it stands for."""

    message: Message
    original: _FrameworkMessage | None
    "the framework's own; None where the message stands for none or for several, or has another role"
    unchanged: bool
    "it is as it was given"

    def to_framework(
        self, convert: Callable[[Message, _FrameworkMessage | None], _FrameworkMessage]
    ) -> _FrameworkMessage:
        """The framework's own where that can be sent, else what ``convert`` makes with it."""
        if self.unchanged and self.original is not None:
            return self.original
        return convert(self.message, self.original)


class _ContinuationPoint(NamedTuple):
    start: int
    "before it stands what is fixed in this request"
    first_new: int
    "from it on the messages are new"
    is_full_history: bool
    "all that was given before is there again, not what was sent of it"


@dataclass
class _Conversation(Generic[_FrameworkMessage]):
    """A conversation as far as it was handed over, and what was sent of it last."""

    model: str
    manager: ContextManager
    received: list[Message] = field(default_factory=list)
    "all that was appended to the manager, noted as it is appended: a strategy may raise after that"
    originals: list[_FrameworkMessage] = field(default_factory=list)
    "for each of ``received``, what the framework calls it"
    last_sent: tuple[list[Message], int] = ([], 0)
    "what was sent last, and how much was given by then"
    restart_warned: bool = False
    "that it began anew"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find_continuation(
        self, messages: Sequence[Message], leading_system: int
    ) -> _ContinuationPoint | None:
        """Where in a conversation that goes on from this one it begins; None: it is another.

        ``leading_system`` is how many system messages it begins with. The framework either kept all
        that it gave, or what was sent last, which may begin with system messages of the strategy's
        own.
        """
        sent, then = self.last_sent
        as_sent = [*sent, *self.received[then:]]
        for start, before, whole in (
            (leading_system, self.received, True),
            (leading_system - _count_leading_system(sent), as_sent, False),
        ):
            stop = start + len(before)
            if before and start >= 0 and messages[start:stop] == before:
                return _ContinuationPoint(start, stop, whole)
        return None

    def to_outgoing(self, entry: Entry) -> OutgoingMessage[_FrameworkMessage]:
        """An entry with what the framework calls the message that it stands for."""
        one = not entry.is_aggregate and self.received[entry.start].role == entry.message.role
        theirs = self.originals[entry.start] if one else None
        return OutgoingMessage(entry.message, theirs, entry.form is Form.VERBATIM)


class ConversationPool(Generic[_FrameworkMessage]):
    """A context manager for each conversation and model that a framework holds.

    Only those of the newest ``max_conversations`` are kept.

    A conversation that goes on from one that is known is that one: either all that was given before is
    there again, or what was sent last, where the framework keeps that instead. System messages at its
    beginning and tools may be others at each call: they take room, are sent as they are, and no
    strategy sees them. ``model`` None: the one that each request names.

    Where a message is edited or taken back, the conversation begins anew, and with it what the strategy
    remembers: summaries are written again, of everything. A warning says so, once a conversation.

    Threads and event loops may share one. Conversations do not wait for each other; two requests of one
    conversation do.
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
        # What is written wrongly is refused now, not at the first call.
        self._make_manager(model=model or DEFAULT_MODEL)
        self._conversations = list[_Conversation[_FrameworkMessage]]()
        self._lock = threading.Lock()
        self._missing_model_warned = False

    def prepare_messages(
        self,
        conversation: Sequence[tuple[Message, _FrameworkMessage]],
        tools: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
    ) -> list[OutgoingMessage[_FrameworkMessage]]:
        """What to send of a conversation to the ``model`` that the request names."""
        said = [message for message, _ in conversation]
        lead = _count_leading_system(said)
        if lead == len(said):  # nothing that a strategy could act on
            return [OutgoingMessage(message, theirs, True) for message, theirs in conversation]
        model = self._model or model or self._fallback_model()
        while True:
            known = self._find_or_create(said, lead, model)
            with known.lock:
                # Another thread may have led it elsewhere since it was found.
                place = (
                    known.find_continuation(said, lead)
                    if known.received
                    else _ContinuationPoint(lead, lead, True)
                )
                if place is not None:
                    return _prepare_request(known, conversation, place, tools)

    def _find_or_create(
        self, said: list[Message], lead: int, model: str
    ) -> _Conversation[_FrameworkMessage]:
        """The conversation that goes on, or a new one."""
        with self._lock:
            for known in reversed(self._conversations):
                if known.model == model and known.find_continuation(said, lead):
                    self._conversations.remove(known)
                    self._conversations.append(known)
                    return known
            made = _Conversation[_FrameworkMessage](model, self._make_manager(model=model))
            self._warn_restart(made, said[lead:])
            self._conversations = [*self._conversations, made][-self._max_conversations :]
            return made

    def _warn_restart(self, made: _Conversation[_FrameworkMessage], said: list[Message]) -> None:
        """Says that a conversation begins anew, where the strategy had something to remember of it."""
        for known in reversed(self._conversations):
            sent, then = known.last_sent
            same = sum(1 for _ in takewhile(bool, map(eq, known.received, said)))
            # Two conversations may well begin with the same question.
            if known.model != made.model or same < 2 or sent == known.received[:then]:
                continue
            if not known.restart_warned:
                _LOG.warning(
                    "a conversation begins anew, since its message %d was edited or taken back: what "
                    "the strategy made of it, such as summaries, is made again",
                    same + 1,
                )
            known.restart_warned = made.restart_warned = True
            return

    def _fallback_model(self) -> str:
        if not self._missing_model_warned:
            self._missing_model_warned = True
            _LOG.warning(
                "the request does not say which model it asks: its window and its tokens are taken to "
                "be those of %s; name the model where you name the strategy",
                DEFAULT_MODEL,
            )
        return DEFAULT_MODEL


def _prepare_request(
    known: _Conversation[_FrameworkMessage],
    conversation: Sequence[tuple[Message, _FrameworkMessage]],
    place: _ContinuationPoint,
    tools: Sequence[Mapping[str, Any]],
) -> list[OutgoingMessage[_FrameworkMessage]]:
    fixed = [
        OutgoingMessage(message, theirs, True) for message, theirs in conversation[: place.start]
    ]
    for message, theirs in conversation[place.first_new :]:
        known.manager.append(message)
        known.received.append(known.manager.history[-1])  # a copy, which nobody edits
        known.originals.append(theirs)
    if place.is_full_history:  # of equal objects the newest are sent
        known.originals = [theirs for _, theirs in conversation[place.start :]]
    known.manager.set_fixed(tools=tools, system=[each.message for each in fixed])
    entries = known.manager.request_entries()
    known.last_sent = [entry.message for entry in entries], len(known.received)
    return fixed + [known.to_outgoing(entry) for entry in entries]


def _count_leading_system(messages: Sequence[Message]) -> int:
    """How many system messages they begin with."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))
