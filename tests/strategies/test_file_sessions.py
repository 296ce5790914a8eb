"""Rules of ``file_sessions``, after the seed design "Hybrid Session Management" and its tests."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import Sent, run

from ctxlab.context.history import Form
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.formats import load
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import file_sessions, parse_strategy
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.strategies.tool_stubs import STUB_KEY
from ctxlab.tokens.counter import TokenCounter

SYSTEM = Message("system", "You help with notes.")


def ask(text: str, file: str | None) -> list[Message]:
    """Return a user message with the path of the open file, and the agent's reply."""
    call = ToolCall("c1", "search_vault", json.dumps({"query": text}))
    hits = [{"path": f"{text} {i}.md", "text": "found " * 30} for i in range(5)]
    return [
        Message("user", text, file=file),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", json.dumps({"results": hits}), tool_call_id="c1"),
        Message("assistant", f"About {text}."),
    ]


def sent_by(
    talk: list[Message], spec: str, counter: TokenCounter, limit: int = 10**6
) -> list[Sent]:
    return run(prepare_messages(talk, counter), spec, limit)[1]


def said(sent: Sent) -> list[str]:
    return [m.text for m in sent.messages if m.role in ("user", "assistant") and m.text]


FILES = [SYSTEM, *ask("hello", "a.md"), *ask("one", "a.md"), *ask("two", "b.md")]


def test_the_same_file_continues_its_session(counter: TokenCounter) -> None:
    sent = sent_by(FILES[:9], "file_sessions(carry=0)", counter)
    assert [s.messages for s in sent] == [FILES[: s.position] for s in sent]


def test_a_different_file_starts_a_session_anew(counter: TokenCounter) -> None:
    sent = sent_by(FILES, "file_sessions(carry=0)", counter)
    first = next(s for s in sent if s.messages[-1].text == "two")
    assert [m.text for m in first.messages] == ["You help with notes.", "hello", "two"]
    assert find_violations(first.messages) == []


def test_switching_back_to_a_file_resumes_its_session(counter: TokenCounter) -> None:
    talk = [*FILES, *ask("three", "a.md"), *ask("four", "b.md")]
    sent = sent_by(talk, "file_sessions(carry=0)", counter)
    a = next(s for s in sent if s.messages[-1].text == "three")
    b = next(s for s in sent if s.messages[-1].text == "four")
    assert said(a) == ["hello", "About hello.", "one", "About one.", "three"]
    assert said(b) == ["hello", "two", "About two.", "four"]


def test_a_session_is_resumed_as_it_was_left_with_its_stubs(counter: TokenCounter) -> None:
    talk = [*FILES, *ask("three", "a.md")]
    sent = sent_by(talk, "file_sessions(carry=0) | tool_stubs()", counter)
    by_file = [s for s in sent if s.messages[-1].text in ("two", "three")]
    results = [[m for m in s.messages if m.role == "tool"] for s in by_file]
    assert [len(found) for found in results] == [0, 2]
    for message in results[1]:
        stub = json.loads(message.text)
        assert (stub["tool"], stub["status"], stub["summary"]) == (
            "search_vault", "success", "5 results",
        )  # fmt: skip
    # They are the very same messages from then on: nothing is compacted twice.
    again = [m for m in sent[-1].messages if m.role == "tool"][:2]
    assert all(one is other for one, other in zip(results[1], again, strict=True))


def test_stubs_have_the_compacted_mark_stripped_before_they_are_sent(counter: TokenCounter) -> None:
    talk = [*FILES, *ask("three", "a.md")]
    sent = sent_by(talk, "file_sessions() | tool_stubs()", counter)
    stubs = [e.message for s in sent for e in s.entries if e.form is Form.STUB]
    assert stubs
    assert all(STUB_KEY in m.extra and STUB_KEY not in json.dumps(m.to_dict()) for m in stubs)


def test_a_tool_result_is_truncated_before_it_is_routed(counter: TokenCounter) -> None:
    talk = [SYSTEM, *ask("one", "a.md"), *ask("two", "b.md")]
    for spec in (
        "tool_result_cap(chars=100) | file_sessions()",
        "file_sessions() | tool_result_cap(chars=100)",
    ):
        results = [m for s in sent_by(talk, spec, counter) for m in s.messages if m.role == "tool"]
        assert results
        assert all(len(m.text) < 130 for m in results)


# --- where a live agent says it ---


def test_where_calls_are_not_followed_a_session_is_the_users_file_and_no_file_is_one(
    counter: TokenCounter,
) -> None:
    edit = [
        Message("user", "two", file="b.md"),
        Message("assistant", tool_calls=(ToolCall("c2", "write", '{"path": "a.md"}'),)),
        Message("tool", "ok", tool_call_id="c2"),
        Message("assistant", "About two."),
    ]
    talk = [SYSTEM, *ask("one", "a.md"), *edit, *ask("three", None), *ask("four", "b.md")]
    sent = sent_by(talk, "file_sessions(follow=False)", counter)
    by_question = {s.messages[-1].text: said(s) for s in sent if s.messages[-1].role == "user"}
    assert by_question == {
        "one": ["one"],
        "two": ["two"],
        "three": ["three"],
        "four": ["two", "About two.", "four"],
    }
    assert all(s.messages[0] is SYSTEM and find_violations(s.messages) == [] for s in sent)


