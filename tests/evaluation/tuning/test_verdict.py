"""Tests of the verdict of a tuning: the tuning set chooses, and the held-out set only measures."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.metrics import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.results import TuningResults
from ctxlab.evaluation.tuning.successive_halving import REFERENCE_NOTE, TrialScorer, TrialSums
from ctxlab.evaluation.verdict import choose_configuration
from ctxlab.strategies import full, sliding_window

SCORES = (
    Score("cost_usd", "cost", "USD", "sum", "cost_usd"),
    Score(HEADLINE_SCORE, "far", "share", "ratio", "far_seen", "far_arguments", interval=True),
    Score("far_arguments", "behind it", "arguments", "sum", "far_arguments"),
    Score("tokens_mean", "mean", "tokens", "ratio", "tokens"),
    Score("overflow_rate", "too large", "share", "ratio", "overflow"),
    Score("newly_invalid_rate", "refused", "share", "ratio", "newly_invalid"),
)
LIMIT = 8000.0
CHEAP, GOOD, DEAR = (f"sliding_window(tokens={n})" for n in (1, 2, 3))
Rows = list[dict[str, Any]]


def table(rows: Rows, clusters: int, full_row: dict[str, Any]) -> pd.DataFrame:
    """Return one row per cluster and configuration, of which the first is full history.

    The figures of a cluster are those of ``rows``; a list has one figure per cluster. Recall is the
    share of ten arguments.
    """
    usual = {"tokens": 9.0, "overflow": 0.0, "newly_invalid": 0.0, "cost": 1.0, "arguments": 10.0}
    every = [{"recall": 1.0, "cost": 10.0, "overflow": 1.0, **full_row}, *rows]
    table = [
        {k: v[c] if isinstance(v, list) else v for k, v in {**usual, **row}.items()}
        | {"cluster": f"c{c}", "strategy": f"sliding_window(tokens={n})" if n else "full()"}
        for c in range(clusters)
        for n, row in enumerate(every)
    ]
    frame = pd.DataFrame(table).rename(columns={"cost": "cost_usd", "arguments": "far_arguments"})
    frame["far_seen"] = frame.pop("recall") * frame["far_arguments"]
    return frame.assign(recording=frame["cluster"], limit=LIMIT, budget=LIMIT, request=0)


def measured(
    tuned: Rows, held: Rows, clusters: int = 2, tuned_full: Any = (), held_full: Any = ()
) -> TuningResults:
    """Return the results of a search whose trials are the figures of ``tuned``.

    The frontier is all of them, with the held-out figures of ``held``.
    """
    frame = table(tuned, clusters, dict(tuned_full))
    count = len(tuned) + 1
    sums = np.ones((clusters, 2, len(SCORES), count))
    for number, score in enumerate(SCORES):
        sums[:, 0, number] = frame[score.column].to_numpy().reshape(clusters, count)
        if score.per:
            sums[:, 1, number] = frame[score.per].to_numpy().reshape(clusters, count)
    configurations = [
        (full(), LIMIT),
        *((sliding_window(tokens=n), LIMIT) for n in range(1, count)),
    ]
    trials = TrialSums(
        TrialScorer(cast(Any, None), SCORES),  # nothing is replayed, so no grid is needed
        configurations,
        [f"t{c}" for c in range(clusters)],
        sums,
        [1] * count,
        [REFERENCE_NOTE, *[""] * len(tuned)],
    )
    requests = table(held, clusters, dict(held_full))
    manifest = {"tuning": {"held_out": sorted(set(requests["cluster"]))}, "spec": {}}
    return TuningResults(Results(requests, SCORES, manifest), trials)


def figures(*recalls: float) -> Rows:
    """Return configurations of rising cost with the given recall."""
    return [{"recall": recall, "cost": 1.0 + n} for n, recall in enumerate(recalls)]


NO_CHANCE = (
    "It is not compared with chance, because no random_drop row sent equally many tokens (±5%)."
)
WANTED = f"a {HEADLINE_LABEL} of at least 0.9 times that of full history"


def test_the_held_out_figures_are_those_of_the_configuration_that_the_tuning_set_chose() -> None:
    # On the held-out set, a cheaper one would do.
    found = measured(figures(0.7, 0.92, 0.97), figures(0.95, 0.96, 0.97))
    assert found.chosen(0.9) == found.winner(0.9) == (GOOD, LIMIT)
    assert found.verdict(0.9) == (
        f"Recommended: {GOOD} at 8,000 tokens, the cheapest strategy with {WANTED} on the tuning set. "
        "On 2 held-out clusters, it reaches this minimum (0.90), fits at every request and makes no "
        f"request invalid: {HEADLINE_LABEL} 0.96 (too few clusters for an interval), $4.00, 80% less "
        f"than the full history would cost if it fitted. {NO_CHANCE}"
    )


def test_a_choice_that_falls_below_the_minimum_is_no_recommendation() -> None:
    found = measured(figures(0.91, 0.92, 0.97), figures(0.88, 0.89, 0.93))
    assert found.chosen(0.9) == (CHEAP, LIMIT)
    assert found.winner(0.9) is None
    assert found.verdict(0.9) == (
        f"No recommendation. The cheapest strategy with {WANTED} on the tuning set is {CHEAP} at 8,000 "
        "tokens. On 2 held-out clusters, it falls below this minimum (0.90), fits at every request and "
        f"makes no request invalid: {HEADLINE_LABEL} 0.88 (too few clusters for an interval), $2.00, "
        f"90% less than the full history would cost if it fitted. {NO_CHANCE} On the held-out set, the "
        f"cheapest configuration of the frontier that qualifies is {DEAR} at 8,000 tokens: "
        f"{HEADLINE_LABEL} 0.93 (too few clusters for an interval), $6.00. These figures are "
        "optimistic, because the held-out set both chose and measured this configuration."
    )


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ({"overflow": [0, 1]}, "exceeds its limit at 50.00% of requests and makes no request"),
        ({"newly_invalid": [0, 1]}, "fits at every request and makes 50.00% of requests invalid"),
    ],
)
def test_a_choice_that_is_not_usable_on_the_held_out_set_is_no_recommendation(
    flaw: dict[str, Any], said: str
) -> None:
    held = figures(0.95, 0.96)
    held[0] |= flaw
    found = measured(figures(0.95, 0.96), held)
    assert (found.chosen(), found.winner()) == ((CHEAP, LIMIT), None)
    assert found.verdict().startswith("No recommendation. The cheapest")
    assert f"it reaches this minimum (0.95), {said}" in found.verdict()
    assert f"that qualifies is {GOOD} at" in found.verdict()


def test_where_nothing_qualifies_on_the_held_out_set_this_is_said() -> None:
    said = measured(figures(0.95, 0.96), figures(0.5, 0.6)).verdict()
    assert said.endswith("No configuration of the frontier qualifies on the held-out set.")


def test_where_nothing_qualifies_on_the_tuning_set_its_nearest_is_measured() -> None:
    found = measured(figures(0.5, 0.6), figures(0.7, 0.65))
    assert (found.chosen(), found.winner()) == ((GOOD, LIMIT), None)
    said = found.verdict()
    assert said.startswith("No recommendation. No strategy has a ")
    assert f"on the tuning set; the nearest is {GOOD} at 8,000 tokens. On 2 held-out" in said
    assert f"{HEADLINE_LABEL} 0.65 (" in said


def test_a_held_out_set_cannot_turn_the_nearest_into_a_recommendation() -> None:
    found = measured(figures(0.5, 0.94), figures(0.7, 0.96))
    assert (found.chosen(), found.winner()) == ((GOOD, LIMIT), None)
    assert found.verdict().startswith("No recommendation. No strategy")
    assert "it reaches this minimum (0.95)" in found.verdict()
    assert "optimistic" not in found.verdict()  # the nearest was chosen on the tuning set


def test_the_minimum_is_a_share_of_the_recall_of_full_history_on_the_same_set() -> None:
    found = measured(
        *(figures(0.7, 0.9), figures(0.7, 0.9)),
        tuned_full={"recall": 0.7},
        held_full={"recall": 0.9},
    )
    assert (found.chosen(0.9), found.winner(0.9)) == ((CHEAP, LIMIT), None)
    assert "it falls below this minimum (0.81)" in found.verdict(0.9)


@pytest.mark.parametrize(
    ("full_row", "every", "said"),
    [
        ({"overflow": 0.0}, {}, "full history fits at every request under every limit, so no"),
        ({"arguments": 2.0}, {"arguments": 2.0}, f"{HEADLINE_LABEL} is based on 4 arguments, too"),
        ({"arguments": 0.0}, {"arguments": 0.0}, "no tool call uses anything last mentioned more"),
    ],
)
@pytest.mark.parametrize("where", ["tuning", "held-out"])
def test_a_set_that_supports_no_choice_says_so(
    where: str, full_row: dict[str, Any], every: dict[str, Any], said: str
) -> None:
    usual, poor = figures(0.95, 0.96), [{**row, **every} for row in figures(0.95, 0.96)]
    if where == "tuning":
        found = measured(poor, usual, tuned_full=full_row)
    else:
        found = measured(usual, poor, held_full=full_row)
    assert found.winner() is None
    assert (found.chosen() is None) == (where == "tuning")
    assert found.verdict().startswith(f"On the {where} set: {said}")


def test_without_a_held_out_set_the_figures_are_those_that_chose() -> None:
    rows = figures(0.5, 0.96)
    found = measured(rows, rows)
    found.results.manifest["tuning"]["held_out"] = []
    assert found.chosen() == found.winner() == (GOOD, LIMIT)
    said = found.verdict()
    assert said == (
        f"Nothing was held out, so these figures are optimistic. {found.results.verdict()}"
    )
    assert f"is {GOOD} at" in said


SHARES = st.integers(40, 100).map(lambda percent: percent / 100)
FLAWS = st.sampled_from([0.0, 0.0, 0.0, 1.0])
HELD = st.lists(st.tuples(SHARES, FLAWS, FLAWS), min_size=3, max_size=3)


@given(st.lists(SHARES, min_size=3, max_size=3), HELD, HELD, st.sampled_from([0.5, 0.7, 0.9]))
@pytest.mark.simulations
def test_the_held_out_set_can_refuse_a_choice_but_not_make_one(
    tuned: list[float],
    one: list[tuple[float, float, float]],
    other: list[tuple[float, float, float]],
    least: float,
) -> None:
    choices = []
    for held in (one, other):
        rows = figures(*(recall for recall, _, _ in held))
        for row, (_, over, invalid) in zip(rows, held, strict=True):
            row |= {"overflow": over, "newly_invalid": invalid}
        found = measured(figures(*tuned), rows)
        chosen, said = found.chosen(least), found.verdict(least)
        assert chosen is not None
        number = int(chosen[0].removeprefix("sliding_window(tokens=")[0]) - 1
        recall, over, invalid = held[number]
        confirmed = min(tuned[number], recall) >= least and not over and not invalid
        assert found.winner(least) == (chosen if confirmed else None)
        assert said.startswith(f"Recommended: {chosen[0]} at ") == confirmed
        assert said.startswith("No recommendation. ") != confirmed
        assert f": {HEADLINE_LABEL} {recall:.2f} (too few" in said
        choices.append(chosen)
    assert choices[0] == choices[1]


@pytest.mark.simulations
def test_choosing_on_the_tuning_set_is_unbiased_and_choosing_on_the_held_out_set_is_not() -> None:
    chance = np.random.default_rng(0)
    true = np.linspace(0.78, 0.92, 12)
    clusters, runs, least = 4, 150, 0.85

    def draw() -> npt.NDArray[np.float64]:
        return true + chance.normal(0, 0.1, (clusters, len(true)))

    gaps = np.empty((runs, 2))
    for run in range(runs):
        sets = [draw(), draw()]
        rows = [[{"recall": list(each), "cost": 1.0 + n} for n, each in enumerate(some.T)]
                for some in sets]  # fmt: skip
        found = measured(*rows, clusters)
        on_tuning, on_held = (
            found.chosen(least),
            choose_configuration(found.heldout_leaderboard, least),
        )
        assert on_tuning is not None
        assert on_held is not None
        for column, strategy in enumerate((on_tuning[0], on_held.key[1])):
            number = int(strategy.removeprefix("sliding_window(tokens=").removesuffix(")")) - 1
            gaps[run, column] = sets[1].mean(axis=0)[number] - true[number]
    unbiased, optimistic = gaps.mean(axis=0)
    error = gaps.std(axis=0) / np.sqrt(runs)
    assert abs(unbiased) < 3 * error[0]
    assert optimistic > 5 * error[1]
    assert optimistic > 0.02
