"""Tests that the page of tables names each column of the real tables, with its type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from asked import with_questions
from continuing import asked
from running import a_recording

import ctxlab
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.schemas import list_tables
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Recording

STRATEGIES = ["full", "rolling_summary | panic"]
OPEN = {"Results.requests", "Results.runs", "Results.leaderboard()", "Replay.requests"}
"tables whose columns depend on the metrics that were measured"


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return [a_recording(number) for number in range(6)]


@pytest.fixture(scope="module")
def results(recordings: list[Recording]) -> Results:
    return ctxlab.evaluate(recordings, STRATEGIES, [3000], "gpt-4o", workers=1)


def kind_of(column: pd.Series) -> str:
    name = str(column.dtype)
    return "text" if name in ("object", "str", "string") else name


def test_the_page_of_tables_names_each_column_with_its_type(
    recordings: list[Recording], results: Results, tmp_path: Path
) -> None:
    close = ctxlab.replay(recordings[0], STRATEGIES[1], 3000, "gpt-4o")
    found = ctxlab.describe(recordings, "gpt-4o", workers=1)
    tuned = ctxlab.tune(
        recordings, ["sliding_window(tokens=[900, 2000])"], [3000], "gpt-4o", holdout=0, workers=1
    )
    survival = ctxlab.measure_survival(recordings, STRATEGIES, [3000], "gpt-4o", n=4, workers=1)
    products = ctxlab.compare_products(recordings, 3000, STRATEGIES, "gpt-4o", workers=1)
    client = ScriptedClient(lambda request: "Not mentioned.")
    questions = [with_questions(number, 3) for number in range(2)]
    qa = ctxlab.run_qa(questions, "full", 500, "gpt-4o", answer_model="gpt-4o", client=client)
    actions = asked(strategies=("full",))
    stored = Results.load(results.save(tmp_path))
    real = {
        "Results.requests": stored.requests,
        "Results.runs": stored.runs,
        "Results.compactions": stored.compactions,
        "Results.leaderboard()": results.leaderboard(),
        "Replay.requests": close.requests,
        "Replay.needs": close.needs,
        "Replay.probes": close.probes,
        "Replay.compactions": close.compactions,
        "SentRequest.table": close.sent(-1).table,
        "SentRequest.diff()": close.diff(-1),
        "Comparison.table": ctxlab.compare_strategies(results, *STRATEGIES).table,
        "TuningResults.trials": tuned.trials,
        "TuningResults.frontier": tuned.frontier,
        "TuningResults.optimism": tuned.optimism,
        "SurvivalResults.frame": survival.frame,
        "SurvivalResults.breakdown()": survival.breakdown("kind").drop(columns="kind"),
        "QAResults.answers": qa.answers,
        "QAResults.requests": qa.requests,
        "NextActionResults.answers": actions.answers,
        "NextActionResults.requests": actions.requests,
        "ProductTable.frame": products.frame,
        **{
            f"Descriptions.{name}": getattr(found, name)
            for name in ("recordings", "compactions", "largest_results", "violations")
        },
        "Descriptions.skipped": found.skipped,
        "Descriptions.bill_changes": found.bill_changes,
    }
    schemas = {table.name: table.columns for table in list_tables()}
    assert set(schemas) == {*real, "find_refetches()"}
    for name, frame in real.items():
        types = {column: kind_of(frame[column]) for column in frame}
        expected = {column: kind for column, (kind, *_) in schemas[name].items()}
        if name in OPEN or name == "TuningResults.trials":
            expected = {column: kind for column, kind in expected.items() if column in types}
        assert types == expected, name


def test_whole_numbers_are_stored_as_integers_unless_a_strategy_is_random(
    recordings: list[Recording], results: Results
) -> None:
    random = ctxlab.evaluate(recordings, ["random_drop"], [3000], "gpt-4o", workers=1)
    whole = [c.name for metric in METRICS.values() for c in metric.columns if c.integer]
    measured = [name for name in whole if name in results.requests]
    assert {"tokens", "compacted", "canaries"} <= {*measured}
    for name in measured:
        assert results.requests[name].dtype == np.int64, name
        assert random.requests[name].dtype == np.float64, name
    assert (random.requests[measured] % 1 != 0).any(axis=None)  # means over seeds


def test_every_column_has_a_meaning() -> None:
    for table in list_tables():
        assert all(meaning for *_, meaning in table.columns.values()), table.name
