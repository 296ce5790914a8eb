"""Tests of ``evals/interruptions.py``: it finds the same results, and it notices other ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from eval_scripts import bundled_folder, import_eval_script
from running import a_recording

from ctxlab.evaluation.experiment import evaluate


@pytest.mark.e2e
def test_kills_shares_and_a_dead_worker_change_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = import_eval_script("interruptions", monkeypatch)
    monkeypatch.setattr(script, "PRODUCTS", ("codex",))
    monkeypatch.setattr(script, "LIMITS", ("4k",))
    assert script.main([bundled_folder(), "--files", "3", "--kills", "2"]) == 0
    assert capsys.readouterr().out.count("the same results") == 3


def test_other_results_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = import_eval_script("interruptions", monkeypatch)
    for name, number in (("whole", 0), ("killed", 1)):
        results = evaluate([a_recording(number)], "full", 2000, folder=tmp_path / name, workers=1)
        assert script.compare(name, "", results, tmp_path / "whole") is (name == "whole")
    assert "OTHER RESULTS" in capsys.readouterr().out
