"""Baseline of LangChain's ``ClearToolUsesEdit``, which clears old tool results and keeps the calls."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import ToolCall
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.common.compaction import body_start
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class clear_tool_uses(BaseStrategy):
    """Clears all tool results except the newest ``keep`` when the conversation exceeds ``trigger``.

    LangChain edits a copy of the conversation before each request and measures the unedited
    conversation. Once the conversation exceeds ``trigger``, results are therefore cleared in every
    request. Clearing stops once ``clear_at_least`` tokens are saved, if this parameter is set. In this
    case, later requests clear the same oldest results again and no newer ones.

    Source: langchain, ``ContextEditingMiddleware`` with ``ClearToolUsesEdit``.

    Examples
    --------
    >>> from ctxlab import Message, ToolCall
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "Look"), Message("assistant", tool_calls=(ToolCall("a", "ls"),))]
    >>> said.append(Message("tool", "many files", tool_call_id="a"))
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> clear_tool_uses(trigger=10, keep=0)(context).messages[2].text
    '[cleared]'
    """

    trigger: int = 100_000
    "tokens of the conversation, without the system prompt, above which results are cleared"
    clear_at_least: int = 0
    "number of saved tokens at which clearing stops; 0: clear all results except the kept ones"
    keep: int = 3
    "number of newest tool results to keep"
    clear_tool_inputs: bool = False
    "True: clear the arguments of a call together with its result"
    exclude_tools: tuple[str, ...] = ()
    "names of tools whose results are never cleared"
    placeholder: str = "[cleared]"
    "text that replaces a result"

    def __call__(self, context: Context, /) -> Context:
        """Clear all tool results except the newest ``keep`` if the conversation exceeds ``trigger``."""
        results = tool_result_positions(context)
        done: int
        done, saved = context.strategy_state.get(self, (-1, 0))
        if done < 0:
            if sum(e.tokens for e in context.entries[body_start(context) :]) <= self.trigger:
                return context
            done = 0
        due = bisect_left(results, context.history_length) - self.keep
        while done < due and not 0 < self.clear_at_least <= saved:
            before = context.tokens
            self._clear_result(context, results[done])
            saved += before - context.tokens
            done += 1
        context.strategy_state[self] = done, saved
        return context

    def _clear_result(self, context: Context, position: int) -> None:
        index = context.find_index(position)
        if index is None or context.entries[index].message.role != "tool":
            return
        result = context.entries[index].message
        caller = index - 1
        while caller >= 0 and context.entries[caller].message.role != "assistant":
            caller -= 1
        calls = context.entries[caller].message.tool_calls if caller >= 0 else ()
        valid = [c for c in calls if object_arguments(c) is not None]
        answered = [c for c in valid if c.id == result.tool_call_id]
        if not answered or (result.name or answered[0].name) in self.exclude_tools:
            return
        context.replace(index, with_text(result, self.placeholder), Form.STUB)
        if self.clear_tool_inputs:
            emptied = tuple(ToolCall(c.id, c.name) if c in answered else c for c in calls)
            message = context.entries[caller].message.replace(tool_calls=emptied)
            context.replace(caller, message, Form.TRUNCATED)
