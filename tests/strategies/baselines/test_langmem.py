"""Tests of the LangMem baseline on small conversations."""

from __future__ import annotations

import pytest
from replaying import run

from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.tokens.counter import TokenCounter

HEADER = "system Summary of the conversation so far: "


def talk(turns: int) -> list[Message]:
    """Return messages of about eleven tokens each."""
    return [
        Message(role, f"{'word ' * 5}{number}")
        for number in range(turns)
        for role in ("user", "assistant")  # type: ignore[misc]
    ]


def sent(
    spec: str, messages: list[Message], counter: TokenCounter, client: ScriptedClient | None = None
) -> list[list[str]]:
    """Return the requests as lists of ``role text`` lines."""
    prepared = PreparedRecording(
        Recording("r", (*messages, Message("assistant", "Done."))), counter, client
    )
    _, requests = run(prepared, spec, 100_000)
    return [[f"{m.role} {m.text}" for m in request.messages] for request in requests]


def test_the_system_prompt_stays_before_the_summary(counter: TokenCounter) -> None:
    messages = [Message("system", "Be brief."), *talk(8)]
    request = sent("langmem.summarize(max_tokens=120, max_summary_tokens=60)", messages, counter)[
        -1
    ]
    assert request[0] == "system Be brief."
    assert request[1].startswith(HEADER)
    assert request[2:] == [f"{m.role} {m.text}" for m in messages[-len(request) + 2 :]]


def test_the_summary_extends_the_one_before(counter: TokenCounter) -> None:
    client = ScriptedClient(lambda request: f"Summary number {len(client.requests)}")
    spec = (
        "langmem.summarize(max_tokens=100, max_tokens_before_summary=50, max_summary_tokens=40, "
        "model='gpt-4o')"
    )
    requests = sent(spec, talk(14), counter, client)
    assert len(client.requests) > 2
    assert requests[-1][0] == f"{HEADER}Summary number {len(client.requests)}"
    for number, request in enumerate(client.requests[1:], 1):
        assert f"Summary number {number}" in request.messages[-1].text


def test_what_is_not_yet_summarised_stays_below_the_trigger_and_the_rest_fits(
    counter: TokenCounter,
) -> None:
    spec = "langmem.summarize(max_tokens=100, max_tokens_before_summary=50, max_summary_tokens=40)"
    prepared = PreparedRecording(
        Recording("r", (*talk(20), Message("assistant", "Done."))), counter
    )
    _, requests = run(prepared, spec, 100_000)
    for request in requests:
        new = [m for m in request.messages if m.role != "system"]
        assert sum(map(counter.count_message, new)) < 50 + 100 - 40


def test_the_results_of_a_call_go_with_it_but_parallel_results_are_parted(
    counter: TokenCounter,
) -> None:
    calls = tuple(ToolCall(f"c{n}", "look") for n in range(2))
    results = [Message("tool", "word " * 30, tool_call_id=call.id) for call in calls]
    messages = [Message("user", "Go"), Message("assistant", tool_calls=calls), *results]
    with_call = (
        "langmem.summarize(max_tokens=80, max_tokens_before_summary=14, max_summary_tokens=9)"
    )
    assert len(sent(with_call, messages, counter)[-1]) in (1, 2)
    inside = "langmem.summarize(max_tokens=60, max_tokens_before_summary=45, max_summary_tokens=9)"
    request = sent(inside, messages, counter)[-1]
    assert [line.split()[0] for line in request] == ["system", "tool"]


def test_a_summary_as_large_as_the_limit_is_refused(counter: TokenCounter) -> None:
    with pytest.raises(SpecError, match=r"\(256\) must be less than max_tokens \(200\)"):
        sent("langmem.summarize(max_tokens=200)", talk(1), counter)
