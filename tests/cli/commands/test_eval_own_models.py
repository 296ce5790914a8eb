"""Tests that ``ctxlab eval`` and ``evaluate`` count and price each recording by its own model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from running import Run, a_recording

from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.formats import load, write

MODELS = ("claude-opus-4-5", "gpt-5.1-codex", "deepseek/deepseek-chat", None, "nobody/knows-it")
STRATEGIES = ["full", "observation_mask(keep=3) | panic"]


@pytest.mark.e2e
def test_python_and_the_command_line_give_the_same_figures(run: Run, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    for number, model in enumerate(MODELS):
        write([replace(a_recording(number), model=model)], mixed / f"{number}.jsonl")
    options = [option for strategy in STRATEGIES for option in ("-s", strategy)]
    run("eval", mixed, "-l", "50%", *options, "--out", tmp_path / "run")
    there = Results.load(tmp_path / "run")
    here = evaluate(load(mixed), STRATEGIES, "50%")
    pd.testing.assert_frame_equal(here.requests, there.requests, check_exact=True)
    assert here.manifest["prices"] == there.manifest["prices"]
    assert set(here.manifest["tokens"]) == {*filter(None, MODELS), "gpt-5"}


@pytest.mark.e2e
def test_a_saved_run_of_any_kind_counts_the_same_elsewhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = [replace(a_recording(number), model="claude-opus-4-5") for number in range(6)]
    logs = tmp_path / "logs"
    for number, recording in enumerate(claude):
        write([recording], logs / f"{number}.jsonl")
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / ".ctxlab" / "profiles").mkdir(parents=True)
    elsewhere.mkdir()
    profile = '{"family": "anthropic", "ratio": 3.0}'
    (project / ".ctxlab" / "profiles" / "anthropic.json").write_text(profile)
    monkeypatch.chdir(project)
    run("eval", logs, "-l", "4k", "-s", "full", "--out", tmp_path / "evaluated")
    searched = ("-s", "panic(protect=[1, 2])", "-l", "4k", "--holdout", "0")
    run("tune", logs, *searched, "--out", tmp_path / "tuned")
    evaluate(claude, "full", 4000, data=[str(logs)]).save(tmp_path / "in-python")
    monkeypatch.chdir(elsewhere)
    for name in ("evaluated", "tuned", "in-python"):
        saved = Results.load(tmp_path / name).requests.query("strategy == 'full()'")
        run("eval", tmp_path / name, "-s", "full", "--out", tmp_path / f"{name}-again")
        again = Results.load(tmp_path / f"{name}-again").requests
        assert again["tokens"].tolist() == saved["tokens"].tolist()
    # Of other data or another model the saved profiles say nothing.
    for changed in ((tmp_path / "evaluated", logs), (tmp_path / "evaluated", "-m", MODELS[0])):
        here = run("eval", *changed, "-s", "full", "-l", "4k", "--json")
        plain = run("eval", logs, "-s", "full", "-l", "4k", "--json")
        assert here.out == plain.out


def test_a_model_that_an_experiment_names_is_said_where_recordings_are_of_another(
    run: Run, tmp_path: Path
) -> None:
    write([replace(a_recording(0), model="claude-opus-4-5")], tmp_path / "logs" / "0.jsonl")
    spec = tmp_path / "mine.toml"
    spec.write_text('data = ["logs"]\nmodel = "gpt-5"\nlimits = [4000]\nstrategies = ["full"]\n')
    said = run("eval", spec).err
    assert "counted and priced as gpt-5; recorded with claude-opus-4-5 (1)" in said


@pytest.mark.parametrize(
    "folder", ["claude-code-entireio", "codex-format-samples", "mini-swe-agent"]
)
def test_real_logs_are_priced_by_their_own_models(
    recorded: Path, folder: str, run: Run, tmp_path: Path
) -> None:
    if not (recorded / folder).is_dir():
        pytest.skip(f"no {folder} among the real recordings")
    options = [option for strategy in STRATEGIES for option in ("-s", strategy)]
    run("eval", recorded / folder, "-l", "50%", *options, "--out", tmp_path / "run")
    there = Results.load(tmp_path / "run")
    here = evaluate(load(recorded / folder), STRATEGIES, "50%")
    pd.testing.assert_frame_equal(here.requests, there.requests, check_exact=True)
    for facts in here.recordings:
        assert facts["model"] == facts["counted_as"]
    assert np.isfinite(here.requests["cost_usd"]).all()
