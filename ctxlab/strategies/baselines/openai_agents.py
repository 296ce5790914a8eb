"""Baseline of the OpenAI Agents SDK, which trims large tool outputs of older turns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import ContentPart
from ctxlab.strategies.base import tool_result_positions
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.settings import Setting, arguments
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class tool_output_trimmer(BaselineStrategy):
    r"""Replaces large tool outputs of older turns by a header and a preview.

    The header contains the name of the tool, which is found by the call id. If several calls have
    the same id, the name is that of the newest one. A new call may therefore change the header of an
    old preview. The SDK does the same.

    Source: OpenAI Agents SDK, ``ToolOutputTrimmer``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> call = Message("assistant", None, tool_calls=(ToolCall("c1", "grep"),))
    >>> result = Message("tool", "match " * 200, tool_call_id="c1")
    >>> talk = [Message("user", "find it"), call, result, Message("user", "and?")]
    >>> context = Context(Budget(4000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(4)
    >>> tool_output_trimmer(recent_turns=1, preview_chars=9)(context).messages[2].content
    '[Trimmed: grep output — 1200 chars → 9 char preview]\nmatch mat...'
    """

    positive = ("recent_turns", "max_output_chars")
    recent_turns: int = 2
    "number of newest turns whose outputs are not trimmed"
    max_output_chars: int = 500
    "maximum number of characters of an output that is not trimmed"
    preview_chars: int = 200
    "number of characters that a preview shows"
    trimmable_tools: tuple[str, ...] | None = None
    "names of tools whose outputs may be trimmed; None: all tools"

    def __call__(self, context: Context, /) -> Context:
        """Replace large tool outputs of older turns by a header and a preview."""
        names: _ToolNames = context.strategy_state.setdefault(self, _ToolNames())
        renamed, history = names.update(context), context.history
        newest = bisect_left(history.user_positions, context.history_length) - self.recent_turns
        results = tool_result_positions(context)
        upto = bisect_left(results, history.user_positions[newest]) if newest >= 0 else 0
        for position in (*renamed, *results[names.processed_results : upto]):
            self._trim(context, position, names)
        names.processed_results = max(names.processed_results, upto)
        return context

    def _trim(self, context: Context, position: int, names: _ToolNames) -> None:
        index, message = context.find_index(position), context.history[position]
        if index is None or context.entries[index].message.role != "tool":
            return
        name = names.by_call_id.get(message.tool_call_id or "")
        names.processed_positions.setdefault(message.tool_call_id or "", []).append(position)
        if self.trimmable_tools is not None and name not in self.trimmable_tools:
            shorter = None
        elif isinstance(message.content, tuple):
            shorter = self._preview_parts(message.content, name or "unknown_tool")
        else:
            shorter = self._preview_text(message.text, name or "unknown_tool")
        wanted = message if shorter is None else with_text(message, shorter)
        if wanted != context.entries[index].message:
            context.replace(index, wanted, Form.TRUNCATED)

    def _preview_text(self, text: str, name: str) -> str | None:
        """Return the preview of an output; None if the output is short or the preview is not shorter."""
        size = len(text)
        header = f"[Trimmed: {name} output — {size} chars → {self.preview_chars} char preview]"
        shorter = f"{header}\n{text[: self.preview_chars]}..."
        return shorter if size > self.max_output_chars and len(shorter) < size else None

    def _preview_parts(self, parts: tuple[ContentPart, ...], name: str) -> str | None:
        """Return the preview of an output with several parts; None if it is not to be trimmed.

        The preview has up to ``max_output_chars`` characters.
        """
        values = [_part_strings(part) for part in parts]
        if not parts or None in values:
            return None
        most = self.max_output_chars
        size = sum(len(text) for strings in values for text in strings or ())
        if size <= most:
            return None
        least = "[Trimmed]"
        if most < len(least):
            return least[:most]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        shown = min(len(text), self.preview_chars, max(0, most - len(least) - 1))
        body = f"\n{text[:shown]}" if shown else ""
        if shown < len(text) and len(least) + len(body) + 3 <= most:
            body += "..."
        images = sum(part["type"] == "image_url" for part in parts)
        headers = _iter_headers(name, size, shown, text, images)
        return next(header + body for header in headers if len(header) + len(body) <= most)


def _iter_headers(name: str, size: int, shown: int, text: str, images: int) -> Iterator[str]:
    """Yield possible headers of a preview, from the most to the least informative one."""
    dropped = f"; dropped {images} input_image" if images else ""
    preview = f"; preview {shown}" if text else ""
    yield f"[Trimmed: {name}; payload {size}{preview}{dropped}]"
    if images:
        yield f"[Trimmed: {name}{dropped}]"
        yield f"[Trimmed{dropped}]"
        yield "[Trimmed: input_image]"
        yield f"[Trimmed: dropped {images} opaque]"
    yield f"[Trimmed: payload {size}]"
    yield f"[Trimmed: {name}]"
    yield "[Trimmed]"


def _part_strings(part: ContentPart) -> list[str] | None:
    """Return the strings whose lengths make up the size of a part.

    Return None for a part of a type that the SDK does not trim.
    """
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return [part["text"]]
    if part.get("type") == "image_url":
        image = part.get("image_url") or {}
        return [value for value in (image.get("url"), image.get("detail")) if value]
    return None


@dataclass
class _ToolNames:
    """Newest tool name of each call id, and the results that were already processed."""

    scanned: int = 0
    by_call_id: dict[str, str] = field(default_factory=dict)
    processed_positions: dict[str, list[int]] = field(default_factory=dict)
    "positions of the processed results, by call id"
    processed_results: int = 0
    "number of processed results"

    def update(self, context: Context) -> list[int]:
        """Add new calls; return the positions of processed results whose tool name has changed."""
        renamed: list[int] = []
        for position in range(self.scanned, context.history_length):
            for call in context.history[position].tool_calls:
                if call.name and self.by_call_id.get(call.id) != call.name:
                    self.by_call_id[call.id] = call.name
                    renamed += self.processed_positions.pop(call.id, ())
        self.scanned = context.history_length
        return list(dict.fromkeys(renamed))


_SOURCE_URL = "https://github.com/openai/openai-agents-python/blob/v0.24.0/src/agents"


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "openai_agents.tool_output_trimmer",
        tool_output_trimmer(),
        "openai-agents 0.24.0",
        _SOURCE_URL + "/extensions/tool_output_trimmer.py",
        "Tool outputs of more than 500 characters are replaced by a preview of 200 characters, "
        "except in the 2 newest turns. In a conversation with one user message, nothing is ever "
        "trimmed.",
        (
            "",
            "recent_turns=1, max_output_chars=100, preview_chars=40",
            "max_output_chars=60, preview_chars=10, trimmable_tools=('Bash', 'read', 'bash')",
        ),
        settings=(
            *arguments(
                "agents.extensions",
                "ToolOutputTrimmer",
                "recent_turns",
                "max_output_chars",
                "preview_chars",
            ),
            Setting(
                "trimmable_tools",
                "python",
                "agents.extensions",
                "ToolOutputTrimmer.trimmable_tools",
                "{value}",
            ),
        ),
    ),
)
