"""Tests of the cost limit: the server never bills more than allowed, even if calls fail."""

from __future__ import annotations

import math
import pickle
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talking import NOT_JSON, Action, Call, Fault, Talker, talking

from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm import (
    CachedClient,
    CostLimitedClient,
    CostLimitExceeded,
    LiteLLMClient,
    ScriptedClient,
)
from ctxlab.llm.base import Client, Embedder, Reply, Request
from ctxlab.llm.costs import CostLimit, worst_case_cost
from ctxlab.messages.types import Message, Usage
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

MODEL = "openai/gpt-4o-mini"


def question(text: str, **fields: object) -> Request:
    return Request(MODEL, (Message("user", text),), **{"max_tokens": 40, **fields})  # type: ignore[arg-type]


def billed(server: Talker) -> float:
    """Return the billed cost of answered and interrupted requests."""
    prices = find_model(MODEL).prices
    sent = [call for call in server.calls if call.outcome in ("answered", "interrupted")]
    return sum(call.prompt * prices.input + call.completion * prices.output for call in sent)


def asking(server: Talker, **settings: object) -> LiteLLMClient:
    given = {"timeout": 30.0, "delay": 0.01, "patience": 0, **settings}
    return LiteLLMClient(server.address, "sk-test", **given)  # type: ignore[arg-type]


def troubled(call: Call) -> Action:
    """Script with answers of any length and all kinds of failures."""
    chance = random.Random(call.text + str(call.number)).random()
    if chance < 0.15:
        return Fault.CUT
    if chance < 0.25:
        return NOT_JSON
    if chance < 0.4:
        return 429 if chance < 0.32 else 503
    return "word " * int(chance * 60)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_on_the_servers_bill_whatever_goes_wrong(seed: int, tmp_path: Path) -> None:
    requests = [question(f"{seed} {i} " + "word " * (i * 7 % 50)) for i in range(40)]
    bound = sum(map(worst_case_cost, requests)) / 4
    with talking(troubled) as server:
        limited = CostLimitedClient(asking(server), bound)
        with pytest.raises(CostLimitExceeded, match="raise the limit") as caught:
            CachedClient(limited, tmp_path).complete_all(requests)
        assert isinstance(caught.value, ModelRequestRejected)
        remaining = limited.cost_limit.remaining
        assert billed(server) <= (bound - remaining) * (1 + 1e-9)
        assert 0 <= remaining < max(map(worst_case_cost, requests))  # no call was refused too early
        answered = {call.text for call in server.calls if call.outcome == "answered"}
        first = len(server.calls)
        CachedClient(CostLimitedClient(asking(server), 1.0), tmp_path).complete_all(requests)
        again = {call.text for call in server.calls[first:]}
    assert answered
    assert not answered & again


def test_a_call_waits_for_those_under_way_rather_than_to_give_up(tmp_path: Path) -> None:
    requests = [question(f"{i}", max_tokens=1000) for i in range(12)]
    bound = 2.5 * worst_case_cost(requests[0])
    with talking("yes") as server:
        replies = CostLimitedClient(asking(server), bound).complete_all(requests)
        assert len(replies) == server.answered == 12
        assert server.most_at_once <= 2


def test_what_cannot_be_bounded_is_not_asked() -> None:
    with talking("yes") as server:
        client = CostLimitedClient(asking(server), 1.0)
        with pytest.raises(SpecError, match="is unknown; use a model"):
            client.complete(question("Hi", max_tokens=None))
        assert server.attempts == 0
    assert math.isnan(worst_case_cost(question("Hi", max_tokens=None)))


@pytest.mark.filterwarnings("ignore::ctxlab.tokens.models.ModelWarning")
def test_a_model_without_a_price_cannot_be_bounded() -> None:
    unknown = Request("openai/zyx-900", (Message("user", "Hi"),), max_tokens=5)
    with pytest.raises(SpecError, match="known price"):
        CostLimitedClient(ScriptedClient("x"), 1.0).complete(unknown)


def test_embeddings_are_paid_from_the_same_cost_limit() -> None:
    with talking() as server:
        client = CostLimitedClient(asking(server), 1e-6)
        client.embed("openai/text-embedding-3-small", ["few words"])
        with pytest.raises(CostLimitExceeded):
            client.embed("openai/text-embedding-3-small", ["many words " * 100])
        assert server.attempts == 1


