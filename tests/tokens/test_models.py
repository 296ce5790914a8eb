"""Tests of ``ctxlab.tokens.models``."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Usage
from ctxlab.tokens.encodings import litellm_folder
from ctxlab.tokens.model_families import CACHE_RULES, MODEL_FAMILIES
from ctxlab.tokens.models import (
    CachePolicy,
    Model,
    ModelWarning,
    _from_table,
    _load_price_table,
    find_model,
)
from ctxlab.tokens.prices import Prices, PriceTier

needs_litellm = pytest.mark.skipif(litellm_folder() is None, reason="litellm is not installed")


def silently(name: str) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_model(name)


def run(program: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


@needs_litellm
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("gpt-4o", 128_000),
        ("gpt-5", 272_000),
        ("openai/gpt-4o", 128_000),
        ("GPT-4o", 128_000),
        ("  gpt-4o ", 128_000),
        ("gpt-4o-latest", 128_000),
        ("gemini-3-flash-preview", 1_048_576),
        ("openrouter/google/gemini-3-flash-preview", 1_048_576),
        ("openrouter/google/gemini-2.5-pro:free", 1_048_576),
        ("vertex_ai/gemini-2.5-flash@001", 1_048_576),
        ("openrouter/anthropic/claude-haiku-4.5:beta", 200_000),
        ("claude-haiku-4-5-latest", 200_000),
        ("claude-3-5-sonnet-20241022", 200_000),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("deepseek-chat", 131_072),
        ("moonshotai/kimi-k2.5", 262_144),
        ("ollama/llama3", 8192),
    ],
)
def test_a_name_is_found_in_litellms_table_behind_prefixes_and_suffixes(
    name: str, limit: int
) -> None:
    model = find_model(name)
    assert (model.limit, model.source, model.name) == (limit, "litellm", name)


@needs_litellm
def test_the_most_literal_spelling_answers_first() -> None:
    assert find_model("azure/eu/gpt-4o-2024-08-06").listed_as == "azure/eu/gpt-4o-2024-08-06"
    assert find_model("openai/gpt-4o-2024-08-06").listed_as == "gpt-4o-2024-08-06"
    assert find_model("gemini/gemini-2.5-flash").listed_as == "gemini/gemini-2.5-flash"


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[str], Model]:
    """Return a look-up in a small table in the format of litellm's model table."""
    chat = {"mode": "chat", "litellm_provider": "maker", "max_input_tokens": 100}
    price = {"input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6}
    read = {"cache_read_input_token_cost": 1e-6}
    table: dict[str, Any] = {
        "sample_spec": {"mode": "one of: chat, embedding", "max_input_tokens": "a number"},
        "plain": {**chat, **price, "max_output_tokens": 50},
        "gemini/homely": {**chat, **price},
        "Dated-2.5": {**chat, **price},
        "embedder": {**chat, **price, "mode": "embedding"},
        "gateway/known": {**price, "mode": "chat", "max_tokens": 7},
        "known": {**chat, **price},
        "unpriced": chat,
        "tiered": {
            **chat,
            "tiered_pricing": [
                {"input_cost_per_token": 3e-6, "range": [9.0, 20]},
                {**price, "range": [0, 9]},
            ],
        },
        "untold": {**chat, **price, "tiered_pricing": [{"input_cost_per_token": 1e-6}]},
        "stepped": {
            **chat,
            **price,
            **read,
            "input_cost_per_token_above_128k_tokens": 3e-6,
            "output_cost_per_token_above_256k_tokens": 9e-6,
            "cache_creation_input_token_cost_above_1hr_above_128k_tokens": 7e-6,
            "input_cost_per_token_above_128k_tokens_priority": 9.0,
        },
        "inclusive": {
            **chat,
            **price,
            "litellm_provider": "xai",
            "input_cost_per_token_above_200k_tokens": 3e-6,
        },
        "zero-write": {**chat, **price, **read, "cache_creation_input_token_cost": 0.0},
        "cheap-write": {**chat, **price, **read, "cache_creation_input_token_cost": 1e-6},
        "dear-write": {**chat, **price, **read, "cache_creation_input_token_cost": 2.5e-6},
        "own-minimum": {**chat, **price, **read, "prompt_cache_min_tokens": 4096.0},
    }
    (tmp_path / "model_prices_and_context_window_backup.json").write_bytes(
        msgspec.json.encode(table)
    )

    def find(name: str) -> Model:
        model = _from_table(name, _load_price_table(tmp_path))
        assert model is not None, name
        return model

    return find


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("plain", "plain"),
        ("PLAIN ", "plain"),
        ("a/b/plain", "plain"),
        ("google/homely", "gemini/homely"),
        ("a/homely:free", "gemini/homely"),
        ("dated-2-5", "Dated-2.5"),
        ("dated-2.5-2025-01-31", "Dated-2.5"),
        ("dated-2.5-20250131", "Dated-2.5"),
        ("dated-2.5-0131", "Dated-2.5"),
        ("dated-2.5-latest", "Dated-2.5"),
        ("dated-2.5@001", "Dated-2.5"),
        ("a/dated-2.5-latest:free", "Dated-2.5"),
        ("gateway/known", "known"),  # an entry without max_input_tokens gives no limit
    ],
)
def test_an_entry_answers_to_every_spelling(
    name: str, entry: str, listed: Callable[[str], Model]
) -> None:
    model = listed(name)
    assert (model.name, model.listed_as, model.limit) == (name, entry, 100)
    assert (model.source, model.provider) == ("litellm", "maker")


