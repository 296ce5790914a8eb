"""Tests of ``Results``: saving and loading, and the verdict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.results_builder import ResultsBuilder
from ctxlab.evaluation.verdict import control_name
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import sliding_window
from ctxlab.strategies.registry import STRATEGIES, register_strategy

SCORES = (
    Score("overflow_rate", "too large", "share", "ratio", "overflow"),
    Score("newly_invalid_rate", "refused", "share", "ratio", "newly_invalid"),
    Score("cost_usd", "cost", "USD", "sum", "cost_usd"),
    Score(HEADLINE_SCORE, "far", "share", "ratio", "far_seen", "far_arguments", interval=True),
    Score("far_arguments", "behind it", "arguments", "sum", "far_arguments"),
    Score("tokens_mean", "mean", "tokens", "ratio", "tokens"),
    Score("tokens_peak", "largest", "tokens", "max", "tokens"),
)


def results(*rows: dict[str, Any], clusters: int = 2) -> Results:
    """Return results of recordings in which the requests of a strategy have the given values.

    A value is a number, or a list with a number for each recording.
    """
    names = "abcdefgh"[:clusters]
    frame = pd.DataFrame(
        [
            {key: value[i] if isinstance(value, list) else value for key, value in row.items()}
            | {"recording": name, "cluster": name}
            for row in rows
            for i, name in enumerate(names)
        ]
    )
    usual = {"limit": 0.5, "budget": 500, "request": 0, "tokens": 9.0, "overflow": 0, "newly_invalid": 0,
             "cost_usd": 1.0, "far_arguments": 10.0, "far_seen": 10.0}  # fmt: skip
    for name, value in usual.items():
        frame[name] = frame[name].fillna(value) if name in frame else value
    return Results(frame, SCORES, {"spec": {}})


FULL = {"strategy": "full()", "cost_usd": 10.0, "overflow": 1}


NO_CHANCE = (
    " It is not compared with chance, because no random_drop row sent equally many tokens (±5%)."
)


def test_the_cheapest_that_keeps_far_recall_is_recommended() -> None:
    found = results(
        FULL,
        {"strategy": "cheap()", "far_seen": 5.0, "cost_usd": 1.0},
        {"strategy": "good()", "far_seen": 9.8, "cost_usd": 4.0},
        {"strategy": "dear()", "far_seen": 10.0, "cost_usd": 6.0},
    )
    assert found.verdict() == (
        f"The cheapest strategy with a {HEADLINE_LABEL} of at least 0.95 (0.95 times that of full "
        f"history) is good() at 50 % of each recording: {HEADLINE_LABEL} 0.98 (too few clusters for an "
        f"interval), $8.00, 60% less than the full history would cost if it fitted.{NO_CHANCE}"
    )
    assert "is dear() at 50 %" in found.verdict(min_recall=0.99)
    assert "is cheap() at 50 %" in found.verdict(min_recall=0.5)


@pytest.mark.parametrize(
    ("flaw", "why"),
    [
        ({"overflow": 1}, "every strategy exceeds its limit at some request."),
        ({"newly_invalid": 1}, "it would accept the full history (at least 100.00%)."),
        ({"strategy": "nothing()"}, "Only controls were compared, which are never recommended."),
        ({"strategy": "recorded()"}, "Only controls were compared, which are never recommended."),
    ],
)
def test_what_overflows_is_refused_or_is_a_control_is_not_recommended(
    flaw: dict[str, Any], why: str
) -> None:
    flawed = {"strategy": "flawed()", "cost_usd": 1.0, **flaw}
    found = results(FULL, flawed, {"strategy": "good()", "cost_usd": 4.0})
    assert "is good() at" in found.verdict()
    assert results(FULL, flawed).verdict().endswith(why)


def test_a_recall_that_rests_on_a_handful_of_arguments_recommends_nothing() -> None:
    few = [{**row, "far_arguments": 2.0, "far_seen": 2.0} for row in (FULL, {"strategy": "good()"})]
    assert "based on 4 arguments, too few" in results(*few).verdict()


@pytest.mark.parametrize(
    "strategy", ["oracle() | panic()", "in_batches(recorded(), trigger=0.9)", "my_control()"]
)
def test_a_strategy_that_contains_a_control_is_a_control(strategy: str) -> None:
    register_strategy("my_control", my_control)
    try:
        found = results(FULL, {"strategy": strategy, "cost_usd": 1.0}, {"strategy": "good()"})
        assert "is good() at" in found.verdict()
    finally:
        del STRATEGIES["my_control"]


class my_control(sliding_window):
    deployable = False


CHANCE = {"strategy": "random_drop()", "far_seen": 9.7}


@pytest.mark.parametrize(
    ("tokens", "said"), [(9.4, True), (8.6, True), (9.5, False), (18.0, False)]
)
def test_chance_is_named_only_at_equal_tokens(tokens: float, said: bool) -> None:
    found = results(FULL, {**CHANCE, "tokens": tokens}, {"strategy": "good()", "far_seen": 9.6})
    equal = f"Its {HEADLINE_LABEL} is no better than that of random_drop at equal tokens (0.97; no"
    assert (equal in found.verdict()) == said
    assert (NO_CHANCE in found.verdict()) == (not said)


def test_chance_at_another_limit_is_compared_if_it_sent_equal_tokens() -> None:
    rows = ({**CHANCE, "tokens": 20.0}, {**CHANCE, "limit": 0.9, "far_seen": 2.0})
    said = results(FULL, *rows, {"strategy": "good()", "far_seen": 9.6}).verdict()
    assert f"Its {HEADLINE_LABEL} is above that of random_drop at equal tokens (0.20; no" in said


NOISE = [0.0, 0.5, -0.5, 0.3, -0.3, 0.2, -0.2, 0.1]


def test_what_the_recordings_do_not_settle_is_said_with_what_they_could_show() -> None:
    good = {"strategy": "good()", "far_seen": [9.45 + each for each in NOISE]}
    chance = {**CHANCE, "far_seen": [9.4 - each for each in NOISE]}
    said = results({**FULL, "far_seen": 9.9}, chance, good, clusters=8).verdict()
    assert f"do not settle whether its {HEADLINE_LABEL} differs from that of random_drop at" in said
    assert "do not settle on which side of this minimum it would be on other recordings" in said
    powers = re.findall(r"could show is (0\.\d{3}) \(80 % power, 8 clusters\)", said)
    assert len(powers) == 2
    assert 0 < float(powers[0]) < float(powers[1]) < 0.2


def test_what_they_settle_has_its_interval() -> None:
    good = {"strategy": "good()", "far_seen": [9.4 + each for each in NOISE]}
    for level, words in ((5.0, "is above"), (9.95, "is below")):
        chance = {**CHANCE, "far_seen": [level - each / 20 for each in NOISE]}
        said = results(FULL, chance, good, clusters=8).verdict(0.7)
        assert f"Its {HEADLINE_LABEL} {words} that of random_drop at equal tokens (" in said
        assert "do not settle" not in said


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a()", "b() | panic()", "oracle()", "recorded()", "random_drop()"]),
            st.sampled_from([0.25, 0.5]),
            st.integers(0, 1000),
            st.integers(0, 1),
            st.integers(0, 1),
            st.integers(1, 9),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[:2],
    ),
    st.sampled_from([0.5, 0.945, 0.95, 0.99]),
)
def test_no_flawed_row_is_recommended_and_both_sides_of_the_minimum_differ(
    rows: list[tuple[str, float, int, int, int, int]], least: float
) -> None:
    names = ("strategy", "limit", "far_seen", "overflow", "newly_invalid", "cost_usd")
    made = [dict(zip(names, row, strict=True)) for row in rows]
    for row in made:
        row["far_seen"] /= 100
    board = results(FULL, *made)
    said = board.verdict(least)
    named = re.search(r" is (.+) at (25|50) % of each recording: [a-z ]+ ([\d.]+) ", said)
    if not named:
        return
    strategy, limit, value = named[1], int(named[2]) / 100, named[3]
    (row,) = [row for row in made if (row["strategy"], row["limit"]) == (strategy, limit)]
    assert not row["overflow"]
    assert not row["newly_invalid"]
    assert not control_name(strategy)
    required = re.search(r"of at least ([\d.]+) ", said)
    assert required
    assert (required[1] == value) == (row["far_seen"] / 10 == pytest.approx(least, abs=1e-12))
    assert said.startswith("The cheapest") == (row["far_seen"] / 10 >= least - 1e-12)


def test_where_full_history_fits_nothing_need_be_left_out() -> None:
    found = results({**FULL, "overflow": 0}, {"strategy": "good()"})
    assert "so no strategy is needed" in found.verdict()


def test_where_none_keeps_far_recall_the_nearest_is_named() -> None:
    found = results(
        FULL, {"strategy": "a()", "far_seen": 5.0}, {"strategy": "b()", "far_seen": 7.0}
    )
    assert found.verdict() == (
        f"No strategy has a {HEADLINE_LABEL} of at least 0.95 (0.95 times that of full history); the "
        f"nearest is b() at 50 % of each recording: {HEADLINE_LABEL} 0.70 (too few clusters for an "
        f"interval), $2.00.{NO_CHANCE}"
    )
    near = results(FULL, {"strategy": "a()", "far_seen": 9.47}).verdict()
    assert "of at least 0.950 (" in near
    assert f"{HEADLINE_LABEL} 0.947 (" in near


def test_without_far_needs_or_measures_nothing_is_recommended() -> None:
    found = results({**FULL, "far_arguments": 0.0, "far_seen": 0.0})
    assert f"{HEADLINE_LABEL} cannot compare the strategies" in found.verdict()
    unmeasured = Results(found.requests, SCORES[:1], {})
    assert "No recommendation: it needs the metrics" in unmeasured.verdict()


def test_a_free_model_gives_no_share_of_nothing() -> None:
    found = results({**FULL, "cost_usd": 0.0}, {"strategy": "good()", "cost_usd": 0.0})
    assert ", at no known price. It is" in found.verdict()


def test_money_of_which_a_part_is_unknown_is_unknown() -> None:
    rows = [{"strategy": "asks()", "far_seen": 9.9}, {"strategy": "good()", "far_seen": 9.6}]
    requests = results({**FULL}, *rows).requests
    of_a = (requests["strategy"] == "asks()") & (requests["recording"] == "a")
    requests.loc[of_a, "cost_usd"] = np.nan
    found = Results(requests, SCORES, {})
    costs = found.leaderboard().set_index("strategy")["cost_usd"]
    assert np.isnan(costs["asks()"])
    assert costs["good()"] == 2.0
    assert found.runs["cost_usd"].isna().sum() == 1
    assert "is good() at" in found.verdict()
    requests.loc[requests["strategy"] == "good()", "far_seen"] = 0.0
    assert Results(requests, SCORES, {}).verdict().endswith(f"at no known price.{NO_CHANCE}")


def test_figures_that_are_no_money_are_summed_over_what_is_known() -> None:
    requests = results(FULL).requests
    requests.loc[0, "far_arguments"] = np.nan
    assert Results(requests, SCORES, {}).leaderboard()["far_arguments"].tolist() == [10.0]


def test_a_row_that_its_model_did_not_write_is_not_recommended_without_a_word() -> None:
    score = Score("fallback_rate", "without", "share", "ratio", "fallbacks", "written")
    for fallbacks, said in ((1.0, " 50% of its summaries are fallbacks, made without its model."),
                            (0.1, NO_CHANCE)):  # fmt: skip
        good = {"strategy": "good()", "written": 2.0, "fallbacks": fallbacks}
        found = results({**FULL, "written": 0.0, "fallbacks": 0.0}, good)
        assert Results(found.requests, (*SCORES, score), {}).verdict().endswith(said)


def test_an_interval_has_the_score_between_its_bounds() -> None:
    rng = np.random.default_rng(0)
    usual = {
        "strategy": "s()",
        "limit": 0.5,
        "budget": 5,
        "request": 0,
        "tokens": 1.0,
        "overflow": 0,
    }
    usual |= {"newly_invalid": 0, "cost_usd": 1.0, "far_arguments": 4.0}
    rows = [
        {
            **usual,
            "recording": f"r{i}",
            "cluster": f"c{i % 7}",
            "far_seen": float(rng.integers(0, 5)),
        }
        for i in range(30)
    ]
    line = Results(pd.DataFrame(rows), SCORES, {}).leaderboard(resamples=300).iloc[0]
    low, high = line[f"{HEADLINE_SCORE}_low"], line[f"{HEADLINE_SCORE}_high"]
    assert 0 < low < line[HEADLINE_SCORE] < high < 1


def made() -> Results:
    call = ToolCall("c", "read", '{"path": "src/io.py"}')
    talk = (
        Message("user", "read src/io.py \ud83d"),
        Message("assistant", None, tool_calls=(call,)),
    )
    recordings = [Recording("é/\ud800", talk), Recording("b", talk, cluster="task")]
    return evaluate(recordings, ("full", "panic()"), (0.5, 700), workers=1, progress=False)


def test_what_is_saved_and_loaded_is_equal(tmp_path: Path) -> None:
    saved = made()
    folder = saved.save(tmp_path / "runs" / "1")
    loaded = Results.load(folder)
    assert loaded.equals(saved)
    assert saved.equals(loaded)
    pd.testing.assert_frame_equal(loaded.leaderboard(), saved.leaderboard())
    pd.testing.assert_frame_equal(loaded.runs, saved.runs)
    assert loaded.verdict() == saved.verdict()
    assert list(loaded.requests["recording"].cat.categories) == ["é/\\ud800", "b"]
    assert {p.name for p in folder.iterdir()} >= {
        "requests.parquet",
        "runs.parquet",
        "recordings.parquet",
        "manifest.json",
    }
    assert list(loaded.recordings) == saved.recordings
    assert loaded.recordings[-1] == saved.recordings[1]
    assert loaded.save(folder) == folder
    assert Results.load(folder).equals(saved)


def test_a_manifest_suffices_to_run_it_again(tmp_path: Path) -> None:
    saved = made()
    spec = Results.load(saved.save(tmp_path)).manifest["spec"]
    assert spec["strategies"] == ["full()", "panic()"]
    assert spec["limits"] == [0.5, 700]
    assert {"digest", "recording", "cluster", "tokens"} <= set(saved.recordings[0])
    assert {"python", "ctxlab", "tiktoken"} <= set(saved.manifest["versions"])


def test_different_figures_scores_or_manifests_are_not_equal() -> None:
    one, other = made(), made()
    assert one.equals(other)
    other.requests.loc[0, "tokens"] += 1
    assert not one.equals(other)
    assert not one.equals(Results(one.requests, one.scores[1:], one.manifest, one.recordings))
    assert not one.equals(Results(one.requests, one.scores, one.manifest, one.recordings[1:]))
    other_manifest = {**one.manifest, "tokens": "?"}
    assert not one.equals(Results(one.requests, one.scores, other_manifest, one.recordings))
    # The second time answers come from disk: they are the same answers.
    other_manifest = {**one.manifest, "calls": {"m": {}}}
    assert one.equals(Results(one.requests, one.scores, other_manifest, one.recordings))


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{}", "{", '{"scores": [{"no": 1}]}', '{"scores": 3}']
)
def test_what_is_no_saved_evaluation_is_said_so(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        made().save(tmp_path)
        (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ReadError, match="not a saved evaluation"):
        Results.load(tmp_path)


def test_it_shows_itself_with_its_verdict_and_its_limits() -> None:
    html = made()._repr_html_()
    assert "off-policy" in html.lower()
    assert "full()" in html


def test_a_score_that_hides_a_column_is_refused() -> None:
    ratio = Score("seen", "share", "share", "ratio", "seen", "asked")
    with pytest.raises(SpecError, match="score seen and a column of a metric have the same name"):
        ResultsBuilder(["seen", "asked"], [("full()", 0.5)], [ratio])
