"""Tests of ``evals/products.py``: the agreement with recorded compactions, and the page's figures."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from eval_scripts import ROOT, bundled_folder, import_eval_script
from msgspec.structs import replace
from running import a_recording

from ctxlab.evaluation.products import compare_products
from ctxlab.messages.types import Compaction, Message, Recording, Substitute

CORPUS = Path(os.environ.get("CTXLAB_CORPUS") or ROOT.parent / "shared" / "corpus")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("products", monkeypatch)


def compacted(number: int, position: int, trigger: str) -> Recording:
    """Return a session with a recorded compaction."""
    recording = a_recording(number)
    summary = Substitute(Message("user", "so far: some files"))
    compaction = Compaction(position, (0, summary), trigger=trigger)
    return replace(
        recording, compactions=(compaction,), meta={"sessionId": "s", "version": "2.1.39"}
    )


def test_recorded_compactions_agree_with_themselves_and_manual_ones_do_not_count(
    script: ModuleType,
) -> None:
    logs = script.LOGS[1]._replace(baseline="recorded")
    sessions = [compacted(0, 9, "auto"), compacted(1, 13, "auto"), a_recording(2)]
    found = script.find_agreement(sessions, logs)
    assert found.sessions["recorded"].tolist() == [1, 1]
    assert found.sessions["replayed"].tolist() == [1, 1]
    assert found.pairs["distance"].tolist() == [0, 0]
    assert (found.pairs["after"] == found.pairs["after_replayed"]).all()
    assert (found.pairs["after"] < found.pairs["before"]).all()
    manual = script.find_agreement([compacted(0, 9, "manual")], logs).sessions
    assert manual[["recorded", "replayed"]].to_numpy().tolist() == [[0, 1]]


def test_a_session_belongs_to_the_baseline_of_its_version(script: ModuleType) -> None:
    session = compacted(0, 9, "auto")
    older = replace(session, meta={**session.meta, "version": "2.1.7"})
    assert [logs.has(session) for logs in script.LOGS] == [False, True, False]
    assert [logs.has(older) for logs in script.LOGS] == [True, False, False]


def test_the_conclusions_leave_out_what_overflows_and_what_is_no_product(
    script: ModuleType,
) -> None:
    rows = [
        ("cheap", "product", 0.2, 0.1, 0.0),
        ("keeper", "product", 0.9, 0.6, 0.0),
        ("dear", "product", 1.5, 0.3, 0.0),
        ("overflows", "product", 0.1, 1.0, 0.5),
        ("excerpt_memory() | panic()", "reference", 0.4, 0.8, 0.0),
    ]
    frame = pd.DataFrame(rows, columns=["strategy", "kind", "cost_5m", "held_far", "overflow"])
    frame = frame.assign(constraints=frame["held_far"], compactions=1.0, invalid=0.0)
    bounds = {f"{n}_{s}": frame[n] for n in ("cost_5m", "held_far") for s in ("low", "high")}
    fit, price, memory, rules, beside = script.conclude(frame.assign(**bounds))
    assert "Of 4 defaults, 0 change nothing" in fit
    assert "1 send more than 1%" in fit
    assert "`cheap` costs 0.20 of the full history, and `dear` 1.50. Of the 3, 1 cost more" in price
    assert "median default holds 0.30" in memory
    assert "`keeper` holds the most: 0.60" in memory
    assert "`keeper` has the most: 60%" in rules
    assert "2 of the 3 defaults cost no less and hold no more; 0 cost no more" in beside


@pytest.mark.evals
def test_the_page_has_the_table_of_the_bundled_recordings(script: ModuleType) -> None:
    bundled_folder()
    assert script.sample_table() in script.PAGE.read_text(encoding="utf-8")


@pytest.mark.recordings
def test_the_page_has_the_figures_of_these_recordings(script: ModuleType) -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus is not there; set CTXLAB_CORPUS to its folder")
    names = ("claude_code", "codex", "sliding_window() | panic()")
    chosen = script.choose_by_window(script.load_families([str(CORPUS)]))[script.MAIN]
    frame = compare_products(chosen, script.MAIN, names, script.MODEL).frame
    _, _, section = script.PAGE.read_text(encoding="utf-8").partition(
        f"## A window of {script.MAIN:,}"
    )
    wanted = script.table_rows(frame).splitlines()[2:]
    shown = re.sub(r" +", " ", section)
    assert all(re.sub(r" +", " ", line) in shown for line in wanted)
