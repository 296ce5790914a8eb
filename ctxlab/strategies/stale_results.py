"""What a tool answered is stale once the same was read again or changed; the newest copy counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import (
    Form,
    Rewrite,
)
from ctxlab.messages.file_access import (
    Touch,
    failed,
    touches,
)
from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies.base import (
    Base,
    results_of,
)
from ctxlab.strategies.helpers.text import (
    is_text,
    with_text,
)

__all__ = ["stale_results"]

# A file of which more parts than this are in view is told of the newest ones only, so that a new read
# costs the same however often the file was read.
_PARTS = 64


@dataclass(frozen=True, repr=False)
class stale_results(Base):
    """An earlier copy of a file that was read again or edited since becomes a line that says so.

    So does the result of a call that was made again, word for word, with the same result. Only a later
    result that is there and is no error counts; reads of other parts of a file leave each other alone.

    Source: ctxlab, after what users ask of coding agents; ``touches`` knows which tool reads what.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "go")]
    >>> for id, text in (("c1", "x = 1\\n" * 99), ("c2", "x = 2\\n" * 99)):
    ...     call = ToolCall(id, "read", '{"path": "src/io.py"}')
    ...     said += [Message("assistant", tool_calls=(call,)), Message("tool", text, tool_call_id=id)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(5)
    >>> [m.text[:33] for m in stale_results()(context).messages if m.role == "tool"]
    ['[src/io.py was read again later]', 'x = 2\\nx = 2\\nx = 2\\nx = 2\\nx = 2\\nx =']
    """

    edits: bool = True
    "an edit makes what was read of the file before stale, even where it is not read again"

    def __call__(self, context: Context, /) -> Context:
        known, done = context.notes.get(self) or (_Index(self.edits), 0)
        known.look(context)
        upto = bisect_left(known.stale, context.length, key=attrgetter("later"))
        for later, earlier, stub in known.stale[done:upto]:
            index, newest = context.find(earlier), context.find(later)
            if index is None or newest is None or not _is_there(context, index):
                continue
            if stub is _edited or _is_there(context, newest):
                context.rewrite(index, stub, Form.STUB)
        context.notes[self] = known, upto
        return context


class _Stale(NamedTuple):
    """The result at one position made that at another stale, which is to be said so."""

    later: int
    earlier: int
    stub: Rewrite


class _Read(NamedTuple):
    position: int
    touch: Touch
    lines: int


class _Index:
    """What became stale among the results of a context, in the order in which it did."""

    def __init__(self, edits: bool) -> None:
        self.stale: list[_Stale] = []
        self._edits = edits
        self._looked = 0
        self._reads: dict[str, list[_Read]] = {}
        self._same: dict[tuple[str, str, str], int] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Index:
        other = copy(self)
        other.stale = self.stale.copy()
        other._reads, other._same = self._reads.copy(), self._same.copy()
        return other

    def look(self, context: Context) -> None:
        """The results that are there by now, each once; those of a branch are its own."""
        history, results = context.history, results_of(context)
        upto = bisect_left(results, context.length)
        for position in results[self._looked : upto]:
            call, message = history.calls.get(position), history[position]
            if call is not None and not failed(message):
                self.stale.extend(self._made_stale(position, call, message))
        self._looked = max(self._looked, upto)

    def _made_stale(self, position: int, call: ToolCall, message: Message) -> Iterator[_Stale]:
        touch = touches(call)
        if touch is not None and touch.verb in ("write", "edit"):
            if self._edits:
                for read in self._reads.pop(touch.path, ()):
                    yield _Stale(position, read.position, _edited)
        elif touch is not None and touch.verb == "read":
            new = _Read(position, touch, message.text.count("\n") + 1)
            current = []
            for read in self._reads.get(touch.path, ()):
                if _covers(new, read):
                    yield _Stale(position, read.position, _read_again)
                else:
                    current.append(read)
            self._reads[touch.path] = [*current, new][-_PARTS:]
        elif is_text(message):
            key = (call.name, call.arguments, message.text)
            if key in self._same:
                yield _Stale(position, self._same[key], _same_again)
            self._same[key] = position


def _covers(new: _Read, old: _Read) -> bool:
    """Whether a read shows all lines that an earlier one asked for."""
    wanted, shown = old.touch.part, new.touch.part
    if wanted == shown:
        return True
    if wanted is None:
        return False
    first, last = wanted
    if shown is None:
        # A tool may show the beginning of a long file only: its lines say how far it went.
        return first > 0 and new.lines >= (first + old.lines - 1 if last is None else last)
    start, stop = shown
    return last is not None and stop is not None and 0 < start <= first and last <= stop


def _is_there(context: Context, index: int) -> bool:
    return context.entries[index].form in (Form.VERBATIM, Form.TRUNCATED)


def _read_again(message: Message, call: ToolCall | None) -> Message | None:
    return _stub(message, f"[{_path(call)} was read again later]")


def _edited(message: Message, call: ToolCall | None) -> Message | None:
    return _stub(message, f"[{_path(call)} was edited later]")


def _same_again(message: Message, _: ToolCall | None) -> Message | None:
    return _stub(message, "[the same call gave the same again later]")


def _path(call: ToolCall | None) -> str:
    touch = touches(call) if call else None
    return touch.path if touch else "the file"


def _stub(message: Message, text: str) -> Message | None:
    """None where the stub would not be shorter."""
    if len(message.text) <= len(text) and is_text(message):
        return None
    return with_text(message, text)
