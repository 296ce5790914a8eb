"""Tests of offload: the preview, the pointer, and that every result can be read back."""

from __future__ import annotations

import re

from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab import ContextManager, Recording, evaluate
from ctxlab.agent import Agent
from ctxlab.context.history import Form
from ctxlab.context.stored_results import READ_RESULT_TOOL
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import offload
from ctxlab.tokens.counter import TokenCounter

COUNTER = TokenCounter("gpt-4o")
LINES = "".join(f"line {number} of the log\n" for number in range(1, 501))


def sent_result(strategy: offload, content: object, tool: str = "run") -> Message:
    """Return the result as it is sent."""
    said = [
        Message("user", "Run it."),
        Message("assistant", tool_calls=(ToolCall("c", tool),)),
        Message("tool", content, tool_call_id="c"),  # type: ignore[arg-type]
        Message("assistant", "Done."),
    ]
    prepared = PreparedRecording(Recording("r", tuple(said)), COUNTER)
    return run(prepared, strategy, 10**6)[1][-1].messages[2]


def test_the_preview_has_both_ends_cut_at_lines_and_says_how_to_read_the_rest() -> None:
    text = sent_result(offload(tokens=100, preview=100), LINES).text
    assert text == (
        "line 1 of the log\nline 2 of the log\n"
        "[496 of 500 lines are left out. Result 3 has 3,504 tokens; read it with "
        'read_result(number=3, start=3) or search it with read_result(number=3, search="...")]\n'
        "line 499 of the log\nline 500 of the log\n"
    )


def test_text_without_line_breaks_is_cut_anywhere() -> None:
    text = sent_result(offload(tokens=100, preview=20), "x" * 5000).text
    assert re.fullmatch(
        r"x{10}\n\[1 of 1 lines are left out\. Result 3 .*start=1\).*\]\nx{10}", text
    )


def test_only_long_results_of_text_are_replaced_and_pages_never() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
    with_image = ({"type": "text", "text": LINES}, image)
    for strategy, content, tool in (
        (offload(tokens=4000), LINES, "run"),
        (offload(tokens=10), with_image, "run"),
        (offload(tokens=10), LINES, "read_result"),
        (offload(tokens=1), "short", "run"),
    ):
        assert sent_result(strategy, content, tool).content == content


@given(messages=conversations(), limit=limits())
def test_a_result_is_replaced_before_it_is_first_sent_and_its_number_gives_it_back(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, offload(tokens=40, preview=40), limit)
    manager = ContextManager("offload(tokens=40, preview=40)", "gpt-4o")
    manager.extend(messages)
    before: list[Message] = []
    for sent in requests:
        assert sent.messages[: len(before)] == before
        before = sent.messages
        for entry in sent.entries:
            if entry.form is not Form.VERBATIM:
                assert entry.form is Form.POINTER
                (number,) = re.findall(r"Result (\d+) has", entry.message.text)
                assert manager.find_result(int(number)) == messages[entry.start].text


def test_the_agent_gets_the_tool_and_reads_what_was_offloaded() -> None:
    def read_log() -> str:
        """Read the log."""
        return LINES * 9

    client = ScriptedClient(
        Message("assistant", tool_calls=(ToolCall("a", "read_log"),)),
        Message("assistant", tool_calls=(
            ToolCall("b", "read_result", '{"number": 3, "start": 250}'),
            ToolCall("c", "read_result", '{"number": 3, "search": "LINE 77 "}'),
            ToolCall("d", "read_result", '{"number": 2}'),
        )),
        "It is line 250.",
    )  # fmt: skip
    agent = Agent("gpt-4o", tools=[read_log], client=client, strategy="offload() | panic()")
    assert READ_RESULT_TOOL in agent.tool_definitions
    agent.run("What is in it?")
    _, first, last = client.requests
    assert "Result 3 has" in first.messages[-1].text
    page, search, missing = (message.text for message in last.messages[-3:])
    assert page.startswith("[Result 3, lines 250-")
    assert "\nline 250 of the log\n" in page
    assert search.splitlines()[1] == "77: line 77 of the log"
    assert "there is no tool result 2" in missing
    assert "read_result" not in Agent("gpt-4o", strategy="panic()").tools


def test_reading_back_costs_a_request_and_one_page_of_a_call_that_cannot_be_repeated() -> None:
    log = "".join(f"build step {number} made the target\n" for number in range(3000))
    log += "the hash of it is HAT9137x\n" + log
    calls = [ToolCall("a", "bash", '{"command": "make all"}')]
    calls += [ToolCall("b", "publish", '{"hash": "HAT9137x"}')]
    said = [
        Message("user", "Build it and publish it."),
        Message("assistant", tool_calls=(calls[0],)),
        Message("tool", log, tool_call_id="a"),
        Message("assistant", tool_calls=(calls[1],)),
        Message("tool", "published", tool_call_id="b"),
        Message("assistant", "Done."),
    ]
    recording = Recording("build", tuple(said), model="gpt-4o")
    strategies = ["offload()", "tool_result_cap(chars=2000)", "full"]
    results = evaluate([recording], strategies, 200_000, closed_loop=True, workers=1)
    rows = results.requests[results.requests["request"] == 1].set_index("strategy")
    offloaded, cut = rows.loc["offload()"], rows.loc["tool_result_cap(chars=2000)"]
    assert (offloaded["refetches"], offloaded["irrecoverable"]) == (1, 0)
    assert (cut["refetches"], cut["irrecoverable"]) == (0, 1)
    size = COUNTER.count_message(said[2])
    once = offloaded["tokens"]
    assert 2 * once < offloaded["closed_tokens"] < 2 * once + 2500 < size
