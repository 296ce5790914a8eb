"""Tests of stitching: requests that repeat earlier messages become one conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from compacting import Cleared, Summary, described
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.formats.common.stitch import LoggedRequest, stitch_requests
from ctxlab.messages.types import Message, Recording, ToolCall, Usage
from ctxlab.tokens.counter import TokenCounter


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def call(id: str) -> Message:
    return Message("assistant", None, tool_calls=(ToolCall(id, "read", '{"path": "a"}'),))


def result(id: str, text: str = "ok") -> Message:
    return Message("tool", text, tool_call_id=id)


def joined(*requests: LoggedRequest) -> tuple[list[Recording], Counter[str]]:
    left_out: Counter[str] = Counter()
    return list(stitch_requests(requests, "log", lambda why: left_out.update([why]))), left_out


WHOLE = (
    Message("system", "s"),
    user("q"),
    call("1"),
    result("1"),
    call("2"),
    result("2"),
    said("."),
)


def requests_of(messages: tuple[Message, ...]) -> list[LoggedRequest]:
    places = [i for i, message in enumerate(messages) if message.role == "assistant"]
    return [LoggedRequest(messages[:i], messages[i]) for i in places]


@given(st.lists(st.sampled_from("uatt"), min_size=1, max_size=20))
def test_a_conversation_comes_back_from_the_requests_that_it_made(kinds: list[str]) -> None:
    messages = [user("begin")]
    for number, kind in enumerate(kinds):
        new = {
            "u": [user(f"u{number % 3}")],
            "a": [said(f"a{number}")],
            "t": [call(str(number)), result(str(number))],
        }
        messages += new[kind]
    messages.append(said("end"))
    (recording,), left_out = joined(*requests_of(tuple(messages)))
    assert recording.messages == tuple(messages)
    assert not recording.compactions
    assert not left_out


def test_messages_that_were_dropped_are_a_compaction_and_stay() -> None:
    requests = requests_of(WHOLE)
    requests[2] = LoggedRequest((*WHOLE[:2], *WHOLE[4:6]), WHOLE[6])
    (recording,), _ = joined(*requests)
    assert recording.messages == WHOLE
    assert described(recording) == (Summary(5, None, (0, 1, 4)),)


def test_what_stands_in_their_place_is_the_summary_and_no_message() -> None:
    requests = requests_of(WHOLE)
    requests[2] = LoggedRequest((WHOLE[0], user("so far"), *WHOLE[4:6]), WHOLE[6])
    more = LoggedRequest((*requests[2].messages, WHOLE[6], user("and?")), said("so"))
    (recording,), _ = joined(*requests, more)
    assert recording.messages == (*WHOLE, user("and?"), said("so"))
    assert described(recording) == (Summary(5, "so far", (0, 4)),)


def test_results_that_were_emptied_are_cleared_once() -> None:
    requests = requests_of(WHOLE)
    emptied = (*WHOLE[:3], result("1", "[cleared]"), *WHOLE[4:])
    requests[2] = LoggedRequest(emptied[:6], WHOLE[6])
    more = LoggedRequest((*emptied, user("and?")), said("so"))
    (recording,), _ = joined(*requests, more)
    assert recording.messages[:7] == WHOLE
    assert described(recording) == (Cleared(5, ("1",)),)


def test_a_request_made_again_counts_once_and_its_later_answer_stands() -> None:
    first = LoggedRequest((user("q"),), said("a"))
    again = LoggedRequest((user("q"),), said("b"))
    (recording,), left_out = joined(
        first, again, LoggedRequest((user("q"), said("b"), user("r")), said("c"))
    )
    assert [m.text for m in recording.messages] == ["q", "b", "r", "c"]
    assert left_out == {"request made again": 1}


def test_an_answer_that_comes_back_in_other_words_is_the_same_message() -> None:
    requests = [
        LoggedRequest((user("q"),), said("a")),
        LoggedRequest((user("q"), said("A!"), user("r")), said("b")),
    ]
    (recording,), _ = joined(*requests)
    assert [m.text for m in recording.messages] == ["q", "a", "r", "b"]


def test_other_conversations_in_between_stand_apart_in_one_cluster() -> None:
    requests = requests_of(WHOLE)
    title = LoggedRequest((Message("system", "name it"), user("q")), said("A title"))
    recordings, _ = joined(requests[0], title, *requests[1:])
    assert [r.id for r in recordings] == ["log", "log/2"]
    assert [r.cluster for r in recordings] == ["log", "log"]
    assert recordings[0].messages == WHOLE
    assert len(recordings[1].messages) == 3


def test_a_turn_that_was_taken_back_begins_a_conversation_of_its_own() -> None:
    first, *_ = requests = requests_of((user("q"), said("a"), user("r"), said("b")))
    assert first.messages == (user("q"),)
    taken_back = LoggedRequest((user("q"), said("a"), user("other")), said("c"))
    recordings, _ = joined(*requests, taken_back)
    assert [len(r.messages) for r in recordings] == [4, 4]


def test_conversations_that_take_turns_and_say_the_same_stay_apart() -> None:
    """Both hold the same prompt, the same "go on" and the same ids."""
    one = (Message("system", "s"), user("a"), said("A?"), user("go on"), call("1"), result("1"))
    two = (Message("system", "s"), user("b"), said("B?"), user("go on"), said("ok"), user("c"))
    first, second = requests_of((*one, said("x"))), requests_of((*two, said("y")))
    turns = [request for pair in zip(first, second, strict=True) for request in pair]
    recordings, _ = joined(*turns)
    assert [r.messages for r in recordings] == [(*one, said("x")), (*two, said("y"))]
    assert not any(r.compactions for r in recordings)


def test_the_last_calls_of_several_conversations_stay_apart() -> None:
    ends = [user("go on"), said("done")]
    one, two = (LoggedRequest((user(q), said(f"{q}?"), ends[0]), ends[1]) for q in "ab")
    recordings, _ = joined(one, two)
    assert [len(r.messages) for r in recordings] == [4, 4]


def test_answers_in_other_words_keep_conversations_apart_that_take_turns() -> None:
    """Every answer loses its last word, and both conversations hear the same."""

    def requests(name: str) -> list[LoggedRequest]:
        turns = [user(name)]
        made = []
        for number in range(4):
            made.append(LoggedRequest(tuple(turns), said(f"{name}{number}")))
            turns += [said(f"{name}{number} end"), user("fine")]
        return made

    turns = [request for pair in zip(requests("a"), requests("b"), strict=True) for request in pair]
    recordings, _ = joined(*turns)
    assert [len(r.messages) for r in recordings] == [8, 8]
    assert {m.text[0] for m in recordings[0].messages} == {"a", "f"}


def test_a_request_without_messages_is_counted() -> None:
    assert joined(LoggedRequest(())) == ([], {"request without messages": 1})


def the_same_calls(task: str, results: Sequence[str], id: str = "read") -> tuple[Message, ...]:
    """Return calls of one tool with the same id, as in logs of ``function_call``."""
    looked = [m for text in results for m in (call(id), result(id, text))]
    return (Message("system", "s"), user(task), *looked, said(f"done: {task}"))


@pytest.mark.parametrize("id", ["read", "call_1"])
@pytest.mark.parametrize("in_turns", [True, False])
def test_ids_that_every_conversation_uses_do_not_mix_them(id: str, in_turns: bool) -> None:
    truth = [the_same_calls(task, ["ok", task, "ok"], id) for task in ("Task A", "Task B")]
    one, two = (requests_of(messages) for messages in truth)
    taking_turns = [request for pair in zip(one, two, strict=True) for request in pair]
    recordings, left_out = joined(*(taking_turns if in_turns else one + two))
    assert [r.messages for r in recordings] == truth
    assert not any(r.compactions for r in recordings)
    assert not left_out


def test_a_log_that_begins_late_is_no_compaction_of_another_conversation() -> None:
    """The second was asked something else, and has come to the same calls with the same ids."""
    one, two = (the_same_calls(task, ["ok", "ok"]) for task in ("Task A", "Task B"))
    recordings, _ = joined(*requests_of(one)[:2], requests_of(two)[-1])
    assert [r.messages for r in recordings] == [one[:5], two]


def test_of_two_answers_the_one_that_was_sent_back_stands_with_its_usage() -> None:
    first, second = (Message("assistant", text, usage=Usage(input=7)) for text in ("one", "two"))
    asked = user("q")
    more = LoggedRequest((asked, said("one"), user("r")), said("b"))
    (recording,), left_out = joined(
        LoggedRequest((asked,), first), LoggedRequest((asked,), second), more
    )
    assert recording.messages == (asked, first, user("r"), said("b"))
    assert left_out == {"request made again": 1}


def test_an_answer_that_the_log_does_not_hold_has_no_usage() -> None:
    logged = Message("assistant", "one", usage=Usage(input=7))
    more = LoggedRequest((user("q"), call("1"), result("1")), said("b"))
    (recording,), _ = joined(LoggedRequest((user("q"),), logged), more)
    assert recording.messages == (user("q"), call("1"), result("1"), said("b"))


def test_a_request_that_is_made_again_with_less_has_one_answer() -> None:
    *_, last = requests = requests_of(WHOLE)
    shorter = LoggedRequest((*WHOLE[:2], *WHOLE[4:6]), said("later"))
    (recording,), left_out = joined(*requests, shorter)
    assert recording.messages == (*last.messages, said("later"))
    assert described(recording) == (Summary(6, None, (0, 1, 4, 5)),)
    assert left_out == {"request made again": 1}


TALK = tuple(
    message
    for number in range(6)
    for message in (user(f"output {number}, at length"), said(f"command {number}"))
)


def masked(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Replace all observations except the task and the newest one by a note."""
    old = range([m.role for m in messages].index("user") + 1, len(messages) - 1)
    return tuple(
        user("[old output removed]") if i in old and m.role == "user" else m
        for i, m in enumerate(messages)
    )


