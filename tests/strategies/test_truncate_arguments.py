"""Tests of ``shorten_arguments``: old and long arguments are cut, and calls stay valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy, shorten_arguments
from ctxlab.tokens.counter import TokenCounter

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


def cut(strategy: shorten_arguments, arguments: str, name: str = "write") -> str | None:
    made = strategy.shorten(
        Message("assistant", tool_calls=(ToolCall("c", name, arguments),)), None
    )
    return made and made.tool_calls[0].arguments


def test_texts_longer_than_the_limit_keep_their_beginning() -> None:
    arguments = json.dumps({"path": "a.py", "content": "x" * 2001, "mode": "y" * 2000})
    made = json.loads(cut(shorten_arguments(), arguments) or "")
    assert made == {
        "path": "a.py",
        "content": "x" * 20 + "...(argument truncated)",
        "mode": "y" * 2000,
    }


def test_texts_deep_inside_are_cut_too() -> None:
    arguments = json.dumps({"edits": [{"old": "x" * 3000, "line": 5}]})
    made = json.loads(cut(shorten_arguments(chars=1, mark="…"), arguments) or "")
    assert made == {"edits": [{"old": "x…", "line": 5}]}


def test_only_the_tools_that_are_named_where_some_are() -> None:
    strategy = shorten_arguments(tools=("write_file", "edit_file"))
    arguments = json.dumps({"content": "x" * 3000})
    assert cut(strategy, arguments, "write") is None
    assert cut(strategy, arguments, "edit_file") is not None
    with pytest.raises(SpecError, match="expected a tuple"):
        parse_strategy("shorten_arguments(tools='write_file')")


@given(
    value=values,
    limit=st.integers(0, 40),
    chars=st.integers(0, 10),
    mark=st.sampled_from(["", "…"]),
)
def test_arguments_stay_json_of_the_same_shape_and_get_shorter(
    value: Any, limit: int, chars: int, mark: str
) -> None:
    arguments = json.dumps(value)
    made = cut(shorten_arguments(limit=limit, chars=chars, mark=mark), arguments)
    if made is None:
        return
    assert len(made) < len(arguments)
    new = json.loads(made)
    assert type(new) is type(value)
    if isinstance(value, dict):
        assert list(new) == list(value)


@given(st.text(max_size=60))
def test_what_is_no_json_stays(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert cut(shorten_arguments(limit=0, chars=0, mark=""), text) is None


@given(
    messages=conversations() | strange_conversations(),
    limit=limits(),
    keep=st.sampled_from([0, 2, 5]),
)
def test_calls_keep_id_and_name_and_the_newest_messages_stay(
    messages: tuple[Message, ...], limit: int, keep: int, counter: TokenCounter
) -> None:
    strategy = shorten_arguments(keep=keep, limit=10, chars=3, mark="…")
    _, sent = run(prepare_messages(messages, counter), strategy, limit)
    for request in sent:
        for i, entry in enumerate(request.entries):
            was, now = messages[i], entry.message
            assert [(c.id, c.name) for c in was.tool_calls] == [
                (c.id, c.name) for c in now.tool_calls
            ]
            assert now.replace(tool_calls=was.tool_calls) == was
            if i >= request.position - keep:
                assert now is was
            else:
                assert now == (strategy.shorten(was, None) or was)
            assert (entry.form is Form.TRUNCATED) == (now is not was)
