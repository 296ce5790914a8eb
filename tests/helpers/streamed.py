"""Convert an answer to server-sent events in OpenAI's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PIECE = 12
"""Default number of characters of text or arguments in a piece."""


def cut(text: str, pieces: tuple[str, ...] | int | None) -> list[str]:
    """Split a string into pieces; ``pieces`` is the pieces themselves, their length, or None."""
    if isinstance(pieces, tuple):
        return list(pieces)
    size = pieces or PIECE
    return [text[at : at + size] for at in range(0, len(text), size)]


def events(
    said: dict[str, Any], pieces: tuple[str, ...] | int | None, usage: bool
) -> Iterator[str]:
    """Yield the data of each event: role, reasoning, text and calls in pieces, finish reason, usage.

    The last event is ``[DONE]``. ``said`` is the answer without streaming. ``usage`` is True if the
    request asks for the usage.
    """
    base = {k: said[k] for k in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    message, finish = said["choices"][0]["message"], said["choices"][0]["finish_reason"]

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return json.dumps({**base, "choices": [choice], **({"usage": None} if usage else {})})

    yield chunk({"role": "assistant", "content": "" if message["content"] is not None else None})
    for piece in cut(message.get("reasoning_content") or "", None):
        yield chunk({"reasoning_content": piece})
    for piece in cut(message["content"] or "", pieces):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        head = {"id": call["id"], "type": "function"}
        named = {"name": function["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, **head, "function": named}]})
        for piece in cut(function["arguments"], pieces if isinstance(pieces, int) else None):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, finish)
    if usage:
        yield json.dumps({**base, "choices": [], "usage": said["usage"]})
    yield "[DONE]"
