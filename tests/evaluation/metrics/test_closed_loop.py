"""Tests of the metric ``closed_loop``: settings, two bounds, and its place in commands and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from ctxlab.cli.render.leaderboard import leaderboard_text
from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import DEFAULT_METRICS
from ctxlab.evaluation.metrics.closed_loop import SECTION, ClosedLoopMetric
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import Spec, read_spec, run_experiment
from ctxlab.evaluation.tuning import tune
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, ToolCall

PATH = "src/readers/io_reader.py"


def tool(name: str, number: int, result: str, **arguments: object) -> list[Message]:
    call = ToolCall(f"c{number}", name, json.dumps(arguments))
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", result, tool_call_id=call.id, name=name),
    ]


def agent(name: str = "a", filler: int = 6, lookup: str = "Grep") -> Recording:
    """Build an agent that finds a path, does other things, and then edits the file."""
    said = [Message("user", "Fix the reader."), Message("assistant", "I will look.")]
    said += tool(lookup, 0, f"{PATH}:12: raise ValueError('no header')", pattern="header")
    for number in range(1, filler + 1):
        said += tool("Bash", number, f"step {number} of the build is done\n" * 40, command="make")
    said += tool("Edit", 99, "done", file_path=PATH, old_string="raise", new_string="return")
    return Recording(name, (*said, Message("assistant", "Fixed.")))


def board(results: Results) -> dict[str, float]:
    row: dict[str, float] = results.leaderboard().iloc[0].to_dict()
    return row


def test_what_a_window_dropped_is_fetched_again_and_paid() -> None:
    row = board(evaluate([agent()], "sliding_window(messages=4)", 10**6, "gpt-5", closed_loop=True))
    assert row["refetch_rate"] * row["requests"] == 1
    assert row["irrecoverable_rate"] == row["unrecovered_rate"] == 0
    assert row["closed_usd"] > row["cost_usd"]
    assert row["closed_seconds"] == 5 * (row["requests"] + 1)


def test_what_no_repeatable_call_returned_is_irrecoverable() -> None:
    settings = ClosedLoopMetric(repeatable=("!Grep",))
    row = board(
        evaluate([agent()], "sliding_window(messages=4)", 10**6, "gpt-5", closed_loop=settings)
    )
    assert row["refetch_rate"] == 0
    assert row["irrecoverable_rate"] * row["requests"] == 1
    assert row["closed_usd"] == row["cost_usd"]


def test_a_tool_can_be_declared_repeatable() -> None:
    settings = ClosedLoopMetric(repeatable=("grope",))
    for closed_loop, fetched in ((True, 0), (settings, 1)):
        row = board(
            evaluate(
                [agent(lookup="grope")],
                "sliding_window(messages=4)",
                10**6,
                "gpt-5",
                closed_loop=closed_loop,
            )
        )
        assert row["refetch_rate"] * row["requests"] == fetched


def test_the_lower_bound_counts_a_name_as_known() -> None:
    row = board(evaluate([agent()], "names_in_place(keep=2)", 10**6, "gpt-5", closed_loop=True))
    assert row["refetch_rate"] > row["refetch_rate_named"] == 0
    assert row["closed_usd"] > row["closed_usd_named"] == row["cost_usd"]


def test_a_strategy_that_calls_a_model_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"calls gpt-5-mini; leave out its model or the closed loop"
    ):
        evaluate([agent()], "rolling_summary(model='gpt-5-mini')", 10**6, closed_loop=True)


@pytest.mark.parametrize("setting", [{"max_refetches": -1}, {"latency": float("nan")}])
def test_impossible_settings_are_refused(setting: dict[str, float]) -> None:
    (name,) = setting
    with pytest.raises(SpecError, match=f"{name}: expected 0 or more"):
        ClosedLoopMetric(**setting)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=f"{name}: expected 0 or more"):
        Spec(data=("logs",), **setting)  # type: ignore[arg-type]


def test_the_closed_loop_is_measured_only_if_asked_for() -> None:
    results = evaluate([agent()], "nothing", 10**6, "gpt-5")
    assert "closed_usd" not in results.leaderboard()
    assert "closed_loop" not in DEFAULT_METRICS
    assert SECTION not in leaderboard_text(results, 0.95)


def test_the_leaderboard_has_a_section_for_the_closed_loop() -> None:
    text = leaderboard_text(evaluate([agent()], "full", 10**6, "gpt-5", closed_loop=True), 0.95)
    main, section = text.split(SECTION)
    assert "re-fetches" not in main
    assert "re-fetches" in section


def test_a_saved_run_is_repeated_with_the_same_settings(tmp_path: Path) -> None:
    write([agent()], tmp_path / "a.jsonl")
    spec = Spec(
        data=(str(tmp_path / "a.jsonl"),),
        strategies=("sliding_window(messages=4)",),
        limits=(10**6,),
        closed_loop=True,
        max_refetches=2,
        latency=1.5,
        repeatable=("grope",),
    )
    results = run_experiment(spec)
    results.save(tmp_path / "run")
    again = read_spec(tmp_path / "run")
    assert (again.max_refetches, again.latency, again.repeatable) == (2, 1.5, ("grope",))
    assert run_experiment(again).equals(results)


def test_the_manifest_of_evaluate_names_the_settings() -> None:
    settings = ClosedLoopMetric(max_refetches=1)
    spec = evaluate([agent()], "full", 10**6, "gpt-5", closed_loop=settings).manifest["spec"]
    assert spec["metrics"][-1] == "closed_loop"
    assert (spec["max_refetches"], spec["latency"], spec["repeatable"]) == (1, 5.0, [])


def test_tune_searches_for_the_cheapest_at_equal_knowledge() -> None:
    recordings = [structs.replace(agent(f"r{n}", 6 + n % 3), cluster=f"c{n}") for n in range(8)]
    found = tune(
        recordings,
        "sliding_window(messages=[4, 8])",
        10**6,
        "gpt-5",
        holdout=0,
        objective=("closed_usd", "recall_held"),
        workers=1,
        progress=False,
    )
    assert "closed_usd" in found.results.leaderboard()
