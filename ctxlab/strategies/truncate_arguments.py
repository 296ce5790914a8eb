"""Strategy that truncates long string arguments of older tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.text import rewrite_calls


@dataclass(frozen=True, repr=False)
class shorten_arguments(BaseStrategy):
    r"""Truncates long strings in the arguments of older tool calls.

    A call keeps its id and its name, and its arguments remain valid JSON. Arguments that are not
    valid JSON are not changed.

    Source: deepagents 0.7.32, ``SummarizationMiddleware``, ``truncate_args_settings`` with the
    defaults for a model with an unknown context window. deepagents truncates only the arguments of
    ``write_file`` and ``edit_file``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> write = ToolCall("c1", "write", dump_json({"path": "a.py", "content": "x = 1\n" * 500}))
    >>> said = [Message("user", "go"), Message("assistant", tool_calls=(write,))]
    >>> said += [Message("tool", "written", tool_call_id="c1"), Message("user", "and now?")]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(4)
    >>> shorten_arguments(keep=2)(context).messages[1].tool_calls[0].arguments
    '{"path":"a.py","content":"x = 1\\nx = 1\\nx = 1\\nx ...(argument truncated)"}'
    """

    keep: int = 20
    "number of newest messages whose arguments are not changed"
    limit: int = 2000
    "number of characters above which a string is truncated"
    chars: int = 20
    "number of characters of a truncated string to keep"
    tools: tuple[str, ...] = ()
    "names of the tools whose arguments are truncated; empty: all tools"
    mark: str = "...(argument truncated)"
    "text appended to a truncated string"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid."""
        super().__post_init__()
        if not isinstance(self.tools, tuple):
            raise SpecError(f"shorten_arguments: expected a tuple for tools, got {self.tools!r}")

    def __call__(self, context: Context, /) -> Context:
        """Truncate the arguments of the calls that are no longer among the newest messages."""
        history, upto = context.history, context.history_length - self.keep
        done = context.strategy_state.get(self, 0)
        if upto <= done:
            return context
        for position in range(done, upto):
            if not history.entries[position].message.tool_calls:
                continue
            index = context.find_index(position)
            if index is not None and context.entries[index].message.tool_calls:
                context.rewrite(index, self.shorten, Form.TRUNCATED)
        context.strategy_state[self] = upto
        return context

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """Truncate the long string arguments of the tool calls of a message.

        Parameters
        ----------
        message : Message
            Message with tool calls.
        _ : ToolCall or None
            Not used.

        Returns
        -------
        Message or None
            The message with truncated arguments; None if no argument is truncated.
        """
        return rewrite_calls(message, self._shorten_call)

    def _shorten_call(self, call: ToolCall) -> ToolCall:
        if len(call.arguments) <= self.limit or (self.tools and call.name not in self.tools):
            return call
        try:
            value = parse_json(call.arguments)
        except ValueError:
            return call
        cut = dump_json(self._shorten_value(value))
        return ToolCall(call.id, call.name, cut) if len(cut) < len(call.arguments) else call

    def _shorten_value(self, value: Any) -> Any:
        if isinstance(value, str):
            short = value[: self.chars] + self.mark
            return short if len(value) > max(self.limit, len(short)) else value
        if isinstance(value, dict):
            return {key: self._shorten_value(item) for key, item in value.items()}
        return [self._shorten_value(item) for item in value] if isinstance(value, list) else value
