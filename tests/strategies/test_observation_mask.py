"""Tests of ``observation_mask``: older results are replaced by one line."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import observation_mask
from ctxlab.tokens.counter import TokenCounter


@given(messages=conversations(), limit=limits(), keep=st.integers(0, 12))
def test_the_newest_results_stay_and_older_ones_are_a_line(
    messages: tuple[Message, ...], limit: int, keep: int, counter: TokenCounter
) -> None:
    _, requests = run(prepare_messages(messages, counter), observation_mask(keep), limit)
    for sent in requests:
        assert len(sent.messages) == sent.position
        results = [i for i in range(sent.position) if messages[i].role == "tool"]
        old = set(results[: max(0, len(results) - keep)])
        for i, entry in enumerate(sent.entries):
            if i in old and entry.form is Form.STUB:
                lines = messages[i].text.count("\n") + 1
                assert entry.message.content == f"[output left out: {lines} lines]"
                assert entry.message.tool_call_id == messages[i].tool_call_id
            else:
                assert entry.message is messages[i]
                assert i not in old or len(messages[i].text) <= len("[output left out: 99 lines]")


def test_keep_says_how_many_results_stay(counter: TokenCounter) -> None:
    talk = [Message("user", "go")]
    for step in range(20):
        talk.append(Message("assistant", None, tool_calls=(ToolCall("c", "read"),)))
        talk.append(Message("tool", f"output {step}\n" * 9, tool_call_id="c"))
    talk.append(Message("assistant", "done"))
    for keep in (0, 1, 10, 30):
        _, sent = run(prepare_messages(talk, counter), observation_mask(keep), 10**6)
        kept = [
            m.text[:9]
            for m in sent[-1].messages
            if m.role == "tool" and m.text.startswith("output")
        ]
        assert kept == [f"output {i}\n"[:9] for i in range(20)][20 - min(keep, 20) :]
