"""Tests of tuning: results are reported on held-out recordings, and halving loses little."""

from __future__ import annotations

from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from trips import hypervolume, trip, trips

from ctxlab.errors import CtxlabError, SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.holdout import cluster_name
from ctxlab.evaluation.tuning.results import TuningResults
from ctxlab.evaluation.tuning.search_space import SearchSpace
from ctxlab.evaluation.tuning.tune import tune
from ctxlab.formats import load
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Recording

SPACES = (
    "observation_mask(keep=[1, 2, 4, 8]) | [sliding_window, in_batches(sliding_window)] | panic",
    "in_batches(sliding_window, trigger=[0.7, 0.9], target=[0.2, 0.35, 0.5]) | panic",
    "tool_result_cap(chars=[1500, 3000])",
    "rolling_summary(target=[0.3, 0.5, 0.7], keep_recent=[2, 5, 10]) | panic",
)
LIMITS = (4000, 8000)
FLOORS = (0.1, 0.3, 0.5, 0.95)
FIGURES = ["cost_usd", HEADLINE_SCORE, "overflow_rate", "newly_invalid_rate", "tokens_mean"]


def tuned(recordings: list[Recording], **options: Any) -> TuningResults:
    options = {"spaces": SPACES, "limits": LIMITS, "model": "gpt-4o", "workers": 1, **options}
    return tune(recordings, progress=False, **options)


@cache
def usual(**options: Any) -> TuningResults:
    return tuned(trips(16), **options)


def pairs(found: TuningResults) -> list[tuple[str, float]]:
    return [(repr(strategy), limit) for strategy, limit in found.trial_sums.frontier]


def points(found: TuningResults) -> list[tuple[float, float]]:
    best = found.trials[found.trials["left"] == ""]
    return list(zip(best["cost_usd"], best[HEADLINE_SCORE], strict=True))


@pytest.mark.simulations
def test_no_cluster_is_tuned_on_and_held_out() -> None:
    found = tuned(trips(12, each=2))
    assert len(found.heldout_clusters) == len(found.tuning_clusters) == 6
    assert not set(found.heldout_clusters) & set(found.tuning_clusters)
    assert set(found.results.requests["cluster"]) == set(found.heldout_clusters)


