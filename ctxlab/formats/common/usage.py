"""What a provider billed for a request is read from the shapes in which APIs and libraries say it.

Where a shape counts cached tokens within the prompt, they are taken out of ``input``. Shapes that one
product alone writes are read by its reader.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.optional_fields import (
    whole_number,
    within,
)
from ctxlab.messages.types import Usage

__all__ = ["anthropic_usage", "any_usage", "langchain_usage", "openai_usage"]

_TIERS = ("", "priority_", "flex_")


def openai_usage(value: Any) -> Usage | None:
    """From OpenAI's shape, and LiteLLM's: its prompt holds the cached, its completion the reasoning.

    >>> openai_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    read = whole_number(within(value, "prompt_tokens_details", "cached_tokens"))
    written = whole_number(value.get("cache_creation_input_tokens"))
    return Usage(
        input=max(whole_number(value.get("prompt_tokens")) - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=whole_number(value.get("completion_tokens")),
        reasoning=whole_number(within(value, "completion_tokens_details", "reasoning_tokens")),
    )


def anthropic_usage(value: Any) -> Usage | None:
    """From Anthropic's shape, whose ``input_tokens`` are those outside the cache.

    >>> anthropic_usage({"input_tokens": 5, "cache_read_input_tokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    return Usage(
        input=whole_number(value.get("input_tokens")),
        cache_read=whole_number(value.get("cache_read_input_tokens")),
        cache_write=whole_number(value.get("cache_creation_input_tokens")),
        output=whole_number(value.get("output_tokens")),
    )


def any_usage(value: Any) -> Usage | None:
    """Return the usage from the shape whose keys it has: OpenAI's, Anthropic's or Bedrock's.

    >>> any_usage({"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0)
    >>> any_usage({"tokens": 5}) is None
    True
    """
    if not isinstance(value, dict):
        return None
    if "prompt_tokens" in value or "completion_tokens" in value:
        return openai_usage(value)
    if "inputTokens" in value or "outputTokens" in value:
        return Usage(
            input=whole_number(value.get("inputTokens")),
            cache_read=whole_number(value.get("cacheReadInputTokens")),
            cache_write=whole_number(value.get("cacheWriteInputTokens")),
            output=whole_number(value.get("outputTokens")),
        )
    return anthropic_usage(value) if value.keys() & {"input_tokens", "output_tokens"} else None


def langchain_usage(value: Any) -> Usage | None:
    """From LangChain's ``usage_metadata``, whose input holds the cached tokens.

    Source: langchain-core 1.8.2, ``UsageMetadata``.

    >>> langchain_usage({"input_tokens": 9, "output_tokens": 1,
    ...                  "input_token_details": {"cache_read": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0)
    """
    if not isinstance(value, dict) or not value.keys() & {"input_tokens", "output_tokens"}:
        return None
    told, thought = value.get("input_token_details"), value.get("output_token_details")
    # A service tier is put before the name: priority_cache_read.
    read = max(whole_number(within(told, f"{tier}cache_read")) for tier in _TIERS)
    # Where the parts of what was written are known, langchain-anthropic sets the whole to 0.
    parts = (whole_number(within(told, f"ephemeral_{age}_input_tokens")) for age in ("5m", "1h"))
    written = whole_number(within(told, "cache_creation")) or sum(parts)
    return Usage(
        input=max(whole_number(value.get("input_tokens")) - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=whole_number(value.get("output_tokens")),
        reasoning=max(whole_number(within(thought, f"{tier}reasoning")) for tier in _TIERS),
    )
