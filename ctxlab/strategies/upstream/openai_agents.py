"""Adapter for ``ToolOutputTrimmer`` of the OpenAI Agents SDK, which shortens old tool results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.extensions import ToolOutputTrimmer
from agents.run_config import CallModelData, ModelInputData

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings


class _FilterAdapter(PeerAdapter):
    """Adapter that stores one conversation in full and filters a copy of it before each request."""

    separate_prompt = False

    def __init__(self, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        self._trimmer = ToolOutputTrimmer(**options)
        self._items: list[tuple[int, dict[str, Any]]] = []

    def add(self, position: int, block: Block) -> None:
        self._items += [(position, item) for item in _to_items(block[0])]

    def select(self) -> list[Message]:
        items: Any = [item for _, item in self._items]
        data = CallModelData(ModelInputData(items, instructions=None), agent=None, context=None)  # type: ignore[arg-type]
        filtered: Any = self._trimmer(data).input
        sent = list(self.history)
        for (position, was), item in zip(self._items, filtered, strict=True):
            if item is not was:
                sent[position] = sent[position].replace(content=item["output"])
        return sent


def _to_items(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        output = _to_output(message)
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
        return
    if message.content or not message.tool_calls:
        yield {"role": message.role, "content": message.text}
    for call in message.tool_calls:
        made = {"type": "function_call", "name": call.name, "arguments": call.arguments}
        yield {**made, "call_id": call.id}


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


FACTORIES = {"tool_output_trimmer": _FilterAdapter}
