"""Tests of ``ctxlab.tokens.prices``: prices equal those of litellm's calculator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Usage
from ctxlab.tokens.encodings import litellm_folder
from ctxlab.tokens.models import find_model
from ctxlab.tokens.prices import Prices, PriceTier, Rates

needs_litellm = pytest.mark.skipif(litellm_folder() is None, reason="litellm is not installed")
STEPS = Prices(
    1.0,
    8.0,
    0.5,
    1.0,
    2.0,
    above=(PriceTier(2.0, 16.0, 1.0, 2.0, 3.5, 100), PriceTier(3.0, 9.0, 0.75, 4.0, 6.0, 200)),
)


@pytest.fixture
def calculator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import litellm with its bundled table of prices, without the network."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return pytest.importorskip("litellm")


@needs_litellm
@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("gemini/gemini-2.5-pro", [200_001]),
        ("vertex_ai/gemini-3-pro-preview", [200_001]),
        ("gpt-5.4", [272_001]),
        ("azure/gpt-5.4", [272_001]),
        ("xai/grok-4.3", [200_000]),
        ("bedrock/us-gov-west-1/anthropic.claude-haiku-5-5", [100_001]),
        ("dashscope/qwen3-coder-plus", [32_001, 128_001, 256_001]),
        ("dashscope/qwen-flash", [256_001]),
        ("volcengine/doubao-seed-2-0-pro-260215", [32_001, 128_001]),
        ("gpt-4o", []),
    ],
)
def test_a_request_costs_what_litellm_says_below_at_and_above_each_size(
    name: str, starts: list[int], calculator: Any
) -> None:
    prices = find_model(name).prices
    assert [tier.start for tier in prices.above] == starts
    for start in starts or [50_000]:
        for size in (start - 1, start, start + 1, 2 * start):
            for read in (0, size // 2, size):
                told = calculator.cost_per_token(
                    name,
                    prompt_tokens=size,
                    completion_tokens=700,
                    cache_read_input_tokens=read,
                )
                found = prices.cost(Usage(size - read, cache_read=read, output=700))
                assert found == pytest.approx(sum(told), rel=1e-9), (size, read)


@given(*[st.integers(0, 150)] * 5)
def test_all_tokens_of_a_request_have_the_prices_of_its_prompt(
    plain: int, read: int, written: int, for_an_hour: int, output: int
) -> None:
    prompt = plain + read + written + for_an_hour
    held: Rates = STEPS
    for tier in STEPS.above:
        held = tier if prompt >= tier.start else held
    assert STEPS.rates_for(prompt) is held
    usage = Usage(plain, read, written + for_an_hour, output, cache_write_1h=for_an_hour)
    assert STEPS.cost(usage) == pytest.approx(
        plain * held.input
        + read * held.cache_read
        + written * held.cache_write
        + for_an_hour * held.cache_write_1h
        + output * held.output
    )