def test_an_entry_that_does_not_chat_does_not_answer(listed: Callable[[str], Model]) -> None:
    model = listed("a/embedder")
    assert model.source == "default"
    assert "with mode embedding, not as a chat model" in str(model.warning)


def test_a_cache_without_a_price_costs_what_input_costs(listed: Callable[[str], Model]) -> None:
    assert listed("plain").prices == Prices(2e-6, 4e-6, 2e-6, 2e-6)
    assert listed("plain").cache == CachePolicy()


@pytest.mark.parametrize(
    ("name", "price"),
    [("zero-write", 2e-6), ("cheap-write", 2e-6), ("dear-write", 2.5e-6)],
)
def test_a_written_token_is_never_cheaper_than_an_input_token(
    name: str, price: float, listed: Callable[[str], Model]
) -> None:
    prices = listed(name).prices
    assert (prices.cache_read, prices.cache_write) == (1e-6, price)


def test_prices_by_range_start_with_that_of_the_shortest_prompts(
    listed: Callable[[str], Model],
) -> None:
    dearer = PriceTier(3e-6, 0.0, 3e-6, 3e-6, start=10)
    assert listed("tiered").prices == Prices(2e-6, 4e-6, 2e-6, 2e-6, above=(dearer,))
    assert listed("untold").prices == listed("plain").prices


def test_what_a_price_for_long_prompts_leaves_out_is_that_of_shorter_ones(
    listed: Callable[[str], Model],
) -> None:
    assert listed("stepped").prices.above == (
        PriceTier(3e-6, 4e-6, 1e-6, 3e-6, 7e-6, start=128_001),
        PriceTier(3e-6, 9e-6, 1e-6, 3e-6, 7e-6, start=256_001),
    )
    assert [tier.start for tier in listed("inclusive").prices.above] == [200_000]


def test_a_family_that_is_known_to_ask_more_for_long_prompts_does_so() -> None:
    (dearer,) = find_model("my/gemini-9-ultra").prices.above
    assert dearer == PriceTier(2.5e-6, 15e-6, 0.25e-6, 2.5e-6, start=200_001)
    assert find_model("my/gemini-9-flash").prices.above == ()


def test_an_entry_without_a_price_says_that_no_cost_is_known(
    listed: Callable[[str], Model],
) -> None:
    assert listed("unpriced").prices == Prices()
    assert "its cost is unknown" in str(listed("unpriced").warning)
    assert listed("plain").warning is None


def test_the_tables_own_cache_minimum_comes_first(listed: Callable[[str], Model]) -> None:
    assert listed("own-minimum").cache == CachePolicy("automatic", 4096, 128, 300)


def test_the_reply_has_a_default_within_the_limit(listed: Callable[[str], Model]) -> None:
    assert (listed("plain").max_output, listed("known").max_output) == (50, 100)


@needs_litellm
def test_prices_are_usd_for_one_token() -> None:
    prices = find_model("gpt-4o").prices
    assert prices == Prices(2.5e-6, 10e-6, 1.25e-6, 2.5e-6)


@needs_litellm
def test_every_chat_entry_of_the_table_answers_for_itself() -> None:
    folder = litellm_folder()
    assert folder is not None
    table = msgspec.json.decode(
        (folder / "model_prices_and_context_window_backup.json").read_bytes(),
        type=dict[str, dict[str, object]],
    )
    for name, entry in table.items():
        limit = entry.get("max_input_tokens")
        if entry.get("mode") in ("chat", "responses", "completion") and limit:
            model = find_model(name)
            assert (model.limit, model.source) == (limit, "litellm"), name


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("gpt-4o-2099-preview", 128_000),
        ("my/gemini-9-ultra", 1_048_576),
        ("claude-next", 200_000),
        ("llama-3.1-405b-base", 128_000),
        ("Meta-Llama-3-8B-Unknown", 8192),
        ("my-mistral-tune", 32_768),
        ("qwen3-unheard-of", 131_072),
        ("deepseek-unheard-of", 131_072),
        ("kimi-unheard-of", 131_072),
        ("grok-unheard-of", 131_072),
    ],
)
def test_a_name_outside_the_table_gets_its_familys_figures(name: str, limit: int) -> None:
    model = find_model(name)
    assert (model.limit, model.source) == (limit, "built-in")
    assert "its family" in str(model.warning)


