"""Tests of the recommendation of a product's setting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from running import a_recording

from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.recommendation import Recommendation, recommend
from ctxlab.evaluation.recommendation.agent_setup import find_agent_setup
from ctxlab.evaluation.recommendation.choice import MIN_SAVING, choose
from ctxlab.evaluation.recommendation.effects import TOTAL_USD
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, Usage
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.baselines import BASELINES

MODEL, WINDOW = "gpt-4", 9_000


def a_session(number: int, billed: int = 10, **fields: Any) -> Recording:
    made = a_recording(number, 20 + number % 3)
    replies = [m.replace(usage=Usage(billed, output=1_200)) if m.role == "assistant" else m
               for m in made.messages]  # fmt: skip
    values = {"cluster": None, "format": "codex", "model": MODEL, **fields}
    return Recording(made.id, tuple(replies), **values)


SESSIONS = [a_session(number) for number in range(8)]


@pytest.fixture(scope="module")
def found() -> Recommendation:
    return recommend(
        SESSIONS, window=WINDOW, portable=["sliding_window() | panic()"], reserve=500, workers=1
    )


def test_the_setting_is_the_cheapest_of_the_tuning_set_that_saves_and_keeps_enough(
    found: Recommendation,
) -> None:
    assert found.candidate is not None
    (limit, _), base = found.trials.index[0], found.trials.iloc[0]
    rows = found.trials.loc[[limit]].iloc[: len(BASELINES["codex"].variants())]
    fits = rows["usd_per_100"] <= (1 - MIN_SAVING) * base["usd_per_100"]
    fits &= rows["recall_far_held"] >= 0.95 * base["recall_far_held"]
    fits &= rows["overflow_rate"] <= base["overflow_rate"]
    least = rows.loc[fits, "usd_per_100"].min()
    chosen = rows.loc[[(limit, found.candidate.strategy)]].iloc[0]
    assert least <= chosen["usd_per_100"] <= least + 0.01 * base["usd_per_100"]


def test_the_figures_are_those_of_an_evaluation_of_the_held_out_recordings(
    found: Recommendation,
) -> None:
    names = [each["recording"] for each in found.results.recordings]
    held = [each for each in SESSIONS if each.id in names]
    assert found.evidence.is_held_out
    assert len(held) == found.evidence.recordings == 5
    assert found.evidence.tuning_recordings == 3
    assert found.candidate is not None
    strategies = ["codex", found.candidate.strategy]
    again = evaluate(
        held, strategies, WINDOW, reserve=500, fixed_in_limit=True, closed_loop=True
    ).leaderboard()
    for effect, (_, row) in zip((found.default, found.candidate), again.iterrows(), strict=True):
        assert effect.held_far == pytest.approx(row["recall_far_held"])
        assert effect.refetches == pytest.approx(100 * row["refetch_rate"])
    saved = found.default.usd - found.candidate.usd
    assert found.candidate.saved_usd.value == pytest.approx(saved)
    assert found.candidate.saved_share.value == pytest.approx(saved / found.default.usd)


def test_each_summary_of_the_product_adds_the_cost_of_the_call_that_writes_it(
    found: Recommendation,
) -> None:
    runs, rows = found.results.runs, found.results.compactions
    added = (runs[TOTAL_USD] - runs["cost_usd"]).groupby(runs["strategy"], observed=True).sum()
    summaries = rows[rows["kind"] == "summary"]
    # GPT-4 has no prompt cache, and costs 30 dollars per million input tokens and 60 for output.
    expected = (summaries["tokens_before"] * 30e-6 + 4_000 * 60e-6).groupby(
        summaries["strategy"], observed=True
    )
    assert summaries["strategy"].eq("codex()").any()
    for name, usd in expected.sum().items():
        assert added[name] == pytest.approx(usd)
    assert added["recorded()"] == 0


def test_the_lines_say_what_to_write_and_how_sure_that_is(
    found: Recommendation, tmp_path: Path
) -> None:
    names = ["Setting", "Saves", "Forgets", "Evidence"]
    assert [line.partition(":")[0] for line in str(found).splitlines()][:4] == names
    assert found.settings or found.lines["Setting"].startswith("keep the default of codex.")
    assert all(each.text in found.lines["Setting"] for each in found.settings)
    assert "chosen on 3 recordings (3 clusters), measured on 5" in found.lines["Evidence"]
    assert "<p>Setting: " in found._repr_html_()
    found.save(tmp_path / "kept")
    stored = json.loads((tmp_path / "kept" / "recommendation.json").read_text(encoding="utf-8"))
    assert stored["lines"] == found.lines
    assert len(stored["trials"]) == len(found.trials)


def test_few_sessions_choose_and_measure_and_have_no_interval() -> None:
    found = recommend(SESSIONS[:2], window=WINDOW, portable=[], workers=1)
    assert not found.evidence.is_held_out
    assert "collect 7 independent sessions" in found.lines["Evidence"]
    assert found.candidate is None or math.isnan(found.candidate.saved_share.low)


def test_a_product_without_settings_keeps_its_default() -> None:
    found = recommend(SESSIONS[:2], "mini-swe-agent", WINDOW, portable=[], workers=1)
    assert not found.settings
    assert "lets its user set nothing" in found.lines["Setting"]


def test_what_the_logs_do_not_tell_comes_from_the_product_the_model_or_ctxlab() -> None:
    def facts(*recordings: Recording, **given: Any) -> dict[str, tuple[str, str]]:
        setup = find_agent_setup(recordings, workers=1, **given)
        return {each.name: (each.value, each.origin) for each in setup.facts}

    logged = facts(a_session(1, format="codex", meta={"context_window": 50_000}))
    assert logged["window"] == ("50,000 tokens", "logged")
    assert logged["reserve"] == ("2,000 tokens", "logged")
    assert logged["product"] == ("Codex CLI with a model of OpenAI", "logged")
    claude = facts(a_session(1, format="claude-code", model="claude-opus-4-6"))
    assert claude["window"] == ("200,000 tokens", "product")
    assert claude["cache writes"] == ("5 minutes", "default")
    longer = a_session(1, 250_000, format="claude-code", model="claude-opus-4-6")
    assert facts(longer)["window"] == ("1,000,000 tokens", "model data")
    plain = Recording("a", (Message("user", "hi"), Message("assistant", "ok")), format="pi")
    assumed = facts(plain)
    assert assumed["window"][1] == "model data"
    assert assumed["reserve"] == ("16,000 tokens", "default")
    assert assumed["model"] == ("gpt-5", "default")
    given = facts(plain, product="codex", window=7_000, model="gpt-4o", reserve=10, cache_ttl="1h")
    assert {origin for _, origin in given.values()} == {"given"}


def test_recordings_that_the_answer_is_not_about_are_left_out_and_counted() -> None:
    other = a_session(1, format="pi")
    unpriced = a_session(2, model="nobody/knows-this-one")
    wider = a_session(3, meta={"context_window": 400_000})
    setup = find_agent_setup([*SESSIONS, other, unpriced, wider, Recording("empty", ())], workers=1)
    assert list(setup.recordings) == SESSIONS
    assert sorted(setup.left_out.values()) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"product": "agent-framework"}, "got several; choose agent_framework.context_window or"),
        ({"product": "claud-code"}, "unknown product 'claud_code'"),
        ({"min_recall": 1.5}, "min_recall: expected a share"),
        ({"holdout": 1}, "holdout must be at least 0 and below 1"),
    ],
)
def test_a_wrong_argument_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        recommend(SESSIONS[:1], **given)


def test_logs_of_no_known_product_are_refused() -> None:
    with pytest.raises(SpecError, match=r"expected logs of claude-code, .* got the format native"):
        recommend([a_session(1, format="native")])


def test_of_settings_that_cost_the_same_the_simplest_is_chosen() -> None:
    import pandas as pd

    names = ["codex()", "codex(trigger=0.4, user_tokens=10)", "codex(trigger=0.4)"]
    keys = [(1.0, name) for name in names]
    scores = {"usd_per_100": [10.0, 5.0, 5.05], "recall_far_held": 0.9}
    rates = {"overflow_rate": 0.0, "newly_invalid_rate": 0.0}
    trials = pd.DataFrame({**scores, **rates}, pd.MultiIndex.from_tuples(keys))
    candidates = {key: parse_strategy(key[1]) for key in keys[1:]}
    choice = choose(trials, candidates, keys[0], 0.95)
    assert choice is not None
    assert choice == (keys[2], True)


@pytest.mark.recordings
def test_the_logs_of_claude_code_tell_its_window_and_its_cache(recorded: Path) -> None:
    setup = find_agent_setup(list(load(recorded / "claude-code-entireio", on_error="skip")))
    facts = {each.name: (each.value, each.origin) for each in setup.facts}
    assert setup.baseline.name == "claude_code"
    assert facts["window"] == ("200,000 tokens", "product")
    assert facts["cache writes"][0].startswith("1 hour for ")
    assert {facts[name][1] for name in ("reserve", "model", "cache writes")} == {"logged"}