def test_each_session_protects_its_own_first_message_and_shares_what_the_engine_said(
    counter: TokenCounter,
) -> None:
    engine = Message("user", "Resumed.", extra={ENGINE_MESSAGE_KEY: True})
    turns = [each for n in range(40) for each in ask(f"again {n}", "b.md")]
    talk = [SYSTEM, engine, *ask("one", "a.md"), *ask("two", "b.md"), *turns]
    sent = sent_by(talk, "file_sessions(follow=False) | panic()", counter, limit=1500)
    last = next(s for s in reversed(sent) if s.messages[-1].role == "user")
    assert [m.text for m in last.messages[:3]] == [SYSTEM.text, "Resumed.", "two"]
    assert len(last.messages) < 100
    assert find_violations(last.messages) == []


# --- where the file is not recorded ------------------------------------------------------------


def touch(name: str, path: str, result: str = "ok", id: str = "c1", **more: Any) -> list[Message]:
    call = ToolCall(id, name, json.dumps({"path": path, **more}))
    return [
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", result, tool_call_id=id),
    ]


RUN = [
    SYSTEM,
    Message("user", "Fix the bug"),
    *touch("read_file", "a.py", "text of a"),
    *touch("bash", "", "tests fail", command="pytest"),
    *touch("read_file", "b.py", "text of b"),
    *touch("edit_file", "b.py", "b edited"),
    *touch("read_file", "a.py", "a once more"),
    Message("assistant", "done"),
]


def results_of(sent: Sent) -> list[str]:
    return [m.text for m in sent.messages if m.role == "tool"]


def test_the_active_file_is_that_of_the_calls_and_is_inherited(counter: TokenCounter) -> None:
    sent = sent_by(RUN, "file_sessions(carry=0)", counter)
    assert [results_of(s) for s in sent] == [
        [],
        ["text of a"],
        ["text of a", "tests fail"],
        ["text of b"],
        ["text of b", "b edited"],
        ["text of a", "tests fail", "a once more"],
    ]
    assert all(s.messages[:2] == RUN[:2] for s in sent)


def test_units_before_a_switch_go_along(counter: TokenCounter) -> None:
    sent = sent_by(RUN, "file_sessions(carry=1)", counter)
    assert results_of(sent[3]) == ["tests fail", "text of b"]
    assert results_of(sent[5]) == ["text of a", "tests fail", "b edited", "a once more"]


def test_the_newest_user_message_goes_along_into_every_session_of_its_turn(
    counter: TokenCounter,
) -> None:
    talk = [*RUN, Message("user", "Now c"), *touch("read_file", "c.py", "text of c")]
    talk += [*touch("read_file", "b.py", "b again"), Message("assistant", "done")]
    sent = sent_by(talk, "file_sessions(carry=0)", counter)
    assert results_of(sent[-2]) == ["text of c"]
    assert results_of(sent[-1]) == ["text of b", "b edited", "b again"]
    assert [[m.text for m in s.messages if m.role == "user"] for s in sent[-2:]] == [
        ["Fix the bug", "Now c"]
    ] * 2


def test_the_results_of_a_users_calls_go_along_with_them(counter: TokenCounter) -> None:
    by_user = ToolCall("u1", "read", '{"path": "a.md"}')
    agent = ToolCall("c1", "read", '{"path": "b.md"}')
    talk = [
        *FILES[:2],
        Message("user", "see a.md", tool_calls=(by_user,)),
        Message("tool", "text of a.md", tool_call_id="u1"),
        Message("assistant", None, tool_calls=(agent,)),
        Message("tool", "text of b.md", tool_call_id="c1"),
        Message("assistant", "Done."),
    ]
    *_, last = sent_by(talk, "file_sessions(carry=0)", counter)
    assert "text of a.md" in last.texts
    assert find_violations(last.messages) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["read_file a.py", "read_file b.py"], "a.py"),
        (["read_file b.py", "edit_file c.py"], "c.py"),
        (["read_file b.py", "read_file c.py"], "b.py"),
        (["list_dir src", "bash"], "a.py"),
    ],
)
def test_of_several_files_the_active_one_stays_else_the_first_written_else_the_first_read(
    names: list[str], expected: str, counter: TokenCounter
) -> None:
    calls, answers = [], []
    for i, each in enumerate(names):
        name, _, path = each.partition(" ")
        calls.append(ToolCall(f"c{i}", name, json.dumps({"path": path} if path else {})))
        answers.append(Message("tool", f"many {i}", tool_call_id=f"c{i}"))
    many = [Message("assistant", None, tool_calls=tuple(calls)), *answers]
    talk = [SYSTEM, Message("user", "go"), *touch("read_file", "a.py"), *many]
    talk += [*touch("read_file", "z.py"), *touch("read_file", expected), Message("assistant", "x")]
    assert "many 0" in results_of(sent_by(talk, "file_sessions(carry=0)", counter)[-1])


