"""What litellm gives back becomes a message, the tokens that were billed, and their price."""

from __future__ import annotations

from typing import Any, NamedTuple

from ctxlab.messages.types import (
    Message,
    Usage,
)
from ctxlab.tokens.prices import Prices

__all__ = ["Billed", "read_embedding", "read_reply", "read_said"]


class Billed(NamedTuple):
    """What one answered HTTP request gave."""

    result: Any
    "message and finish; or vectors"
    usage: Usage
    usd: float


def read_reply(prices: Prices, response: Any) -> Billed:
    """Message and finish, usage and price; raises where there is no answer in it.

    Prices are ctxlab's, since its tables and its reports go by the same.
    """
    if not response.choices:
        raise ValueError("the answer holds no choices")
    choice = response.choices[0]
    said = choice.message
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in said.tool_calls or ()
    ]
    wire = {"content": said.content, "tool_calls": calls}
    thoughts = getattr(said, "reasoning_content", None)
    return read_said(prices, wire, thoughts, choice.finish_reason, getattr(response, "usage", None))


def read_said(
    prices: Prices, wire: dict[str, Any], thoughts: str | None, finish: str | None, usage: Any
) -> Billed:
    """The same, from what an answer consists of; ``usage`` as litellm reports it."""
    wire = {"role": "assistant", **wire, "reasoning": thoughts or None}
    billed = _usage(usage)
    return Billed((Message.from_dict(wire), finish), billed, prices.cost(billed))


def read_embedding(wanted: int, price: float, response: Any) -> Billed:
    """Vectors in the order of the texts; raises where there are more or fewer than ``wanted``."""
    rows = sorted(response.data, key=lambda row: row["index"])
    vectors = [[float(x) for x in row["embedding"]] for row in rows]
    if len(vectors) != wanted:
        raise ValueError(f"{len(vectors)} vectors came for {wanted} texts")
    usage = Usage(_number(response.usage, "prompt_tokens"))
    return Billed(vectors, usage, usage.input * price)


def _usage(usage: Any) -> Usage:
    """As litellm reports it: ``prompt_tokens`` are all input tokens, cached ones included."""
    prompt, output = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    details = getattr(usage, "prompt_tokens_details", None)
    read = _number(details, "cached_tokens") or _number(usage, "cache_read_input_tokens")
    write = _number(details, "cache_creation_tokens")
    write = write or _number(usage, "cache_creation_input_tokens")
    thought = _number(getattr(usage, "completion_tokens_details", None), "reasoning_tokens")
    return Usage(max(prompt - read - write, 0), read, write, output, thought)


def _number(figures: Any, name: str) -> int:
    value = getattr(figures, name, None)
    return int(value) if isinstance(value, (int, float)) else 0
