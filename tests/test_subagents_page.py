"""Tests of ``evals/subagents.py``: an agent with a subagent, alone, and with a fork."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from eval_scripts import import_eval_script

from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, ToolCall, Usage

MODEL = "claude-opus-4-5"
FILLER = "and more words of output\n" * 400
ANSWER = "It is in src/answered.py"


def reply(tokens: int, text: str | None, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls, usage=Usage(input=tokens, output=9))


def read(id: str, path: str) -> ToolCall:
    return ToolCall(id, "read", f'{{"path": "{path}"}}')


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)


CHILD = Recording(
    "child",
    (
        Message("user", "Find it"),
        reply(4000, None, ToolCall("w", "list")),
        result("w", f"src/answered.py\nsrc/again.py\nsrc/guessed.py\n{FILLER}"),
        reply(6500, ANSWER),
    ),
    model=MODEL,
    meta={"parent": "agent", "call_id": "c"},
)
AGENT = Recording(
    "agent",
    (
        Message("user", "Fix it"),
        reply(9000, None, ToolCall("c", "task", '{"prompt": "Find it"}')),
        result("c", ANSWER),
        reply(9100, None, read("1", "src/answered.py")),
        result("1", "see src/again.py"),
        reply(9200, None, read("2", "src/again.py"), read("3", "src/guessed.py")),
        result("2", "x"),
        result("3", "y"),
        reply(9300, "Done"),
    ),
    model=MODEL,
    cluster="k",
)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("subagents", monkeypatch)


def test_needs_of_the_agent_are_told_apart_by_where_it_had_them_from(script: ModuleType) -> None:
    parts = script.replay_family(script.Family(AGENT, [CHILD]), "full", 10**6)
    needs = script.measure_needs(parts["answer"][0], parts["alone"][0])
    assert dict(needs.sources) == {"answer": 1, "read again": 1, "never": 1}


def test_alone_and_forked_requests_contain_the_messages_of_both(script: ModuleType) -> None:
    family = script.Family(AGENT, [CHILD])
    parts = script.replay_family(family, "full", 10**6)
    tokens = {
        name: [part.measure()["priced_tokens"] for part in replays]
        for name, replays in parts.items()
    }
    assert {name: [len(each) for each in found] for name, found in tokens.items()} == {
        "answer": [4, 2],
        "answer, own models": [4, 2],
        "alone": [6],
        "forks": [4, 2],
    }
    agent, child = tokens["answer"]
    (alone,), fork = tokens["alone"], tokens["forks"][1]
    # Requests 1 and 2 of the agent alone are those of the fork; the later ones contain the work too.
    np.testing.assert_array_equal(alone[1:3], fork)
    assert (fork > child).all()
    work = parts["alone"][0].prepared.counter.count_message(CHILD.messages[2])
    assert (alone[3:] - agent[1:] > 0.9 * work).all()
    # The fork's first request reads the agent's prefix from the cache.
    cached = parts["forks"][1].measure()["cached"]
    assert cached[0] > 4096


def test_only_subagents_whose_answer_the_agent_got_are_compared(
    script: ModuleType, tmp_path: Path
) -> None:
    other = Recording(
        "other",
        (Message("user", "Go"), reply(4000, None, ToolCall("v", "list")), result("v", "cut")),
        model=MODEL,
        meta={"parent": "agent", "call_id": "1"},
    )
    write([AGENT, CHILD, other], tmp_path / "talk.jsonl")
    (family,) = script.load_families([str(tmp_path)])
    assert (family.parent.id, [each.id for each in family.children]) == ("agent", ["child"])


def test_the_page_has_a_row_per_variant(script: ModuleType, tmp_path: Path) -> None:
    write([AGENT, CHILD], tmp_path / "talk.jsonl")
    page = script.write_page([str(tmp_path)])
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| a")]
    assert [name.strip() for name, _ in rows] == ["answer", "answer, own models", "alone"] * 2
    assert float(rows[2][1]) > 1
    assert "1 agent in 1 cluster started 1 subagent, 0 of them" in page
