"""Tests of ``tool_stubs``: the text of stubs, and when results are replaced."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import observation_mask, tool_result_cap, tool_stubs
from ctxlab.strategies.tool_stubs import STUB_KEY, make_stub
from ctxlab.tokens.counter import TokenCounter

CALL = ToolCall("c1", "search_vault")
PAD = " " * 400


def stub(content: Any, **fields: Any) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content) + PAD
    made = make_stub(Message("tool", text, tool_call_id="c1", **fields), CALL)
    assert made is not None
    value: dict[str, Any] = json.loads(made.text)
    return value


def test_a_call_that_is_known_to_have_succeeded_is_no_error_because_of_its_words() -> None:
    """Seed 000, testing 4: success or failure."""
    text = "Error budgets are a tool. " * 40
    assert stub(text)["status"] == "error"
    assert stub(text, extra={"is_error": False})["status"] == "success"
    found = stub({"status": "error", "message": "no vault"}, extra={"is_error": False})
    assert (found["status"], found["error"]) == ("error", "no vault")


def test_a_stub_names_tool_status_count_and_files() -> None:
    found = {
        "results": [{"path": f"Notes/{name}.md", "text": "…"} for name in ("foo", "bar", "foo")]
    }
    assert stub(found) == {
        "tool": "search_vault",
        "status": "success",
        "summary": "3 results",
        "count": 3,
        "files": ["Notes/foo.md", "Notes/bar.md"],
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"ok": False, "error": "no such note"}, "no such note"),
        ({"error": {"code": 3}}, '{"code":3}'),
        ({"success": False, "value": 1}, '{"success":false,"value":1}'),
        ({"error": "x" * 900}, "x" * 199 + "…"),
    ],
)
def test_a_failed_result_says_so_and_why(content: Any, error: str) -> None:
    assert stub(content)["status"] == "error"
    assert stub(content)["error"] == error


@pytest.mark.parametrize(
    "content", [{"ok": True, "error": None}, {"results": []}, [], [1, 2], {"a": 1}]
)
def test_a_result_without_an_error_is_a_success(content: Any) -> None:
    assert stub(content)["status"] == "success"
    assert "error" not in stub(content)


@pytest.mark.parametrize("fails", ["Error: no such file", "Traceback (most recent call last):"])
def test_a_text_keeps_about_200_characters_and_its_failure(fails: str) -> None:
    said = stub(fails + "y" * 900)
    assert said["status"] == "error"
    assert said["summary"].startswith(fails)
    assert len(said["summary"]) == 200
    assert stub("fine " + "y" * 900)["status"] == "success"
    assert stub("fine " + "y" * 900, extra={"is_error": True})["status"] == "error"


def test_what_a_stub_would_not_shorten_stays() -> None:
    assert make_stub(Message("tool", "42", tool_call_id="c1"), CALL) is None
    assert make_stub(Message("tool", None, tool_call_id="c1"), CALL) is None


def test_a_picture_does_not_outlive_the_stub_of_its_result(counter: TokenCounter) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
    shot = Message("tool", ({"type": "text", "text": "done"}, picture), tool_call_id="c1")
    for made in (make_stub(shot, CALL), observation_mask().mask(shot, CALL)):
        assert made is not None
        assert isinstance(made.content, str)
        assert counter.count_message(made) < counter.count_message(shot)


def test_one_message_that_answers_two_tools_gets_a_stub_of_each(counter: TokenCounter) -> None:
    huge = Message("tool", "x" * 5000, tool_call_id="c1")
    talk = [Message("user", "go")]
    for name in ("read", "grep"):
        talk += [Message("assistant", None, tool_calls=(ToolCall("c1", name),)), huge]
    talk += [Message("user", "and?"), Message("assistant", "done")]
    _, sent = run(prepare_messages(talk, counter), tool_stubs(), 10**6)
    assert [json.loads(m.text)["tool"] for m in sent[-1].messages if m.role == "tool"] == [
        "read",
        "grep",
    ]


@given(messages=conversations() | strange_conversations(), limit=limits())
def test_stubs_come_once_the_agents_turn_is_over(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, tool_stubs(), limit)
    for sent in requests:
        turn = max((i for i in range(sent.position) if messages[i].role == "user"), default=0)
        for i, entry in enumerate(sent.entries):
            expected = None
            if messages[i].role == "tool" and i < turn:
                expected = make_stub(messages[i], prepared.history.calls_by_result.get(i))
            assert entry.message == (expected or messages[i])


@given(messages=conversations(), limit=limits(), keep=st.integers(0, 6))
def test_keep_leaves_the_newest_results(
    messages: tuple[Message, ...], limit: int, keep: int, counter: TokenCounter
) -> None:
    _, requests = run(prepare_messages(messages, counter), tool_stubs(keep), limit)
    for sent in requests:
        results = [e for e in sent.entries if e.message.role == "tool"]
        assert all(e.form is Form.VERBATIM for e in results[max(0, len(results) - keep) :])
        for entry in results[: max(0, len(results) - keep)]:
            was = messages[entry.start]
            assert (entry.form is Form.STUB) == (entry.message is not was)
            assert (
                entry.form is Form.STUB or make_stub(was, CALL.__class__("c", "parse_args")) is None
            )


@given(messages=conversations(), limit=limits())
def test_the_mark_is_kept_beside_the_message_and_never_sent(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    trace, requests = run(prepare_messages(messages, counter), tool_stubs(0) | tool_stubs(), limit)
    for sent in requests:
        for entry in sent.entries:
            assert (STUB_KEY in entry.message.extra) == (entry.form is Form.STUB)
            assert STUB_KEY not in json.dumps(entry.message.to_dict(), default=str)
            assert entry.form is not Form.STUB or json.loads(entry.message.text)["tool"]
    stubbed = [entry.start for entry in trace.context.edited_entries]
    assert len(set(stubbed)) == len(stubbed)


@pytest.mark.parametrize(
    "value",
    [
        {"hits": [{"path": f"n{i}.md", "text": "x" * 200} for i in range(40)]},
        {"error": "no such vault", "log": "y" * 9000},
    ],
)
def test_the_stub_of_a_result_that_was_cut_tells_what_the_whole_result_was(value: Any) -> None:
    """Seed 000, testing 4: status, number of results and files."""
    whole = Message("tool", json.dumps(value), tool_call_id="c1")
    cut = tool_result_cap().cut(whole, CALL)
    assert cut is not None
    stub, expected = make_stub(cut, CALL), make_stub(whole, CALL)
    assert stub is not None
    assert expected is not None
    assert stub.text == expected.text
    assert json.loads(stub.text)["status"] == ("error" if "error" in value else "success")
