"""Tests of the Inspect AI baselines: clearing, trimming, summaries, and failures."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

REMOVED = "(Tool result removed)"


def steps(count: int, words: int = 60, ids: str | None = None) -> list[Message]:
    """Return a task, ``count`` calls with results, and a question."""
    talk = [Message("system", "You are an agent."), Message("user", "Fix it")]
    for i in range(count):
        call = ToolCall(ids or f"c{i}", "read", f'{{"path": "f{i}.py"}}')
        talk.append(Message("assistant", f"step {i}", tool_calls=(call,)))
        talk.append(Message("tool", f"file {i} " * words, tool_call_id=call.id, name="read"))
    return [*talk, Message("assistant", "done"), Message("user", "and?"), Message("assistant", ".")]


def last(
    talk: list[Message], spec: str, counter: TokenCounter, limit: int = 10**6
) -> list[Message]:
    return run(prepare_messages(talk, counter), spec, limit)[1][-1].messages


def events(talk: list[Message], spec: str, counter: TokenCounter) -> list[str]:
    return [
        event for _, event in run(prepare_messages(talk, counter), spec, 10**6)[0].context.events
    ]


def test_edit_clears_all_but_the_newest_uses_once_the_threshold_is_passed(
    counter: TokenCounter,
) -> None:
    sent = last(steps(6), "inspect.edit(threshold=600, keep_tool_uses=2)", counter)
    results = [m for m in sent if m.role == "tool"]
    assert [m.content == REMOVED for m in results] == [True] * 4 + [False] * 2
    assert all(m.name == "read" for m in results)
    assert last(steps(6), "inspect.edit", counter) == steps(6)[:-1]


def test_a_threshold_up_to_one_is_a_share_of_the_window(counter: TokenCounter) -> None:
    spec = "inspect.edit(threshold=0.5, keep_tool_uses=0)"
    assert last(steps(6), spec, counter, 2 * 10**4)[3].content != REMOVED
    assert last(steps(6), spec, counter, 1000)[3].content == REMOVED


def test_where_clearing_is_not_enough_nothing_is_cleared_and_it_is_said(
    counter: TokenCounter,
) -> None:
    talk = steps(3, words=400)
    spec = "inspect.edit(threshold=500)"
    assert last(talk, spec, counter) == talk[:-1]
    assert any("insufficient" in event for event in events(talk, spec, counter))


def test_edit_leaves_excluded_tools_out_of_its_count(counter: TokenCounter) -> None:
    spec = "inspect.edit(threshold=100, keep_tool_uses=0, exclude_tools=('read',))"
    assert last(steps(4), spec, counter) == steps(4)[:-1]


def test_a_reply_at_the_very_end_goes_with_what_is_cleared(counter: TokenCounter) -> None:
    thought = Message("assistant", "half a thought " * 60)
    talk = [*steps(2)[:-3], thought, Message("assistant", "more")]
    sent = last(talk, "inspect.edit(threshold=500, keep_tool_uses=1)", counter)
    assert sent[-1].role == "tool"


def test_an_id_that_is_used_again_is_matched_with_its_next_result(counter: TokenCounter) -> None:
    talk = steps(2, ids="same")
    talk.insert(2, Message("assistant", "lost", tool_calls=(ToolCall("same", "read"),)))
    sent = last(talk, "inspect.edit(threshold=400, keep_tool_uses=2)", counter)
    # Three uses and two results: the call that has none takes the first, so that one is cleared.
    assert [m.content == REMOVED for m in sent if m.role == "tool"] == [True, False]


def test_trim_keeps_the_task_and_the_newest_share(counter: TokenCounter) -> None:
    talk = [Message("user", "task")]
    for i in range(10):
        talk += [Message("assistant", f"a{i} " * 30), Message("user", f"u{i} " * 30)]
    threshold = sum(map(counter.count_message, talk)) - 1
    spec = f"inspect.trim(threshold={threshold})"
    sent = last([*talk, Message("assistant", ".")], spec, counter)
    assert sent == [talk[0], *talk[4:]]  # a fifth of 20, in floating point, is 3


def test_trim_leaves_no_result_without_its_call(counter: TokenCounter) -> None:
    sent = last(steps(9), "inspect.trim(threshold=1000, preserve=0.5)", counter)
    assert sent[:2] == steps(9)[:2]
    assert sent[2].role == "assistant"


def test_trim_gives_up_after_four_passes(counter: TokenCounter) -> None:
    talk = steps(9)
    spec = "inspect.trim(threshold=200, preserve=0.9)"
    assert last(talk, spec, counter) == talk[:-1]
    assert any("insufficient" in event for event in events(talk, spec, counter))


def test_summary_leaves_the_task_and_one_summary(counter: TokenCounter) -> None:
    sent = last(steps(6)[:-3], "inspect.summary(threshold=500)", counter)
    assert [m.role for m in sent[:3]] == ["system", "user", "user"]
    assert sent[2].text.startswith("[CONTEXT COMPACTION SUMMARY]")
    assert sent[2].text.endswith("Please continue working on this task from where you left off.")
    assert sum(m.text.startswith("[CONTEXT") for m in sent) == 1


def test_a_task_that_is_too_large_by_itself_is_not_summarized(counter: TokenCounter) -> None:
    talk = [Message("user", "do this " * 300), *steps(2)[2:]]
    assert last(talk, "inspect.summary(threshold=400)", counter) == talk[:-1]


@given(messages=conversations(), limit=limits())
def test_what_it_sends_is_under_the_threshold_or_whole(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    for spec in ("inspect.edit(keep_tool_uses=1)", "inspect.trim()", "inspect.summary()"):
        prepared = prepare_messages(messages, counter)
        trace, sent = run(prepared, parse_strategy(spec), limit)
        failed = {turn for turn, event in trace.context.events if "insufficient" in event}
        room = int(0.9 * prepared.make_budget(limit).available)
        for turn, request in enumerate(sent):
            tokens = sum(counter.count_message(m) for m in request.messages)
            assert (tokens <= room) != (turn in failed)
