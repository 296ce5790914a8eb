"""Tests that ctxlab and the implementation of ``docs/closed-loop.md`` find the same closed loop."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from closed_agreement import COLUMNS, STRATEGIES, Agreement, compare_recording, smallest
from generated import conversations, strange_conversations
from generated_agents import LONG_RESULTS, OLDER_RETURNS_MORE, WRITTEN_AT_ONCE, recordings
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.formats import load
from ctxlab.messages.types import Recording

BUNDLED = Path(__file__).parents[3] / "datasets"
LIMITS = (60, 150, 300, 600)
REPLAYABLE = [
    spec
    for spec in ("sliding_window()", *SPECS[1:])
    if not re.search(r"oracle|random|recorded", spec)
]
"strategies that need nothing of the recording but its messages so far, each with one draw"
FEW = ("observation_mask(keep=3) | panic()", "rolling_summary() | panic()", "nothing()")
AS_RECORDING = (conversations() | strange_conversations()).map(lambda said: Recording("r", said))


def check(found: Agreement, *columns: str) -> None:
    assert not found.differences, "\n".join(found.differences[:20])
    assert all(found.sums[column] for column in columns)


def test_the_implementation_shares_no_code_with_the_closed_loop_of_ctxlab() -> None:
    tree = ast.parse((Path(__file__).parent / "closed_replay.py").read_text("utf-8"))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    of_ctxlab = {name for name in imported if name.startswith("ctxlab")}
    assert of_ctxlab == {
        "ctxlab.context.context",
        "ctxlab.context.history",
        "ctxlab.evaluation.engine",
        "ctxlab.messages.file_access",
        "ctxlab.messages.repeatable_calls",
        "ctxlab.messages.types",
        "ctxlab.strategies.base",
    }


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize(
    "strategy", ["sliding_window()", *(s for s in REPLAYABLE if s != "sliding_window()")]
)
@given(recording=recordings() | AS_RECORDING, limit=st.sampled_from(LIMITS))
def test_all_columns_agree_under_each_strategy(
    strategy: str, recording: Recording, limit: int
) -> None:
    check(compare_recording(recording, [strategy], [limit]))


@given(recording=recordings(), limit=st.sampled_from(LIMITS))
def test_all_columns_agree_on_small_agents(recording: Recording, limit: int) -> None:
    check(compare_recording(recording, STRATEGIES, [limit]))


@given(recording=AS_RECORDING, limit=st.sampled_from(LIMITS))
@pytest.mark.properties
def test_all_columns_agree_on_strange_conversations(recording: Recording, limit: int) -> None:
    check(compare_recording(recording, STRATEGIES, [limit]))


@pytest.mark.parametrize("recording", [OLDER_RETURNS_MORE, WRITTEN_AT_ONCE])
def test_all_columns_agree_where_the_order_of_calls_matters(recording: Recording) -> None:
    found = compare_recording(recording, ["sliding_window(messages=2)"], [10**6])
    check(found, "refetches")


@pytest.mark.parametrize("limit", [1200, 3000, 10**6])
def test_all_columns_agree_where_results_of_several_pages_are_read_back(limit: int) -> None:
    strategies = (
        "offload(tokens=200, preview=60)",
        "offload(tokens=200, preview=60) | sliding_window()",
        "offload(tokens=200, preview=60) | sliding_window() | panic(large=100, begin=30, end=30)",
        "tool_stubs(keep=1) | offload(tokens=2000)",
    )
    check(compare_recording(LONG_RESULTS, strategies, [limit]), "refetches")


def test_all_columns_agree_on_a_bundled_recording() -> None:
    recording = next(iter(load(BUNDLED / "coding-agent" / "returns-1.jsonl")))
    check(compare_recording(recording, FEW, [0.3]), *COLUMNS)


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "number", "step"),
    [
        ("claude-code-entireio", 4, 1),
        ("mini-swe-agent", 3, 1),
        ("tau2-bench/toolorchestra_retail_gpt-5_1trial.json", 7, 6),
        ("tau2-bench/langchain_agent_airline_2025-11-26_00-37-06.json", 7, 6),
        ("tau2-bench/gpt-4.1_telecom_default_gpt-4.1_1trials.json", 6, 6),
        ("openhands", 3, 5),
        ("swe-agent", 3, 1),
    ],
)
def test_all_columns_agree_on_real_recordings(
    recorded: Path, name: str, number: int, step: int
) -> None:
    if not (recorded / name).exists():
        pytest.skip(f"no real recordings: {recorded / name} is missing")
    for recording in smallest(recorded / name, number, step):
        check(compare_recording(recording, STRATEGIES, [0.25, 0.5]))
