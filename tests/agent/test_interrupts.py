"""Tests of Ctrl+C: after any interrupt, the conversation is valid and the next turn works."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from acting import Heard, Streaming, calls, take, whole
from hypothesis import given
from hypothesis import strategies as st
from talking import Fault, talking

from ctxlab.agent.events import TextDelta, ToolCallFinished, ToolCallStarted, TurnFinished
from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.errors import ModelUnavailable
from ctxlab.llm import LiteLLMClient, ScriptedClient
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message, ToolCall, Usage

STOP = KeyboardInterrupt()


def read() -> str:
    """Reads."""
    return "text"


def stop() -> str:
    """The user presses Ctrl+C while it works."""
    raise KeyboardInterrupt


class Killed:
    def __init__(self) -> None:
        self.times = 0

    def kill_all(self) -> None:
        self.times += 1


THREE = calls(("read", "{}"), ("stop", "{}"), ("read", "{}"), text="On it.")


def test_calls_that_ctrl_c_left_open_are_answered_as_cancelled() -> None:
    """Seed 002, criterion 4: Ctrl+C during tool execution ends processes, and goes on to the caller."""
    processes = Killed()
    client = ScriptedClient(THREE, "Here I am.")
    agent = Agent("gpt-4o", tools=[read, stop], client=client, processes=processes)
    heard = Heard(agent)
    with pytest.raises(KeyboardInterrupt):
        agent.run("Go")
    assert processes.times == 1
    results = [m for m in heard.messages if m.role == "tool"]
    assert [m.tool_call_id for m in results] == ["c0", "c1", "c2"]
    assert results[0].text == "text"
    for message in results[1:]:
        said = json.loads(message.text)
        assert said["error_type"] == "cancelled"
        assert said["error"].startswith("Cancelled by the user")
    whole(agent, heard)
    assert agent.run("Again").text == "Here I am."
    whole(agent, heard)
    assert processes.times == 1


def test_text_that_had_come_is_kept_with_its_marker() -> None:
    """Seed 002, criterion 4: what was streamed before Ctrl+C stays, marked as cancelled."""
    client = Streaming(("It is a long st", STOP), "Fine.")
    agent = Agent("gpt-4o", client=client)
    heard = Heard(agent)
    with pytest.raises(KeyboardInterrupt):
        agent.run("Tell me")
    assert heard.messages[-1].text == "It is a long st\n\n[Cancelled]"
    assert client.open == 0
    assert agent.run("Go on").text == "Fine."
    whole(agent, heard)


def test_nothing_is_kept_where_nothing_had_come() -> None:
    agent = Agent("gpt-4o", client=Streaming(STOP, "Fine."))
    heard = Heard(agent)
    with pytest.raises(KeyboardInterrupt):
        agent.run("Tell me")
    assert [m.role for m in heard.messages] == ["user"]
    agent.run("Go on")
    whole(agent, heard)


@pytest.mark.parametrize("kind", [TextDelta, ToolCallStarted, ToolCallFinished])
def test_a_turn_that_is_closed_in_the_middle_is_cleaned_up_without_a_word(kind: type) -> None:
    processes = Killed()
    client = Streaming(calls(("read", "{}"), ("read", "{}"), text="On my way."), "Done.")
    agent = Agent("gpt-4o", tools=[read], client=client, processes=processes)
    heard = Heard(agent)
    stream = agent.stream("Go")
    assert isinstance(take(stream, lambda event: isinstance(event, kind)), kind)
    stream.close()
    assert processes.times == 1
    assert client.open == 0
    if kind is TextDelta:
        assert heard.messages[-1].text == "On my\n\n[Cancelled]"
    else:
        assert [m.role for m in heard.messages][-2:] == ["tool", "tool"]
        assert "cancelled" in heard.messages[-1].text
    whole(agent, heard)
    client.answers = ["Done."]
    assert agent.run("Again").text == "Done."
    whole(agent, heard)


def test_a_turn_that_is_over_ends_no_process_however_it_is_left() -> None:
    processes = Killed()
    agent = Agent("gpt-4o", client=Streaming("One.", "Two."), processes=processes)
    stream = agent.stream("Go")
    take(stream, lambda event: isinstance(event, TurnFinished))
    stream.close()
    agent.run("Go")
    assert processes.times == 0


def test_a_model_that_fails_ends_no_process() -> None:
    processes = Killed()
    agent = Agent("gpt-4o", client=Streaming(ModelUnavailable("busy")), processes=processes)
    with pytest.raises(ModelUnavailable):
        agent.run("Go")
    assert processes.times == 0


def test_a_turn_that_was_left_is_closed_by_the_next_one_or_by_nobody_holding_it() -> None:
    client = Streaming(*[calls(("read", "{}"), text="On it.")] * 2, "Done.")
    agent = Agent("gpt-4o", tools=[read], client=client)
    heard = Heard(agent)
    stream = agent.stream("One")
    take(stream, lambda event: isinstance(event, ToolCallStarted))
    second = agent.stream("Two")
    whole(agent, heard)
    take(second, lambda event: isinstance(event, ToolCallStarted))
    del second
    gc.collect()
    whole(agent, heard)
    assert agent.run("Three").text == "Done."
    whole(agent, heard)
    assert list(stream) == []


def test_processes_that_cannot_be_ended_do_not_hide_the_interruption() -> None:
    class Stuck:
        def kill_all(self) -> None:
            raise OSError("stuck")

    agent = Agent(
        "gpt-4o", tools=[stop], client=ScriptedClient(calls(("stop", "{}"))), processes=Stuck()
    )
    heard = Heard(agent)
    with pytest.raises(KeyboardInterrupt):
        agent.run("Go")
    whole(agent, heard)


# --- real signals ----------------------------------------------------------------------------------


def test_ctrl_c_ends_a_running_command_with_its_children() -> None:
    """Seed 002, criterion 4: no managed process is left, nor a child of one."""
    with ProcessManager() as processes:
        seen: list[psutil.Process] = []

        def look() -> None:
            while sum(map(_sleeps, seen)) < 2:
                seen[:] = psutil.Process().children(recursive=True)
            os.kill(os.getpid(), signal.SIGINT)

        def run(command: str) -> str:
            """Runs a command."""
            threading.Thread(target=look).start()
            return processes.run(command, cwd=".", timeout=60, limit_chars=999).output

        wanted = calls(("run", json.dumps({"command": "sleep 97 & sleep 98; true"})))
        client = ScriptedClient(wanted, "Stopped.")
        agent = Agent("gpt-4o", tools=[run], client=client, processes=processes)
        heard = Heard(agent)
        with pytest.raises(KeyboardInterrupt):
            agent.run("Sleep")
        _, alive = psutil.wait_procs(seen, timeout=30)
        assert not alive
        assert processes.list_running() == []
        whole(agent, heard)
        assert agent.run("And?").text == "Stopped."


def _sleeps(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[:1] == ["sleep"]
    except psutil.Error:  # it has ended
        return False


@pytest.mark.e2e
def test_ctrl_c_while_a_model_is_waited_for_leaves_the_users_message() -> None:
    with talking([Fault.HANG, "Fine."]) as server:
        client = LiteLLMClient(server.address, "key", retries=0)
        agent = Agent("openai/gpt-4o", client=client)
        heard = Heard(agent)
        watch = threading.Thread(target=_once_asked, args=(server,))
        watch.start()
        with pytest.raises(KeyboardInterrupt):
            agent.run("Hello?")
        watch.join()
        assert [m.text for m in heard.messages] == ["Hello?"]
        assert agent.run("Again?").text == "Fine."
        whole(agent, heard)


def _once_asked(server: Any) -> None:
    while not server.calls:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.e2e
def test_ctrl_c_at_any_moment_parts_no_message_from_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 002, criterion 4: sixty signals at random moments, each heard by the caller.

    But for those that Python drops and reports, since they came while a destructor ran.
    """
    dropped: list[object] = []
    tell = sys.unraisablehook
    monkeypatch.setattr(
        sys,
        "unraisablehook",
        lambda it: dropped.append(it) if it.exc_type is KeyboardInterrupt else tell(it),
    )
    draw = random.Random(6)
    client = ScriptedClient(
        lambda request: "Done." if draw.random() < 0.3 else calls(*[("read", "{}")] * 3, text="So")
    )
    agent = Agent("gpt-4o", tools=[read], client=client, system="Go.", strategy="sliding_window()")
    heard = Heard(agent)
    stopped = 0
    for turn in range(60):
        timer = threading.Timer(draw.random() * 0.02, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for number in range(1000):
                agent.run(f"turn {turn} {number}")
        except KeyboardInterrupt:
            stopped += 1
        timer.join()
        whole(agent, heard)
    assert stopped + len(dropped) == 60
    agent.run("At last")
    whole(agent, heard)


# --- at random -------------------------------------------------------------------------------------


class Interrupting:
    """Random streams with random interrupts: during text, in tools, and in the store."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.open = 0

    def maybe(self) -> None:
        if self.draw.random() < 0.08:
            raise KeyboardInterrupt

    def complete(self, request: Request, /) -> Reply:
        raise AssertionError("it streams")

    def complete_all(self, requests: Any, /) -> list[Reply | ModelUnavailable]:
        raise AssertionError("it streams")

    def stream(self, request: Request, /) -> Iterator[str | Reply]:
        draw = self.draw
        self.open += 1
        try:
            self.maybe()
            pieces = draw.choices(["Hel", "lo ", "\n", "é", ""], k=draw.randint(0, 4))
            for piece in pieces:
                yield piece
                self.maybe()
                if draw.random() < 0.05:
                    raise ModelUnavailable("gone")
            wanted = tuple(
                ToolCall(f"c{i}", draw.choice(["work", "nothing"]), "{}")
                for i in range(draw.choice([0, 0, 1, 3]))
            )
            yield Reply(Message("assistant", "".join(pieces), tool_calls=wanted), Usage(1))
        finally:
            self.open -= 1


@given(st.integers(0, 10**9))
def test_however_turns_are_interrupted_the_conversation_is_whole(seed: int) -> None:
    client = Interrupting(seed)
    draw = client.draw

    def work() -> str:
        """Works, unless it is interrupted."""
        client.maybe()
        if draw.random() < 0.2:
            raise OSError("no")
        return "ok"

    agent = Agent("gpt-4o", tools=[work], client=client, system="Go.", max_iterations=4)
    heard = Heard(agent)
    for turn in range(6):
        try:
            stream = agent.stream(f"turn {turn}", file=draw.choice([None, "a"]))
            for _ in stream:
                if draw.random() < 0.1:
                    stream.close()
                client.maybe()  # in the consumer, who lets go of the turn
        except (KeyboardInterrupt, ModelUnavailable):
            pass
        agent.cancel()
        assert client.open == 0
        whole(agent, heard)
        users = [m.text for m in heard.messages if m.role == "user"]
        assert users == [f"turn {n}" for n in range(turn + 1)]
