"""Tests of live sessions with both stores: messages are stored at once, and sessions can be resumed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acting import Streaming, calls, take
from generated import conversations
from hypothesis import given, settings
from hypothesis import strategies as st
from talking import talking

from ctxlab import Recording, count_tokens
from ctxlab.agent.events import TextDelta, ToolCallFinished, ToolCallStarted, TurnFinished
from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
from ctxlab.agent.session import AgentSession
from ctxlab.agent.tools.result import ToolResult
from ctxlab.context.turns import TurnCounter, step_at
from ctxlab.errors import ModelUnavailable, SessionConflict, SessionError, SpecError, UnknownSession
from ctxlab.llm import LiteLLMClient, ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions import AgentPlan, JsonlStore, ResumeCaps, SessionStore, SqliteStore
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY

Open = Callable[[], SessionStore]


@pytest.fixture(params=["chunks", "workspace"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the same store as a newly started program would."""
    made: list[SessionStore] = []

    def fresh() -> SessionStore:
        store: SessionStore = (
            JsonlStore(tmp_path / "s", max_history=7, caps=ResumeCaps(messages=8), fsync="never")
            if request.param == "chunks"
            else SqliteStore(tmp_path, caps=ResumeCaps(messages=8), fsync="never")
        )
        made.append(store)
        return store

    yield fresh
    for store in made:
        store.close()


def read(path: str = "a.py") -> str:
    """Reads a file."""
    return f"text of {path}"


def agent_of(*answers: Any, **options: Any) -> tuple[Agent, ScriptedClient]:
    client = ScriptedClient(*answers)
    options = {"tools": [read], "system": "You help.", **options}
    return Agent("gpt-4o", client=client, **options), client


READ = calls(("read", "{}"), text="Reading.")


def stored(store: SessionStore, id: str) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in store.read_messages(id)]


