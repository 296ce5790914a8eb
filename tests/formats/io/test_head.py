"""Tests of format detection from the first bytes of a file, wherever they are cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ctxlab.formats.io.head import FileHead, close_truncated_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)
containers = json_values.filter(lambda value: isinstance(value, (dict, list)))


@given(containers, st.data(), st.sampled_from([None, 2]))
def test_a_value_cut_anywhere_is_a_value_again(value: Any, data: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    cut = data.draw(st.integers(min_value=1, max_value=len(text)))
    closed = json.loads(close_truncated_json(text[:cut]))
    assert type(closed) is type(value)
    if cut == len(text):
        assert closed == value


def test_rows_are_lines_or_the_one_value_of_the_file() -> None:
    pretty = json.dumps([{"a": 1}, {"b": 2}], indent=1).encode()
    assert FileHead(b'{"a":1}\n\n{"b":2}\n').rows == ({"a": 1}, {"b": 2})
    assert FileHead(pretty, is_complete=True).rows == ([{"a": 1}, {"b": 2}],)
    assert FileHead(b'{"a": {"b": 1}}', is_complete=True).rows == ({"a": {"b": 1}},)


def test_broken_first_lines_do_not_hide_the_rest() -> None:
    assert FileHead(b'{"a": "cut\n{"b": 2}\n', is_complete=True).rows == ({"b": 2},)
    assert FileHead(b'prose\n{"b": 2}\n', is_complete=True).rows == ({"b": 2},)


def test_a_line_longer_than_the_head_is_known_by_its_beginning() -> None:
    assert FileHead(b'{"type": "x", "text": "' + b"a" * 1000).rows == ({"type": "x"},)


def test_what_is_no_json_has_no_rows() -> None:
    for start in (b"", b"\x00\xff\x00", b"# Title\n[link](x)", b"PK\x03\x04", b"[" * 300_000):
        assert FileHead(start).rows == ()
        assert FileHead(start).value is None
