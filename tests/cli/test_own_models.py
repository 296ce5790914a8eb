"""``ctxlab eval`` and ``evaluate`` count and price recordings by their own models, alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from running import Run, a_recording

from ctxlab.experiment import evaluate
from ctxlab.formats import load, write
from ctxlab.results import Results

MODELS = ("claude-opus-4-5", "gpt-5.1-codex", "deepseek/deepseek-chat", None, "nobody/knows-it")
STRATEGIES = ["full", "observation_mask(keep=3) | panic"]


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


@pytest.mark.parametrize(
    "folder", ["claude-code-entireio", "codex-format-samples", "mini-swe-agent"]
)
def test_real_logs_are_priced_by_their_own_models(
    recorded: Path, folder: str, run: Run, tmp_path: Path
) -> None:
    if not (recorded / folder).is_dir():
        pytest.skip(f"no {folder} among the real recordings")
    some = ("--sample", "2")
    run("eval", recorded / folder, *some, "-l", "50%", "-s", "full", "--out", tmp_path / "run")
    there = Results.load(tmp_path / "run")
    here = evaluate(load(recorded / folder, sample=2, on_error="skip"), "full", "50%")
    pd.testing.assert_frame_equal(here.requests, there.requests, check_exact=True)
    for facts in here.manifest["recordings"]:
        assert facts["model"] == facts["counted_as"] == facts["priced_as"]
    assert np.isfinite(here.requests["cost_usd"]).all()
