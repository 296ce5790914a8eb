"""Tests of the OpenAI Agents SDK baseline: which tool outputs it trims, and how."""

from __future__ import annotations

import pytest
from generated import prepare_messages
from replaying import run

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

NAME = "openai_agents.tool_output_trimmer"


def turn(asked: str, found: object, name: str = "grep", id: str = "c1") -> list[Message]:
    call = Message("assistant", None, tool_calls=(ToolCall(id, name),))
    result = Message("tool", found, tool_call_id=id)  # type: ignore[arg-type]
    return [Message("user", asked), call, result, Message("assistant", "ok")]


def results(talk: list[Message], spec: str, counter: TokenCounter) -> list[str]:
    sent = run(prepare_messages([*talk, Message("assistant", ".")], counter), spec, 10**6)[1][-1]
    return [str(m.content) for m in sent.messages if m.role == "tool"]


def test_only_turns_before_the_two_newest_are_trimmed(counter: TokenCounter) -> None:
    talk = [m for i in range(3) for m in turn(f"q{i}", "x" * 900, id=f"c{i}")]
    first, second, third = results([*talk[:-1], Message("assistant", "ok")], NAME, counter)
    assert first == f"[Trimmed: grep output — 900 chars → 200 char preview]\n{'x' * 200}..."
    assert second == third == "x" * 900


def test_an_output_that_a_preview_would_not_shorten_stays(counter: TokenCounter) -> None:
    talk = [*turn("a", "x" * 230), Message("user", "b"), Message("user", "c")]
    assert results(talk, f"{NAME}(max_output_chars=100)", counter) == ["x" * 230]


def test_only_tools_that_may_be_trimmed_are(counter: TokenCounter) -> None:
    talk = [*turn("a", "x" * 900), *turn("b", "y" * 900, "cat", "c2"), *turn("c", "z", id="c3")]
    spec = f"{NAME}(recent_turns=1, trimmable_tools=('cat',))"
    assert [text[:13] for text in results(talk, spec, counter)] == [
        "x" * 13,
        "[Trimmed: cat",
        "z",
    ]


def test_an_id_that_is_used_again_renames_the_older_preview(counter: TokenCounter) -> None:
    talk = [*turn("a", "x" * 900), *turn("b", "y", "cat"), Message("user", "c")]
    spec = f"{NAME}(recent_turns=1)"
    assert results(talk, spec, counter)[0].startswith("[Trimmed: cat output")
    assert results([*talk[:4], Message("user", "b")], spec, counter)[0].startswith("[Trimmed: grep")


def test_a_picture_goes_and_the_rest_fits_the_maximum(counter: TokenCounter) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 900}}
    talk = [*turn("a", ({"type": "text", "text": "seen " * 90}, image)), Message("user", "b")]
    for most in (5, 30, 60, 200):
        (text,) = results(talk, f"{NAME}(recent_turns=1, max_output_chars={most})", counter)
        assert len(text) <= most
        assert text.startswith("[Trimmed"[:most])
    (text,) = results(talk, f"{NAME}(recent_turns=1, preview_chars=9)", counter)
    assert text == "[Trimmed: grep; payload 1372; preview 9; dropped 1 input_image]\nseen seen..."


def test_sizes_that_the_sdk_refuses_are_refused() -> None:
    with pytest.raises(SpecError):
        parse_strategy(f"{NAME}(recent_turns=0)")
