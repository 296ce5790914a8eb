"""Tests that the cost of a replay equals the sum over its requests, for each kind of cache."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pytest
from generated import TOOLS, conversations, limits
from hypothesis import given
from hypothesis import strategies as st
from replaying import Sent, run, strategies

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.evaluation.metrics.tokens import UsageMetric
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Recording
from ctxlab.messages.types import Usage as Billed
from ctxlab.strategies import Strategy, chunked_window, full, sliding_window
from ctxlab.tokens.cache_timeline import CacheTtl, CostSettings
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import CachePolicy, Model, find_model
from ctxlab.tokens.prices import Prices, PriceTier

USD = Prices(input=2e-6, output=8e-6, cache_read=5e-7, cache_write=2e-6)
SMALL_STEPS = CachePolicy("automatic", minimum=64, granularity=16, lifetime=300)
MODELS = {
    "automatic": msgspec.structs.replace(find_model("gpt-4o"), prices=USD, cache=SMALL_STEPS),
    "explicit": msgspec.structs.replace(
        find_model("claude-sonnet-4-5"),
        prices=Prices(3e-6, 15e-6, 3e-7, 3.75e-6),
        cache=CachePolicy("explicit", minimum=50, lifetime=300),
    ),
    "explicit, two lifetimes": msgspec.structs.replace(
        find_model("claude-sonnet-4-5"),
        prices=Prices(3e-6, 15e-6, 3e-7, 3.75e-6, 6e-6),
        cache=CachePolicy("explicit", minimum=50, lifetime=300, long_lifetime=3600),
    ),
    "dearer when long": msgspec.structs.replace(
        find_model("claude-sonnet-4-5"),
        prices=Prices(
            3e-6,
            15e-6,
            3e-7,
            3.75e-6,
            above=(
                PriceTier(6e-6, 22e-6, 6e-7, 7.5e-6, start=150),
                PriceTier(5e-6, 20e-6, 9e-7, 8e-6, start=400),
            ),
        ),
        cache=CachePolicy("explicit", minimum=50, lifetime=300),
    ),
    "none": msgspec.structs.replace(find_model("gpt-4"), prices=USD, cache=CachePolicy()),
    "as sold: gpt-4o": find_model("gpt-4o"),
    "as sold: claude": find_model("claude-sonnet-4-5"),
}
TIMES = st.lists(
    st.none() | st.sampled_from([0.0, 10.0, 299.0, 300.0, 301.0, 3600.0, 9000.0]),
    min_size=6,
    max_size=6,
)


def breakpoints(request: Sent) -> tuple[int, ...]:
    """Return the numbers of messages before the cache breakpoints of a request."""
    roles = [message.role for message in request.messages]
    system = next((i for i, role in enumerate(roles) if role != "system"), len(roles))
    return 0, system, max(len(roles) - 1, 0), len(roles)


LEDGER = ("cached", "cache_write_5m", "cache_write_1h", "plain_input")


def naive(
    prepared: PreparedRecording, sent: list[Sent], model: Model, ttl: str, fixed: int
) -> list[tuple[float, ...]]:
    """Compute the ledger and cost of each request by comparing it with the previous request."""
    found: list[tuple[float, ...]] = []
    long = ttl == "1h" and model.cache.long_lifetime > 0
    lifetime = model.cache.long_lifetime if long else model.cache.lifetime
    messages = prepared.recording.messages
    before: Sent | None = None
    for request in sent:
        prefix = 0
        if before is not None:
            prefix = fixed + prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
            same = 0
            for mine, other in zip(request.messages, before.messages, strict=False):
                if mine != other:
                    break
                same += 1
            if model.cache.kind == "explicit":
                same = max(mark for mark in breakpoints(before) if mark <= same)
            prefix += sum(entry.tokens for entry in request.entries[:same])
            now, then = messages[request.position].time, messages[before.position].time
            if now is not None and then is not None and now - then > lifetime:
                prefix = 0
        served = model.cache.cached_tokens(prefix)
        tokens = fixed + prepared.counter.count_request(request.messages, prepared.recording.tools)
        rates = model.prices.rates_for(tokens)
        rest = [0, 0, 0]
        if tokens < model.cache.minimum or rates.cache_write == rates.input:
            rest[2] = tokens - served
        else:
            rest[long] = tokens - served
        prices = (rates.cache_read, rates.cache_write, rates.cache_write_1h, rates.input)
        ledger = (served, *rest)
        found.append((*ledger, sum(n * price for n, price in zip(ledger, prices, strict=True))))
        before = request
    return found


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", MODELS)
@given(
    messages=conversations(),
    strategy=strategies(),
    limit=limits(),
    gaps=TIMES,
    tools=st.sampled_from([(), TOOLS]),
    ttl=st.sampled_from(["recorded", "5m", "1h"]),
    fixed=st.sampled_from([0, 1, 70, 5000]),
)
def test_cost_is_a_loop_over_the_requests(
    name: str,
    messages: tuple[Message, ...],
    strategy: Strategy,
    limit: int,
    gaps: list[float | None],
    tools: tuple[dict[str, object], ...],
    ttl: CacheTtl,
    fixed: int,
    counter: TokenCounter,
) -> None:
    clock, timed = 0.0, []
    for message, gap in zip(messages, gaps * 99, strict=False):
        clock += gap or 0.0
        timed.append(message.replace(time=None if gap is None else clock))
    recording = Recording("r", tuple(timed), tools)
    prepared = PreparedRecording(
        recording, counter, model=MODELS[name], costs=CostSettings(ttl, fixed)
    )
    trace, sent = run(prepared, strategy, limit)
    found = CostMetric().measure(prepared, [trace, trace])
    expected = np.array(naive(prepared, sent, MODELS[name], ttl, fixed)).reshape(-1, 5).T
    for row in range(2):
        for column, values in zip(LEDGER, expected, strict=False):
            assert found[column][row].tolist() == values.tolist()
        np.testing.assert_allclose(found["cost_usd"][row], expected[-1], rtol=1e-12)
        ledger = sum(found[column][row] for column in LEDGER)
        assert (ledger == np.array(trace.tokens) + fixed).all()
        assert (found["priced_tokens"][row] == ledger).all()


def test_a_window_that_cuts_rarely_is_served_more_than_one_that_slides(
    counter: TokenCounter,
) -> None:
    talk = [
        Message(role, f"{i} " + "word " * 30) for i in range(80) for role in ("user", "assistant")
    ]
    prepared = PreparedRecording(Recording("r", tuple(talk)), counter, model=MODELS["automatic"])
    share = []
    for strategy in (sliding_window(messages=20), chunked_window(20), full()):
        trace = replay_trace(prepared, strategy, prepared.make_budget(10**6))
        share.append(CostMetric().measure(prepared, [trace])["cached"].sum() / sum(trace.tokens))
    assert share[0] < 0.2 < 0.7 < share[1] < share[2]


def test_what_a_strategy_spends_itself_is_on_its_bill(counter: TokenCounter) -> None:
    class asks_a_model:
        def __call__(self, context: Context) -> Context:
            said = Message("assistant", "a summary")
            for usage, usd in ((Billed(input=1000, output=10), 0.25), (Billed(output=5), 0.5)):
                context.record_call("small", Reply(said, usage, usd))
            return context

    talk = [
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", "c"),
        Message("assistant", "d"),
    ]
    prepared = PreparedRecording(Recording("r", tuple(talk)), counter, model=MODELS["none"])
    plain, spent = (
        replay_trace(prepared, s, prepared.make_budget(100)) for s in (full(), asks_a_model())
    )
    figures = CostMetric().measure(prepared, [plain, spent])
    np.testing.assert_allclose(figures["cost_usd"][1] - figures["cost_usd"][0], 0.75)
    assert figures["strategy_usd"].tolist() == [[0, 0], [0.75, 0.75]]
    assert UsageMetric().measure(prepared, [plain, spent])["strategy_tokens"].tolist() == [
        [0, 0],
        [1015, 1015],
    ]


CLAUDE = "claude-opus-4-5"
WORDS = "a few more words to read and to answer "


def billed_talk(
    gaps: list[float], reads: list[int], writes: list[int], long: bool = True
) -> Recording:
    """Create a recording with one request per element of the lists, and bills with these tokens."""
    clock, messages = 0.0, []
    for number, (gap, read, write) in enumerate(zip(gaps, reads, writes, strict=True)):
        clock += gap
        usage = Billed(0, read, write, output=7, cache_write_1h=write if long else 0)
        messages += [
            Message("user", f"{number} {WORDS * 40}", time=clock),
            Message("assistant", f"{number} done", time=clock, usage=usage),
        ]
    return Recording("r", tuple(messages), model=CLAUDE)


def figures_of(
    recording: Recording, costs: CostSettings, strategy: Strategy | None = None
) -> dict[str, list[float]]:
    prepared = PreparedRecording(recording, TokenCounter(CLAUDE), costs=costs)
    trace = replay_trace(prepared, strategy or full(), prepared.make_budget(10**6))
    return {k: v[0].tolist() for k, v in CostMetric().measure(prepared, [trace]).items()}


def test_a_gap_of_ten_minutes_is_served_by_a_cache_of_an_hour_only() -> None:
    talk = billed_talk([0, 600, 600], [0] * 3, [0] * 3)
    short, long = (figures_of(talk, CostSettings(ttl, 6000)) for ttl in ("5m", "1h"))
    assert (short["cold"], long["cold"]) == ([0, 1, 1], [0, 0, 0])
    assert sum(short["cached"]) == 0 < min(long["cached"][1:])
    assert sum(short["cache_write_1h"]) == sum(long["cache_write_5m"]) == 0


def test_recorded_bills_tell_the_lifetime_of_each_write() -> None:
    talk = billed_talk([0, 600, 600], [0, 9000, 9500], [9000, 500, 500], long=False)
    mixed = list(talk.messages)
    usage = Billed(0, 9000, 500, output=7, cache_write_1h=500)
    mixed[3] = mixed[3].replace(usage=usage)
    found = figures_of(msgspec.structs.replace(talk, messages=tuple(mixed)), CostSettings())
    assert [tokens > 0 for tokens in found["cache_write_1h"]] == [False, True, False]
    assert [tokens > 0 for tokens in found["cache_write_5m"]] == [True, False, True]


def test_a_request_that_was_billed_as_cold_is_cold_under_every_strategy() -> None:
    talk = billed_talk([0, 10, 10], [0, 4200, 9400], [9000, 5200, 300])
    for strategy in (full(), sliding_window(messages=2)):
        found = figures_of(talk, CostSettings(), strategy)
        assert found["cold"] == [0, 1, 0]
        assert found["cached"][1] == 4200  # what other conversations had left in the cache
    assert figures_of(talk, CostSettings("1h"))["cold"] == [0, 0, 0]


def test_what_a_first_request_read_was_left_by_others_and_at_most_the_fixed_part() -> None:
    talk = billed_talk([0, 10], [5000, 8000], [3000, 500])
    assert figures_of(talk, CostSettings())["cached"][0] == 5000
    assert figures_of(talk, CostSettings(fixed=4200))["cached"][0] == 4200


def test_the_fixed_part_comes_from_the_bills_and_every_strategy_pays_it() -> None:
    talk = billed_talk([0, 10, 10], [0, 9000, 9500], [9000, 500, 500])
    for strategy in (full(), sliding_window(messages=2)):
        without, given, recorded = (
            figures_of(talk, CostSettings(fixed=fixed), strategy) for fixed in (0, 6000, "recorded")
        )
        added = np.subtract(recorded["priced_tokens"], without["priced_tokens"])
        assert len(set(added)) == 1
        assert 8000 < added[0] < 9000  # the first bill less the tokens of the first message
        assert (np.subtract(given["priced_tokens"], without["priced_tokens"]) == 6000).all()
        assert without["cost_usd"] < given["cost_usd"] < recorded["cost_usd"]


def test_a_price_of_another_provider_takes_no_assumption_from_the_bills() -> None:
    talk = billed_talk([0, 10, 10], [0, 2000, 9400], [9000, 7400, 300])
    prepared = PreparedRecording(talk, TokenCounter("gpt-4o"))
    trace = replay_trace(prepared, full(), prepared.make_budget(10**6))
    found = CostMetric().measure(prepared, [trace])
    assert found["priced_tokens"].tolist() == [trace.tokens]
    assert not found["cold"].any()


def test_reasoning_is_paid_again_as_long_as_its_message_is_sent() -> None:
    talk = billed_talk([0, 10, 10], [0, 9000, 9500], [9000, 500, 500])
    thinking = list(talk.messages)
    thinking[1] = thinking[1].replace(reasoning=WORDS * 30)
    thought = msgspec.structs.replace(talk, messages=tuple(thinking))
    tokens = TokenCounter(CLAUDE).count_reasoning(thinking[1])

    def added(strategy: Strategy, fixed: int | Literal["recorded"]) -> list[float]:
        costs = CostSettings(fixed=fixed)
        several = (figures_of(each, costs, strategy)["priced_tokens"] for each in (thought, talk))
        more = np.subtract(*several)
        return (more - more[0]).tolist()  # the estimate of the fixed part differs, too

    assert added(full(), "recorded") == [0, tokens, tokens]
    assert added(sliding_window(messages=2), "recorded") == [0, tokens, 0]
    assert added(full(), 9000) == [0, 0, 0]


def test_output_is_the_bills_and_not_part_of_the_cost() -> None:
    talk = billed_talk([0, 10], [0, 9000], [9000, 500])
    unbilled = talk.messages[3].replace(usage=None)
    talk = msgspec.structs.replace(talk, messages=(*talk.messages[:3], unbilled))
    found = figures_of(talk, CostSettings("5m", 0))
    counted = TokenCounter(CLAUDE).count_message(unbilled)
    assert found["output"] == [7, counted]
    price = find_model(CLAUDE).prices.output
    np.testing.assert_allclose(found["output_usd"], [7 * price, counted * price])
