"""The OpenAI Agents SDK's ``ToolOutputTrimmer``, run over the conversation as response items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents.extensions import ToolOutputTrimmer
from agents.run_config import CallModelData, ModelInputData

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings


def tool_output_trimmer(
    _: PeerSettings,
    recent_turns: int = 2,
    max_output_chars: int = 500,
    preview_chars: int = 200,
    trimmable_tools: Sequence[str] | None = None,
) -> _FilterAdapter:
    """Return an adapter for ``ToolOutputTrimmer``, a ``RunConfig.call_model_input_filter``.

    Parameters
    ----------
    _ : PeerSettings
        Not used.
    recent_turns : int, default 2
        Newest user messages from which on nothing is trimmed.
    max_output_chars : int, default 500
        An output with more characters than this is trimmed.
    preview_chars : int, default 200
        Characters of a trimmed output to keep.
    trimmable_tools : sequence of str, optional
        Tools whose outputs may be trimmed; None: all.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _FilterAdapter(
        ToolOutputTrimmer(recent_turns, max_output_chars, preview_chars, trimmable_tools)
    )


class _FilterAdapter:
    """One conversation; the SDK keeps it whole and filters it before each request."""

    def __init__(self, trimmer: ToolOutputTrimmer) -> None:
        self._trimmer = trimmer
        self._items: list[dict[str, Any]] = []
        self._positions: list[int] = []
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the messages with the results as the filter leaves them."""
        for position in range(self._seen, len(history)):
            for item in _to_items(history[position]):
                self._items.append(item)
                self._positions.append(position)
        self._seen = len(history)
        data = ModelInputData(input=list(self._items), instructions=None)  # type: ignore[arg-type]
        filtered: Any = self._trimmer(CallModelData(data, agent=None, context=None)).input  # type: ignore[arg-type]
        sent = list(history)
        for position, was, item in zip(self._positions, self._items, filtered, strict=True):
            if item is not was:
                sent[position] = sent[position].replace(content=item["output"])
        return sent


def _to_items(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.tool_call_id,
            "output": _to_output(message),
        }
        return
    if message.content or not message.tool_calls:
        yield {"role": message.role, "content": message.text}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }


def _to_output(message: Message) -> str | list[dict[str, Any]]:
    if not isinstance(message.content, tuple):
        return message.content or ""
    parts = []
    for part in message.content:
        if part.get("type") == "text":
            parts.append({"type": "input_text", "text": part.get("text")})
        elif part.get("type") == "image_url":
            image = part.get("image_url") or {}
            named = {"type": "input_image", "image_url": image.get("url")}
            parts.append(named | ({"detail": image["detail"]} if image.get("detail") else {}))
        else:
            parts.append(part)
    return parts
