"""An answer as server-sent events, in the shapes that OpenAI sends them in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PIECE = 12
"""Characters of text or of arguments in a piece, where a script does not say."""


def cut(text: str, pieces: tuple[str, ...] | int | None) -> list[str]:
    """A text in the pieces that a script names, in pieces of so many characters, or as it is usual."""
    if isinstance(pieces, tuple):
        return list(pieces)
    size = pieces or PIECE
    return [text[at : at + size] for at in range(0, len(text), size)]


def events(
    said: dict[str, Any], pieces: tuple[str, ...] | int | None, usage: bool
) -> Iterator[str]:
    """Each event's data: role, text, reasoning and calls piece by piece, the end, usage, ``[DONE]``.

    ``said``: the answer as it would be sent whole. ``usage``: whether it was asked for.
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
