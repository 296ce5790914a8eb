"""Frameworks hand over a whole conversation at each call; it is recognised by how it begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from ctxlab.conversation import Message
from ctxlab.history import Form
from ctxlab.manager import SAFE, ContextManager
from ctxlab.strategies import Strategy
from ctxlab.tokens import DEFAULT_MODEL

__all__ = ["Conversations"]

_Theirs = TypeVar("_Theirs")


@dataclass
class _Known(Generic[_Theirs]):
    manager: ContextManager
    given: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    theirs: list[_Theirs] = field(default_factory=list)
    "for each position of the manager's history, what the framework calls it"


class Conversations(Generic[_Theirs]):
    """A context manager for each conversation that a framework holds, the newest ``keep`` of them.

    A conversation that goes on from one that is known is that one: either all that was given before is
    there again, or what was sent last, where the framework keeps that instead. Any other begins anew.
    Threads may share one.
    """

    def __init__(
        self,
        strategy: Strategy | str | Callable[..., Any] = SAFE,
        model: str = DEFAULT_MODEL,
        keep: int = 64,
        **options: Any,
    ) -> None:
        self._make = partial(ContextManager, strategy, model, **options)
        self._make()  # what is written wrongly is refused now, not at the first call
        self._keep, self._known = keep, list[_Known[_Theirs]]()
        self._lock = threading.Lock()

    def prepare(
        self,
        conversation: Sequence[tuple[Message, _Theirs]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[tuple[Message, _Theirs | None]]:
        """What to send of a conversation: messages, with the framework's own object where untouched."""
        with self._lock:
            known, start = self._find([message for message, _ in conversation], tools)
            for message, theirs in conversation[start:]:
                known.manager.append(message)
                known.theirs.append(theirs)
            entries = known.manager.prepare()
            known.given = [message for message, _ in conversation]
            known.sent = [entry.message for entry in entries]
            return [
                (e.message, known.theirs[e.start] if e.form is Form.VERBATIM else None)
                for e in entries
            ]

    def _find(
        self, given: list[Message], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[_Known[_Theirs], int]:
        """The conversation that goes on, and how much of what was given is in it already."""
        for known in reversed(self._known):
            if known.manager.tools != tuple(tools):
                continue
            for before in (known.given, known.sent):
                if before and given[: len(before)] == before:
                    self._known.remove(known)
                    self._known.append(known)
                    return known, len(before)
        made = _Known[_Theirs](self._make(tools=tools))
        self._known = [*self._known[1 - self._keep :], made]
        return made, 0
