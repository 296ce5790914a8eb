"""Parsing of billed token counts."""

from __future__ import annotations

from typing import Any

import pytest

from ctxlab.formats.common.usage import anthropic_usage, langchain_usage
from ctxlab.messages.openai_format import message_from_row, row_from_message
from ctxlab.messages.types import Message, Usage

_LIFETIMES = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}


@pytest.mark.parametrize(
    "usage",
    [
        anthropic_usage(
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 100,
                "cache_creation": _LIFETIMES,
                "output_tokens": 8,
            }
        ),
        langchain_usage(
            {"input_tokens": 103, "output_tokens": 8, "input_token_details": _LIFETIMES}
        ),
    ],
)
def test_cache_writes_for_an_hour_are_counted_within_all_cache_writes(usage: Any) -> None:
    assert usage == Usage(3, cache_write=100, output=8, cache_write_1h=70)
    assert usage.total_input == 103


def test_more_cache_writes_for_an_hour_than_cache_writes_are_limited_to_them() -> None:
    logged = {"cache_creation_input_tokens": 5, "cache_creation": _LIFETIMES}
    assert anthropic_usage(logged) == Usage(cache_write=5, cache_write_1h=5)


def test_the_lifetime_of_cache_writes_is_stored() -> None:
    said = Message("assistant", "hi", usage=Usage(cache_write=9, cache_write_1h=4))
    assert message_from_row(row_from_message(said)) == said
    assert "cache_write_1h" not in row_from_message(Message("assistant", usage=Usage(1)))["usage"]
