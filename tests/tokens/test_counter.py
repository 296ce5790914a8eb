"""Tests that counts of single messages add up to the count of the whole request."""

from __future__ import annotations

import functools
import pickle

import pytest
import tiktoken
from generated import IMAGE, TEXTS, TOOLS, conversations, strange_conversations
from hypothesis import example, given
from hypothesis import strategies as st
from rendering import CONTROL_TOKENS, render_message, render_request

from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.tokens.counter import (
    TokenCounter,
    count_tokens,
)
from ctxlab.tokens.encodings import load_encoding
from ctxlab.tokens.images import count_image_tokens
from ctxlab.tokens.profiles import UNCALIBRATED

MODELS = ("gpt-4o", "gpt-4", "claude-sonnet-4-5", "gemini/gemini-2.5-pro")
SURROGATES = st.characters(categories=["Cs", "L", "Zs", "So"])
LOOSE_TEXTS = st.text(SURROGATES, max_size=12) | st.sampled_from(TEXTS) | st.text(max_size=20)


@functools.cache
def chat_encoding(name: str) -> tiktoken.Encoding:
    """Return the vocabulary with the three control tokens of a chat as special tokens."""
    plain = load_encoding(name)
    special = {control: plain.max_token_value + 1 + i for i, control in enumerate(CONTROL_TOKENS)}
    return tiktoken.Encoding(
        f"{name}_chat",
        pat_str=plain._pat_str,
        mergeable_ranks=plain._mergeable_ranks,
        special_tokens=special,
    )


def one_pass(messages: list[Message], tools: tuple[dict[str, object], ...], model: str) -> int:
    counter = TokenCounter(model, UNCALIBRATED)
    text = render_request(messages, tools, counter.family)
    tokens = len(
        chat_encoding(counter.encoding_name).encode(
            text, allowed_special=set(CONTROL_TOKENS), disallowed_special=()
        )
    )
    parts = [p for m in messages if isinstance(m.content, tuple) for p in m.content]
    return tokens + sum(count_image_tokens(p, counter.model) for p in parts if p == IMAGE)


@pytest.mark.parametrize("model", MODELS)
@given(messages=conversations() | strange_conversations(), with_tools=st.booleans())
def test_a_request_counts_as_one_pass_over_it(
    model: str, messages: tuple[Message, ...], with_tools: bool
) -> None:
    tools = TOOLS if with_tools else ()
    counter = TokenCounter(model, UNCALIBRATED)
    assert counter.count_request(messages, tools) == one_pass([*messages], tools, model)


@given(
    st.lists(
        st.builds(
            Message,
            role=st.sampled_from(["system", "user", "assistant", "tool"]),
            content=LOOSE_TEXTS | st.none(),
            name=st.none() | LOOSE_TEXTS,
            tool_calls=st.lists(
                st.builds(ToolCall, st.just("c"), LOOSE_TEXTS, LOOSE_TEXTS), max_size=2
            ).map(tuple),
        ),
        max_size=4,
    )
)
@example([Message("user", "\ud83d"), Message("user", "\ude00")])
@example([Message("user", "a ", name=" b"), Message("user", "\n\n"), Message("user", " x")])
def test_no_text_grows_together_with_its_neighbour(messages: list[Message]) -> None:
    counter = TokenCounter("gpt-4o")
    assert counter.count_request(messages) == one_pass(messages, (), "gpt-4o")
    assert counter.count_request(messages) == counter.REPLY_TOKENS + sum(
        map(counter.count_message, messages)
    )


PIECES = st.sampled_from(["\n", "\r", "/", "\t", " ", "-", "##", ".\n", ".../", "'s", "\u2028"])
LINES = st.lists(LOOSE_TEXTS | PIECES, max_size=9)


@given(LINES.map("\n".join) | LINES.map("".join), st.sampled_from(["gpt-4o", "gpt-4", "gpt-3"]))
@example("a\n\nb", "text-davinci-003")
@example(".\n/\n\n b\n  \nc", "gpt-4o")
@example("if a:\n    b;\n\t/c\n \n  d\n    \u2028", "gpt-4")
@example("a longer line\n" * 1500 + "b" * 20_001, "gpt-4o")
def test_the_counts_of_lines_add_up_to_the_count_of_the_text(text: str, model: str) -> None:
    counter = TokenCounter(model)
    message = Message("user", text)
    assert counter.count_text(text, by_line=True) == TokenCounter(model).count_text(text)
    assert counter.count_message(message, by_line=True) == counter.count_message(message)


