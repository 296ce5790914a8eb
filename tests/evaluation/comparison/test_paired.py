"""Tests of ``compare_strategies``: paired differences by cluster, with interval and test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.comparison.report import Comparison
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.strategies import parse_strategy

SCORES = (
    Score(HEADLINE_SCORE, "far", "share", "ratio", "far_seen", "far_arguments", True, "higher"),
    Score("cost_usd", "cost", "USD", "sum", "cost_usd", better="lower"),
    Score("tokens_mean", "mean", "tokens", "ratio", "tokens", better="lower"),
    Score("tokens_peak", "largest", "tokens", "max", "tokens", better="lower"),
)
SEEN = {"full()": 0.9, "panic()": 0.6, "tool_stubs()": 0.6}


def results(copies: int = 1, clusters: int = 12, seed: int = 0, **changes: Any) -> Results:
    """Return results on recordings of different sizes; each cluster has ``copies`` recordings."""
    random = np.random.default_rng(seed)
    rows, facts = [], []
    for cluster in range(clusters):
        size = int(random.integers(5, 40))
        draws = {name: random.binomial(size, share) for name, share in SEEN.items()}
        for copy in range(copies):
            name = f"{cluster}.{copy}"
            kind = "chat" if cluster % 2 else "code"
            facts.append({"recording": name, "cluster": str(cluster), "format": kind})
            for limit in (8000.0, 0.25):
                for strategy, seen in draws.items():
                    rows.append(
                        {"recording": name, "cluster": str(cluster), "strategy": strategy}
                        | {"limit": limit, "budget": 8000, "request": 0}
                        | {"far_seen": float(seen), "far_arguments": float(size)}
                        | {"cost_usd": size * 0.1 + len(strategy) + cluster, "tokens": 100.0 * size}
                        | changes
                    )
    frame = pd.DataFrame(rows).astype(
        dict.fromkeys(("recording", "cluster", "strategy"), "category")
    )
    return Results(frame, SCORES, {"spec": {"limits": [8000, 0.25]}}, facts)


def one(found: Comparison, score: str) -> Any:
    (row,) = (row for row in found.table.itertuples() if row.score == score)
    return row


def test_a_difference_is_that_of_the_leaderboard() -> None:
    found = results()
    board = found.leaderboard(resamples=1).set_index(["strategy", "limit"])
    for row in compare_strategies(found, "full", "panic").table.itertuples():
        a, b = (board.loc[(name, row.limit_a), row.score] for name in (row.a, row.b))
        assert (row.value_a, row.value_b) == pytest.approx((a, b))
        expected = a / b - 1 if row.relative else a - b
        assert row.difference == pytest.approx(expected)
        assert row.finding == "equal here" or row.low <= row.difference <= row.high


def test_four_trials_of_a_task_are_one_witness() -> None:
    single, four = (compare_strategies(results(copies), "full", "panic @ 8k") for copies in (1, 4))
    columns = ["difference", "low", "high", "p", "p_holm", "effect", "clusters"]
    pd.testing.assert_frame_equal(single.table[columns], four.table[columns])
    assert (four.table["recordings"] == 4 * single.table["recordings"]).all()


@pytest.mark.e2e
def test_a_clear_difference_is_found_and_chance_is_not() -> None:
    clear, chance = [], []
    for seed in range(30):
        found = compare_strategies(results(seed=seed), "full @ 8k", "panic @ 8k", "tool_stubs @ 8k",
                        scores=[HEADLINE_SCORE], resamples=1000)  # fmt: skip
        findings = list(found.table["finding"])
        clear += findings[:2]
        chance += findings[2:]
    assert clear.count("better") >= 57
    assert chance.count("unclear") >= 28  # a false alarm in thirty is no surprise


def test_a_strategy_that_does_the_same_is_equal() -> None:
    same = one(compare_strategies(results(), "panic @ 8k", "panic @ 25%"), HEADLINE_SCORE)
    assert (same.finding, same.difference, same.p) == ("equal here", 0, 1)
    assert np.isnan([same.low, same.high]).all()
    margin = compare_strategies(
        results(), "panic @ 8k", "panic @ 25%", margins={HEADLINE_SCORE: 0.1}
    )
    assert (
        one(margin, HEADLINE_SCORE).finding == "equal here"
    )  # of other recordings nothing is known


def test_few_clusters_cannot_tell_however_clear_it_looks() -> None:
    found = results(clusters=5)
    assert (
        one(compare_strategies(found, "full @ 8k", "panic @ 8k"), HEADLINE_SCORE).finding
        == "too few"
    )
    assert (
        one(compare_strategies(found, "panic @ 8k", "panic @ 25%"), HEADLINE_SCORE).finding
        == "equal here"
    )


def test_a_question_without_an_answer_counts_for_neither_side() -> None:
    found = results()
    frame = found.requests.copy()
    gone = (frame["strategy"] == "full()") & (frame["recording"].cat.codes % 2 == 0)
    frame.loc[gone, ["far_seen", "far_arguments"]] = 0
    some = compare_strategies(
        Results(frame, SCORES, found.manifest), "full @ 8k", "panic @ 8k", scores=HEADLINE_SCORE
    )
    rest = found.requests[found.requests["recording"].cat.codes % 2 == 1]
    only = compare_strategies(
        Results(rest, SCORES, found.manifest), "full @ 8k", "panic @ 8k", scores=HEADLINE_SCORE
    )
    assert some.table["left_out"].tolist() == [6]
    assert any("a value for only one of the two strategies" in note for note in some.notes)
    columns = ["value_a", "value_b", "difference", "low", "high", "p", "wins", "losses"]
    pd.testing.assert_frame_equal(some.table[columns], only.table[columns])


def test_wins_count_recordings_in_the_direction_that_is_better() -> None:
    table = compare_strategies(results(), "panic @ 8k", "full @ 8k").table.set_index("score")
    cheap, recall = table.loc["cost_usd"], table.loc[HEADLINE_SCORE]
    assert tuple(cheap[["wins", "ties", "losses"]]) == (0, 0, 12)  # its name is the longer
    assert recall["losses"] > recall["wins"]
    assert tuple(table.loc["tokens_mean"][["wins", "ties", "losses"]]) == (0, 12, 0)


def test_p_values_of_a_score_are_corrected_together() -> None:
    found = results()
    pair = one(compare_strategies(found, "full @ 8k", "panic @ 8k"), HEADLINE_SCORE)
    every = compare_strategies(found, scores=[HEADLINE_SCORE]).table
    assert len(every) == 6  # three strategies at two limits
    among = every[(every["a"] == "full()") & (every["b"] == "panic()")].iloc[0]
    assert pair.p == pair.p_holm == among["p"]
    assert among["p_holm"] > among["p"]


@pytest.mark.parametrize(
    ("margin", "said"),
    [(0.9, "worse; not worse by 0.900"), (0.001, "worse; worse by more than 0.001")],
)
def test_a_margin_says_whether_the_first_is_no_worse(margin: float, said: str) -> None:
    row = one(
        compare_strategies(results(), "panic @ 8k", "full @ 8k", margins={HEADLINE_SCORE: margin}),
        HEADLINE_SCORE,
    )
    assert row.finding == said


def test_what_lies_across_the_margin_is_not_shown_to_be_no_worse() -> None:
    row = one(compare_strategies(results(), "panic @ 8k", "full @ 8k"), HEADLINE_SCORE)
    margin = -row.difference
    again = compare_strategies(
        results(), "panic @ 8k", "full @ 8k", margins={HEADLINE_SCORE: margin}
    )
    assert "may be worse by" in one(again, HEADLINE_SCORE).finding


def test_what_is_unclear_is_said_with_the_difference_that_could_be_shown() -> None:
    pair = ("panic @ 8k", "tool_stubs @ 8k")
    found = compare_strategies(results(seed=1), *pair, scores=HEADLINE_SCORE)
    (row,) = found.table.itertuples()
    assert row.finding == "unclear"
    assert row.high - row.difference < row.detectable < row.high - row.low
    (said,) = found.sentences()
    assert said.endswith(f"; these recordings could show a difference of {row.detectable:.3f}.")


def test_recordings_of_a_kind_can_be_compared_apart() -> None:
    found = compare_strategies(
        results(), "full @ 8k", "panic @ 8k", by="format", scores=[HEADLINE_SCORE]
    )
    assert list(found.table["kind"]) == ["code", "chat"]
    assert list(found.table["clusters"]) == [6, 6]
    with pytest.raises(UnknownName, match="format"):
        compare_strategies(results(), "full", "panic", by="fromat")


def test_an_unknown_price_is_no_difference() -> None:
    found = compare_strategies(
        results(cost_usd=np.nan), "full @ 8k", "panic @ 8k", scores=["cost_usd"]
    )
    row = one(found, "cost_usd")
    assert row.finding == "unknown"
    assert np.isnan([row.difference, row.low, row.p]).all()


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    ("choices", "options", "said"),
    [
        (("full", "pannic"), {}, "did you mean panic"),
        (("full @ 9k", "panic"), {}, "not evaluated at limit 9000"),
        (("full",), {}, "two strategies"),
        (("full", "panic"), {"scores": ["recal_far"]}, "did you mean recall_far"),
        (("full", "panic"), {"scores": ["tokens_peak"]}, "tokens_peak"),
        (("full", "panic"), {"margins": {HEADLINE_SCORE: -1}}, "0 or more"),
        (("full", "panic"), {"margins": {HEADLINE_SCORE: "much"}}, "0 or more"),
        (("full", "panic"), {"margins": {"recall": 0.1}}, "did you mean recall_far"),
        (("full", "panic"), {"level": 95}, "0 < level < 1"),
        (("full", "panic"), {"resamples": 10}, "resamples >= 1000"),
    ],
)
def test_what_was_not_evaluated_or_measured_is_named(
    choices: tuple[str, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        compare_strategies(results(), *choices, **options)


def test_strategies_may_be_given_as_they_are_and_a_margin_as_it_is_written() -> None:
    found = compare_strategies(
        results(),
        parse_strategy("full"),
        parse_strategy("panic"),
        scores=HEADLINE_SCORE,
        margins={HEADLINE_SCORE: "2 %"},
    )
    assert found.table["margin"].tolist() == [0.02, 0.02]
    more = compare_strategies(
        results(), "full", "panic", scores=HEADLINE_SCORE, margins={"cost_usd": 0.05}
    )
    assert set(more.table["score"]) == {HEADLINE_SCORE, "cost_usd"}


def test_only_results_are_compared() -> None:
    with pytest.raises(SpecError, match="expected the Results of evaluate, got str"):
        compare_strategies("runs/a")  # type: ignore[arg-type]


def test_it_is_written_as_text_markdown_latex_and_html() -> None:
    found = compare_strategies(results(), "full @ 8k", "panic @ 25%")
    rows = found.rows()
    assert {len(row) for row in rows} == {len(found.headings)}
    lines = found.to_markdown().split("\n")
    assert lines[0].startswith("| a | b | score |")
    assert "full() @ 8,000" in lines[2]
    assert "panic() @ 25%" in lines[2]
    latex = found.to_latex()
    assert latex.count(r"\\") == len(rows) + 1
    assert HEADLINE_SCORE.replace("_", r"\_") in latex
    shown = found._repr_html_().partition("<details>")[0]
    assert shown.count("<tr>") == len(rows) + 1
    assert found.sentences([HEADLINE_SCORE])[0].startswith(
        f"{HEADLINE_SCORE}: full() @ 8,000 is better than panic() @ 25%: 0."
    )
    assert json.loads(found.table.to_json(orient="records"))[0]["a"] == "full()"


def test_on_tau_bench_a_task_is_one_witness(recorded: Path) -> None:
    recordings = list(load(recorded / "tau-bench"))
    found = evaluate(recordings, ["observation_mask(keep=3)", "sliding_window()"], 0.6)
    rows = compare_strategies(found, "observation_mask(keep=3)", "sliding_window").table.set_index(
        "score"
    )
    assert rows.loc["tokens_mean", "recordings"] == len(recordings) == 200
    assert rows.loc["tokens_mean", "clusters"] == 50
    assert rows.loc["recall", "low"] < rows.loc["recall", "high"]
