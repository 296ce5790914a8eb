"""Tests that objects of callers are copied, without changes of their content."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.inputs import copy_message, is_same_message, to_plain_data
from ctxlab.messages.types import Message

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def containers(value: Any) -> list[Any]:
    """Return all lists and dicts inside a value, including the value."""
    if isinstance(value, dict):
        return [value, *(c for each in value.values() for c in containers(each))]
    return [value, *(c for e in value for c in containers(e))] if isinstance(value, list) else []


@given(value=JSON)
def test_a_copy_is_equal_and_shares_nothing_that_can_be_edited(value: Any) -> None:
    copy = to_plain_data(value)
    assert json.dumps(copy) == json.dumps(value)
    assert not {id(c) for c in containers(copy)} & {id(c) for c in containers(value)}


def test_a_message_is_copied_as_far_as_it_can_be_edited() -> None:
    text = Message("user", "hi")
    assert copy_message(text) is text
    parts = Message("user", ({"type": "text", "text": "hi"},), extra={"x": [1]})
    copy = copy_message(parts)
    assert copy == parts
    assert is_same_message(parts, copy)
    parts.extra["x"].append(2)
    parts.content[0]["text"] = "bye"  # type: ignore[index]
    assert copy == Message("user", ({"type": "text", "text": "hi"},), extra={"x": [1]})
    assert not is_same_message(parts, copy)
