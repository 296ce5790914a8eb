"""What litellm gives back becomes a message, the tokens that were billed, and their price."""

from __future__ import annotations

from typing import Any, NamedTuple

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Usage
from ctxlab.tokens.prices import Prices

__all__ = ["BilledResponse", "build_reply", "parse_embedding", "parse_reply"]


class BilledResponse(NamedTuple):
    """What one answered HTTP request gave."""

    result: Any
    "message and finish; or vectors"
    usage: Usage
    usd: float


def parse_reply(prices: Prices, response: Any) -> BilledResponse:
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
    return build_reply(
        prices, wire, thoughts, choice.finish_reason, getattr(response, "usage", None)
    )


def build_reply(
    prices: Prices, data: dict[str, Any], reasoning: str | None, finish: str | None, usage: Any
) -> BilledResponse:
    """The same, from what an answer consists of; ``usage`` as litellm reports it."""
    data = {"role": "assistant", **data, "reasoning": reasoning or None}
    billed = _parse_usage(usage)
    return BilledResponse((message_from_dict(data), finish), billed, prices.cost(billed))


def parse_embedding(expected: int, token_price: float, response: Any) -> BilledResponse:
    """Vectors in the order of the texts; raises where there are more or fewer than ``expected``."""
    rows = sorted(response.data, key=lambda row: row["index"])
    vectors = [[float(x) for x in row["embedding"]] for row in rows]
    if len(vectors) != expected:
        raise ValueError(f"{len(vectors)} vectors came for {expected} texts")
    usage = Usage(_get_number(response.usage, "prompt_tokens"))
    return BilledResponse(vectors, usage, usage.input * token_price)


def _parse_usage(usage: Any) -> Usage:
    """As litellm reports it: ``prompt_tokens`` are all input tokens, cached ones included."""
    prompt, output = _get_number(usage, "prompt_tokens"), _get_number(usage, "completion_tokens")
    details = getattr(usage, "prompt_tokens_details", None)
    read = _get_number(details, "cached_tokens") or _get_number(usage, "cache_read_input_tokens")
    write = _get_number(details, "cache_creation_tokens")
    write = write or _get_number(usage, "cache_creation_input_tokens")
    thought = _get_number(getattr(usage, "completion_tokens_details", None), "reasoning_tokens")
    return Usage(max(prompt - read - write, 0), read, write, output, thought)


def _get_number(figures: Any, name: str) -> int:
    value = getattr(figures, name, None)
    return int(value) if isinstance(value, (int, float)) else 0