@pytest.mark.simulations
def test_what_is_held_out_has_no_part_in_what_is_chosen() -> None:
    found = usual()
    seen = [r for r in trips(16) if cluster_name(r) in found.tuning_clusters]
    changed = []
    for number, recording in enumerate(trips(16)):
        if cluster_name(recording) in found.heldout_clusters:
            other = trip(100 + number, steps=(len(recording.messages) - 3) // 2)
            recording = msgspec.structs.replace(recording, messages=other.messages)
        changed.append(recording)
    again = tuned(changed)
    assert again.heldout_clusters == found.heldout_clusters
    assert pairs(again) == pairs(found)
    pd.testing.assert_frame_equal(again.trials, found.trials)
    assert not again.frontier[HEADLINE_SCORE].equals(found.frontier[HEADLINE_SCORE])
    assert [again.chosen(floor) for floor in FLOORS] == [found.chosen(floor) for floor in FLOORS]
    # And what was seen has one: with other recordings to tune on, others are chosen.
    assert pairs(tuned(seen, holdout=0)) == pairs(found)
    assert any(pairs(usual(seed=seed)) != pairs(found) for seed in (1, 2, 3))


@pytest.mark.simulations
def test_the_figures_are_those_of_an_evaluation() -> None:
    found = usual(rounds=3)
    best = found.trials[found.trials["left"] == ""]
    keys = list(zip(best["strategy"], best["limit"], strict=True))
    for clusters, mine in ((found.tuning_clusters, best), (found.heldout_clusters, found.frontier)):
        some = [r for r in trips(16) if cluster_name(r) in clusters]
        board = evaluate(
            some, ["full", *best["strategy"].unique()], LIMITS, "gpt-4o", workers=1, progress=False
        ).leaderboard()
        board = board.set_index(["strategy", "limit"])
        mine = mine.set_index(["strategy", "limit"]).loc[keys]
        for name in [name for name in FIGURES if name in mine]:
            assert np.allclose(mine[name], board.loc[keys, name]), name
    frontier = found.frontier.set_index(["strategy", "limit"]).loc[keys]
    whole = [board.loc[("full()", limit), "cost_usd"] for _, limit in keys]
    assert np.allclose(frontier["cost_share"], board.loc[keys, "cost_usd"] / whole)
    for name in (f"{HEADLINE_SCORE}_low", f"{HEADLINE_SCORE}_high"):
        assert np.allclose(frontier[name], board.loc[keys, name])
    assert np.allclose(frontier[f"tuned_{HEADLINE_SCORE}"], best[HEADLINE_SCORE])


@pytest.mark.simulations
def test_the_frontier_is_what_no_other_trial_that_fits_beats() -> None:
    trials = usual(rounds=1).trials
    trials = trials[trials["left"] != "full history, for comparison only"]
    fit = trials[(trials["overflow_rate"] == 0) & (trials["newly_invalid_rate"] == 0)]
    beaten = [
        ((fit["cost_usd"] <= cost) & (fit[HEADLINE_SCORE] >= gain)
         & ((fit["cost_usd"] < cost) | (fit[HEADLINE_SCORE] > gain))).any()
        for cost, gain in zip(fit["cost_usd"], fit[HEADLINE_SCORE], strict=True)
    ]  # fmt: skip
    expected = fit[~np.array(beaten)].drop_duplicates(["cost_usd", HEADLINE_SCORE])
    assert trials[trials["left"] == ""].equals(expected)
    assert len(expected) > 2
    assert (trials.loc[trials["overflow_rate"] > 0, "left"] == "round 1: overflows").all()
    assert (trials["overflow_rate"] > 0).any()


@pytest.mark.simulations
@pytest.mark.parametrize(("rounds", "seed"), [(2, 0), (3, 1), (None, 2)])
def test_halving_finds_what_trying_everything_finds_and_replays_less(
    rounds: int | None, seed: int
) -> None:
    whole = tuned(trips(40), rounds=1, seed=seed)
    halved = tuned(trips(40), rounds=rounds, seed=seed)
    worst = whole.trials["cost_usd"][0]
    assert hypervolume(points(halved), worst) >= 0.95 * hypervolume(points(whole), worst)
    assert halved.trials["clusters"].sum() < 0.8 * whole.trials["clusters"].sum()
    assert halved.trials["rounds"].nunique() > 1
    last = halved.trials["rounds"].max()
    assert (halved.trials.loc[halved.trials["left"] == "", "rounds"] == last).all()


def test_halving_loses_little_on_real_recordings(recorded: Path) -> None:
    folder = recorded / "openhands"
    if not folder.is_dir():
        pytest.skip("no recordings of openhands beside the others")
    some = [recording for recording in load(folder, on_error="skip") if recording.request_positions]
    options: dict[str, Any] = {"limits": (10_000, 20_000), "holdout": 0}
    whole, halved = tuned(some, rounds=1, **options), tuned(some, rounds=3, **options)
    worst = whole.trials["cost_usd"][0]
    assert hypervolume(points(halved), worst) >= 0.95 * hypervolume(points(whole), worst)


@pytest.mark.simulations
def test_it_is_the_same_for_the_same_seed_and_any_number_of_workers() -> None:
    one, two = tuned(trips(12), seed=3), tuned(trips(12), seed=3, workers=2)
    pd.testing.assert_frame_equal(one.trials, two.trials)
    pd.testing.assert_frame_equal(one.frontier, two.frontier)
    assert one.results.equals(two.results)
    assert tuned(trips(12), seed=4).heldout_clusters != one.heldout_clusters


@pytest.mark.simulations
def test_fewer_trials_are_drawn_of_the_same_configurations() -> None:
    keys = [set(zip(f.trials["strategy"], f.trials["limit"], strict=True))
            for f in (usual(), usual(trials=12))]  # fmt: skip
    assert keys[1] < keys[0]
    assert len(keys[1]) == 12 + len(LIMITS)


@pytest.mark.simulations
def test_optimism_is_what_it_lost_where_it_had_not_been_seen() -> None:
    frame = usual().frontier
    for name in ("cost_share", HEADLINE_SCORE):
        gap = frame[f"tuned_{name}"] - frame[name]
        known = frame[f"{name}_optimism"].notna()
        assert known.any()
        assert np.allclose(frame[f"{name}_optimism"][known], gap[known])
        low, high = frame[f"{name}_optimism_low"][known], frame[f"{name}_optimism_high"][known]
        assert (low <= gap[known]).all()
        assert (gap[known] <= high).all()
    both = usual().optimism.loc[HEADLINE_SCORE]
    assert both["tuned"] == pytest.approx(frame[f"tuned_{HEADLINE_SCORE}"].mean())
    assert both["held_out"] == pytest.approx(frame[HEADLINE_SCORE].mean())
    assert both["low"] <= both["tuned"] - both["held_out"] <= both["high"]


@pytest.mark.simulations
def test_a_difference_without_an_interval_is_not_shown() -> None:
    found = tuned(trips(9), holdout=0.6)  # five are held out, and four are too few for an interval
    assert len(found.tuning_clusters) == 4
    assert found.frontier[f"{HEADLINE_SCORE}_low"].notna().any()
    assert found.frontier[f"tuned_{HEADLINE_SCORE}"].notna().all()
    assert found.frontier[f"{HEADLINE_SCORE}_optimism"].isna().all()
    assert isnan(found.optimism.loc[HEADLINE_SCORE, "optimism"])


def test_the_frontier_is_in_order_of_cost_and_says_what_is_beaten_there() -> None:
    frame = usual().frontier
    assert frame["cost_usd"].is_monotonic_increasing
    for row in frame[frame["dominated"] & frame["fits"]].itertuples():
        better = frame[frame["fits"] & (frame["cost_usd"] <= row.cost_usd)]
        assert (better[HEADLINE_SCORE] >= getattr(row, HEADLINE_SCORE)).sum() > 1
    kept = frame.loc[~frame["dominated"], HEADLINE_SCORE]
    assert kept.is_monotonic_increasing


def test_the_tuning_set_chooses_and_the_held_out_set_measures() -> None:
    found = usual()
    best = found.trials[found.trials["left"] == ""].sort_values("cost_usd")
    for floor in (0.2, 0.3, 0.99):
        keeps = best[best[HEADLINE_SCORE] >= floor]
        first = keeps.iloc[0] if len(keeps) else best.sort_values(HEADLINE_SCORE).iloc[-1]
        key = first["strategy"], first["limit"]
        assert found.chosen(floor) == key
        row = found.frontier.set_index(["strategy", "limit"]).loc[key]
        kept = len(keeps) > 0 and row["fits"] and row[HEADLINE_SCORE] >= floor
        assert found.winner(floor) == (key if kept else None)
        said = found.verdict(floor)
        assert said.startswith(f"Recommended: {key[0]} at " if kept else "No recommendation. ")
        assert f"{key[0]} at {key[1]:,.0f} tokens" in said
        assert "On 8 held-out clusters, it " in said
        assert f": {HEADLINE_LABEL} {row[HEADLINE_SCORE]:.2f} (" in said


def test_not_every_choice_is_confirmed_on_the_held_out_set() -> None:
    floors = np.linspace(0.1, 0.5, 9)
    confirmed = [usual().winner(float(floor)) is not None for floor in floors]
    assert any(confirmed)
    assert not all(confirmed)


@pytest.mark.simulations
def test_holding_nothing_out_is_said_loudly() -> None:
    found = tuned(trips(6), holdout=0)
    assert found.heldout_clusters == ()
    assert len(found.tuning_clusters) == 6
    assert found.verdict().startswith("Nothing was held out, so these figures are optimistic.")
    assert found.frontier[f"{HEADLINE_SCORE}_optimism"].isna().all()
    assert found.frontier[f"tuned_{HEADLINE_SCORE}"].isna().all()


def test_too_few_clusters_are_refused() -> None:
    with pytest.raises(SpecError, match=r"with a holdout of 0\.5, 3 of 6 are used for tuning"):
        tuned(trips(6, each=3))


def test_a_strategy_that_asks_a_model_needs_a_client() -> None:
    space = "rolling_summary(target=[0.3, 0.5], model='gpt-4o') | panic"
    with pytest.raises(SpecError, match="gpt-4o would be called in every trial; pass a client"):
        tuned(trips(12), spaces=space)
    client = ScriptedClient(
        lambda messages, **_: Reply(Message("assistant", "## Goal\nAll of it."))
    )
    found = tuned(trips(12), spaces=space, client=client)
    assert found.results.manifest["calls"]["gpt-4o"]["calls"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spaces": ()}, "at least one strategy and one limit"),
        ({"limits": ()}, "at least one strategy and one limit"),
        ({"spaces": "full"}, "got the control full()"),
        (
            {"spaces": "oracle | panic(protect=[2, 4])"},
            "got the control oracle() | panic(protect=2)",
        ),
        ({"spaces": "observation_mask(keep=[40, 50])"}, "no configuration fits its limit"),
        ({"objective": ("cost", HEADLINE_SCORE)}, "unknown cost 'cost'"),
        ({"objective": ("cost_usd", "tokens_mean")}, "unknown gain 'tokens_mean'"),
        ({"objective": ("tokens_peak", "recall")}, "unknown cost 'tokens_peak'"),
        (
            {"objective": ("cost_usd", "evidence_recall")},
            "no configuration has a value of evidence_recall",
        ),
        ({"eta": 1}, "eta must be above 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"trials": 0}, "trials must be at least 1"),
    ],
)
def test_what_cannot_be_searched_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CtxlabError) as error:
        tuned(trips(12), **options)
    assert said in str(error.value)