def test_of_any_other_client_the_replies_say_what_it_took() -> None:
    reply = Reply(Message("assistant", "yes"), Usage(10, output=1), 0.4)
    client = CostLimitedClient(ScriptedClient(reply, ModelUnavailable("busy", 0), reply), 0.9)
    first, none = client.complete_all([question("1"), question("2")])
    assert isinstance(none, ModelUnavailable)
    assert first == reply
    client.complete(question("3"))
    assert client.cost_limit.spent == pytest.approx(0.8)
    assert isinstance(client, Client)
    assert isinstance(client, Embedder)


def test_a_usage_that_is_not_told_counts_at_its_worst() -> None:
    with talking("yes") as server:
        client = CostLimitedClient(asking(server), 1.0)
        client.complete(question("Hi"))
        known = client.cost_limit.spent
    assert 0 < known < worst_case_cost(question("Hi"))


def prompt_of(model: str, size: int) -> Request:
    """Return a request with ``size`` tokens by the count of ctxlab."""
    counter = TokenCounter(model)
    words = size - counter.count_request([Message("user", " word")]) + 1
    request = Request(model, (Message("user", " word" * words),), max_tokens=1000)
    assert counter.count_request(request.messages) == size
    return request


@given(size=st.integers(15_000, 45_000), parts=st.tuples(*[st.floats(0, 1)] * 3))
@settings(max_examples=30)
def test_no_request_of_any_size_costs_more_than_its_worst_case(
    size: int, parts: tuple[float, float, float]
) -> None:
    model = "dashscope/qwen3-coder-plus"  # dearer from 32,001 tokens on
    billed = int(size * (1 + parts[0] / 2))  # its vocabulary is not public
    read = int(billed * parts[1])
    write = int((billed - read) * parts[2])
    usage = Usage(billed - read - write, read, write, output=1000)
    assert find_model(model).prices.cost(usage) <= worst_case_cost(prompt_of(model, size)) + 1e-12


@pytest.mark.parametrize("off", [-1000, 0, 1])
def test_a_count_that_is_a_little_low_does_not_miss_the_dearer_prices(off: int) -> None:
    prices = find_model("gpt-5.4").prices
    (dearer,) = prices.above
    size = dearer.start + off
    found = worst_case_cost(prompt_of("gpt-5.4", size))
    assert found == pytest.approx(size * dearer.input + 1000 * dearer.output)


def test_short_prompts_are_not_bounded_by_the_prices_of_long_ones() -> None:
    plain = find_model("gpt-5.4").prices
    found = worst_case_cost(prompt_of("gpt-5.4", 1000))
    assert found == pytest.approx(1000 * plain.input + 1000 * plain.output)


@given(st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 1)), max_size=40))
def test_what_is_spent_never_passes_what_there_was(calls: list[tuple[float, float]]) -> None:
    cost_limit = CostLimit(1.0)
    for most, part in calls:
        try:
            with cost_limit.reserve(MODEL, most) as reservation:
                reservation.usd = most * part
        except CostLimitExceeded:
            assert cost_limit.spent + most > 1.0
    assert cost_limit.spent <= 1.0 + 1e-9


def test_who_is_cancelled_stops_waiting_for_the_cost_limit() -> None:
    cost_limit, cancelled = CostLimit(1.0), threading.Event()
    with cost_limit.reserve(MODEL, 0.9):
        threading.Timer(0.05, cancelled.set).start()
        with (
            pytest.raises(ModelUnavailable, match="the call was cancelled"),
            cost_limit.reserve(MODEL, 0.5, cancelled),
        ):
            pass
    assert cost_limit.spent == 0.9


def test_worker_processes_share_what_is_left() -> None:
    client = CostLimitedClient(LiteLLMClient(concurrency=4), 1.0)
    part = client.split_for_workers(4)
    assert part.cost_limit.max_usd == 0.25
    assert pickle.loads(pickle.dumps(part)).cost_limit.max_usd == 0.25
    assert CachedClient(client, "x").split_for_workers(2).client.cost_limit.max_usd == 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize("most", [-1, math.nan, math.inf])
def test_a_cost_limit_is_a_number_of_dollars(most: float) -> None:
    with pytest.raises(SpecError):
        CostLimit(most)


def test_a_bound_makes_no_other_question(tmp_path: Path) -> None:
    with talking("yes") as server:
        CachedClient(asking(server, seed=1), tmp_path).complete(question("Hi"))
        limited = CostLimitedClient(asking(server, seed=1), 1.0)
        assert CachedClient(limited, tmp_path).complete(question("Hi")).cached
