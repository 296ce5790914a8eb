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

from ctxlab.agent.manager import (
    SAFE,
    ContextManager,
)
from ctxlab.context.history import (
    Entry,
    Form,
)
from ctxlab.messages.types import Message
from ctxlab.strategies import Strategy
from ctxlab.tokens.counter import DEFAULT_MODEL

__all__ = ["Conversations", "Sent"]

_LOG = logging.getLogger("ctxlab.adapters")

_Theirs = TypeVar("_Theirs")


class Sent(NamedTuple, Generic[_Theirs]):
    """One message to send, and what the framework calls the one that it stands for."""

    message: Message
    theirs: _Theirs | None
    "the framework's own; None where the message stands for none or for several, or has another role"
    kept: bool
    "it is as it was given"

    def made(self, make: Callable[[Message, _Theirs | None], _Theirs]) -> _Theirs:
        """The framework's own where that can be sent, else what ``make`` makes with it."""
        if self.kept and self.theirs is not None:
            return self.theirs
        return make(self.message, self.theirs)


class _Place(NamedTuple):
    start: int
    "before it stands what is fixed in this request"
    new: int
    "from it on the messages are new"
    whole: bool
    "all that was given before is there again, not what was sent of it"


@dataclass
class _Known(Generic[_Theirs]):
    """A conversation as far as it was handed over, and what was sent of it last."""

    model: str
    manager: ContextManager
    given: list[Message] = field(default_factory=list)
    "all that was appended to the manager, noted as it is appended: a strategy may raise after that"
    theirs: list[_Theirs] = field(default_factory=list)
    "for each of ``given``, what the framework calls it"
    sent: tuple[list[Message], int] = ([], 0)
    "what was sent last, and how much was given by then"
    warned: bool = False
    "that it began anew"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def goes_on(self, said: Sequence[Message], lead: int) -> _Place | None:
        """Where in a conversation that goes on from this one it begins; None: it is another.

        ``lead`` is how many system messages it begins with. The framework either kept all that it
        gave, or what was sent last, which may begin with system messages of the strategy's own.
        """
        sent, then = self.sent
        as_sent = [*sent, *self.given[then:]]
        for start, before, whole in (
            (lead, self.given, True),
            (lead - _leading(sent), as_sent, False),
        ):
            stop = start + len(before)
            if before and start >= 0 and said[start:stop] == before:
                return _Place(start, stop, whole)
        return None

    def sent_as(self, entry: Entry) -> Sent[_Theirs]:
        """An entry with what the framework calls the message that it stands for."""
        one = not entry.wide and self.given[entry.start].role == entry.message.role
        theirs = self.theirs[entry.start] if one else None
        return Sent(entry.message, theirs, entry.form is Form.VERBATIM)


class Conversations(Generic[_Theirs]):
    """A context manager for each conversation and model that a framework holds, the newest ``keep``.

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
        strategy: Strategy | str | Callable[..., Any] = SAFE,
        model: str | None = None,
        keep: int = 64,
        **options: Any,
    ) -> None:
        self._make = partial(ContextManager, strategy, **options)
        self._model, self._keep = model, keep
        # What is written wrongly is refused now, not at the first call.
        self._make(model=model or DEFAULT_MODEL)
        self._known = list[_Known[_Theirs]]()
        self._lock = threading.Lock()
        self._unnamed = False

    def prepare(
        self,
        conversation: Sequence[tuple[Message, _Theirs]],
        tools: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
    ) -> list[Sent[_Theirs]]:
        """What to send of a conversation to the ``model`` that the request names."""
        said = [message for message, _ in conversation]
        lead = _leading(said)
        if lead == len(said):  # nothing that a strategy could act on
            return [Sent(message, theirs, True) for message, theirs in conversation]
        model = self._model or model or self._fallback()
        while True:
            known = self._find(said, lead, model)
            with known.lock:
                # Another thread may have led it elsewhere since it was found.
                place = known.goes_on(said, lead) if known.given else _Place(lead, lead, True)
                if place is not None:
                    return _send(known, conversation, place, tools)

    def _find(self, said: list[Message], lead: int, model: str) -> _Known[_Theirs]:
        """The conversation that goes on, or a new one."""
        with self._lock:
            for known in reversed(self._known):
                if known.model == model and known.goes_on(said, lead):
                    self._known.remove(known)
                    self._known.append(known)
                    return known
            made = _Known[_Theirs](model, self._make(model=model))
            self._warn(made, said[lead:])
            self._known = [*self._known, made][-self._keep :]
            return made

    def _warn(self, made: _Known[_Theirs], said: list[Message]) -> None:
        """Says that a conversation begins anew, where the strategy had something to remember of it."""
        for known in reversed(self._known):
            sent, then = known.sent
            same = sum(1 for _ in takewhile(bool, map(eq, known.given, said)))
            # Two conversations may well begin with the same question.
            if known.model != made.model or same < 2 or sent == known.given[:then]:
                continue
            if not known.warned:
                _LOG.warning(
                    "a conversation begins anew, since its message %d was edited or taken back: what "
                    "the strategy made of it, such as summaries, is made again",
                    same + 1,
                )
            known.warned = made.warned = True
            return

    def _fallback(self) -> str:
        if not self._unnamed:
            self._unnamed = True
            _LOG.warning(
                "the request does not say which model it asks: its window and its tokens are taken to "
                "be those of %s; name the model where you name the strategy",
                DEFAULT_MODEL,
            )
        return DEFAULT_MODEL


def _send(
    known: _Known[_Theirs],
    conversation: Sequence[tuple[Message, _Theirs]],
    place: _Place,
    tools: Sequence[Mapping[str, Any]],
) -> list[Sent[_Theirs]]:
    fixed = [Sent(message, theirs, True) for message, theirs in conversation[: place.start]]
    for message, theirs in conversation[place.new :]:
        known.manager.append(message)
        known.given.append(known.manager.history[-1])  # a copy, which nobody edits
        known.theirs.append(theirs)
    if place.whole:  # of equal objects the newest are sent
        known.theirs = [theirs for _, theirs in conversation[place.start :]]
    known.manager.fix(tools=tools, system=[each.message for each in fixed])
    entries = known.manager.prepare()
    known.sent = [entry.message for entry in entries], len(known.given)
    return fixed + [known.sent_as(entry) for entry in entries]


def _leading(messages: Sequence[Message]) -> int:
    """How many system messages they begin with."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))
