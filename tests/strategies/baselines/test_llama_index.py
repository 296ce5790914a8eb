"""Tests of the LlamaIndex baseline on small conversations."""

from __future__ import annotations

from generated import conversations, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter


@given(
    messages=conversations(),
    limit=st.sampled_from([5, 40, 150]),
    flush=st.sampled_from([1, 30, 1000]),
)
def test_what_is_left_begins_with_the_user_and_nothing_of_the_newest_turn_goes(
    messages: tuple[Message, ...], limit: int, flush: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    spec = f"llama_index.memory(token_limit={limit}, token_flush_size={flush})"
    head = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    for request in run(prepared, spec, 100_000)[1]:
        given_ = messages[: request.position]
        kept = request.messages[head:]
        assert request.messages[:head] == list(given_[:head])
        assert kept == list(given_[len(given_) - len(kept) :])
        users = [i for i, m in enumerate(given_) if m.role == "user"]
        if users and len(kept) < len(given_) - head:
            assert kept[0].role == "user"
            assert len(kept) >= len(given_) - users[-1]


def test_a_run_of_one_turn_is_never_shortened(counter: TokenCounter) -> None:
    run_of_one = [Message("user", "Look around")]
    for number in range(9):
        call = ToolCall(f"c{number}", "look")
        run_of_one += [
            Message("assistant", tool_calls=(call,)),
            Message("tool", "word " * 50, tool_call_id=call.id),
        ]
    prepared = prepare_messages((*run_of_one, Message("assistant", "Done.")), counter)
    requests = run(prepared, "llama_index.memory(token_limit=100)", 100_000)[1]
    assert requests[-1].messages == run_of_one


def test_calls_are_not_counted_and_ids_of_results_are(counter: TokenCounter) -> None:
    write = ToolCall("c1", "write", '{"text": "' + "word " * 100 + '"}')
    messages = [
        Message("user", "Write it"),
        Message("assistant", tool_calls=(write,)),
        Message("tool", "ok", tool_call_id="c1"),
        Message("user", "And now?"),
    ]
    prepared = prepare_messages((*messages, Message("assistant", "Done.")), counter)
    limit = sum(counter.count_text(m.text) for m in messages) + counter.count_text(
        "{'tool_call_id': 'c1'}"
    )
    spec = "llama_index.memory(token_limit={}, chat_history_token_ratio=1.0, token_flush_size=1)"
    assert run(prepared, spec.format(limit), 100_000)[1][-1].messages == messages
    assert run(prepared, spec.format(limit - 1), 100_000)[1][-1].messages == messages[-1:]
