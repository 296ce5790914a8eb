"""Tests of ``evaluate``: each cell of the grid equals a single replay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import conversations
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxlab.context.context import Context
from ctxlab.errors import CtxlabError, ModelRequestRejected, SpecError, StrategyError, UnknownName
from ctxlab.evaluation.describe import describe
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import METRICS, per_request_metric
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL
from ctxlab.evaluation.results import Results
from ctxlab.llm import CachedClient, ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import ModelWarning

LEADERBOARD = (
    *(
        "strategy",
        "limit",
        "requests",
        "tokens_mean",
        "tokens_peak",
        "tokens_total",
        "overflow_rate",
    ),
    *("invalid_rate", "cost_usd", "cached_share", "recall", "recall_far", "recall_far_low"),
    *("recall_far_high", "pointer_rate", "lost_rate"),
)


def trip(name: str, cluster: str | None = None, steps: int = 12) -> Recording:
    """Return a recording in which the last call uses a flight number from the first message."""
    messages = [Message("user", f"book flight HAT136 for trip {name}")]
    for i in range(steps):
        call = ToolCall(f"c{i}", "read", f'{{"path": "src/{name}_{i}.py"}}')
        messages.append(Message("assistant", None, tool_calls=(call,)))
        messages.append(
            Message("tool", f"src/{name}_{i + 1}.py " + "line " * 400, tool_call_id=f"c{i}")
        )
    book = ToolCall("b", "book", f'{{"flight": "HAT136", "file": "src/{name}_1.py"}}')
    messages.append(Message("assistant", None, tool_calls=(book,)))
    return Recording(name, tuple(messages), cluster=cluster)


def run(*recordings: Recording, **options: Any) -> Results:
    options = {"strategies": ("full", "sliding_window()", "nothing"), "limits": (2000,), **options}
    return evaluate(recordings, workers=1, model="gpt-4o", progress=False, **options)


def test_the_leaderboard_has_what_a_decision_needs() -> None:
    board = run(trip("a"), trip("b")).leaderboard()
    assert set(LEADERBOARD) <= set(board.columns)
    assert board["strategy"].tolist() == ["full()", "sliding_window()", "nothing()"]
    full, sliding, nothing = (board.iloc[i] for i in range(3))
    assert (full["recall"], full["recall_far"], full["lost_rate"]) == (1.0, 1.0, 0.0)
    assert full["overflow_rate"] > 0 == sliding["overflow_rate"]
    assert nothing["recall_far"] <= sliding["recall_far"] < 1
    assert (board["invalid_rate"] == 0).all()
    assert (board["requests"] == 26).all()


@pytest.mark.properties
@settings(max_examples=15)
@given(few=st.lists(conversations(), min_size=1, max_size=3), reserve=st.sampled_from([0, 20]))
def test_each_row_is_what_a_replay_alone_measures(
    few: list[tuple[Message, ...]], reserve: int, counter: TokenCounter
) -> None:
    recordings = [Recording(f"r{i}", messages) for i, messages in enumerate(few)]
    specs, limits = ("full", "observation_mask(1) | panic()", "oracle"), (150, 0.5)
    if not any(r.request_positions for r in recordings):
        return
    settings = {"strategies": specs, "limits": limits, "reserve": reserve}
    found = run(*recordings, **settings, metrics=tuple(METRICS)).requests
    rows = []
    for messages in few:
        prepared = PreparedRecording(Recording("r", messages), counter)
        for limit in limits:
            for spec in specs:
                trace = replay_trace(
                    prepared, parse_strategy(spec), prepared.make_budget(limit, reserve)
                )
                columns: dict[str, Any] = {}
                for metric in METRICS.values():
                    columns.update(metric.measure(prepared, [trace]))
                rows += [
                    (spec, limit, {name: column[0][request] for name, column in columns.items()})
                    for request in range(len(prepared.request_positions))
                ]
    assert len(found) == len(rows)
    for (_, row), (spec, limit, expected) in zip(found.iterrows(), rows, strict=True):
        assert (row["strategy"], row["limit"]) == (repr(parse_strategy(spec)), limit)
        for name, value in expected.items():
            np.testing.assert_allclose(row[name], value, atol=1e-12)


def test_a_score_is_a_ratio_of_sums_and_long_recordings_weigh_more() -> None:
    results = run(*(trip(name, steps=3 + 4 * i) for i, name in enumerate("abcde")))
    requests, board = results.requests, results.leaderboard()
    for strategy, rows in requests.groupby("strategy", observed=True):
        line = board[board["strategy"] == strategy].iloc[0]
        assert line["tokens_mean"] == pytest.approx(rows["tokens"].sum() / len(rows))
        assert line["tokens_peak"] == rows["tokens"].max()
        assert line["recall"] == pytest.approx(rows["seen"].sum() / rows["arguments"].sum())
        assert line["overflow_rate"] == pytest.approx(rows["overflow"].mean())
        each = rows.groupby("cluster", observed=True)[["seen", "arguments"]].sum()
        alike = (each["seen"] / each["arguments"]).nunique() == 1
        assert alike or line["recall_low"] <= line["recall"] <= line["recall_high"]
        assert math.isnan(line["recall_low"]) == alike
    runs = results.runs
    assert len(runs) == 15
    assert runs["tokens_total"].sum() == pytest.approx(requests["tokens"].sum())


def test_a_fraction_is_taken_of_each_recordings_own_length() -> None:
    requests = run(trip("a", steps=3), trip("b", steps=20), limits=(0.5,)).requests
    peak = requests[requests["strategy"] == "full()"].groupby("recording", observed=True)
    assert (peak["budget"].first() == (peak["tokens"].max() * 0.5).astype(int)).all()


def test_recordings_of_one_cluster_are_one_witness_and_few_give_no_interval() -> None:
    names = [(name, 3 + 4 * i) for i, name in enumerate("abcde")]
    same = run(*(trip(name, "task", steps=steps) for name, steps in names))
    own = run(*(trip(name, name, steps=steps) for name, steps in names))
    assert (same.cluster_count, own.cluster_count) == (1, 5)
    assert math.isnan(same.leaderboard()["recall_low"].iloc[1])
    assert not math.isnan(own.leaderboard()["recall_low"].iloc[1])


def test_recordings_without_a_model_call_are_listed_and_not_measured() -> None:
    quiet = Recording("quiet", (Message("user", "hi"),))
    results = run(quiet, trip("a"), quiet.__class__("empty", ()))
    assert [r["recording"] for r in results.recordings] == ["quiet", "a", "empty"]
    assert set(results.requests["recording"]) == {"a"}
    for nothing in ((quiet,), ()):
        with pytest.raises(SpecError, match="expected recordings with model calls, got none"):
            run(*nothing)


def test_recordings_without_needs_are_evaluated_too() -> None:
    chat = [Recording(n, (Message("user", "hi"), Message("assistant", "hello"))) for n in "ab"]
    board = run(*chat).leaderboard()
    assert board["recall"].isna().all()
    assert f"{HEADLINE_LABEL} cannot compare the strategies" in run(*chat).verdict()


def test_recordings_may_come_from_an_iterator_of_any_length() -> None:
    def stream() -> Iterator[Recording]:
        yield from (trip("a"), trip("b"))

    options: dict[str, Any] = {"strategies": ("full",), "limits": (0.5,), "workers": 1}
    assert evaluate(stream(), **options, progress=False).equals(
        evaluate([trip("a"), trip("b")], **options, progress=False)
    )


def test_processes_give_what_one_process_gives() -> None:
    trips = [trip(name, steps=4) for name in "abcd"]
    options: dict[str, Any] = {"strategies": ("full", "panic()", "oracle"), "limits": (0.3, 900)}
    alone = evaluate(trips, **options, workers=1, progress=False)
    assert evaluate(trips, **options, workers=2, progress=False).equals(alone)


def last_three(messages: list[Message]) -> list[Message]:
    return messages[-3:]


def test_functions_and_metrics_of_ones_own_join_in() -> None:
    @per_request_metric("tools", "tool results in the request", "messages")
    def tools(context: Context) -> float:
        return sum(m.role == "tool" for m in context.messages)

    results = run(trip("a"), strategies=("full", last_three), metrics=("usage", "validity", tools))
    board = results.leaderboard().set_index("strategy")
    assert board.loc["last_three", "tools_mean"] < board.loc["full()", "tools_mean"]
    assert board.loc["last_three", "invalid_rate"] > 0.5


def test_two_functions_of_one_name_are_told_apart_or_refused() -> None:
    try:
        board = run(trip("a"), strategies=(lambda m: m[-1:], lambda m: m[-9:])).leaderboard()
    except SpecError:
        return
    assert len(board) == 2
    assert board["strategy"].nunique() == 2
    assert (board["requests"] == 13).all()


def test_what_is_written_twice_is_measured_once() -> None:
    board = run(trip("a"), strategies=("full", "full()"), limits=(500, 500)).leaderboard()
    assert board["requests"].tolist() == [13]


def test_recordings_of_one_name_are_kept_apart_or_refused() -> None:
    try:
        results = run(trip("a"), trip("a", steps=4))
    except CtxlabError:
        return
    assert len(results.runs) == 6


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"strategies": ()}, SpecError),
        ({"limits": ()}, SpecError),
        ({"limits": (0,)}, SpecError),
        ({"limits": (-1.5,)}, SpecError),
        ({"limits": (math.nan,)}, SpecError),
        ({"limits": (math.inf,)}, SpecError),
        ({"limits": ("8q",)}, SpecError),
        ({"limits": (1.5,)}, SpecError),
        ({"limits": (None,)}, SpecError),
        ({"limits": (True,)}, SpecError),
        ({"metrics": ("speed",)}, UnknownName),
        ({"strategies": ("slide",)}, UnknownName),
        ({"strategies": (len,)}, StrategyError),
    ],
)
def test_what_is_written_wrongly_is_said_at_once(
    options: dict[str, Any], error: type[CtxlabError]
) -> None:
    with pytest.raises(error):
        run(trip("a"), **options)


def test_one_strategy_limit_or_metric_is_a_list_of_one() -> None:
    written = {"strategies": "full", "limits": "2k", "metrics": "usage"}
    listed = {"strategies": ["full"], "limits": [2000], "metrics": ["usage"]}
    assert run(trip("a"), **written).equals(run(trip("a"), **listed))
    share = run(trip("a"), strategies=("full",), limits="25%").leaderboard()
    assert list(share["limit"]) == [0.25]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("logs/", "got the path 'logs/'; pass ctxlab.load('logs/')"),
        (Path("logs"), "ctxlab.load('logs')"),
        (["a.jsonl", "b.jsonl"], "ctxlab.load('a.jsonl')"),
        (trip("a"), "pass [recording]"),
        ([1], "got int"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_recordings_is_refused_with_what_to_write(given: Any, words: str) -> None:
    for take in (evaluate, describe):
        with pytest.raises(SpecError, match=re.escape(words)):
            take(given)


def test_a_model_without_prices_has_no_cost_rather_than_none_to_pay() -> None:
    with pytest.warns(ModelWarning):
        found = evaluate(
            [trip("a"), trip("b")], ("full", "panic()"), 2000, "nobodys-model", workers=1
        )
    assert found.requests["cost_usd"].isna().all()
    assert found.leaderboard()["cost_usd"].isna().all()
    assert found.leaderboard()["cached_share"].notna().all()
    assert "$" not in found.verdict()


def test_the_manifest_holds_dearer_prices_of_long_prompts_where_there_are_any() -> None:
    told = evaluate([trip("a")], "full", 2000, "my/gemini-9", workers=1).manifest["prices"]
    dearer = {"input": 2.5e-6, "output": 15e-6, "cache_read": 0.25e-6, "cache_write": 2.5e-6}
    dearer["cache_write_1h"] = 2.5e-6
    assert told["my/gemini-9"]["above"] == [{**dearer, "start": 200_001}]
    plain = evaluate([trip("a")], "full", 2000, workers=1).manifest["prices"]
    assert "above" not in plain["gpt-5"]


ASKS = "rolling_summary(model='gpt-4o-mini') | panic()"


def test_a_refusal_says_that_what_was_answered_is_kept(tmp_path: Path) -> None:
    answers = [f"## Goal\nBook the flight, {i}." for i in range(2)]
    down = CachedClient(
        ScriptedClient(*answers, ModelRequestRejected("the model is gone")), tmp_path
    )
    with pytest.raises(
        ModelRequestRejected, match=r"^the model is gone; earlier replies are cached in "
    ):
        run(trip("a", steps=30), strategies=ASKS, client=down)
    more = CachedClient(ScriptedClient(*["## Goal\nBook it."] * 99), tmp_path)
    calls = run(trip("a", steps=30), strategies=ASKS, client=more).manifest["calls"]
    assert calls["gpt-4o-mini"]["cached"] == 2
    for client in (
        ScriptedClient(ModelRequestRejected("no")),
        CachedClient(None, tmp_path, "replay"),
    ):
        with pytest.raises(ModelRequestRejected) as caught:
            run(trip("b", steps=30), strategies=ASKS, client=client)
        assert "what was answered" not in str(caught.value)


class asks_once:
    """Strategy that ignores its budget and is therefore replayed once for all limits."""

    def __call__(self, context: Context) -> Context:
        context.record_call("small", Reply(Message("assistant", "x"), usd=0.5))
        return context


def test_a_replay_that_several_limits_share_was_asked_and_billed_once() -> None:
    results = run(trip("a"), strategies=asks_once(), limits=(2000, 4000))
    calls = results.manifest["calls"]["small"]
    assert results.leaderboard()["strategy_calls"].tolist() == [13, 13]
    assert (calls["calls"], calls["usd"]) == (13, 6.5)


def test_calls_are_told_in_the_manifest_and_what_is_kept_makes_no_other_result(
    tmp_path: Path,
) -> None:
    def once(mode: str) -> Results:
        said = ScriptedClient(*["## Goal\nBook it."] * 99)
        client = CachedClient(said, tmp_path, mode)  # type: ignore[arg-type]
        return run(trip("a", steps=30), strategies=ASKS, limits=(2000, 4000), client=client)

    first, again = once("auto"), once("replay")
    new, kept = (each.manifest["calls"]["gpt-4o-mini"] for each in (first, again))
    assert new["calls"] == kept["calls"] == kept["cached"] == first.requests["strategy_calls"].sum()
    assert new["tokens"] > kept["tokens"] == kept["usd"] == kept["attempts"] == 0
    assert first.equals(again)