def test_what_the_cookbook_counts(counter: TokenCounter) -> None:
    assert counter.count_text("hello world") == 2
    assert counter.count_message(Message("user", "hello world")) == 6
    assert counter.count_request([Message("user", "hello world")]) == 9
    assert count_tokens("hello world", "gpt-4o") == 2
    assert count_tokens({"role": "user", "content": "hello world"}, "gpt-4o") == 6
    assert count_tokens([{"role": "user", "content": "hello world"}], "gpt-4o") == 9
    assert counter.count_request([]) == counter.REPLY_TOKENS == 3
    assert counter.count_message(Message("assistant", None)) == 4


def test_markup_of_a_chat_in_a_text_is_text(counter: TokenCounter) -> None:
    assert counter.count_text("<|im_start|>") > 1
    assert counter.count_text("<|endoftext|>") > 1


@pytest.mark.properties
@pytest.mark.parametrize("blank", [" ", "\t", "\n", " \t", "\u3000", "\r\n "])
def test_a_million_blanks_are_counted(counter: TokenCounter, blank: str) -> None:
    text = blank * (1_000_000 // len(blank))
    tokens = counter.count_text(text)
    assert 1 <= tokens <= len(text) * 3
    assert counter.count_text("a" + text + "b") >= tokens
    assert counter.count_message(Message("tool", text)) == tokens + 4


@pytest.mark.parametrize("size", [99_999, 100_000, 100_001, 250_000])
def test_a_long_text_of_words_counts_as_in_one_pass(counter: TokenCounter, size: int) -> None:
    text = ("def f(x):\n    return x  # naïve\n" * (size // 30 + 1))[:size]
    assert counter.count_text(text) == len(load_encoding("o200k_base").encode_ordinary(text))


@pytest.mark.parametrize(
    ("model", "exact"),
    [("gpt-4o", True), ("gpt-5", True), ("o3", True), ("claude-opus-4-5", False), ("qwen3", False)],
)
def test_other_vocabularies_are_said_to_be_approximated(model: str, exact: bool) -> None:
    counter = TokenCounter(model)
    assert counter.exact is exact
    assert ("approximated" in counter.accuracy_note) is not exact
    assert model in counter.accuracy_note


def test_a_picture_adds_what_its_provider_bills() -> None:
    text = {"type": "text", "text": "look"}
    for model in MODELS:
        counter = TokenCounter(model)
        plain, with_picture = Message("user", (text,)), Message("user", (text, IMAGE, IMAGE))
        more = counter.count_message(with_picture) - counter.count_message(plain)
        blanks = counter.count_text("look\n\n") - counter.count_text("look")
        assert more == 2 * count_image_tokens(IMAGE, counter.model) + blanks


def test_a_part_of_unknown_kind_counts_as_its_json(counter: TokenCounter) -> None:
    part = {"type": "refusal", "refusal": "no, I will not"}
    assert (
        counter.count_message(Message("user", (part,))) > counter.count_text("no, I will not") + 4
    )
    assert '"refusal":"no, I will not"' in render_message(Message("user", (part,)))


def test_bookkeeping_is_never_counted(counter: TokenCounter) -> None:
    plain = Message("tool", "42", tool_call_id="c1")
    rich = plain.replace(reasoning="long " * 99, time=1.0, file="a.py", extra={"_compacted": True})
    assert counter.count_message(rich) == counter.count_message(plain)
    assert counter.count_message(plain.replace(tool_call_id="x" * 99)) == counter.count_message(
        plain
    )


def test_a_counter_travels_as_the_name_of_its_model(counter: TokenCounter) -> None:
    blob = pickle.dumps(counter)
    assert len(blob) < 1000  # a vocabulary is megabytes
    assert pickle.loads(blob).count_text("hello world") == 2


def test_hidden_reasoning_is_taken_from_the_bill_if_it_tells() -> None:
    said = Message("assistant", "Done", reasoning="I had to think for a while about this")
    gpt, claude = TokenCounter("gpt-5.5"), TokenCounter("claude-opus-4-8")
    visible = claude.count_message(said)
    billed = said.replace(usage=Usage(output=visible + 900))
    started = said.replace(usage=Usage(output=1))  # only the beginning of the reply was billed
    assert gpt.estimate_reasoning(said.replace(usage=Usage(output=950, reasoning=900))) == 900
    assert gpt.estimate_reasoning(billed) == gpt.count_reasoning(said) == 9
    assert claude.estimate_reasoning(billed) == 900
    assert claude.estimate_reasoning(started) == claude.count_reasoning(said) > 9
    assert claude.estimate_reasoning(started.replace(reasoning=None)) == 0
