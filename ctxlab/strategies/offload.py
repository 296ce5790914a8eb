"""Strategy that keeps long tool results out of the context, where the agent can read them by page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.context.stored_results import READ_RESULT_TOOL, message_number
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.helpers.text import is_text_only, with_text

_TOOL_NAME: str = READ_RESULT_TOOL["function"]["name"]


@dataclass(frozen=True, repr=False)
class offload(BaseStrategy):
    r"""Replaces long tool results by a preview, from which the agent can read the full result.

    A result is replaced before it is sent for the first time, so the prompt cache stays valid. The
    preview has the beginning and the end of the result, cut at line breaks, and between them a line
    with the size of the result, its number, and how to read it.
    The agent needs the tool ``read_result``. ``ctxlab.agent.Agent`` adds it.
    ``ctxlab.context.stored_results.READ_RESULT_TOOL`` is the definition of the tool, and
    ``ContextManager.read_result`` answers its calls.

    Results of ``read_result`` are never replaced, and neither are results with images or other parts
    that are not text, because the tool returns text only. Nothing is written to disk: the history and
    the session contain the full result.

    Source: Claude Code, which stores results of more than 30,000 characters and shows 2,000; Strands
    Agents (1,500 tokens, 750 shown); deepagents (20,000 tokens).

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    >>> lines = "".join(f"line {i}\n" for i in range(2000))
    >>> talk = [{"role": "user", "content": "Run it."}]
    >>> talk += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> talk += [{"role": "tool", "tool_call_id": "c1", "content": lines}]
    >>> sent = build_messages(None, talk, strategy=offload(preview=40))
    >>> for line in sent[-1]["content"].splitlines():
    ...     print(line[:68])
    line 0
    line 1
    [1997 of 2000 lines are left out. Result 3 has 9,004 tokens; read it
    line 1999
    """

    needs_tool: ClassVar[str] = _TOOL_NAME
    "name of the tool with which the agent reads a stored result"

    tokens: int = 4000
    """maximum tokens of a tool result to keep; longer results are replaced. The default is more than two
    pages of ``read_result`` and about half of Claude Code's threshold: few results are longer, and
    these hold most of the tokens"""
    preview: int = 2000
    "maximum number of characters of the beginning and the end together"

    def __call__(self, context: Context, /) -> Context:
        """Replace the long tool results that were appended since the last request."""
        half = self.preview // 2
        return offload_results(context, self, self._is_long, head=half, tail=half)

    def _is_long(self, entry: Entry, _: ToolCall | None) -> bool:
        return entry.tokens > self.tokens


def offload_results(
    context: Context,
    strategy: BaseStrategy,
    is_long: Callable[[Entry, ToolCall | None], bool],
    head: int,
    tail: int,
) -> Context:
    """Replace the long tool results of a context by previews, from which they can be read.

    Each result is examined once, at the first request that contains it.

    Parameters
    ----------
    context : Context
        Context to edit.
    strategy : BaseStrategy
        Strategy that makes the edit. The number of examined results is stored in
        ``context.strategy_state`` with the strategy as its key.
    is_long : callable
        Function that takes the entry of a result and its tool call, which is None if it is unknown,
        and returns True if the result is to be replaced.
    head, tail : int
        Maximum number of characters that a preview shows of the beginning and of the end.

    Returns
    -------
    Context
        The same context, edited in place.
    """
    positions, done = tool_result_positions(context), context.strategy_state.get(strategy, 0)
    stop = bisect_left(positions, context.history_length)
    for position in positions[done:stop]:
        index = context.find_index(position)
        if index is None:
            continue
        entry, call = context.entries[index], context.history.calls_by_result.get(position)
        if entry.message.role == "tool" and is_long(entry, call):
            number = message_number(context.history, position)
            context.rewrite(index, _Pointer(number, entry.tokens, head, tail).replace, Form.POINTER)
    if stop > done:
        context.strategy_state[strategy] = stop
    return context


@dataclass(frozen=True)
class _Pointer:
    """Text that replaces one tool result."""

    number: int
    tokens: int
    head: int
    tail: int

    def replace(self, message: Message, call: ToolCall | None) -> Message | None:
        """Replace the content of a tool result; None if it cannot be read back or is short."""
        text = message.text
        if not is_text_only(message) or (call is not None and call.name == _TOOL_NAME):
            return None
        head, tail = _beginning(text, self.head), _end(text, self.tail)
        all_lines = text.count("\n") + (not text.endswith("\n"))
        shown = head.count("\n") + tail.count("\n") + (not tail.endswith("\n") and tail != "")
        this = f"number={self.number}"
        left_out = f"{max(all_lines - shown, 1)} of {all_lines} lines are left out"
        note = (
            f"[{left_out}. Result {self.number} has {self.tokens:,} tokens; read it with "
            f"{_TOOL_NAME}({this}, start={head.count(chr(10)) + 1}) or search it with "
            f'{_TOOL_NAME}({this}, search="...")]'
        )
        if head and not head.endswith("\n"):
            head += "\n"
        short = f"{head}{note}\n{tail}"
        return with_text(message, short) if len(short) < len(text) else None


def _beginning(text: str, chars: int) -> str:
    """Return the first characters of a text, up to a line break if one is in their second half."""
    cut = text.rfind("\n", chars // 2, chars) + 1
    return text[: cut or chars]


def _end(text: str, chars: int) -> str:
    """Return the last characters of a text, from a line break on if one is in their first half."""
    first = max(0, len(text) - chars)
    cut = text.find("\n", first, first + (chars + 1) // 2) + 1
    return text[cut or first :]
