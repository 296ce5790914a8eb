"""Tests of resuming a session: it reads a bounded part, also after damage to the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from generated import strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from workspaces import begun, sql

from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan
from ctxlab.sessions.resume_messages import (
    INTERRUPTED_RESULT,
    build_resume_message,
    pair_tool_results,
)
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.sqlite.store import SqliteStore


def test_it_goes_on_from_summary_window_and_plan(tmp_path: Path) -> None:
    """Seed 004, criterion 2: resume continues from the saved summary, window and plan state."""
    store = SqliteStore(tmp_path, caps=ResumeCaps(messages=4))
    store.create(id="a")
    store.append("a", Message("user", "The code word is HERON-42."))
    store.append("a", *(Message("assistant", f"Step {i}.") for i in range(10)))
    store.save("a", plan=AgentPlan(("read", "fix"), 1, paused=True))
    store.close()
    resume = SqliteStore(tmp_path, caps=ResumeCaps(messages=4)).open("a")
    assert [m.content for m in resume.recent] == [f"Step {i}." for i in range(6, 10)]
    assert resume.plan == AgentPlan(("read", "fix"), 1, paused=True)
    message = build_resume_message(resume)
    assert message is not None
    assert "HERON-42" in message.text
    assert "fix" in message.text


def test_a_plan_is_replaced_at_the_end_of_each_turn(store: SqliteStore) -> None:
    begun(store)
    for plan in (
        AgentPlan(("a",), 0, True, True),
        AgentPlan(),
        None,
        AgentPlan(("b", "\ud800"), None),
    ):
        store.save("a", plan=plan)
        kept = store.open("a").plan
        assert kept == (
            plan if plan is None or not plan.steps[1:] else AgentPlan(("b", "\ufffd"), None)
        )


def test_what_came_after_the_last_save_is_there(store: SqliteStore) -> None:
    begun(store)
    store.save("a")
    store.append("a", Message("user", "And now?"))
    store.append("a", Message("assistant", tool_calls=(ToolCall("c", "read"),)))
    contents = [m.content for m in store.open("a").recent]
    assert contents == ["Fix the parser", "Done.", "And now?", None, INTERRUPTED_RESULT]
    store.append("a", Message("tool", "x = 1", tool_call_id="c"))
    store.save("a")
    assert [m.content for m in store.open("a").recent][-1] == "x = 1"


def test_a_result_that_comes_after_the_window_was_kept_takes_its_place(
    store: SqliteStore,
) -> None:
    begun(store)
    store.append("a", Message("assistant", tool_calls=(ToolCall("c", "read"),)))
    store.save("a")
    store.append("a", Message("tool", "x = 1", tool_call_id="c"))
    assert [m.content for m in store.open("a").recent][-2:] == [None, "x = 1"]


@pytest.mark.properties
@given(strange_conversations(), st.integers(1, 12))
def test_whatever_was_said_a_resume_is_bounded_and_paired(
    folder: Path, messages: tuple[Message, ...], size: int
) -> None:
    """Seed 004, window: calls are followed by their results."""
    store = SqliteStore(folder, caps=ResumeCaps(messages=size, summary_chars=400), fsync="never")
    id = store.create().id
    for message in messages:
        store.append(id, message)
    resume = store.open(id)
    assert pair_tool_results(resume.recent) == resume.recent
    assert len(resume.recent) <= size
    assert len(resume.summary) <= 400
    assert list(store.read_messages(id)) == list(messages)
    store.close()


def test_a_turn_that_never_ends_is_resumed_from_a_bounded_part(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, caps=ResumeCaps(messages=5), fsync="never")
    store.create(id="a")
    for number in range(200):
        store.append("a", Message("user", f"line {number}"))
        ((behind,),) = sql(store, "SELECT messages - window_stop FROM chat_sessions")
        assert int(str(behind)) <= 10
    assert [m.content for m in store.open("a").recent] == [f"line {i}" for i in range(195, 200)]
    assert "line 194" in store.open("a").summary
    store.close()


@pytest.mark.parametrize(
    "broken",
    ['[{"role": "user"', "null", '{"a": 1}', '[{"role": "emperor"}]', "[1]", "[" * 5000, b"\xff"],
)
def test_broken_recent_messages_are_made_up_for_from_the_transcript(
    store: SqliteStore, broken: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store)
    store.save("a")
    sql(store, "UPDATE chat_sessions SET recent_messages = ?", broken)
    store.append("a", Message("user", "And now?"))
    assert [m.content for m in store.open("a").recent] == ["Fix the parser", "Done.", "And now?"]
    assert "session 'a'" in caplog.text
    assert "recent" in caplog.text


def test_recent_messages_that_somebody_wrote_are_made_valid(store: SqliteStore) -> None:
    """Seed 004, resume: recent_messages are sanitized and capped."""
    begun(store)
    rows = [
        {"role": "tool", "content": "orphan", "tool_call_id": "z"},
        *({"role": "user", "content": "x" * 9000} for _ in range(300)),
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "run"}}]},
    ]
    store.save("a")
    sql(store, "UPDATE chat_sessions SET recent_messages = ?, summary = NULL", json.dumps(rows))
    resume = store.open("a")
    assert pair_tool_results(resume.recent) == resume.recent
    assert resume.recent[-1].content == INTERRUPTED_RESULT
    assert len(resume.recent) <= 40
    assert max(len(m.text) for m in resume.recent) <= 4000


def test_other_columns_that_somebody_broke_are_read_as_nothing(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store)
    sql(
        store,
        "UPDATE chat_sessions SET plan_steps = '{', tools = 'x', meta = '[]', title = NULL, "
        "summary = x'ff', created_at = 'soon', status = NULL, current_step_index = 'two'",
    )
    session = store.get("a")
    assert (session.tools, session.meta, session.title, session.created) == ((), {}, "", 0.0)
    assert session.status == "closed"
    assert store.open("a").plan is None
    assert "plan_steps" in caplog.text


def test_a_broken_message_is_told_where_it_stands_and_replaced(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store)
    sql(store, "UPDATE messages SET row = '{' WHERE position = 1")
    (_, lost) = store.read_messages("a")
    assert lost.content == "[Lost message: message 2 cannot be read]"
    assert [m.content for m in store.open("a").recent] == ["Fix the parser", lost.content]
    assert "messages, session 'a', position 1: " in caplog.text


def test_a_model_writes_the_summary_while_nobody_waits(tmp_path: Path) -> None:
    other = SqliteStore(tmp_path)

    def answer(_: object) -> str:
        other.append("a", Message("user", "meanwhile"))  # the database is free
        return "HERON-42 is the code word."

    client = ScriptedClient(answer)
    store = SqliteStore(tmp_path, caps=ResumeCaps(messages=4), client=client, model="gpt-4o-mini")
    store.create(id="a")
    store.append("a", *(Message("user", f"line {i} " + "of words " * 30) for i in range(6)))
    store.save("a")
    # It was not up to date any more when it was written, so that the engine wrote it.
    assert "line 0" in store.open("a").summary
    client.answers = (lambda _: "HERON-42 is the code word.",)
    store.save("a")
    assert "meanwhile" in [m.content for m in store.open("a").recent]
    store.append("a", *(Message("user", f"more {i} " + "of words " * 30) for i in range(6)))
    store.save("a")
    assert store.open("a").summary == "HERON-42 is the code word."
    store.close()
    other.close()
