"""Baseline of Vercel's AI SDK, which drops empty messages and, if configured, older tool calls."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.settings import Setting

_TOOL_CALLS_PATTERN = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, repr=False)
class prune_messages(BaseStrategy):
    """Drops empty messages and, depending on ``tool_calls``, tool calls with their results.

    For ``before-last-<n>-messages``, consecutive tool results count as one message, as in the SDK.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> prune = prune_messages("before-last-4-messages")
    >>> sent = build_messages(None, talk, strategy=prune)
    >>> [m["role"] for m in sent]
    ['user', 'assistant', 'tool', 'assistant', 'tool']
    """

    tool_calls: str = "none"
    "tool calls to drop: ``none``, ``all``, ``before-last-message`` or ``before-last-<n>-messages``"
    empty_messages: str = "remove"
    "what to do with empty messages: ``remove`` or ``keep``"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a parameter has an unknown value."""
        super().__post_init__()
        if not _TOOL_CALLS_PATTERN.fullmatch(self.tool_calls):
            known = "none, all, before-last-message or before-last-<n>-messages"
            raise SpecError(f"prune_messages: tool_calls must be {known}, got {self.tool_calls!r}")
        if (empty := self.empty_messages) not in ("remove", "keep"):
            raise SpecError(f"prune_messages: empty_messages must be remove or keep, got {empty!r}")

    def __call__(self, context: Context, /) -> Context:
        """Drop empty messages and, depending on ``tool_calls``, tool calls with their results."""
        pruned, looked = context.strategy_state.get(self, (0, 0))
        end = self._prune_end(context)
        if end is not None and end > pruned:
            first, stop = context.index_at_or_after(pruned), context.index_at_or_after(end)
            while stop > first:
                start = stop - 1
                while start > first and context.entries[start].message.role == "tool":
                    start -= 1
                self._prune(context, start, stop)
                stop = start
            pruned = end
        if self.empty_messages == "remove":
            for index in range(len(context.entries) - 1, context.index_at_or_after(looked) - 1, -1):
                message = context.entries[index].message
                if not message.content and not message.tool_calls and message.role != "tool":
                    context.drop(index, index + 1)
        context.strategy_state[self] = pruned, context.history_length
        return context

    def _prune_end(self, context: Context) -> int | None:
        """Return the history position of the first message whose calls are kept.

        Return None if the calls of all messages are kept.
        """
        if self.tool_calls == "none":
            return None
        if self.tool_calls == "all":
            return context.history_length
        count = _TOOL_CALLS_PATTERN.fullmatch(self.tool_calls)
        left = int((count and count[1]) or 1)
        if not left:
            return None  # in the SDK, before-last-0-messages keeps all calls
        index = len(context.entries)
        while index and left:
            index -= 1
            role = context.entries[index].message.role
            first = not index or context.entries[index - 1].message.role != "tool"
            left -= role != "tool" or first
        if index == len(context.entries):
            return context.history_length
        return context.history.unit_starts[context.entries[index].start]

    def _prune(self, context: Context, start: int, stop: int) -> None:
        """Remove the tool calls of the message at ``start``, and the tool results before ``stop``.

        A message that has nothing but calls is dropped, unless ``empty_messages`` is ``keep``.
        """
        message = context.entries[start].message
        if message.tool_calls and (message.content or self.empty_messages == "keep"):
            context.fold(start, stop, message.replace(tool_calls=()), Form.TRUNCATED)
            return
        start += not (message.tool_calls or message.role == "tool")
        if start < stop:
            context.drop(start, stop)


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "vercel.prune_messages",
        prune_messages(),
        "Vercel AI SDK 7.0.173 (npm ai)",
        "https://unpkg.com/ai@7.0.173/src/generate-text/prune-messages.ts",
        "By default, only empty messages are dropped. If tool_calls is set, tool calls before the "
        "last messages are dropped with their results. The texts of messages are kept, so requests "
        "keep growing. Not implemented: selecting tools, and pruning reasoning, which ctxlab never "
        "sends.",
        settings=(
            Setting("tool_calls", "typescript", "ai", "pruneMessages.toolCalls"),
            Setting("empty_messages", "typescript", "ai", "pruneMessages.emptyMessages"),
        ),
    ),
)
