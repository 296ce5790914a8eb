"""What a provider billed for a request is read from the shapes in which APIs and libraries say it.

Where a shape counts cached tokens within the prompt, they are taken out of ``input``. Shapes that one
product alone writes are read by its reader.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.fields import count_or_zero, get_nested
from ctxlab.messages.types import Usage

__all__ = ["anthropic_usage", "detect_usage", "langchain_usage", "openai_usage"]

_SERVICE_TIER_PREFIXES = ("", "priority_", "flex_")


def openai_usage(value: Any) -> Usage | None:
    """From OpenAI's shape, and LiteLLM's: its prompt holds the cached, its completion the reasoning.

    >>> openai_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    read = count_or_zero(get_nested(value, "prompt_tokens_details", "cached_tokens"))
    written = count_or_zero(value.get("cache_creation_input_tokens"))
    return Usage(
        input=max(count_or_zero(value.get("prompt_tokens")) - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=count_or_zero(value.get("completion_tokens")),
        reasoning=count_or_zero(get_nested(value, "completion_tokens_details", "reasoning_tokens")),
    )


def anthropic_usage(value: Any) -> Usage | None:
    """From Anthropic's shape, whose ``input_tokens`` are those outside the cache.

    >>> anthropic_usage({"input_tokens": 5, "cache_read_input_tokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    return Usage(
        input=count_or_zero(value.get("input_tokens")),
        cache_read=count_or_zero(value.get("cache_read_input_tokens")),
        cache_write=count_or_zero(value.get("cache_creation_input_tokens")),
        output=count_or_zero(value.get("output_tokens")),
    )


def detect_usage(value: Any) -> Usage | None:
    """Return the usage from the shape whose keys it has: OpenAI's, Anthropic's or Bedrock's.

    >>> detect_usage({"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0)
    >>> detect_usage({"tokens": 5}) is None
    True
    """
    if not isinstance(value, dict):
        return None
    if "prompt_tokens" in value or "completion_tokens" in value:
        return openai_usage(value)
    if "inputTokens" in value or "outputTokens" in value:
        return Usage(
            input=count_or_zero(value.get("inputTokens")),
            cache_read=count_or_zero(value.get("cacheReadInputTokens")),
            cache_write=count_or_zero(value.get("cacheWriteInputTokens")),
            output=count_or_zero(value.get("outputTokens")),
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
    read = max(
        count_or_zero(get_nested(told, f"{tier}cache_read")) for tier in _SERVICE_TIER_PREFIXES
    )
    # Where the parts of what was written are known, langchain-anthropic sets the whole to 0.
    parts = (
        count_or_zero(get_nested(told, f"ephemeral_{age}_input_tokens")) for age in ("5m", "1h")
    )
    written = count_or_zero(get_nested(told, "cache_creation")) or sum(parts)
    return Usage(
        input=max(count_or_zero(value.get("input_tokens")) - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=count_or_zero(value.get("output_tokens")),
        reasoning=max(
            count_or_zero(get_nested(thought, f"{tier}reasoning"))
            for tier in _SERVICE_TIER_PREFIXES
        ),
    )
