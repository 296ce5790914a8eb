"""Strategy that replaces outdated tool results, such as earlier reads of a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Form, Rewrite
from ctxlab.messages.file_access import FileAccess, is_tool_error, parse_file_access
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.helpers.text import is_text_only, shorten_to

# Maximum number of remembered reads per file; bounds the time to process the next read.
_MAX_READS = 64


@dataclass(frozen=True, repr=False)
class stale_results(BaseStrategy):
    r"""Replaces the result of reading a file by a stub once the file is read again or edited.

    The stub is one line. A result of any tool is also replaced if a later identical call returned
    the same result. Later results are ignored if they are errors or if they are no longer in the
    context. A later read replaces an earlier one only if it includes all lines of the earlier one.

    Source: ctxlab, after requests of users of coding agents. ``parse_file_access`` recognises the
    tools that access files.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "go")]
    >>> for id, text in (("c1", "x = 1\n" * 99), ("c2", "x = 2\n" * 99)):
    ...     call = ToolCall(id, "read", '{"path": "src/io.py"}')
    ...     said += [Message("assistant", tool_calls=(call,)), Message("tool", text, tool_call_id=id)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(5)
    >>> [m.text[:33] for m in stale_results()(context).messages if m.role == "tool"]
    ['[src/io.py was read again later]', 'x = 2\nx = 2\nx = 2\nx = 2\nx = 2\nx =']
    """

    edits: bool = True
    "True: earlier reads of a file are replaced when the file is edited, not only when it is read again"

    def __call__(self, context: Context, /) -> Context:
        """Replace the results that became outdated since the last request."""
        known, done = context.strategy_state.get(self) or (_StaleIndex(self.edits), 0)
        known.update(context)
        upto = bisect_left(known.stale, context.history_length, key=attrgetter("later"))
        for later, earlier, stub in known.stale[done:upto]:
            index, newest = context.find_index(earlier), context.find_index(later)
            if index is None or newest is None or not _is_visible(context, index):
                continue
            if stub is _stub_edited or _is_visible(context, newest):
                context.rewrite(index, stub, Form.STUB)
        context.strategy_state[self] = known, upto
        return context


class _StaleResult(NamedTuple):
    """Tool result that a later result makes outdated.

    ``earlier`` and ``later`` are the history positions of the two results. ``stub`` is the function
    that replaces the earlier one.
    """

    later: int
    earlier: int
    stub: Rewrite


class _FileRead(NamedTuple):
    position: int
    touch: FileAccess
    lines: int


class _StaleIndex:
    """Outdated tool results of a context, in the order in which they became outdated."""

    def __init__(self, edits: bool) -> None:
        self.stale: list[_StaleResult] = []
        self._edits = edits
        self._scanned = 0
        self._reads: dict[str, list[_FileRead]] = {}
        self._seen_results: dict[tuple[str, str, str], int] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _StaleIndex:
        """Return a copy with its own lists and dicts, which share their immutable items."""
        other = copy(self)
        other.stale = self.stale.copy()
        other._reads, other._seen_results = self._reads.copy(), self._seen_results.copy()
        return other

    def update(self, context: Context) -> None:
        """Scan the results appended since the last call, and record the earlier results they outdate."""
        history, results = context.history, tool_result_positions(context)
        upto = bisect_left(results, context.history_length)
        for position in results[self._scanned : upto]:
            call, message = history.calls_by_result.get(position), history[position]
            if call is not None and not is_tool_error(message):
                self.stale.extend(self._find(position, call, message))
        self._scanned = max(self._scanned, upto)

    def _find(self, position: int, call: ToolCall, message: Message) -> Iterator[_StaleResult]:
        touch = parse_file_access(call)
        if touch is not None and touch.operation in ("write", "edit"):
            if self._edits:
                for read in self._reads.pop(touch.path, ()):
                    yield _StaleResult(position, read.position, _stub_edited)
        elif touch is not None and touch.operation == "read":
            new = _FileRead(position, touch, message.text.count("\n") + 1)
            current = []
            for read in self._reads.get(touch.path, ()):
                if _covers(new, read):
                    yield _StaleResult(position, read.position, _stub_read_again)
                else:
                    current.append(read)
            self._reads[touch.path] = [*current, new][-_MAX_READS:]
        elif is_text_only(message):
            key = (call.name, call.arguments, message.text)
            if key in self._seen_results:
                yield _StaleResult(position, self._seen_results[key], _stub_repeated)
            self._seen_results[key] = position


def _covers(new: _FileRead, old: _FileRead) -> bool:
    """Return True if a read contains all lines that an earlier read requested."""
    wanted, shown = old.touch.line_range, new.touch.line_range
    if wanted == shown:
        return True
    if wanted is None:
        return False
    first, last = wanted
    if shown is None:
        # A tool may return only the beginning of a long file, so check the number of lines.
        return first > 0 and new.lines >= (first + old.lines - 1 if last is None else last)
    start, stop = shown
    return last is not None and stop is not None and 0 < start <= first and last <= stop


def _is_visible(context: Context, index: int) -> bool:
    return context.entries[index].form in (Form.VERBATIM, Form.TRUNCATED)


def _stub_read_again(message: Message, call: ToolCall | None) -> Message | None:
    return shorten_to(message, f"[{_file_path(call)} was read again later]")


def _stub_edited(message: Message, call: ToolCall | None) -> Message | None:
    return shorten_to(message, f"[{_file_path(call)} was edited later]")


def _stub_repeated(message: Message, _: ToolCall | None) -> Message | None:
    return shorten_to(message, "[the same call gave the same again later]")


def _file_path(call: ToolCall | None) -> str:
    touch = parse_file_access(call) if call else None
    return touch.path if touch else "the file"
