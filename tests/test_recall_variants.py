"""Tests of ``evals/recall_variants.py``: held far recall by several definitions of a far need."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from compacting import summarised
from msgspec import structs

from ctxlab.evaluation.experiment import evaluate
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, ToolCall

ROOT = Path(__file__).parents[1]
STRATEGIES = ("full", "sliding_window", "tool_stubs(keep=1) | panic", "nothing")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "evals" / "recall_variants.py"
    spec = importlib.util.spec_from_file_location("recall_variants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compacted() -> Recording:
    """Build a recording that uses a name of the user far away, before and after a compaction."""
    long = Message("user", "a long story " * 3_000)

    def use(name: str) -> tuple[Message, ...]:
        call = ToolCall(f"c {name}", "find", json.dumps({"what": name}))
        answer = Message("tool", "found", tool_call_id=call.id)
        return Message("assistant", None, tool_calls=(call,)), answer

    head = (Message("user", "Go."), Message("user", "See src/io.py and src/run.py."), long)
    messages = (*head, *use("src/io.py"), long, *use("src/run.py"), *use("src/run.py"))
    cut = len(head) + 2
    return Recording("r", messages, compactions=(summarised(messages, cut, "…"),))


def test_a_gap_of_4000_tokens_gives_the_headline(script: ModuleType) -> None:
    recordings = list(load("bundled:coding-agent"))[:2]
    board = script.measure(recordings, STRATEGIES, [0.5])
    headline = evaluate(recordings, STRATEGIES, 0.5, progress=False).leaderboard()
    assert board["over_4000"].tolist() == pytest.approx(headline["recall_far_held"].tolist())
    assert board["arguments_over_4000"].tolist() == headline["far_arguments"].tolist()
    assert (board["arguments_with_agent"] >= board["arguments_over_4000"]).all()
    assert (board["arguments_over_2000"] >= board["arguments_over_8000"]).all()


def test_requests_before_and_after_the_first_compaction_count_apart(script: ModuleType) -> None:
    board = script.measure([compacted()], ["full", "recorded"], [100_000]).set_index("strategy")
    assert board["arguments_before"].tolist() == [1, 1]
    assert board["arguments_after"].tolist() == [1, 1]
    assert board.loc["recorded()", ["before", "after"]].tolist() == [1, 0]
    alone = structs.replace(compacted(), compactions=())
    board = script.measure([alone], ["full"], [100_000])
    assert board[["arguments_before", "arguments_after"]].to_numpy().sum() == 0


def test_controls_have_no_rank(script: ModuleType) -> None:
    board = script.measure(list(load("bundled:coding-agent"))[:1], STRATEGIES, [0.5])
    rows = [row for row in script.render_tables(board).splitlines() if row.startswith("| `")]
    assert len(rows) == len(STRATEGIES)
    for row in rows:
        assert (re.search(r"\(\d\)", row) is None) == ("full()" in row or "nothing()" in row)


def test_copies_and_subagents_are_left_out(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    one = compacted()
    copy, child = structs.replace(one, id="copy"), Recording("s", (), meta={"parent": "r"})
    assert list(script.distinct([one, copy, child])) == [one]
    assert "left out: 2" in capsys.readouterr().err
