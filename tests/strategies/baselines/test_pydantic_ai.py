"""Tests of the Pydantic AI baselines: how they count messages, and valid cuts."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter

HEADER = "Summary of previous conversation:"


def work(count: int, calls: int = 1, id: str | None = None) -> list[Message]:
    """Return a task (one message of Pydantic AI) and ``count`` steps (two messages each)."""
    talk = [Message("system", "You are an agent."), Message("user", "Fix it")]
    for number in range(count):
        made = tuple(ToolCall(id or f"c{number}.{i}", "run") for i in range(calls))
        talk.append(Message("assistant", f"step {number}", tool_calls=made))
        talk += [Message("tool", f"out {number} " * 20, tool_call_id=call.id) for call in made]
    return talk


def last(
    talk: list[Message], spec: str, counter: TokenCounter, limit: int = 10**6
) -> list[Message]:
    talk = [*talk, Message("assistant", ".")]
    return run(prepare_messages(talk, counter), spec, limit)[1][-1].messages


def test_the_system_prompt_and_the_task_are_one_message_and_so_are_all_results(
    counter: TokenCounter,
) -> None:
    talk = work(4, calls=3)  # 9 messages
    assert last(talk, "pydantic_ai.sliding(trigger=('messages', 10))", counter) == talk
    spec = "pydantic_ai.sliding(trigger=('messages', 9), keep=('messages', 2))"
    assert last(talk, spec, counter) == talk[-4:]


def test_the_window_drops_the_system_prompt_unless_a_head_is_kept(counter: TokenCounter) -> None:
    sizes = "trigger=('messages', 9), keep=('messages', 2)"
    talk = work(4)
    assert last(talk, f"pydantic_ai.sliding({sizes})", counter) == talk[-2:]
    sent = last(talk, f"pydantic_ai.sliding({sizes}, keep_head=('messages', 1))", counter)
    assert sent == [*talk[:2], *talk[-2:]]


def test_a_cut_moves_back_to_the_call(counter: TokenCounter) -> None:
    talk = work(4)
    spec = "pydantic_ai.sliding(trigger=('messages', 9), keep=('messages', 3))"
    assert last(talk, spec, counter) == talk[-4:]


def test_where_an_id_is_used_again_the_cut_moves_back_before_all_of_it(
    counter: TokenCounter,
) -> None:
    spec = "pydantic_ai.sliding(trigger=('messages', 9), keep=('messages', 2))"
    assert last(work(4, id="same"), spec, counter) == work(4, id="same")[2:]


def test_tokens_and_shares_of_the_window_are_sizes_too(counter: TokenCounter) -> None:
    talk = work(8)
    tokens = sum(map(counter.count_message, talk))
    spec = f"pydantic_ai.sliding(trigger=('tokens', {tokens}), keep=('tokens', {tokens // 3}))"
    sent = last(talk, spec, counter)
    assert sent == talk[-len(sent) :]
    assert sum(map(counter.count_message, sent)) <= tokens // 3
    spec = "pydantic_ai.sliding(trigger=('fraction', 0.5), keep=('fraction', 0.2))"
    assert len(last(talk, spec, counter, 2 * tokens)) < len(talk)


def test_a_summary_stands_between_the_system_prompt_and_what_stays(counter: TokenCounter) -> None:
    talk = work(4)
    spec = "pydantic_ai.summarization(trigger=('messages', 9), keep=('messages', 2))"
    sent = last(talk, spec, counter)
    assert (sent[0], sent[2:]) == (talk[0], talk[-2:])
    assert sent[1].role == "user"
    assert sent[1].text.startswith(HEADER)
    assert sent[1].text.count(HEADER) == 1


def test_a_summary_does_not_see_what_stands_far_before_its_end(counter: TokenCounter) -> None:
    talk = work(2)
    talk[1] = Message("user", "the password is swordfish")
    talk += [Message("assistant", "long " * 4000), Message("user", "and?")]
    spec = "pydantic_ai.summarization(trigger=('messages', 6), keep=('messages', 1))"
    sent = last(talk, spec, counter)
    assert "swordfish" not in sent[1].text
    assert "long" in sent[1].text


def test_the_manager_summarizes_for_one_request_and_starts_anew_for_the_next(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages([*work(12), Message("assistant", ".")], counter)
    trace, sent = run(prepared, "pydantic_ai.manager(max_tokens=400)", 10**6)
    turns = [turn for turn, event in trace.context.events if event == "summary"]
    assert len(turns) > 5
    assert turns == list(range(turns[0], len(sent)))
    for turn in turns:
        roles = [m.role for m in sent[turn].messages]
        assert roles == ["system", "user", "assistant", "tool"]
    assert len(trace.context.entries) == len(work(12)) + 1


@given(messages=conversations(), limit=limits())
def test_only_the_window_starts_with_anything_but_the_user(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    sizes = "trigger=('messages', 5), keep=('messages', 2)"
    for spec in (
        f"pydantic_ai.summarization({sizes})",
        "pydantic_ai.manager(keep=('messages', 2))",
        f"pydantic_ai.sliding({sizes}, keep_head=('messages', 1))",
    ):
        trace, _ = run(prepare_messages(messages, counter), spec, limit)
        assert not any(trace.violation_counts)
