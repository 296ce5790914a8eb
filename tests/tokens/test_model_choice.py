"""Tests that each recording is counted, priced and checked by its own model by default."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace
from running import a_recording

import ctxlab
from ctxlab.errors import ReadError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.formats import load, write
from ctxlab.messages.types import Message, Recording
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import ModelWarning
from ctxlab.tokens.profiles import UNCALIBRATED, TokenProfile

MODELS = ("claude-opus-4-5", "gpt-5.1-codex", "deepseek/deepseek-chat", None, "nobody/knows-it")
STRATEGIES = ["full", "observation_mask(keep=3) | panic"]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Return a folder with recordings of several models and one without a model."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for number, model in enumerate(MODELS):
        write([replace(a_recording(number), model=model)], folder / f"{number}.jsonl")
    return folder


def requests_of(results: Results) -> pd.DataFrame:
    columns = ["recording", "strategy", "tokens", "cost_usd", "cached", "invalid"]
    return results.requests[columns].astype({"recording": str, "strategy": str})


def test_each_recording_is_counted_and_priced_as_if_its_model_had_been_named(mixed: Path) -> None:
    recordings = list(load(mixed))
    together = requests_of(evaluate(recordings, STRATEGIES, 0.5, workers=1))
    apart = []
    for recording, model in zip(recordings, MODELS, strict=True):
        alone = evaluate([recording], STRATEGIES, 0.5, model or "gpt-5", workers=1)
        apart.append(requests_of(alone))
    pd.testing.assert_frame_equal(together, pd.concat(apart, ignore_index=True), check_exact=True)


def test_a_model_that_is_named_takes_the_place_of_all_others(mixed: Path) -> None:
    same = [replace(recording, model="claude-opus-4-5") for recording in load(mixed)]
    found = evaluate(load(mixed), STRATEGIES, 0.5, "claude-opus-4-5", workers=1)
    expected = evaluate(same, STRATEGIES, 0.5, workers=1)
    pd.testing.assert_frame_equal(found.requests, expected.requests, check_exact=True)


def test_a_close_look_and_a_description_take_the_recordings_own_model(mixed: Path) -> None:
    claude = next(load(mixed))
    results = evaluate([claude], "full", 0.5, workers=1)
    close = ctxlab.replay(claude, "full", 0.5)
    assert close.requests["cost_usd"].tolist() == results.requests["cost_usd"].tolist()
    facts = ctxlab.describe(load(mixed), workers=1).recordings
    assert facts["counted_as"].tolist() == [model or "gpt-5" for model in MODELS]


def test_a_model_whose_price_nobody_knows_has_no_cost_however_it_is_named() -> None:
    recording = a_recording(0)
    unknown = replace(recording, model="nobody/knows-it")
    with pytest.warns(ModelWarning, match="nobody/named-it-before"):
        named = evaluate([recording], "full", 0.5, "nobody/named-it-before", workers=1)
    for results in (named, evaluate([unknown], "full", 0.5, workers=1)):
        assert results.requests["cost_usd"].isna().all()
    both = evaluate([recording, unknown], "full", 0.5, workers=1)
    assert both.leaderboard()["cost_usd"].isna().all()  # less than all of a bill is no bill


def test_an_empty_model_is_none() -> None:
    claude = replace(a_recording(0), model="claude-opus-4-5")
    nameless = replace(a_recording(1), model="")
    results = evaluate([claude, nameless], "full", 0.5, "", workers=1)
    counted = [facts["counted_as"] for facts in results.recordings]
    assert counted == ["claude-opus-4-5", "gpt-5"]
    assert "1 recording that names no model" in results.model_note


def test_a_notebook_says_by_which_models(mixed: Path) -> None:
    results = evaluate(load(mixed), "full", 0.5, workers=1)
    assert results.model_note == (
        "Counted and priced by their own models: claude-opus-4-5 (1), gpt-5.1-codex (1), "
        "deepseek/deepseek-chat (1) and 1 more; as gpt-5: 1 recording that names no model; no price is "
        "known for nobody/knows-it, so the cost of all recordings is unknown."
    )
    assert results.model_note in results._repr_html_()


@pytest.mark.properties
def test_a_request_is_judged_by_the_rules_of_the_recordings_provider() -> None:
    # Anthropic's alone: the user speaks first. tau2-bench begins with a greeting.
    greeting = (
        Message("assistant", "How can I help?"),
        Message("user", "Book a flight."),
        Message("assistant", "Done."),
    )
    rates = {
        model: evaluate([Recording("r", greeting, model=model)], "full", 1.0, workers=1)
        .leaderboard()["invalid_rate"]
        .tolist()
        for model in ("gpt-4.1", "claude-opus-4-5", None)
    }
    assert rates == {"gpt-4.1": [0.0], "claude-opus-4-5": [1.0], None: [0.0]}


def test_a_profile_counts_the_models_of_its_family_alone() -> None:
    twice = TokenProfile(family="anthropic", ratio=2.0)
    claude, gpt = (Recording("r", (), model=model) for model in ("claude-opus-4-5", "gpt-4o"))
    given = ModelChoice.from_options(None, twice)
    assert given.counter_for(claude).profile == twice
    assert given.counter_for(gpt).profile == UNCALIBRATED
    assert ModelChoice.from_options(None, UNCALIBRATED).counter_for(claude).profile == UNCALIBRATED


def test_the_calibration_of_the_current_folder_counts_in_python_too(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / ".ctxlab" / "profiles"
    stored.mkdir(parents=True)
    (stored / "anthropic.json").write_text(json.dumps({"family": "anthropic", "ratio": 3.0}))
    claude = next(load(mixed))
    (stored / "openai.json").write_text(json.dumps({"ratio": 5.0}))  # of no other family's models
    elsewhere = evaluate([claude], "full", 1.0, workers=1).requests["tokens"]
    monkeypatch.chdir(tmp_path)
    here = evaluate([claude], "full", 1.0, workers=1).requests["tokens"]
    plain = TokenCounter("claude-opus-4-5", TokenProfile(ratio=3.0))
    position = claude.request_positions[-1]
    assert here.iloc[-1] == plain.count_request(claude.messages[:position], claude.tools)
    assert here.iloc[-1] > 2 * elsewhere.iloc[-1]


def test_a_stored_profile_of_another_family_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / ".ctxlab" / "profiles"
    stored.mkdir(parents=True)
    (stored / "openai.json").write_text(json.dumps({"family": "anthropic", "ratio": 3.0}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReadError, match="expected a profile of the family openai, got anthropic"):
        evaluate([a_recording(0)], "full", 1.0, workers=1)