# --- always ------------------------------------------------------------------------------------


@given(messages=conversations(turns=6), limit=limits(), carry=st.integers(0, 3))
def test_head_newest_unit_and_newest_user_message_are_always_there_in_order(
    messages: tuple[Message, ...], limit: int, carry: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    for sent in run(prepared, file_sessions(carry), limit)[1]:
        places = [entry.start for entry in sent.entries]
        assert places == sorted(set(places))
        newest = prepared.history.unit_starts[sent.position - 1]
        asked = max(i for i in range(sent.position) if messages[i].role == "user")
        head = range(min(prepared.history.head_length, sent.position))
        assert {*head, *range(newest, sent.position), asked} <= set(places)
        starts = {prepared.history.unit_starts[place] for place in places}
        assert all(
            prepared.history.unit_starts[p] not in starts
            for p in range(sent.position)
            if p not in places
        )


def test_what_fills_a_session_is_counted_in_it(counter: TokenCounter) -> None:
    """Results, messages and room are those of the session, not of the whole conversation."""
    talk = [SYSTEM, Message("user", "go")]
    for file in ("a.py", "b.py", "a.py"):
        for i in range(1 if talk[-1].text.startswith("b.py") else 6):
            talk += touch("read_file", file, f"{file} {i} " + "x " * 300)
    talk.append(Message("assistant", "done"))

    def last(steps: str) -> list[str]:
        spec = f"file_sessions(carry=0) | {steps}"
        return [text[:6] for text in results_of(sent_by(talk, spec, counter)[-1])]

    assert last("observation_mask(keep=3)") == ["[outpu"] * 4 + ["a.py 4", "a.py 5", "a.py 0"]
    assert last("tool_stubs(keep=2)")[-3:] == ['{"tool', "a.py 5", "a.py 0"]
    assert last("chunked_window(max_history=6)") == [
        "a.py 2",
        "a.py 3",
        "a.py 4",
        "a.py 5",
        "a.py 0",
    ]
    assert last("sliding_window(messages=4)") == ["a.py 5", "a.py 0"]


def test_a_new_session_shares_the_head_with_the_last_one_and_a_continued_one_all_of_it(
    counter: TokenCounter,
) -> None:
    prepared = prepare_messages(RUN, counter)
    trace, sent = run(prepared, parse_strategy("file_sessions(carry=0)"), 10**6)
    head = prepared.history.tokens_before[2]
    assert (
        trace.unchanged_prefix_tokens[3] == trace.unchanged_prefix_tokens[5] == head + 0 * len(sent)
    )
    for i in (1, 2, 4):
        assert trace.unchanged_prefix_tokens[i] == trace.tokens[i - 1] - prepared.fixed_tokens


def test_edits_that_fit_into_the_window_keep_a_switching_conversation_within_it(
    counter: TokenCounter,
) -> None:
    talk = [SYSTEM, Message("user", "go")]
    for i in range(120):
        talk += touch("read_file", f"file_{i * i % 7}.py", f"{i} " + "text " * 60)
    talk.append(Message("assistant", "done"))
    for steps in (
        "sliding_window()",
        "rolling_summary()",
        "panic()",
        "tool_stubs(keep=2) | panic()",
    ):
        prepared = prepare_messages(talk, counter)
        trace = replay_trace(
            prepared, parse_strategy(f"file_sessions() | {steps}"), prepared.make_budget(2000)
        )
        assert max(trace.tokens) <= 2000
        assert not any(trace.violation_counts)


@pytest.mark.recordings(smoke=True)
@pytest.mark.parametrize("folder", ["claude-code-entireio", "swe-agent"])
def test_real_logs_are_routed_to_several_sessions_and_every_request_is_valid(
    folder: str, recorded: Path, counter: TokenCounter
) -> None:
    shares = []
    for recording in islice(load(str(recorded / folder), on_error="skip"), 12):
        prepared = PreparedRecording(recording, counter)
        everything = replay_trace(prepared, parse_strategy("full"), prepared.make_budget(10**7))
        routed = replay_trace(
            prepared, parse_strategy("file_sessions(carry=0)"), prepared.make_budget(10**7)
        )
        assert sum(routed.violation_counts) <= sum(everything.violation_counts)
        assert all(few <= all_ for few, all_ in zip(routed.tokens, everything.tokens, strict=True))
        shares.append(sum(routed.tokens) / sum(everything.tokens))
    assert min(shares) < 0.98