def reminded(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (*messages[:-1], user(messages[-1].text + " <reminder>"))


def beside_a_reminder(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (*messages, user(f"<reminder {len(messages)}>"))


def windowed(messages: Sequence[Message]) -> tuple[Message, ...]:
    return (messages[0], *messages[max(1, len(messages) - 4) :])


def above_a_window(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the first message, a fixed summary, and a sliding window."""
    if len(messages) < 6:
        return tuple(messages)
    return (messages[0], user("SUMMARY"), *messages[-3:])


def summed_up_again(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the first message, a summary that changes every four messages, and the rest."""
    done = len(messages) // 4 * 4
    return (
        (messages[0], user(f"SUMMARY {done}"), *messages[done - 2 :]) if done > 3 else (*messages,)
    )


SYSTEMS = [masked, reminded, beside_a_reminder, windowed, above_a_window, summed_up_again]


def managed(messages: tuple[Message, ...], system: object) -> list[LoggedRequest]:
    assert callable(system)
    return [LoggedRequest(system(r.messages), r.answer) for r in requests_of(messages)]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("messages", [TALK, WHOLE])
def test_what_the_system_did_splits_no_conversation(
    system: object, messages: tuple[Message, ...]
) -> None:
    requests = managed(messages, system)
    (recording,), left_out = joined(*requests)
    assert not left_out
    assert [m for m in recording.messages if m.role == "assistant"] == [r.answer for r in requests]
    assert len(recording.messages) <= len(distinct(requests))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("messages", [TALK, WHOLE])
def test_the_recorded_strategy_sends_what_the_log_did(
    system: object, messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    """Several messages that stood in place of others may be one."""
    requests = managed(messages, system)
    (recording,), _ = joined(*requests)
    replayed = run(PreparedRecording(recording, counter), "recorded", 10_000)[1]
    assert len(replayed) == len(requests)
    for again, request in zip(replayed, requests, strict=True):
        texts = [text for m in again.messages for text in m.text.split("\n\n")]
        assert sorted(texts) == sorted(m.text for m in request.messages)


def distinct(requests: Sequence[LoggedRequest]) -> set[object]:
    every = [m for r in requests for m in (*r.messages, *([r.answer] if r.answer else []))]
    return {(m.role, m.text, m.tool_call_id, m.tool_calls) for m in every}


def test_messages_that_come_back_are_kept_again_at_their_old_place() -> None:
    requests = requests_of((*WHOLE, user("r"), said("!")))
    requests[2] = LoggedRequest((*WHOLE[:2], *WHOLE[4:6]), WHOLE[6])
    (recording,), _ = joined(*requests)
    assert recording.messages == (*WHOLE, user("r"), said("!"))
    assert described(recording) == (
        Summary(5, None, (0, 1, 4)),
        Summary(7, None, (0, 1, 2, 3, 4, 5, 6)),
    )


def test_an_observation_that_was_removed_is_no_message_and_its_place_is_not_kept() -> None:
    requests = managed(TALK[:6], masked)
    (recording,), _ = joined(*requests)
    assert recording.messages == TALK[:6]
    assert described(recording) == (Summary(4, "[old output removed]", (0, 1, 3)),)


WORDS = st.sampled_from(["ok", "go on", "no"])
STEPS = st.lists(st.tuples(st.sampled_from("uac"), WORDS), min_size=1, max_size=8)


def conversation(task: str, steps: list[tuple[str, str]]) -> tuple[Message, ...]:
    """Return a conversation with equal calls, different results and repeated texts."""
    messages = [Message("system", "s"), user(task)]
    for kind, word in steps:
        if kind == "c":
            messages += [call("call_1"), result("call_1", word)]
        else:
            messages += [said(word), user(word)] if kind == "a" else [user(word)]
    return (*messages, said("ok"))


@given(STEPS, STEPS, st.randoms(use_true_random=False))
def test_two_conversations_with_the_same_ids_come_back_in_any_order(
    one: list[tuple[str, str]], two: list[tuple[str, str]], random: object
) -> None:
    truth = [conversation("Task A", one), conversation("Task B", two)]
    waiting = [requests_of(messages) for messages in truth]
    requests = []
    while any(waiting):
        requests.append(random.choice([each for each in waiting if each]).pop(0))  # type: ignore[attr-defined]
    recordings, left_out = joined(*requests)
    assert sorted((r.messages for r in recordings), key=lambda m: m[1].text) == truth
    assert not any(r.compactions for r in recordings)
    assert not left_out


@given(st.lists(st.sampled_from("uct"), max_size=12), st.data())
def test_nothing_is_doubled_whatever_the_system_leaves_out(kinds: str, data: st.DataObject) -> None:
    """Every request holds the task, the newest answer and what came after it; the rest by chance."""
    messages = [user("task")]
    for number, kind in enumerate(kinds):
        talk = [said(f"a{number}"), user(f"u{number}")]
        messages += talk if kind == "u" else [call(str(number)), result(str(number), f"r{number}")]
    requests = []
    for request in requests_of((*messages, said("end"))):
        tail = max(1, len(request.messages) - 3)
        chosen = [m for m in request.messages[1:tail] if data.draw(st.booleans())]
        sent = (messages[0], *chosen, *request.messages[tail:])
        requests.append(LoggedRequest(sent, request.answer))
    recordings, _ = joined(*requests)
    assert sum(len(r.messages) for r in recordings) == len(distinct(requests))
    assert recordings[0].messages == (*messages, said("end"))
