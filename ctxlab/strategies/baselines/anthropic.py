"""Baselines of Anthropic's API: clearing of old tool results, and compaction on the server."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import (
    fresh_start,
    prompt_tokens,
    threshold_tokens,
)
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import with_text

_CLEARED_TEXT = "[tool result cleared]"
"Placeholder for a cleared result. The text that the server uses is not documented."


@dataclass(frozen=True, repr=False)
class clear_tool_uses(BaseStrategy):
    """Clears all but the newest tool results if the unedited request exceeds ``trigger`` tokens.

    The client sends the whole conversation to the API with each request, and the API clears results
    before it calls the model. Once the conversation exceeds ``trigger``, each new tool result
    therefore causes an older one to be cleared, which invalidates the prompt cache. With ``sticky``,
    the API is assumed to remember what it cleared instead, and to clear again only when the edited
    request exceeds ``trigger``.

    Sources contradict each other. The documentation says that each clearing invalidates the cached
    prefix and that later requests can read the new one, which a boundary that moves with each request
    does not allow. Pull request 1147 of hermes-agent says that the API looks up the cache before it
    clears, so that nothing is invalidated; ctxlab cannot represent this.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> sent = build_messages(None, talk, strategy=clear_tool_uses(trigger=99))
    >>> [m["content"][:30] for m in sent[2::2]][3:6]
    ['[tool result cleared]', '[tool result cleared]', 'a line of text a line of text ']
    """

    trigger: float = 100_000
    "input tokens above which results are cleared; a value up to 1 is a share of the window"
    keep: int = 3
    "number of newest tool results to keep"
    clear_at_least: int = 0
    "minimum number of tokens to save; if clearing would save less, nothing is cleared"
    exclude_tools: tuple[str, ...] = ()
    "names of tools whose results are never cleared"
    clear_tool_inputs: bool = False
    "also clear the arguments of the tool calls whose results are cleared"
    sticky: bool = False
    """compare ``trigger`` with the request after earlier edits, so that results are cleared seldom and
    the prompt cache stays valid in between; False: compare it with the unedited request"""

    def __call__(self, context: Context, /) -> Context:
        """Clear all but the newest tool results if the unedited request exceeds ``trigger`` tokens."""
        looked, done, saving, cleared = context.strategy_state.get(self, (0, 0, 0, 0))
        size = prompt_tokens(context) + (0 if self.sticky else cleared)
        if size <= threshold_tokens(context, self.trigger):
            return context
        results = tool_result_positions(context)
        upto = max(looked, bisect_left(results, context.history_length) - self.keep)
        for position in results[looked:upto]:
            if self._is_clearable(context, position):
                saving += self._saved_tokens(context, position)
        if saving >= self.clear_at_least:
            before = context.tokens
            for position in results[done:upto]:
                if self._is_clearable(context, position):
                    self._clear_result(context, position)
            cleared += before - context.tokens
            done = upto
        context.strategy_state[self] = upto, done, saving, cleared
        return context

    def _is_clearable(self, context: Context, position: int) -> bool:
        call = context.history.calls_by_result.get(position)
        included = call is None or call.name not in self.exclude_tools
        return included and context.find_index(position) is not None

    def _saved_tokens(self, context: Context, position: int) -> int:
        entry = context.entries[context.index_at_or_after(position)]
        return entry.tokens - context.history.get_rewrite_cache(_clear_text).apply(entry)[1]

    def _clear_result(self, context: Context, position: int) -> None:
        index = context.find_index(position)
        if index is None or context.entries[index].message.role != "tool":
            return
        # Without its arguments the call cannot be repeated to fetch the result again.
        form = Form.REWRITTEN if self.clear_tool_inputs else Form.STUB
        context.rewrite(index, _clear_text, form)
        call = context.history.calls_by_result.get(position)
        asked = context.find_index(context.history.unit_starts[position])
        if self.clear_tool_inputs and call is not None and asked is not None:
            message = context.entries[asked].message
            given = message.tool_calls
            calls = tuple(ToolCall(c.id, c.name) if c.id == call.id else c for c in given)
            context.replace(asked, message.replace(tool_calls=calls), Form.REWRITTEN)


def _clear_text(message: Message, _: ToolCall | None) -> Message:
    """Return a copy of a tool result with a placeholder as its content."""
    return with_text(message, _CLEARED_TEXT)


def _edit_setting(edit: str, parameter: str, value: str, note: str = "", **tried: Any) -> Setting:
    """Return the setting of a parameter of an edit in the body of a request."""
    place = f"{edit} in context_management.edits"
    return Setting(parameter, "json", place, parameter, value, note, **tried)


_CLEARING = "clear_tool_uses_20250919"
_TOKENS_VALUE = '{"type": "input_tokens", "value": {value}}'
_USES_VALUE = '{"type": "tool_uses", "value": {value}}'


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "anthropic.clear_tool_uses",
        clear_tool_uses(),
        "Claude API, clear_tool_uses_20250919 (beta context-management-2025-06-27), as documented "
        "on 2026-11-26",
        "https://platform.claude.com/docs/en/build-with-claude/context-editing",
        "Above 100,000 input tokens, the oldest tool results are cleared and the newest 3 are kept. "
        "The placeholder that the server inserts is not documented. It is also not documented "
        "whether the server remembers which results it cleared; ctxlab computes each request from "
        "the whole conversation, unless sticky=True. ctxlab never sends thinking blocks, so "
        "clear_thinking_20251015 has no baseline.",
        settings=(
            _edit_setting(
                _CLEARING, "trigger", _TOKENS_VALUE, "or a number of tool uses", threshold="tokens"
            ),
            _edit_setting(_CLEARING, "keep", _USES_VALUE, alternatives=()),
            _edit_setting(_CLEARING, "clear_at_least", _TOKENS_VALUE, alternatives=(20_000,)),
            _edit_setting(_CLEARING, "exclude_tools", "{json}"),
            _edit_setting(
                _CLEARING, "clear_tool_inputs", "{json}", "or names of tools", alternatives=()
            ),
            *unavailable("sticky", note="not documented"),
        ),
    ),
    Baseline(
        "anthropic.compaction",
        fresh_start(trigger=150_000),
        "Claude API, compact_20260112 (beta compact-2026-01-12), as documented on 2026-11-26",
        "https://platform.claude.com/docs/en/build-with-claude/compaction-threshold",
        "At 150,000 input tokens, one summary replaces everything except the system prompt. The API "
        "rejects a trigger below 50,000 tokens and returns the summary as a block of an assistant "
        "message. ctxlab accepts any trigger and inserts the summary as a user message.",
        settings=(
            _edit_setting(
                "compact_20260112",
                "trigger",
                _TOKENS_VALUE,
                "50,000 tokens or more",
                alternatives=(50_000, 75_000, 100_000, 125_000),
            ),
            *unavailable("summary_tokens", "model", note="of ctxlab"),
        ),
    ),
)
