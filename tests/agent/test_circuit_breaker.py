"""Tests of the circuit breaker, alone and in an agent."""

from __future__ import annotations

import json

import pytest
from acting import calls
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.circuit_breaker import CircuitBreaker
from ctxlab.agent.events import ToolCallFinished
from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.result import ToolResult
from ctxlab.errors import SpecError
from ctxlab.llm import ScriptedClient

BAD = ToolResult(ok=False, error="no", error_type="execution_error")
GOOD = ToolResult(ok=True)
TEXT = (
    "Tool 'shell__run_command' has failed 3 times consecutively. "
    "Please try a different approach or tool."
)


def test_the_fourth_call_after_three_failures_is_blocked() -> None:
    """Seed 002, scenario 2: a tool is blocked after 3 consecutive failures."""
    breaker = CircuitBreaker()
    for _ in range(3):
        assert breaker.blocked_result("shell__run_command") is None
        breaker.record("shell__run_command", BAD)
    result = breaker.blocked_result("shell__run_command")
    assert result is not None
    assert (result.ok, result.error, result.error_type) == (False, TEXT, "circuit_breaker")
    assert breaker.blocked_result("read") is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans())), st.integers(0, 4))
def test_a_tool_is_blocked_exactly_while_its_last_calls_in_a_row_failed(
    called: list[tuple[str, bool]], limit: int
) -> None:
    breaker = CircuitBreaker(limit)
    for name, ok in called:
        breaker.record(name, GOOD if ok else BAD)
    for name in "ab":
        last = [ok for each, ok in called if each == name][-limit:] if limit else [True]
        blocked = len(last) >= max(limit, 1) and not any(last)
        assert (breaker.blocked_result(name) is not None) is blocked
    breaker.reset()
    assert breaker.blocked_result("a") is breaker.blocked_result("b") is None


@given(st.lists(st.sampled_from(["pytest", "ls", "edit"]), max_size=8))
def test_a_failing_command_is_blocked_only_if_it_is_repeated_without_another_call(
    commands: list[str],
) -> None:
    """Seed 002, criterion 3: three failures in a row; a command that fails is a failure of its own."""
    breaker = CircuitBreaker(3)
    failed = ToolResult(ok=False, data="[exit code 1]", error_type="command_failed")
    blocked = False
    for place, command in enumerate(commands):
        if command == "edit":
            breaker.record("edit_file", GOOD, command)
        else:
            breaker.record("run_command", failed, command)
        last = commands[max(0, place - 2) : place + 1]
        now = len(last) == 3 and len(set(last)) == 1 and command != "edit"
        blocked = now or (blocked and command == "edit")
        assert (breaker.blocked_result("run_command") is not None) is blocked


def test_a_call_that_the_user_refused_is_no_failure_of_the_tool() -> None:
    breaker = CircuitBreaker(1)
    breaker.record("run_command", ToolResult(ok=False, error="no", error_type="refused"))
    assert breaker.blocked_result("run_command") is None


def test_a_breaker_with_a_strange_threshold_is_refused() -> None:
    with pytest.raises(SpecError, match="max_failures of 0 or more, got -1"):
        CircuitBreaker(-1)


class Flaky:
    """Two tools: one that fails on demand, and one that never fails."""

    def __init__(self) -> None:
        self.ran = 0

    def shell__run_command(self, ok: bool = False) -> str:
        self.ran += 1
        if not ok:
            raise RuntimeError("exit 1")
        return "fine"

    def read(self) -> str:
        return "text"


RUN, RIGHT = ("shell__run_command", "{}"), ("shell__run_command", '{"ok": true}')


def test_an_agent_whose_tool_keeps_failing_is_told_to_try_something_else() -> None:
    """Seed 002, criterion 3: after 3 consecutive failures in one turn the agent gets the message."""
    flaky = Flaky()
    client = ScriptedClient(*[calls(RUN)] * 4, calls(RUN, ("read", "{}")), "I give up.")
    agent = Agent("gpt-4o", tools=[flaky.shell__run_command, flaky.read], client=client)
    results = [e.result for e in agent.stream("Run it") if isinstance(e, ToolCallFinished)]
    assert [r.error_type for r in results] == [
        *["execution_error"] * 3, "circuit_breaker", "circuit_breaker", None,
    ]  # fmt: skip
    assert flaky.ran == 3
    told = [m.text for m in client.requests[4].messages if m.role == "tool"]
    assert json.loads(told[-1]) == {"error": TEXT, "error_type": "circuit_breaker"}


def test_a_success_and_a_new_turn_make_the_tool_whole_again() -> None:
    flaky = Flaky()
    client = ScriptedClient(
        *[calls(RUN)] * 2, calls(RIGHT), *[calls(RUN)] * 3, "No.", calls(RUN), "No.",
    )  # fmt: skip
    agent = Agent("gpt-4o", tools=[flaky.shell__run_command], client=client)
    agent.run("One")
    agent.run("Two")
    assert flaky.ran == 7


def test_wrong_arguments_and_unknown_names_count_and_the_breaker_can_be_off() -> None:
    def kinds(failures: int) -> list[str | None]:
        client = ScriptedClient(*[calls(("write", "{}"))] * 5, "No.")
        agent = Agent("gpt-4o", client=client, max_tool_failures=failures)
        return [e.result.error_type for e in agent.stream("Go") if isinstance(e, ToolCallFinished)]

    assert kinds(2) == [*["tool_not_found"] * 2, *["circuit_breaker"] * 3]
    assert kinds(0) == ["tool_not_found"] * 5
