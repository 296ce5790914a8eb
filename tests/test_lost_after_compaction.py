"""Tests of ``evals/lost_after_compaction.py``: why recorded compactions lost what was used later."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from compacting import summarised
from msgspec import structs

from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, ToolCall

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "evals" / "lost_after_compaction.py"
    spec = importlib.util.spec_from_file_location("lost_after_compaction", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compacted(said: tuple[Message, ...], summary: str, used: str, **fields: Any) -> Recording:
    """Build a recording that is compacted after ``said``, and whose agent then uses ``used``."""
    call = ToolCall("c9", "find", json.dumps({"what": used}))
    messages = (
        *said,
        Message("user", "And now?"),
        Message("assistant", None, tool_calls=(call,)),
    )
    made = structs.replace(summarised(messages, len(said), summary), **fields)
    return Recording("r", messages, compactions=(made,), format="claude-code")


def user(text: str) -> tuple[Message, ...]:
    return (Message("user", text), Message("assistant", "I will do that."))


def test_each_need_has_one_tier_and_each_loss_one_cause(script: ModuleType) -> None:
    own = (Message("user", "Go."), Message("assistant", "I call it parse_args."))
    encrypted, again, end, words, number = script.CAUSES
    line = "The reader is in src/io.py."
    cases = [
        (compacted(user(line), line, "src/io.py"), "held", ""),
        (compacted(user(line), "src/io.py", "src/io.py"), "named", ""),
        (compacted(user("Read src/io.py."), "…", "src/io.py", hidden_tokens=9), "lost", encrypted),
        (compacted(own, "…", "parse_args"), "lost", again),
        (compacted(user("Read src/io.py."), "See lib/io.py.", "src/io.py"), "lost", end),
        (compacted(user("Call parse_args."), "It can parse the args.", "parse_args"), "lost", words),
        (compacted(user("Go to line 1120."), "…", "1120"), "lost", number),
        (compacted(user("Read src/io.py."), "…", "src/io.py"), "lost", script.UNEXPLAINED),
    ]  # fmt: skip
    found = [list(script.examine([recording])) for recording, _, _ in cases]
    columns = [
        "claude-code, encrypted" if cause == encrypted else "claude-code" for *_, cause in cases
    ]
    assert [[each[:3] for each in of] for of in found] == [
        [(column, tier, cause)] for column, (_, tier, cause) in zip(columns, cases, strict=True)
    ]
    table = script.render_table(case for each in found for case in each)
    assert "| lost | 5 (71%) | 1 (100%) |" in table
    assert "| lost: unexplained | 1 (20%) | 0 (0%) |" in table


def test_what_is_said_after_a_compaction_is_no_case(script: ModuleType) -> None:
    recording = compacted(user("Go."), "Read src/io.py.", "HAT136")
    assert list(script.examine([recording])) == []


def test_a_copy_of_a_recording_is_not_counted(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = compacted(user("Read src/io.py."), "…", "src/io.py")
    copy = structs.replace(recording, id="copy")
    assert list(script.examine([recording, copy])) == list(script.examine([recording]))
    assert "not counted: 1" in capsys.readouterr().err


def test_the_headline_counts_far_needs_that_are_not_the_agents(script: ModuleType) -> None:
    own = (Message("user", "Go."), Message("assistant", "I call it parse_args."))
    long = Message("user", "a long story " * 3_000)
    said = [user("Call parse_args."), (*user("Call parse_args."), long), (*own, long)]
    cases = [case for each in said for case in script.examine([compacted(each, "…", "parse_args")])]
    assert [case.headline for case in cases] == [False, True, False]


def test_chance_is_measured_with_names_that_the_request_does_not_contain(
    script: ModuleType,
) -> None:
    lost = compacted(user("Call parse_args and read_row."), "Parse the args.", "parse_args")
    other = compacted(user("Call load_args."), "load_args", "load_args")
    near = compacted(user("Call args_parse."), "args_parse", "args_parse")
    case = next(iter(script.examine([lost, other])))
    assert case.chance == {script.END: [], script.WORDS: [(1, 1), (0, 0), (0, 20)]}
    case = next(iter(script.examine([lost, near])))
    assert case.chance[script.WORDS] == [(1, 1), (0, 0), (20, 20)]
    table = script.render_chance([case])
    assert f"| {script.WORDS} | 100% (1 of 1) | – | 100% (20 of 20) |" in table


@pytest.mark.recordings
def test_most_losses_of_real_compactions_have_a_cause(script: ModuleType, recorded: Path) -> None:
    folders = sorted(recorded.parent.glob("corpus/claude-code-*"))
    if not folders:
        pytest.skip("no sessions of Claude Code in the folder corpus beside the real recordings")
    cases = script.examine(load(folders, on_error="skip"))
    causes = Counter(case.cause for case in cases if case.tier == "lost")
    assert causes.total() > 100
    assert causes[script.UNEXPLAINED] <= 0.1 * causes.total()
