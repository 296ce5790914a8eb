"""Parse billed token usage in the formats of several APIs and libraries."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ctxlab.formats.fields import get_count
from ctxlab.messages.types import Usage

_split = cache(lambda path: tuple(path.split(".")))
_SERVICE_TIER_PREFIXES = ("", "priority_", "flex_")


class UsageShape(NamedTuple):
    """The keys of the token counts in the usage objects of an API.

    A key in a nested object is written as a path with dots, such as ``details.cached_tokens``.
    """

    input: str
    "key of the input tokens"
    output: str
    "key of the output tokens"
    cache_read: str
    "key of the input tokens read from the prompt cache"
    cache_write: str = ""
    "key of the input tokens written to the prompt cache"
    reasoning: str = ""
    "key of the output tokens used for hidden reasoning"
    cache_write_1h: str = ""
    "key of the input tokens written to the prompt cache for an hour, which ``cache_write`` includes"
    includes_cache: bool = True
    "True if the input tokens include those read from and written to the cache"

    def parse(self, value: Any) -> Usage | None:
        """Parse a usage object that has the keys of this shape.

        Parameters
        ----------
        value : Any
            The logged usage object.

        Returns
        -------
        Usage or None
            The token counts; missing counts are 0. None if the value is not an object.
        """
        if not isinstance(value, dict):
            return None
        sent, got, read, written, thought, hour = (
            get_count(value, *_split(path)) for path in self[:6]
        )
        cached = read + written if self.includes_cache else 0
        return Usage(max(sent - cached, 0), read, written, got, thought, min(hour, written))

    def parse_billed(self, value: Any) -> Usage | None:
        """Parse a usage object, and return None if all counts are 0.

        Some agents log zeros for messages that were not billed.

        Parameters
        ----------
        value : Any
            The logged usage object.

        Returns
        -------
        Usage or None
            The token counts. None if the value is not an object or if all counts are 0.
        """
        usage = self.parse(value)
        return usage if usage != Usage() else None


openai_usage = UsageShape(
    input="prompt_tokens",
    output="completion_tokens",
    cache_read="prompt_tokens_details.cached_tokens",
    cache_write="cache_creation_input_tokens",
    reasoning="completion_tokens_details.reasoning_tokens",
).parse
"""Parse a usage object of OpenAI or LiteLLM, in which completion tokens include reasoning."""

anthropic_usage = UsageShape(
    input="input_tokens",
    output="output_tokens",
    cache_read="cache_read_input_tokens",
    cache_write="cache_creation_input_tokens",
    cache_write_1h="cache_creation.ephemeral_1h_input_tokens",
    includes_cache=False,
).parse
"""Parse a usage object of Anthropic's API, in which input tokens exclude cached tokens."""

_bedrock_usage = UsageShape(
    input="inputTokens",
    output="outputTokens",
    cache_read="cacheReadInputTokens",
    cache_write="cacheWriteInputTokens",
    includes_cache=False,
).parse


def detect_usage(value: Any) -> Usage | None:
    """Parse a usage object of OpenAI, Anthropic or Bedrock. The API is detected by its keys.

    Parameters
    ----------
    value : Any
        The logged usage object.

    Returns
    -------
    Usage or None
        The token counts. None if the value does not have the keys of one of these APIs.

    Examples
    --------
    >>> detect_usage({"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0, cache_write_1h=0)
    >>> detect_usage({"tokens": 5}) is None
    True
    """
    if not isinstance(value, dict):
        return None
    if "prompt_tokens" in value or "completion_tokens" in value:
        return openai_usage(value)
    if "inputTokens" in value or "outputTokens" in value:
        return _bedrock_usage(value)
    return anthropic_usage(value) if value.keys() & {"input_tokens", "output_tokens"} else None


def langchain_usage(value: Any) -> Usage | None:
    """Parse LangChain's ``usage_metadata``, in which input tokens include cached tokens.

    Parameters
    ----------
    value : Any
        The logged usage object.

    Returns
    -------
    Usage or None
        The token counts. None if the value has neither ``input_tokens`` nor ``output_tokens``.

    References
    ----------
    langchain-core 1.8.2, ``UsageMetadata``.

    Examples
    --------
    >>> langchain_usage({"input_tokens": 9, "output_tokens": 1,
    ...                  "input_token_details": {"cache_read": 4}})
    Usage(input=5, cache_read=4, cache_write=0, output=1, reasoning=0, cache_write_1h=0)
    """
    if not isinstance(value, dict) or not value.keys() & {"input_tokens", "output_tokens"}:
        return None
    told, thought = value.get("input_token_details"), value.get("output_token_details")
    # The name may have the service tier as prefix: priority_cache_read.
    read = max(get_count(told, f"{tier}cache_read") for tier in _SERVICE_TIER_PREFIXES)
    reasoning = max(get_count(thought, f"{tier}reasoning") for tier in _SERVICE_TIER_PREFIXES)
    # If the parts of the cache write are known, langchain-anthropic sets the total to 0.
    minutes, hour = (get_count(told, f"ephemeral_{age}_input_tokens") for age in ("5m", "1h"))
    written = get_count(told, "cache_creation") or minutes + hour
    sent = max(get_count(value, "input_tokens") - read - written, 0)
    return Usage(sent, read, written, get_count(value, "output_tokens"), reasoning, hour)
