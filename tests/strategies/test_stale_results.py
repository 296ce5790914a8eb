"""Tests of ``stale_results``: only the newest copy of a file stays whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.file_access import is_tool_error
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import observation_mask, parse_strategy, stale_results, tool_result_cap
from ctxlab.tokens.counter import TokenCounter

FILE = "".join(f"line {i}\n" for i in range(1, 61))
READ_AGAIN, EDITED = "[src/io.py was read again later]", "[src/io.py was edited later]"


def steps(*calls: tuple[str, dict[str, Any], Any]) -> list[Message]:
    said = [Message("user", "go")]
    for i, (name, arguments, answer) in enumerate(calls):
        call = ToolCall(f"c{i}", name, json.dumps(arguments))
        extra = {"is_error": True} if answer is None else {}
        said += [Message("assistant", tool_calls=(call,))]
        said += [Message("tool", answer or "no " * 40, tool_call_id=call.id, extra=extra)]
    return [*said, Message("assistant", "done")]


def results(messages: list[Message], strategy: Any, counter: TokenCounter) -> list[str]:
    _, sent = run(prepare_messages(messages, counter), strategy, 10**6)
    return [m.text for m in sent[-1].messages if m.role == "tool"]


def read(text: Any = FILE, **part: Any) -> tuple[str, dict[str, Any], Any]:
    return "read", {"path": "src/io.py", **part}, text


EDIT = ("edit", {"path": "./src/io.py", "oldText": "a", "newText": "b"}, "ok")
BROKEN_EDIT = (*EDIT[:2], None)
OTHER = ("read", {"path": "src/other.py"}, FILE)


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        ((read(), read(FILE + "more")), READ_AGAIN),
        ((read(), read()), READ_AGAIN),
        ((read(), EDIT), EDITED),
        ((read(), ("write", {"path": "src/io.py", "content": "x"}, "ok")), EDITED),
        ((read(), OTHER), FILE),
        ((read(), BROKEN_EDIT), FILE),
        ((read(), read(None)), FILE),
        ((EDIT, read()), "ok"),
        ((read(offset=10, limit=60), read(offset=90, limit=30)), FILE),
        ((read(offset=10, limit=60), read(offset=1, limit=90)), READ_AGAIN),
        ((read(offset=10, limit=60), read(offset=30, limit=20)), FILE),
        ((read(offset=10, limit=60), read(offset=10, limit=60)), READ_AGAIN),
        ((read(offset=10, limit=60), read(FILE * 2)), READ_AGAIN),
        ((read(offset=500, limit=60), read(FILE)), FILE),
        ((read(), read(offset=10, limit=60)), FILE),
        ((read(offset=500), EDIT), EDITED),
        ((read("short"), read("short")), "short"),
        (
            (("bash", {"command": "make"}, FILE), ("bash", {"command": "make"}, FILE)),
            "[the same call gave the same again later]",
        ),
        ((("bash", {"command": "make"}, FILE), ("bash", {"command": "make"}, "ok")), FILE),
        ((("bash", {"command": "make"}, FILE), ("bash", {"command": "make -k"}, FILE)), FILE),
    ],
)
def test_what_was_read_again_or_changed_is_a_stub_and_nothing_else(
    calls: Any, first: str, counter: TokenCounter
) -> None:
    said = results(steps(*calls), stale_results(), counter)
    assert said[0] == first
    assert said[1:] == [call[2] or "no " * 40 for call in calls[1:]]


def test_edits_can_be_left_out(counter: TokenCounter) -> None:
    assert results(steps(read(), EDIT), stale_results(edits=False), counter) == [FILE, "ok"]
    said = results(steps(read(), EDIT, read("new " * 40)), stale_results(edits=False), counter)
    assert said == [READ_AGAIN, "ok", "new " * 40]


def test_a_picture_that_is_read_again_goes(counter: TokenCounter) -> None:
    shot = ({"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}},)
    messages = [m.replace(content=shot) if m.role == "tool" else m for m in steps(read(), read())]
    _, sent = run(prepare_messages(messages, counter), stale_results(), 10**6)
    assert [m.content for m in sent[-1].messages if m.role == "tool"] == [READ_AGAIN, shot]


def test_an_earlier_copy_stays_where_the_later_is_only_a_stub(counter: TokenCounter) -> None:
    messages = steps(read(), read(FILE + "more"))
    prepared = prepare_messages(messages, counter)
    context = Context(prepared.make_budget(10**6), prepared.history)
    context.advance(5)
    context.replace(4, context.messages[4].replace(content="[gone]"), Form.STUB)
    assert stale_results()(context).messages[2].text == FILE


def test_what_was_cut_is_stale_as_well(counter: TokenCounter) -> None:
    said = results(steps(read(), EDIT), tool_result_cap(chars=60) | stale_results(), counter)
    assert said == [EDITED, "ok"]


def test_a_stub_stays_as_it_is(counter: TokenCounter) -> None:
    said = results(steps(read(), EDIT), observation_mask(keep=1) | stale_results(), counter)
    assert said[0].startswith("[output left out")


def test_asked_late_it_does_the_same(counter: TokenCounter) -> None:
    calls = [read(), EDIT, read(FILE + "1"), OTHER, read(FILE + "2"), read(FILE + "3"), EDIT]
    prepared = prepare_messages(steps(*calls), counter)
    once = Context(prepared.make_budget(10**6), prepared.history)
    once.advance(prepared.request_positions[-1])
    _, sent = run(prepared, stale_results(), 10**6)
    assert stale_results()(once).messages == sent[-1].messages
    assert [m.text for m in once.messages].count(EDITED) == 2


def test_behind_sessions_a_copy_that_is_in_another_session_is_no_copy(
    counter: TokenCounter,
) -> None:
    """What was read in this session is stale once this session reads it again, whatever others did."""
    messages = steps(read(), read(FILE + "1"), read(FILE + "2"))
    files = ["a.py"] * 3 + ["b.py"] * 2 + ["a.py"] * 3
    talk = [m.replace(file=file) for m, file in zip(messages, files, strict=True)]
    assert results(talk, parse_strategy("file_sessions(carry=0) | stale_results()"), counter) == [
        READ_AGAIN,
        FILE + "2",
    ]


CALLS = st.lists(
    st.one_of(
        st.builds(read, st.sampled_from([FILE, FILE * 3, None])),
        st.builds(
            lambda a, b: read(FILE, offset=a, limit=b),
            st.sampled_from([1, 5, 100]),
            st.sampled_from([5, 60, 200]),
        ),
        st.sampled_from([EDIT, BROKEN_EDIT, OTHER]),
    ),
    max_size=9,
)


@given(calls=CALLS, edits=st.booleans())
def test_only_what_something_later_made_stale_is_a_stub_and_the_newest_read_stays(
    calls: Any, edits: bool, counter: TokenCounter
) -> None:
    said = results(steps(*calls), stale_results(edits), counter)
    for i, (name, arguments, answer) in enumerate(calls):
        after = [c for c in calls[i + 1 :] if c[2] is not None and "io.py" in c[1]["path"]]
        was = answer or "no " * 40
        if said[i] == EDITED:
            assert (edits, name) == (True, "read")
            assert any(c[0] == "edit" for c in after)
        elif said[i] == READ_AGAIN:
            assert any(c[0] == "read" for c in after) or "other" in arguments["path"]
        elif "other" not in arguments["path"]:
            assert said[i] == was
            if name == "read" and answer and edits:
                assert not any(c[0] == "edit" for c in after)


@given(messages=conversations() | strange_conversations(), limit=limits())
def test_what_goes_was_no_failure_and_gets_shorter(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, _ = run(prepared, stale_results(), limit)
    for entry in trace.context.edited_entries:
        was = prepared.history.entries[entry.start]
        assert entry.form is Form.STUB
        assert not is_tool_error(was.message)
        assert was.message.role == "tool"
