"""Tests that the cost of a replay equals the sum over its requests, for each kind of cache."""

from __future__ import annotations

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
    "dearer when long": msgspec.structs.replace(
        find_model("claude-sonnet-4-5"),
        prices=Prices(
            3e-6,
            15e-6,
            3e-7,
            3.75e-6,
            above=(
                PriceTier(6e-6, 22e-6, 6e-7, 7.5e-6, 150),
                PriceTier(5e-6, 20e-6, 9e-7, 8e-6, 400),
            ),
        ),
        cache=CachePolicy("explicit", minimum=50, lifetime=300),
    ),
    "none": msgspec.structs.replace(find_model("gpt-4"), prices=USD, cache=CachePolicy()),
    "as sold: gpt-4o": find_model("gpt-4o"),
    "as sold: claude": find_model("claude-sonnet-4-5"),
}
TIMES = st.lists(
    st.none() | st.sampled_from([0.0, 10.0, 299.0, 300.0, 301.0, 9000.0]), min_size=6, max_size=6
)


def breakpoints(request: Sent) -> tuple[int, ...]:
    """Return the numbers of messages before the cache breakpoints of a request."""
    roles = [message.role for message in request.messages]
    system = next((i for i, role in enumerate(roles) if role != "system"), len(roles))
    return 0, system, max(len(roles) - 1, 0), len(roles)


def naive(
    prepared: PreparedRecording, sent: list[Sent], model: Model
) -> tuple[list[float], list[float]]:
    """Compute cached tokens and cost of each request by comparing it with the previous request."""
    cached, cost = [], []
    messages = prepared.recording.messages
    before: Sent | None = None
    for request in sent:
        prefix = 0
        if before is not None:
            prefix = prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
            same = 0
            for mine, other in zip(request.messages, before.messages, strict=False):
                if mine != other:
                    break
                same += 1
            if model.cache.kind == "explicit":
                same = max(mark for mark in breakpoints(before) if mark <= same)
            prefix += sum(entry.tokens for entry in request.entries[:same])
            now, then = messages[request.position].time, messages[before.position].time
            if now is not None and then is not None and now - then > model.cache.lifetime:
                prefix = 0
        served = model.cache.cached_tokens(prefix)
        tokens = prepared.counter.count_request(request.messages, prepared.recording.tools)
        rates = model.prices.rates_for(tokens)
        written = rates.cache_write if tokens >= model.cache.minimum else rates.input
        cached.append(served)
        cost.append(served * rates.cache_read + (tokens - served) * written)
        before = request
    return cached, cost


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", MODELS)
@given(
    messages=conversations(),
    strategy=strategies(),
    limit=limits(),
    gaps=TIMES,
    tools=st.sampled_from([(), TOOLS]),
)
def test_cost_is_a_loop_over_the_requests(
    name: str,
    messages: tuple[Message, ...],
    strategy: Strategy,
    limit: int,
    gaps: list[float | None],
    tools: tuple[dict[str, object], ...],
    counter: TokenCounter,
) -> None:
    clock, timed = 0.0, []
    for message, gap in zip(messages, gaps * 99, strict=False):
        clock += gap or 0.0
        timed.append(message.replace(time=None if gap is None else clock))
    prepared = PreparedRecording(Recording("r", tuple(timed), tools), counter, model=MODELS[name])
    trace, sent = run(prepared, strategy, limit)
    found = CostMetric().measure(prepared, [trace, trace])
    cached, cost = naive(prepared, sent, MODELS[name])
    for row in range(2):
        assert found["cached"][row].tolist() == cached
        np.testing.assert_allclose(found["cost_usd"][row], cost, rtol=1e-12)
    assert (found["cached"] <= np.array(trace.tokens)).all()


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
