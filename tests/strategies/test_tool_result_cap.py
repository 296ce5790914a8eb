"""Tests of ``tool_result_cap``: results are cut once, when they arrive, at the given length."""

from __future__ import annotations

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.evaluation.engine import replay_trace
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import tool_result_cap
from ctxlab.tokens.counter import TokenCounter

MARK = "\n\n[truncated]"


def talk(result: Message) -> list[Message]:
    call = Message("assistant", None, tool_calls=(ToolCall("c1", "read"),))
    return [Message("user", "go"), call, result, Message("assistant", "done")]


@pytest.mark.parametrize(
    ("size", "cut"), [(3999, False), (4000, False), (4001, True), (50000, True)]
)
def test_a_result_is_cut_beyond_4000_characters(
    size: int, cut: bool, counter: TokenCounter
) -> None:
    text = "".join(chr(97 + i % 26) for i in range(size))
    _, sent = run(
        prepare_messages(talk(Message("tool", text, tool_call_id="c1")), counter),
        tool_result_cap(),
        10**6,
    )
    assert sent[-1].messages[2].content == (text[:4000] + MARK if cut else text)
    assert sent[-1].messages[2].tool_call_id == "c1"


@given(messages=conversations(), limit=limits(), chars=st.sampled_from([0, 3, 50, 500, 4000]))
def test_only_results_are_cut_and_only_their_text(
    messages: tuple[Message, ...], limit: int, chars: int, counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), tool_result_cap(chars), limit)
    for sent in requests:
        for recorded, now in zip(messages, sent.messages, strict=False):
            if recorded.role != "tool" or len(recorded.text) <= chars:
                assert now is recorded
            else:
                assert now.text == recorded.text[:chars] + MARK
        assert len(sent.messages) == sent.position
    assert all(e.form is Form.TRUNCATED for e in trace.context.edited_entries)


@given(st.text(max_size=300), st.integers(1, 100), st.floats(0, 1))
def test_the_beginning_and_the_end_are_kept_and_what_is_left_out_is_counted(
    text: str, chars: int, tail: float
) -> None:
    made = tool_result_cap(chars, tail=tail).cut(Message("tool", text), None)
    assert (made is None) == (len(text) <= chars)
    if made is not None:
        head, _, end = made.text.partition(MARK)
        end = end.partition("left out here\n\n")[2]
        assert len(head) + len(end) == chars
        assert text.startswith(head)
        assert text.endswith(end)


@given(messages=conversations(), limit=limits(), chars=st.sampled_from([0, 50]))
def test_cutting_at_arrival_keeps_the_prefix_of_the_request_before(
    messages: tuple[Message, ...], limit: int, chars: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace = replay_trace(prepared, tool_result_cap(chars), prepared.make_budget(limit))
    assert trace.unchanged_prefix_tokens[1:] == [
        tokens - prepared.fixed_tokens for tokens in trace.tokens[:-1]
    ]
    assert len({entry.start for entry in trace.context.edited_entries}) == len(
        trace.context.edited_entries
    )