def test_an_unknown_name_gets_a_default_and_one_warning() -> None:
    with pytest.warns(ModelWarning, match=r"who-knows-7.*128,000") as caught:
        model = find_model("who-knows-7")
    assert [w.filename for w in caught] == [__file__]
    assert (model.source, model.limit, model.prices) == ("default", 128_000, Prices())
    assert model.cache.kind == "none"
    assert str(caught[0].message) == model.warning
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_model("who-knows-7") is model


def test_a_known_name_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_model("gpt-4o-mini")
        find_model("claude-next")


@needs_litellm
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("claude-sonnet-4-5", CachePolicy("explicit", 1024, 1, 300, 3600)),
        ("claude-opus-4-5", CachePolicy("explicit", 4096, 1, 300, 3600)),
        ("claude-haiku-4-5", CachePolicy("explicit", 4096, 1, 300, 3600)),
        ("claude-3-haiku-20240307", CachePolicy("explicit", 2048, 1, 300, 3600)),
        ("gpt-4o", CachePolicy("automatic", 1024, 128, 300)),
        ("deepseek-chat", CachePolicy("automatic", 64, 64, 3600)),
        ("gemini-2.5-flash", CachePolicy("automatic", 2048, 1, 300)),
        ("gemini-3-flash-preview", CachePolicy("automatic", 4096, 1, 300)),
        ("gpt-4-turbo", CachePolicy()),
        ("ollama/llama3", CachePolicy()),
    ],
)
def test_a_prompt_cache_works_as_its_provider_publishes(name: str, policy: CachePolicy) -> None:
    assert find_model(name).cache == policy


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5",
        "claude-haiku-4-5",
        "claude-next",  # a family
        "vercel_ai_gateway/anthropic/claude-opus-4",  # listed without this price
    ],
)
def test_claude_keeps_a_prefix_for_an_hour_at_twice_the_input_price(name: str) -> None:
    model = find_model(name)
    assert model.cache.long_lifetime == 3600
    assert model.prices.cache_write_1h == pytest.approx(2 * model.prices.input)


@needs_litellm
def test_a_provider_without_a_second_lifetime_has_one_write_price() -> None:
    model = find_model("gpt-4o")
    assert model.cache.long_lifetime == 0
    assert model.prices.cache_write_1h == model.prices.cache_write


@given(st.integers(0, 10**7))
def test_a_cache_serves_whole_units_of_a_long_enough_prefix(prefix: int) -> None:
    for _, kind, minimum, granularity, *lifetimes in CACHE_RULES:
        served = CachePolicy(kind, minimum, granularity, *lifetimes).cached_tokens(prefix)
        assert served % granularity == 0
        assert (served == 0) if prefix < minimum else (prefix - granularity < served <= prefix)
    assert CachePolicy().cached_tokens(prefix) == 0


@given(st.text())
def test_any_text_is_a_name(name: str) -> None:
    model = silently(name)
    assert model.name == name
    assert model.limit > 0
    assert model.max_output > 0
    for rates in model.prices.tiers:
        assert all(price >= 0 for price in msgspec.structs.astuple(rates)[:4])
    assert model is silently(name)


@given(
    st.lists(
        st.sampled_from(
            ["openrouter", "google", "gpt-4o", "claude", "-latest", ":x", "@1", "/", "."]
        )
    ).map("".join)
)
def test_any_name_made_of_the_usual_pieces_is_answered(name: str) -> None:
    assert silently(name).limit > 0


def test_the_built_in_families_are_well_formed() -> None:
    for pattern, provider, limit, output, plain, reply, read, write in MODEL_FAMILIES:
        re.compile(pattern)
        assert provider
        assert 0 < output <= limit
        assert (plain is None) == (reply is None)
        assert read is None or (plain is not None and read < plain)
        assert write is None or read is not None


def test_a_model_is_frozen_and_hashable_by_value() -> None:
    model = find_model("gpt-4o")
    assert hash(model) == hash(msgspec.structs.replace(model))
    with pytest.raises(AttributeError):
        model.limit = 1  # type: ignore[misc]


def test_litellm_is_read_and_not_imported() -> None:
    run(
        "import sys, ctxlab.tokens.models as m; m.find_model('gpt-4o'); m.find_model('unheard of');"
        "assert not [n for n in sys.modules if n.split('.')[0] == 'litellm']"
    )


def test_without_litellm_the_families_answer() -> None:
    run(
        "import sys; sys.modules['litellm'] = None\n"
        "from ctxlab.tokens.models import find_model\n"
        "model = find_model('openrouter/google/gemini-3-flash-preview')\n"
        "assert (model.source, model.limit) == ('built-in', 1_048_576), model\n"
        "assert find_model('unheard of').source == 'default'"
    )


def test_a_call_costs_what_each_kind_of_token_costs() -> None:
    prices = Prices(1.0, 10.0, cache_read=0.1, cache_write=2.0)
    assert prices.cost(Usage(3, 20, 4, 5, reasoning=2)) == 3 + 2 + 8 + 50
    assert prices.cost(Usage()) == 0


def test_a_call_without_known_prices_has_no_known_cost() -> None:
    assert math.isnan(Prices().cost(Usage(1)))
