"""Tests of the Hermes baseline: trigger, shortened results, first and newest messages."""

from __future__ import annotations

from small_talk import firsts, last, played, said, steps, task

from ctxlab.messages.types import Message, ToolCall


def first_compaction(messages: list[Message], limit: int, spec: str = "hermes") -> list[Message]:
    trace, sent = played(spec, messages, limit)
    turn = next(turn for turn, event in trace.context.events if event == "summary")
    assert not any(trace.violation_counts)
    return sent[turn].messages


def test_three_first_messages_stay_once_and_are_dropped_at_the_second_compaction() -> None:
    messages = [Message("system", "Be brief."), *said(60), Message("user", "next")]
    trace, sent = played("hermes", messages, 1300)
    one, two = (turn for turn, event in trace.context.events[:2])
    first, second = firsts(sent[one].messages, 3), firsts(sent[two].messages, 3)
    assert first[1:5] == ["user 0 word", "assistant 0 word", "user 1 word", "Summary of the"]
    assert second[1] == "Summary of the"
    assert not any(text.startswith(("user 0", "user 1 ")) for text in second)


def test_the_newest_messages_take_a_fifth_to_three_tenths_of_the_trigger() -> None:
    window = 6000
    trace, sent = played("hermes", [*said(150, words=20), Message("user", "next")], window)
    turn = next(turn for turn, event in trace.context.events if event == "summary")
    tail = sum(entry.tokens for entry in sent[turn].entries[4:])
    assert 0.2 * 0.85 * window <= tail <= 0.3 * 0.85 * window


def test_the_last_user_message_and_the_last_reply_stay() -> None:
    messages = [*said(6, words=60), Message("user", "The task"), *steps(14, lines=12)]
    sent = first_compaction(messages, 1800)
    assert "The task" in [m.text for m in sent]


def test_older_results_become_a_line_and_repeated_ones_a_note() -> None:
    same = "the same text " * 30
    for_each = [
        message
        for i in range(2)
        for message in (
            Message("assistant", "look", tool_calls=(ToolCall(f"s{i}", "read", "{}"),)),
            Message("tool", same, tool_call_id=f"s{i}"),
        )
    ]
    messages = [*task(1, lines=30), *said(11, words=20), *for_each]
    sent = first_compaction(messages, 1200, "hermes(protect_last_n=2)")
    texts = [m.text for m in sent if m.role == "tool"]
    assert texts[0].startswith("[read] path=src/file0.py (")
    assert texts[-2:] == ["[The same output as that of a later call]", same]


def test_only_calls_with_more_than_500_characters_of_arguments_are_cut() -> None:
    calls = tuple(
        ToolCall(f"w{size}", "write", f'{{"text":"{"a" * size}"}}') for size in (450, 600)
    )
    results = [Message("tool", "done", tool_call_id=call.id) for call in calls]
    writes = [Message("assistant", "look", tool_calls=calls), *results]
    messages = [Message("user", "Go"), *writes, *said(12, words=60), Message("user", "next")]
    sent = first_compaction(messages, 1500, "hermes(protect_last_n=2)")
    sizes = [len(call.arguments) for m in sent for call in m.tool_calls]
    assert sizes == [len(calls[0].arguments), len('{"text":"...[truncated]"}') + 200]


def test_after_two_compactions_in_vain_it_stops_until_a_request_overflows() -> None:
    messages = [*said(3), Message("user", "big " * 900), *steps(16)]
    trace, sent = played("hermes", messages, 1500)
    assert sum(event == "summary" for _, event in trace.context.events) < len(sent) / 2


def test_short_conversations_are_left_alone() -> None:
    messages = [*said(2, words=300), Message("user", "And now?")]
    assert last("hermes", messages, 1300) == messages
