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
    found = [list(script.examine(recording)) for recording, _, _ in cases]
    assert found == [[("claude-code", tier, cause)] for _, tier, cause in cases]
    table = script.render_table(case for each in found for case in each)
    assert "| lost | 6 (75%) | 6 (75%) |" in table
    assert "| lost: unexplained | 1 (17%) | 1 (17%) |" in table


def test_what_is_said_after_a_compaction_is_no_case(script: ModuleType) -> None:
    recording = compacted(user("Go."), "Read src/io.py.", "HAT136")
    assert list(script.examine(recording)) == []


@pytest.mark.recordings
def test_most_losses_of_real_compactions_have_a_cause(script: ModuleType, recorded: Path) -> None:
    folders = sorted(recorded.parent.glob("corpus/claude-code-*"))
    if not folders:
        pytest.skip("no sessions of Claude Code in the folder corpus beside the real recordings")
    logs = load(folders, on_error="skip")
    cases = [case for log in logs if log.compactions for case in script.examine(log)]
    causes = Counter(case.cause for case in cases if case.tier == "lost")
    assert causes.total() > 100
    assert causes[script.UNEXPLAINED] <= 0.1 * causes.total()
