"""Tests of the deepagents baseline on small conversations."""

from __future__ import annotations

import json

from replaying import Sent, run

from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies.baselines.deepagents.files import stub_saved_result
from ctxlab.tokens.counter import TokenCounter


def write(number: int, length: int, tool: str = "write_file") -> list[Message]:
    """Return a call that writes a file, and its result."""
    text = json.dumps({"file_path": f"{number}.txt", "content": "x " * length})
    call = ToolCall(f"c{number}", tool, text)
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", "ok", tool_call_id=call.id),
    ]


def requests_of(
    spec: str, messages: list[Message], limit: int, counter: TokenCounter, answer: str = "All well."
) -> list[Sent]:
    said = (*messages, Message("assistant", "Done."))
    prepared = PreparedRecording(Recording("r", said), counter, ScriptedClient(lambda _: answer))
    return run(prepared, spec, limit)[1]


def test_old_writes_are_cut_for_the_request_and_the_newest_stay(counter: TokenCounter) -> None:
    messages = [Message("user", "Write"), *write(1, 99), *write(2, 99, "note"), *write(3, 99)]
    spec = (
        "deepagents(truncate_trigger=('messages', 7), truncate_keep=('messages', 2), "
        "max_length=100)"
    )
    request = requests_of(spec, messages, 10_000, counter)[-1]
    calls = [json.loads(c.arguments) for m in request.messages for c in m.tool_calls]
    assert calls[0]["content"] == "x " * 10 + "...(argument truncated)"
    assert [len(call["content"]) for call in calls[1:]] == [198, 198]
    assert all(entry.form.value == "verbatim" for entry in request.context.history.entries)


def test_a_summary_says_where_the_history_is_and_what_stays_is_whole(
    counter: TokenCounter,
) -> None:
    messages = [Message("system", "Help."), Message("user", "Go")]
    messages += [m for n in range(20) for m in write(n, 20, "note")]
    requests = requests_of("deepagents(model='gpt-4o')", messages, 900, counter)
    summarised = [request for request in requests if "<summary>" in request.messages[1].text]
    assert summarised
    for request in summarised:
        assert request.messages[0] == messages[0]
        assert "/conversation_history/session.md" in request.messages[1].text
        assert "<summary>\nAll well.\n</summary>" in request.messages[1].text
        assert request.messages[2].role == "assistant"
        kept = len(request.messages) - 2
        assert request.messages[2:] == messages[request.position - kept : request.position]
    assert sum(map(counter.count_message, requests[-1].messages)) < 0.95 * 900


def test_the_newest_results_give_way_where_a_summary_is_not_enough(counter: TokenCounter) -> None:
    call = ToolCall("c9", "shell", '{"run": "make"}')
    long = Message("tool", "\n".join(f"line {n}" for n in range(400)), tool_call_id="c9")
    messages = [Message("user", "Go"), *write(1, 9), Message("assistant", tool_calls=(call,)), long]
    request = requests_of("deepagents(model='gpt-4o')", messages, 1200, counter)[-1]
    assert "/large_tool_results/c9" in request.messages[-1].text
    assert request.messages[-1].text.endswith("400  line 399\n")
    assert request.entries[-1].form.value == "pointer"


def test_what_fits_in_no_way_is_sent_as_it_was_and_reported(counter: TokenCounter) -> None:
    messages = [Message("user", "Go"), Message("assistant", "Yes?"), Message("user", "word " * 900)]
    request = requests_of("deepagents(model='gpt-4o')", messages, 800, counter)[-1]
    assert request.messages == messages
    assert any("fails" in what for _, what in request.context.events)


def test_of_a_file_that_was_read_the_beginning_stays() -> None:
    call = ToolCall("c1", "read_file", '{"file_path": "/a.txt"}')
    text = stub_saved_result(Message("tool", "x" * 9000, tool_call_id="c1"), call).text
    assert text.startswith("x" * 4000 + "\n\n[Output was truncated")
    assert "read_file with file_path='/a.txt'" in text


def test_long_lines_and_long_ids_are_clipped_in_what_is_shown() -> None:
    text = stub_saved_result(Message("tool", "y" * 3000, tool_call_id="c" * 200), None).text
    assert "y" * 1000 in text
    assert "y" * 1001 not in text
    assert f"tool call {'c' * 32}... was saved" in text
    assert "/large_tool_results/call-" in text


def test_a_long_result_is_saved_before_it_is_sent_except_that_of_a_file_tool(
    counter: TokenCounter,
) -> None:
    text = "\n".join(f"line {i}" for i in range(200))
    messages = [Message("user", "Look")]
    for tool in ("run", "grep"):
        messages.append(Message("assistant", tool_calls=(ToolCall(tool, tool),)))
        messages.append(Message("tool", text, tool_call_id=tool))
    sent = requests_of("deepagents.offload(tool_tokens=300)", messages, 10**6, counter)[-1].messages
    assert "at this path: /large_tool_results/run\n" in sent[2].text
    assert "line 4\n... [190 lines truncated] ...\n196  line 195" in sent[2].text
    assert sent[4].text == text


def test_a_long_user_message_is_saved_if_it_is_the_last_of_a_request(counter: TokenCounter) -> None:
    text = "word " * 300
    messages = [Message("user", text), Message("user", text), Message("assistant", "Yes?")]
    sent = requests_of("deepagents.offload(user_tokens=300)", messages, 10**6, counter)
    first, second = sent[-1].messages[:2]
    assert first.text == text
    assert second.text.startswith("Message content too large and was saved")
