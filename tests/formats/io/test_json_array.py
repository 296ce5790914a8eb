"""Tests of reading a JSON array in chunks that end at any position."""

from __future__ import annotations

import io
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.formats.io.json_array import iter_array_elements

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{},:\n é', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=15,
)


@given(st.lists(json_values), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_every_element_comes_out_as_it_is(
    values: list[Any], chunk: int, indent: int | None, ascii: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii).encode()
    assert [json.loads(each) for each in iter_array_elements(io.BytesIO(text), chunk)] == values


@given(st.lists(json_values, min_size=1), st.integers(1, 40), st.data())
def test_of_a_list_that_is_cut_off_the_whole_elements_come_out(
    values: list[Any], chunk: int, data: st.DataObject
) -> None:
    text = json.dumps(values).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    found: list[Any] = []
    with pytest.raises(ValueError, match="expected ] at the end"):
        found.extend(map(json.loads, iter_array_elements(io.BytesIO(text[:cut]), chunk)))
    whole = [json.dumps(value) for value in values]
    ends = [len(", ".join(whole[: n + 1])) + 1 for n in range(len(values))]
    assert found == values[: sum(end < cut for end in ends)]


@pytest.mark.parametrize("text", [b"", b"  ", b'{"a": 1}', b"1", b'"["', b"x [1]", b'{"a": [1]}'])
def test_what_is_no_list_is_said(text: bytes) -> None:
    with pytest.raises(ValueError, match="expected a JSON list"):
        list(iter_array_elements(io.BytesIO(text)))


def peak_of(text: bytes) -> int:
    tracemalloc.start()
    with suppress(ValueError):
        for _ in iter_array_elements(io.BytesIO(text)):
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.simulations
def test_memory_does_not_grow_with_the_list_nor_faster_than_the_nesting() -> None:
    element = b'{"text": "' + b"word " * 200 + b'"},\n'
    assert peak_of(b"[" + element * 20_000 + b"1]") < 5_000_000
    assert peak_of(b"[" * 2_000_000) < 20_000_000
