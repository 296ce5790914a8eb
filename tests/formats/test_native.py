"""Tests of the native format: it keeps everything, and writes the same bytes each time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anything import any_recordings
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import ReadError
from ctxlab.formats import load, write
from ctxlab.formats.native import dumps
from ctxlab.messages.types import Message, Recording, ToolCall

META = {"type": "meta", "format": "ctxlab", "version": 1}


@pytest.mark.properties
@given(st.lists(any_recordings(), min_size=1, max_size=3, unique_by=lambda recording: recording.id))
def test_what_was_written_is_read_the_same_and_written_the_same(written: list[Recording]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first.jsonl"), Path(folder, "second.jsonl")
        write(written, first)
        read = list(load(first, format="native"))
        write(read, second)
        assert first.read_bytes() == second.read_bytes()
    where = {"format": "native", "source": str(first)}
    assert read == [msgspec.structs.replace(recording, **where) for recording in written]


def test_numbers_that_json_has_not_are_left_out_and_stay_out(tmp_path: Path) -> None:
    message = Message("user", "hi", time=float("nan"), reasoning="")
    assert dumps(Recording("a", (message,))).endswith('\n{"role":"user","content":"hi"}\n')


def test_a_line_holds_only_what_is_set_but_always_content() -> None:
    call = Message("assistant", None, tool_calls=(ToolCall("c", "f"),))
    assert dumps(Recording("a", (call,))).splitlines() == [
        '{"type":"meta","format":"ctxlab","version":1,"id":"a"}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",'
        '"function":{"name":"f","arguments":"{}"}}]}',
    ]


def test_a_file_without_a_meta_line_is_called_after_itself(
    write_lines: Callable[..., Path],
) -> None:
    path = write_lines({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"})
    (recording,) = load(path)
    assert recording.id == "session"
    assert [message.text for message in recording.messages] == ["hi", "yes"]


def test_each_meta_line_begins_a_recording(write_lines: Callable[..., Path]) -> None:
    hi = {"role": "user", "content": "hi"}
    path = write_lines(META | {"id": "a"}, hi, META | {"id": "b"}, hi, hi)
    assert [(each.id, len(each.messages)) for each in load(path)] == [("a", 1), ("b", 2)]


def test_keys_in_extra_are_never_taken_for_the_messages_own(
    write_lines: Callable[..., Path],
) -> None:
    row = {"role": "user", "content": "hi", "extra": {"role": "x", "reasoning_content": "y"}}
    ((message,),) = (recording.messages for recording in load(write_lines(row)))
    assert message.extra == {"role": "x", "reasoning_content": "y"}
    assert message.reasoning is None


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (META | {"version": 2}, "got 2"),
        (META | {"probes": [{"id": 1}]}, "probes"),
        (META | {"id": 3}, "id"),
    ],
)
def test_a_broken_meta_line_says_why_and_costs_no_message(
    write_lines: Callable[..., Path], meta: dict[str, Any], reason: str
) -> None:
    path = write_lines(meta, {"role": "user", "content": "hi"})
    with pytest.raises(ReadError, match=reason) as caught:
        list(load(path))
    assert (caught.value.path, caught.value.line) == (path, 1)
    (recording,) = load(path, on_error="skip")
    assert recording.id == "session"
    assert len(recording.messages) == sum(recording.skipped.values()) == 1