def test_a_model_without_a_price_says_what_to_search_by() -> None:
    options: dict[str, Any] = {"model": "nobody/knows-this-one", "spaces": SPACES[1]}
    with pytest.raises(SpecError, match=r"no configuration has a value of cost_usd.*tokens_mean"):
        tuned(trips(12), **options)
    found = tuned(trips(12), objective=("tokens_mean", "recall"), **options)
    assert found.frontier["tokens_mean"].is_monotonic_increasing
    assert f"A verdict needs {HEADLINE_LABEL}" in found.verdict()
    assert found.winner() is None


@pytest.mark.simulations
def test_recordings_that_call_no_model_are_left_aside() -> None:
    mute = Recording("mute", (Message("user", "hi"),))
    assert pairs(tuned([mute, *trips(12)])) == pairs(tuned(trips(12)))
    with pytest.raises(SpecError, match="no recording contains a model call"):
        tuned([mute])


def test_a_saved_tuning_is_a_run_with_its_trials_beside_it(tmp_path: Path) -> None:
    found = usual()
    folder = found.save(tmp_path / "run")
    again = Results.load(folder)
    assert again.equals(found.results)
    assert again.manifest["tuning"]["held_out"] == list(found.heldout_clusters)
    assert again.manifest["tuning"]["spaces"] == list(SPACES)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "trials.parquet"), found.trials)
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "frontier.parquet"), found.frontier)


def test_it_shows_itself_as_the_frontier_and_the_verdict() -> None:
    shown = usual()._repr_html_()
    assert "<table" in shown
    assert "held-out clusters" in shown
    assert "availability" in shown


def test_a_space_is_a_text_or_itself() -> None:
    one = tuned(trips(12), spaces=SearchSpace(SPACES[1]))
    assert pairs(one) == pairs(tuned(trips(12), spaces=SPACES[1]))
