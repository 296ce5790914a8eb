"""Tests of ``recent_images``: older images are replaced by lines, and texts stay."""

from __future__ import annotations

from typing import Any

import pytest
from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy, recent_images, tool_stubs
from ctxlab.tokens.counter import TokenCounter

SHOT = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}


def words(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def clicks(count: int, images: int = 1) -> list[Message]:
    said = [Message("user", (words("go"), SHOT))]
    for i in range(count):
        said += [Message("assistant", tool_calls=(ToolCall(f"c{i}", "click"),))]
        said += [Message("tool", (words(f"clicked {i}"), *[SHOT] * images), tool_call_id=f"c{i}")]
    return said


def standing(messages: list[Message]) -> list[int]:
    """Return the number of images of each message with content parts."""
    return [m.content.count(SHOT) for m in messages if isinstance(m.content, tuple)]


def test_all_but_the_newest_are_lines_and_the_text_stays(counter: TokenCounter) -> None:
    _, sent = run(
        prepare_messages([*clicks(5), Message("assistant", "done")], counter),
        recent_images(),
        10**6,
    )
    assert standing(sent[-1].messages) == [0, 0, 0, 1, 1, 1]
    assert sent[-1].messages[2].text == "clicked 0\n[image left out]"
    forms = [e.form for e in sent[-1].entries if e.form is not Form.VERBATIM]
    assert forms == [Form.TRUNCATED, Form.STUB, Form.STUB]


def test_of_a_message_with_several_the_first_go_first(counter: TokenCounter) -> None:
    said = [*clicks(2, images=3), Message("assistant", "done")]
    _, sent = run(prepare_messages(said, counter), recent_images(keep=4), 10**6)
    assert standing(sent[-1].messages) == [0, 1, 3]
    assert sent[-1].messages[2].text == "clicked 0\n[image left out]\n[image left out]"


def test_a_chunk_goes_at_a_time_and_between_chunks_the_cache_lives(counter: TokenCounter) -> None:
    said = [*clicks(40), Message("assistant", "done")]
    trace, sent = run(prepare_messages(said, counter), recent_images(keep=3, chunk=5), 10**6)
    counts = [sum(standing(request.messages)) for request in sent]
    assert max(counts) == 7
    assert set(counts[5:]) == {3, 4, 5, 6, 7}
    broken = [
        i
        for i in range(1, len(sent))
        if trace.unchanged_prefix_tokens[i] < sum(entry.tokens for entry in sent[i - 1].entries)
    ]
    assert len(broken) == 7


def test_what_has_no_image_any_more_is_left_alone(counter: TokenCounter) -> None:
    said = [*clicks(4), Message("user", "and?"), Message("assistant", "done")]
    _, sent = run(prepare_messages(said, counter), tool_stubs() | recent_images(keep=0), 10**6)
    assert sum(standing(sent[-1].messages)) == 0


def test_a_chunk_holds_an_image() -> None:
    with pytest.raises(SpecError, match="1 or more, got 0"):
        parse_strategy("recent_images(chunk=0)")


@given(
    messages=conversations() | strange_conversations(),
    limit=limits(),
    keep=st.integers(0, 3),
    chunk=st.integers(1, 3),
)
def test_how_many_stand_follows_from_how_many_there_were(
    messages: tuple[Message, ...], limit: int, keep: int, chunk: int, counter: TokenCounter
) -> None:
    def count(some: Any) -> int:
        parts = [p for m in some if isinstance(m.content, tuple) for p in m.content]
        return sum(part.get("type") == "image_url" for part in parts)

    _, sent = run(prepare_messages(messages, counter), recent_images(keep, chunk), limit)
    for request in sent:
        there = count(messages[: request.position])
        gone = max(0, there - keep)
        assert count(request.messages) == there - (gone - gone % chunk)
        for was, now in zip(messages, request.messages, strict=False):
            assert [
                p for p in now.text.splitlines() if p != "[image left out]"
            ] == was.text.splitlines()