def test_a_turn_is_stored_whole_with_the_system_prompt_first(opened: Open) -> None:
    store = opened()
    agent, _ = agent_of(READ, "It says text.")
    live = AgentSession.start(store, agent, agent_name="helper")
    assert store.get(live.id).messages == 0
    outcome = live.run("What is in a.py?", file="a.py")
    messages = list(opened().read_messages(live.id))
    assert messages == list(agent.manager.history)
    assert messages[1:] == list(outcome.messages)
    assert [m.role for m in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[1].file == "a.py"
    assert messages[2].usage is not None
    session = live.session
    assert (session.title, session.model, session.agent) == (
        "What is in a.py?", "gpt-4o", "helper",
    )  # fmt: skip
    assert session.strategy == repr(agent.manager.strategy) == DEFAULT_STRATEGY
    assert session.tools == agent.tool_definitions
    recording = store.recording(live.id)
    assert isinstance(recording, Recording)
    assert recording.messages == tuple(messages)


def test_a_message_is_stored_before_anything_is_done_that_relies_on_it(opened: Open) -> None:
    store = opened()
    seen: list[int] = []
    agent, client = agent_of(READ, "Done.")
    live = AgentSession.start(store, agent)
    ask = client.stream

    def asked(request: Any, /) -> Any:
        assert [m.text for m in request.messages] == [text for _, text in stored(store, live.id)]
        return ask(request)

    client.stream = asked  # type: ignore[method-assign]
    for event in live.stream("Go"):
        kept = stored(opened(), live.id)
        seen.append(len(kept))
        if isinstance(event, ToolCallStarted):
            assert kept[-1] == ("assistant", "Reading.")
        elif isinstance(event, ToolCallFinished):
            assert kept[-1] == ("tool", "text of a.py")
        elif isinstance(event, TurnFinished):
            assert kept[-1] == ("assistant", "Done.")
    assert seen == sorted(seen)


def test_a_short_session_is_resumed_as_it_was(opened: Open) -> None:
    live = AgentSession.start(opened(), agent_of(READ, "One.")[0])
    live.run("First")
    live.close()
    assert opened().get(live.id).status == "closed"
    agent, client = agent_of("Two.")
    store = opened()
    again = AgentSession.resume(store, live.id, agent)
    assert again.session.status == "active"
    again.run("Second")
    assert [m.text for m in client.requests[0].messages if m.role in ("system", "user")] == [
        "You help.", "First", "Second",
    ]  # fmt: skip
    assert [role for role, _ in stored(store, live.id)].count("system") == 1
    with pytest.raises(UnknownSession):
        AgentSession.resume(store, "nobody", agent_of()[0])


def test_seed_004_2_a_long_session_goes_on_from_summary_window_and_plan(opened: Open) -> None:
    """Seed 004, criterion 2: the agent continues from summary, recent messages and plan state."""
    first = AgentSession.start(opened(), agent_of(*[f"Answer {n}." for n in range(30)])[0])
    first.run("The secret word is xylophone.")
    for number in range(1, 30):
        first.run(f"Question {number}?")
    first.plan = AgentPlan(("read", "fix", "test"), current=1, paused=True)
    first.close()
    agent, client = agent_of("Yes.")
    live = AgentSession.resume(opened(), first.id, agent)
    assert live.plan == AgentPlan(("read", "fix", "test"), current=1, paused=True)
    assert agent.context_breakdown()["summary"] > 0
    live.run("Still there?")
    sent = client.requests[0].messages
    assert find_violations(sent) == []
    assert sent[0].text == "You help."
    assert "xylophone" in sent[1].text
    assert "Current step of the plan (2 of 3): fix" in sent[1].text
    assert [m.text for m in sent[-3:]] == ["Question 29?", "Answer 29.", "Still there?"]
    assert len(sent) <= 2 + 8 + 1
    texts = [text for _, text in stored(opened(), first.id)]
    assert not any("This conversation is resumed" in text for text in texts)
    assert len(texts) == 1 + 2 * 31
    assert opened().open(first.id).plan == live.plan


def test_seed_004_2_an_agent_that_plans_goes_on_from_its_current_step(opened: Open) -> None:
    """Seed 004, criterion 2: the plan that the agent wrote down itself is there after a restart."""
    steps = ["read", "fix", "test"]
    wanted = [
        calls(("update_plan", json.dumps(given)))
        for given in ({"steps": steps, "current": 1}, {"steps": steps, "current": 9},
                      {"steps": steps, "current": 2})
    ]  # fmt: skip
    store = opened()
    agent, _ = agent_of(*wanted, "I will fix it.", enable_planning=True)
    first = AgentSession.start(store, agent)
    results = [e.result for e in first.stream("Fix it") if isinstance(e, ToolCallFinished)]
    assert [r.ok for r in results] == [True, False, True]
    assert results[2].data == "Step 2 of 3: fix"
    agent, client = agent_of(
        "Fixed.", calls(("update_plan", '{"steps": []}')), "Done.", enable_planning=True
    )
    live = AgentSession.resume(opened(), first.id, agent)
    assert live.plan == agent.plan == AgentPlan(("read", "fix", "test"), current=1)
    live.run("Go on")
    assert "Current step of the plan (2 of 3): fix" in client.requests[0].messages[1].text
    live.run("And?")
    assert live.plan is None
    assert opened().open(first.id).plan in (None, AgentPlan())


def test_seed_004_2_the_plan_says_whether_its_step_waits_or_was_broken_off(opened: Open) -> None:
    """Seed 004, criterion 2: of the plan, whether it awaits a continuation, and whether it is paused."""
    store, plan = opened(), AgentPlan(("read", "fix"), 0)
    answers = [READ, "Done.", KeyboardInterrupt(), "Done.", "Done."]
    agent = Agent("gpt-4o", tools=[read], client=Streaming(*answers), max_iterations=1)
    live = AgentSession.start(store, agent)
    live.plan = plan
    for kept in (replace(plan, awaiting_continuation=True), plan, replace(plan, paused=True), plan):
        with suppress(KeyboardInterrupt):
            live.run("Go on")
        assert live.plan == store.open(live.id).plan == kept
    live.plan = replace(plan, current=None, paused=True)
    live.run("Thanks")
    assert live.plan == replace(plan, current=None)


def test_a_session_that_is_deleted_during_a_turn_raises_one_error(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    live = AgentSession.start(store, Agent("gpt-4o", client=Streaming("Done.", "Done.")))
    live.run("Hi")
    turn = live.stream("Go on")
    next(turn)
    store.delete(live.id)
    with pytest.raises(UnknownSession):
        list(turn)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_seed_004_2_the_plan_of_a_turn_that_was_abandoned_is_paused(opened: Open) -> None:
    """Seed 004, criterion 2: also if the model answers too late."""
    store, plan = opened(), AgentPlan(("read", "fix"), 0)
    live = AgentSession.start(store, Agent("gpt-4o", client=ScriptedClient("Too late.")))
    live.plan = plan
    turn = live.stream("Go on")
    live.abandon()
    with pytest.raises(SessionError, match="closed"):
        list(turn)
    assert store.open(live.id).plan == replace(plan, paused=True)
    assert [m.text for m in store.read_messages(live.id)] == []


def test_seed_004_2_a_turn_that_is_longer_than_the_window_goes_on(opened: Open) -> None:
    """Seed 004, criterion 2: also if the user's message about a file is no longer in the window."""
    steps = [calls(("read", "{}"), text=f"Step {n}") for n in range(30)]
    agent, _ = agent_of(*steps, "The bug is in line 77.", max_iterations=40)
    live = AgentSession.start(opened(), agent, file="a.py")
    live.run("Find the bug", file="a.py")
    resumed, client = agent_of("I mend it.")
    AgentSession.resume(opened(), live.id, resumed).run("Go on", file="a.py")
    texts = [message.text for message in client.requests[0].messages]
    assert "Step 29" in texts
    assert texts[-2:] == ["The bug is in line 77.", "Go on"]


def test_the_summary_of_a_resumed_session_leaves_room_in_a_small_window(opened: Open) -> None:
    """Seed 004, window: what a session resumes from fits the model."""
    store = opened()
    live = AgentSession.start(store, agent_of("Yes.")[0])
    for number in range(80):
        store.append(live.id, Message("user", f"Fact {number}: " + f"name_{number} is used. " * 9))
        store.append(live.id, Message("assistant", f"Noted {number}."))
    assert len(store.open(live.id).summary) > 4000
    resumed, client = agent_of("Yes.", limit="3k", reserve=0)
    AgentSession.resume(opened(), live.id, resumed).run("Go on")
    (said,) = (m.text for m in client.requests[0].messages if "resumed" in m.text)
    assert count_tokens([{"role": "user", "content": said}], "gpt-4o") < 3000 / 4
    assert resumed.manager.tokens <= 3000


def test_a_resumed_session_has_the_same_stubs_as_one_that_went_on(opened: Open) -> None:
    """Seed 000, testing 4: a stub says whether the call failed, also after a restart."""

    def check() -> ToolResult:
        outcome = {"summary": "exit code 3", "count": 61, "files": ["a.py"]}
        output = {"exit_code": 3, "output": "line of output\n" * 60}
        return ToolResult(ok=False, data=output, error="exit code 3", outcome=outcome)

    run_check = calls(("check", "{}"), text="I check.")
    agent, client = agent_of(run_check, "It fails.", "As I said.", tools=[check])
    agent.run("Check it")
    agent.run("So?")
    live = AgentSession.start(opened(), agent_of(run_check, "It fails.", tools=[check])[0])
    live.run("Check it")
    resumed, resumed_client = agent_of("As I said.", tools=[check])
    AgentSession.resume(opened(), live.id, resumed).run("So?")
    stub, resumed_stub = (
        next(m for m in request.messages if m.role == "tool").text
        for request in (client.requests[-1], resumed_client.requests[-1])
    )
    assert json.loads(stub)["status"] == "error"
    assert json.loads(stub)["count"] == 61
    assert resumed_stub == stub


def test_a_stored_system_prompt_is_used_where_the_agent_has_none(opened: Open) -> None:
    first = AgentSession.start(opened(), agent_of(*["Yes."] * 20)[0])
    for number in range(20):
        first.run(f"{number}?")
    agent, client = agent_of("No.", system=None)
    AgentSession.resume(opened(), first.id, agent).run("And?")
    assert [m.text for m in client.requests[0].messages if m.role == "system"] == ["You help."]
    other, client = agent_of("No.", system="You do not.")
    AgentSession.resume(opened(), first.id, other).run("And?")
    assert [m.text for m in client.requests[0].messages if m.role == "system"] == ["You do not."]


def test_a_session_that_was_made_before_its_agent_stores_the_prompt_too(opened: Open) -> None:
    store = opened()
    id = store.create(model="gpt-4o").id
    AgentSession.resume(store, id, agent_of("Hi.")[0]).run("Hello")
    assert stored(store, id) == [("system", "You help."), ("user", "Hello"), ("assistant", "Hi.")]


def test_files_keep_their_sessions_through_a_restart(opened: Open) -> None:
    """Seed 000, testing 3: switching back to previous file resumes it, after a restart as well."""
    first = AgentSession.start(opened(), agent_of("A1.", "B1.")[0])
    first.run("about a", file="a.md")
    first.run("about b", file="b.md")
    agent, client = agent_of("A2.", "C1.")
    live = AgentSession.resume(opened(), first.id, agent)
    live.run("a again", file="a.md")
    assert [m.text for m in client.requests[0].messages] == [
        "You help.",
        "about a",
        "A1.",
        "a again",
    ]
    live.run("about c", file="c.md")
    assert [m.text for m in client.requests[1].messages] == ["You help.", "about c"]


def test_what_the_engine_says_on_resume_is_told_whatever_file_is_open(opened: Open) -> None:
    first = AgentSession.start(opened(), agent_of(*["Yes."] * 20)[0])
    for number in range(20):
        first.run(f"{number}?", file="a.md")
    agent, client = agent_of("C.")
    AgentSession.resume(opened(), first.id, agent).run("about c", file="c.md")
    sent = client.requests[0].messages
    assert [m.role for m in sent] == ["system", "user", "user"]
    assert ENGINE_MESSAGE_KEY in sent[1].extra
    assert ENGINE_MESSAGE_KEY not in json.dumps([m.to_dict() for m in sent])


def test_a_session_of_a_file_gives_its_turns_the_file(opened: Open) -> None:
    live = AgentSession.start(opened(), agent_of("Yes.", "No.")[0], file="a.md")
    live.run("One")
    live.run("Two", file="b.md")
    files = [m.file for m in opened().read_messages(live.id) if m.role == "user"]
    assert files == ["a.md", "b.md"]
    assert live.session.file == "a.md"


# --- what ends a turn ------------------------------------------------------------------------------

CRASH = """
import os, signal, sys
from ctxlab.agent import Agent, AgentSession
from ctxlab.messages.types import Message, ToolCall
from ctxlab.llm import ScriptedClient
from ctxlab.sessions import JsonlStore, SqliteStore
kind, folder, id = sys.argv[1:]
def read() -> str:
    return "text"
def crash() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
names = ("read", "crash", "read")
wanted = Message("assistant", tool_calls=tuple(ToolCall(f"c{i}", n) for i, n in enumerate(names)))
agent = Agent("gpt-4o", tools=[read, crash], client=ScriptedClient(wanted), system="You help.")
store = JsonlStore(folder + "/s", max_history=7) if kind == "chunks" else SqliteStore(folder)
AgentSession.start(store, agent, id=id).run("Go")
"""


STREAM = """
import os, signal, sys
from ctxlab.agent import Agent, AgentSession
from ctxlab.sessions import JsonlStore, SqliteStore
kind, folder, id = sys.argv[1:]
class Client:
    def complete(self, request):
        raise NotImplementedError
    def complete_all(self, requests):
        raise NotImplementedError
    def stream(self, request):
        for n in range(200):
            yield f"word{n} "
        os.kill(os.getpid(), signal.SIGKILL)
store = JsonlStore(folder + "/s", max_history=7) if kind == "chunks" else SqliteStore(folder)
AgentSession.start(store, Agent("gpt-4o", client=Client()), id=id).run("Go")
"""


@pytest.mark.e2e(smoke=True)
def test_the_text_of_an_answer_survives_a_kill(opened: Open, tmp_path: Path) -> None:
    kind = "chunks" if isinstance(opened(), JsonlStore) else "workspace"
    program = [sys.executable, "-c", STREAM, kind, str(tmp_path), "abc"]
    assert subprocess.run(program, timeout=120).returncode == -signal.SIGKILL
    store = opened()
    path = store.partial_path("abc")
    assert path is not None
    assert path.exists()
    assert store.get("abc").messages == 1
    AgentSession.resume(store, "abc", agent_of("Yes.")[0]).run("And?")
    words = "".join(f"word{n} " for n in range(200))
    said = [("user", "Go"), ("assistant", f"{words}\n\n[The answer broke off]")]
    assert stored(opened(), "abc") == [*said, ("user", "And?"), ("assistant", "Yes.")]
    assert opened().count_turns("abc") == 2
    assert not path.exists()


def test_the_file_of_an_answer_is_removed_when_the_answer_is_stored(opened: Open) -> None:
    live = AgentSession.start(store := opened(), Agent("gpt-4o", client=Streaming("One two.")))
    path = store.partial_path(live.id)
    assert path is not None
    seen = [path.exists() for event in live.stream("Go") if isinstance(event, TextDelta)]
    assert seen == [True, True]
    assert not path.exists()


@pytest.mark.e2e
def test_a_killed_process_loses_nothing_and_its_open_calls_are_answered(
    opened: Open, tmp_path: Path
) -> None:
    """Seed 004, criterion 2: after a kill in the middle of a tool the session is resumed, valid."""
    kind = "chunks" if isinstance(opened(), JsonlStore) else "workspace"
    program = [sys.executable, "-c", CRASH, kind, str(tmp_path), "abc"]
    assert subprocess.run(program, timeout=120).returncode == -signal.SIGKILL
    before = stored(opened(), "abc")
    assert [role for role, _ in before] == ["system", "user", "assistant", "tool"]
    agent, client = agent_of("Here.")
    store = opened()
    live = AgentSession.resume(store, "abc", agent)
    messages = list(store.read_messages("abc"))
    assert [m.tool_call_id for m in messages[3:]] == ["c0", "c1", "c2"]
    assert "Interrupted" in messages[4].text
    assert find_violations(messages) == []
    assert live.run("Are you there?").text == "Here."
    assert find_violations(client.requests[0].messages) == []
    AgentSession.resume(opened(), "abc", agent_of()[0])
    assert find_violations(list(store.read_messages("abc"))) == []
    assert store.get("abc").messages == 8


def test_ctrl_c_leaves_a_whole_session_that_can_be_resumed(opened: Open) -> None:
    """Seed 002, criterion 4: after Ctrl+C in a tool the stored session is consistent."""

    def stop() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "never seen"

    wanted = calls(("stop", "{}"), ("stop", "{}"))
    agent, client = agent_of(wanted, "Fine.", tools=[stop])
    store = opened()
    live = AgentSession.start(store, agent)
    with pytest.raises(KeyboardInterrupt):
        live.run("Go")
    assert find_violations(list(store.read_messages(live.id))) == []
    assert [m.role for m in store.open(live.id).recent][-2:] == ["tool", "tool"]
    assert live.run("Go on").text == "Fine."
    assert find_violations(client.requests[-1].messages) == []
    assert list(store.read_messages(live.id)) == list(agent.manager.history)


@pytest.mark.parametrize("kind", [TextDelta, ToolCallStarted])
def test_a_stream_that_is_closed_early_is_stored_and_saved(opened: Open, kind: type) -> None:
    store = opened()
    agent = Agent("gpt-4o", tools=[read], client=Streaming(READ, "Fine."))
    live = AgentSession.start(store, agent)
    stream = live.stream("Go")
    take(stream, lambda event: isinstance(event, kind))
    stream.close()
    messages = list(store.read_messages(live.id))
    assert messages == list(agent.manager.history)
    assert find_violations(messages) == []
    assert "[Cancelled]" in messages[-1].text or messages[-1].role == "tool"
    assert store.open(live.id).recent[-1].text == messages[-1].text


def test_closing_ends_a_turn_that_was_left_and_nothing_is_said_any_more(opened: Open) -> None:
    store = opened()
    agent = Agent("gpt-4o", tools=[read], client=Streaming(READ, "Fine."))
    with AgentSession.start(store, agent) as live:
        stream = live.stream("Go")
        take(stream, lambda event: isinstance(event, ToolCallStarted))
    assert find_violations(list(store.read_messages(live.id))) == []
    assert live.session.status == "closed"
    live.close()
    with pytest.raises(SessionError, match="is closed"):
        live.run("More")
    with pytest.raises(SessionError, match="is closed"):
        live.plan = None
    with pytest.raises(SpecError, match="new agent"):
        AgentSession.resume(store, live.id, agent)
    with pytest.raises(SpecError, match="new agent"):
        AgentSession.start(store, agent)


def test_a_turn_that_was_given_up_stores_nothing_over_what_came_after_it(opened: Open) -> None:
    store, plan = opened(), AgentPlan(("read", "write"), 1)
    live = AgentSession.start(store, Agent("gpt-4o", tools=[read], client=Streaming(READ, "Fine.")))
    stream = live.stream("Go")
    take(stream, lambda event: isinstance(event, ToolCallStarted))
    live.closed = True  # by somebody who could wait no longer
    AgentSession.resume(store, live.id, Agent("gpt-4o")).plan = plan
    stream.close()
    assert store.open(live.id).plan == plan


def test_what_goes_on_elsewhere_is_told_and_the_two_do_not_mix(opened: Open) -> None:
    """Seed 004, criterion 4: whoever was first is told, and stores nothing more."""
    store, elsewhere = opened(), opened()
    second: list[AgentSession] = []

    def slow() -> str:
        """Takes its time, in which another process resumes the session."""
        second.append(AgentSession.resume(elsewhere, first.id, agent_of("Hello.")[0]))
        second[0].run("I speak meanwhile")
        return "too late"

    agent = Agent("gpt-4o", tools=[slow], client=ScriptedClient(calls(("slow", "{}")), "Never."))
    first = AgentSession.start(store, agent)
    with pytest.raises(SessionConflict, match="has new messages from elsewhere; resume it"):
        first.run("Go")
    with pytest.raises(SessionError, match="is closed; resume it"):
        first.run("Hello?")
    first.close()
    stored = list(store.read_messages(first.id))
    assert find_violations(stored) == []
    assert [m.text for m in stored][-2:] == ["I speak meanwhile", "Hello."]
    assert store.get(first.id).status == "active"


def test_what_is_spoken_in_is_active_and_what_was_archived_meanwhile_stays_so(
    opened: Open,
) -> None:
    store = opened()
    with AgentSession.start(store, agent_of("One.", "Two.")[0]) as live:
        live.run("First")
        store.set_status(live.id, "closed")  # as the start of another one does
        live.run("Second")
        assert live.session.status == "active"
        store.set_status(live.id, "archived")
    assert live.session.status == "archived"


def test_a_model_that_fails_and_a_session_that_is_gone_are_told(opened: Open) -> None:
    store = opened()
    agent, _ = agent_of(ModelUnavailable("busy"), "Here.")
    live = AgentSession.start(store, agent)
    with pytest.raises(ModelUnavailable):
        live.run("Hello?")
    assert stored(store, live.id) == [("system", "You help."), ("user", "Hello?")]
    assert live.run("Now?").text == "Here."
    opened().delete(live.id)
    with pytest.raises(UnknownSession):
        live.run("And now?")


def test_a_save_that_fails_in_an_interruption_does_not_hide_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(JsonlStore):
        def save(self, id: str, *, plan: AgentPlan | None = None) -> None:
            raise OSError(28, "No space left on device")

    agent = Agent("gpt-4o", client=Streaming(("Hal", KeyboardInterrupt()), "Whole."))
    live = AgentSession.start(Full(tmp_path), agent)
    with caplog.at_level(logging.ERROR), pytest.raises(KeyboardInterrupt):
        live.run("Go")
    assert "cannot save" in caplog.text
    with pytest.raises(OSError, match="No space"):
        live.run("Go on")
    assert [text for _, text in stored(live.store, live.id)][-1] == "Whole."


# --- numbers, summaries, the wire ------------------------------------------------------------------


def test_turns_keep_their_numbers_through_a_resume_and_get_turn_gives_any(opened: Open) -> None:
    long = "word " * 150
    first = AgentSession.start(
        opened(), agent_of(*[f"Answer {n}. {long}" for n in range(1, 21)])[0]
    )
    for number in range(1, 21):
        first.run(f"Question {number}?")
    wanted = calls(("get_turn", '{"turn": "2"}'), ("get_turn", '{"turn": "99"}'))
    agent, client = agent_of(
        *[f"Answer {n}. {long}" for n in range(21, 27)], wanted, "It was.",
        strategy="contents() | panic()", limit=2500, reserve=0,
    )  # fmt: skip
    live = AgentSession.resume(opened(), first.id, agent)
    for number in range(21, 27):
        live.run(f"Question {number}?")
    events = list(live.stream("What was the second?"))
    block = next(m.text for m in client.requests[-1].messages if m.text.startswith("Contents"))
    listed = [line for line in block.splitlines() if "Question" in line]
    assert listed
    assert all(line.startswith(f"{line.split()[2].rstrip('?')}. ") for line in listed)
    results = [e.result for e in events if isinstance(e, ToolCallFinished)]
    assert results[0].data[0]["content"] == "Question 2?"
    assert results[1].ok is False
    assert "no turn or step 99" in str(results[1].error)


@settings(max_examples=30)
@given(messages=conversations(turns=6), kept=st.integers(1, 12))
def test_a_resumed_conversation_has_the_stored_turns_and_steps(
    tmp_path_factory: pytest.TempPathFactory, messages: tuple[Message, ...], kept: int
) -> None:
    folder = tmp_path_factory.mktemp("resumed")
    store = JsonlStore(folder, fsync="never", caps=ResumeCaps(messages=kept))
    store.create(id="a")
    store.append("a", *messages)
    agent, _ = agent_of()
    AgentSession.resume(store, "a", agent)
    counter, history = TurnCounter(), agent.manager.history
    known = [(counter.add(message), message.to_dict()) for message in store.read_messages("a")]
    # The newest messages are the last ones of the history, whatever precedes them.
    for back in range(1, min(len(store.open("a").recent), len(history)) + 1):
        label, message = known[-back]
        if message["role"] == "system":
            break
        assert history[-back].role == message["role"]
        assert step_at(history, len(history) - back) == label


def test_results_keep_their_numbers_through_a_resume_and_are_read_in_full(opened: Open) -> None:
    def read_log(day: int) -> str:
        """Read the log of a day."""
        return "".join(f"day {day}, line {n}\n" for n in range(1, 1201))

    talk = [
        reply for day in range(1, 31) for reply in (calls(("read_log", f'{{"day": {day}}}')), "Ok.")
    ]
    agent, _ = agent_of(*talk, tools=[read_log], strategy="offload() | panic()", system="Be brief.")
    first = AgentSession.start(opened(), agent)
    for day in range(1, 31):
        first.run(f"Day {day}?")
    fifth = next(
        number
        for number, message in enumerate(first.store.read_messages(first.id), 1)
        if message.role == "tool" and message.text.startswith("day 5,")
    )
    latest = first.session.messages + 3  # a question, a call and its result follow
    numbers = (fifth, latest)
    reads = [("read_result", f'{{"number": {number}, "start": 600}}') for number in numbers]
    agent, client = agent_of(
        calls(("read_log", '{"day": 99}')), calls(*reads), "It was.",
        tools=[read_log], strategy="offload() | panic()",
    )  # fmt: skip
    live = AgentSession.resume(opened(), first.id, agent)
    live.run("Day 99?")
    assert f"Result {latest} has" in client.requests[1].messages[-1].text
    old, new = (message.text for message in client.requests[-1].messages[-2:])
    assert old.splitlines()[1] == "day 5, line 600"
    assert new.splitlines()[1] == "day 99, line 600"


def test_who_summarizes_is_told_of_each_turn_that_is_whole(opened: Open) -> None:
    told: list[str] = []

    class Summaries:
        def turn_completed(self, id: str) -> None:
            told.append(id)

    store = opened()
    agent = Agent("gpt-4o", client=Streaming("One.", ("Two", KeyboardInterrupt()), "Three."))
    live = AgentSession.start(store, agent, summarizer=Summaries())
    live.run("1")
    with pytest.raises(KeyboardInterrupt):
        live.run("2")
    live.run("3")
    assert told == [live.id] * 2


@pytest.mark.e2e(smoke=True)
def test_a_resumed_session_talks_to_a_real_server_without_marks_of_ours(opened: Open) -> None:
    """Seed 000, testing 7: nothing of ours is sent after a restart either; the server refuses it."""
    script: list[Any] = [calls(ToolCall(f"k{n}", "read")) if n % 2 else "Ok." for n in range(40)]
    with talking(script) as server:
        client = LiteLLMClient(server.address, "key", retries=0)
        id = ""
        for _ in range(3):
            agent = Agent("openai/gpt-4o", tools=[read], client=client, system="You help.")
            store = opened()
            live = AgentSession.resume(store, id, agent) if id else AgentSession.start(store, agent)
            id = live.id
            for number in range(4):
                assert live.run(f"Turn {number}").text == "Ok."
            live.plan = AgentPlan(("one", "two"), current=0)
        assert server.failed == 0
        assert "Current step" in server.calls[-1].text
        assert '"_' not in json.dumps(server.calls[-1].body)
    assert find_violations(list(opened().read_messages(id))) == []


def test_two_agents_of_one_store_do_not_mix(opened: Open) -> None:
    store = opened()
    one = AgentSession.start(store, agent_of("One.", "One again.")[0], system=True)
    two = AgentSession.start(store, agent_of("Two.")[0], system=True)
    one.run("a")
    two.run("b")
    one.run("c")
    assert [t for r, t in stored(store, one.id) if r == "assistant"] == ["One.", "One again."]
    assert [t for r, t in stored(store, two.id) if r == "assistant"] == ["Two."]


def test_messages_keep_what_was_billed_and_when(opened: Open) -> None:
    live = AgentSession.start(opened(), Agent("gpt-4o", client=Streaming("Yes.")))
    live.run("Hi")
    user, answer = opened().read_messages(live.id)
    assert isinstance(answer, Message)
    assert answer.extra["usd"] == 0.25
    assert (answer.usage.input, answer.usage.output) == (100, 10)  # type: ignore[union-attr]
    assert user.time is not None
    assert answer.time is not None
    assert user.time <= answer.time
