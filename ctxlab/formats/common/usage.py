"""Parsers for the billed usage in the shapes of APIs and libraries.

If a shape includes cached tokens in the prompt, they are subtracted from ``input``. Shapes of a
single product are parsed by its reader.
"""

from __future__ import annotations

from typing import Any

from ctxlab.formats.fields import get_count
from ctxlab.messages.types import Usage

_SERVICE_TIER_PREFIXES = ("", "priority_", "flex_")


def openai_usage(value: Any) -> Usage | None:
    """Parse usage in the shape of OpenAI and LiteLLM.

    Prompt tokens include cached tokens, and completion tokens include reasoning.

    Parameters
    ----------
    value : Any
        The logged usage.

    Returns
    -------
    Usage or None
        The usage, or None if the value is not an object.

    Examples
    --------
    >>> openai_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    read = get_count(value, "prompt_tokens_details", "cached_tokens")
    written = get_count(value, "cache_creation_input_tokens")
    return Usage(
        input=max(get_count(value, "prompt_tokens") - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=get_count(value, "completion_tokens"),
        reasoning=get_count(value, "completion_tokens_details", "reasoning_tokens"),
    )


def anthropic_usage(value: Any) -> Usage | None:
    """Parse usage in Anthropic's shape, where ``input_tokens`` excludes cached tokens.

    Parameters
    ----------
    value : Any
        The logged usage.

    Returns
    -------
    Usage or None
        The usage, or None if the value is not an object.

    Examples
    --------
    >>> anthropic_usage({"input_tokens": 5, "cache_read_input_tokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=0, reasoning=0)
    """
    if not isinstance(value, dict):
        return None
    return Usage(
        input=get_count(value, "input_tokens"),
        cache_read=get_count(value, "cache_read_input_tokens"),
        cache_write=get_count(value, "cache_creation_input_tokens"),
        output=get_count(value, "output_tokens"),
    )


def detect_usage(value: Any) -> Usage | None:
    """Parse usage in the shape of OpenAI, Anthropic or Bedrock, detected by its keys.

    Parameters
    ----------
    value : Any
        The logged usage.

    Returns
    -------
    Usage or None
        The usage, or None if the value has none of these shapes.

    Examples
    --------
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
            input=get_count(value, "inputTokens"),
            cache_read=get_count(value, "cacheReadInputTokens"),
            cache_write=get_count(value, "cacheWriteInputTokens"),
            output=get_count(value, "outputTokens"),
        )
    return anthropic_usage(value) if value.keys() & {"input_tokens", "output_tokens"} else None


def langchain_usage(value: Any) -> Usage | None:
    """Parse LangChain's ``usage_metadata``, where input tokens include cached tokens.

    Parameters
    ----------
    value : Any
        The logged usage.

    Returns
    -------
    Usage or None
        The usage, or None if the value does not have this shape.

    References
    ----------
    langchain-core 1.8.2, ``UsageMetadata``.

    Examples
    --------
    >>> langchain_usage({"input_tokens": 9, "output_tokens": 1,
    ...                  "input_token_details": {"cache_read": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0)
    """
    if not isinstance(value, dict) or not value.keys() & {"input_tokens", "output_tokens"}:
        return None
    told, thought = value.get("input_token_details"), value.get("output_token_details")
    # The name may have the service tier as prefix: priority_cache_read.
    read = max(get_count(told, f"{tier}cache_read") for tier in _SERVICE_TIER_PREFIXES)
    # If the parts of the cache write are known, langchain-anthropic sets the total to 0.
    parts = (get_count(told, f"ephemeral_{age}_input_tokens") for age in ("5m", "1h"))
    written = get_count(told, "cache_creation") or sum(parts)
    return Usage(
        input=max(get_count(value, "input_tokens") - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=get_count(value, "output_tokens"),
        reasoning=max(get_count(thought, f"{tier}reasoning") for tier in _SERVICE_TIER_PREFIXES),
    )
