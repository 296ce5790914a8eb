"""Tests of the litellm baseline on small conversations."""

from __future__ import annotations

from generated import conversations, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.litellm import _MessageSizes, _newest_before
from ctxlab.tokens.counter import TokenCounter


def sent(spec: str, messages: list[Message], counter: TokenCounter) -> list[Message]:
    """Return the last request."""
    prepared = prepare_messages((*messages, Message("assistant", "Done.")), counter)
    return run(prepared, spec, 100_000)[1][-1].messages


def test_a_request_below_the_limit_is_left_alone(counter: TokenCounter) -> None:
    messages = [Message("system", "Be brief."), Message("user", "word " * 50)]
    assert sent("litellm.trim_messages(max_tokens=90)", messages, counter) == messages


def test_what_does_not_fit_is_shortened_in_the_middle_and_older_small_messages_still_go_in(
    counter: TokenCounter,
) -> None:
    messages = [
        Message("user", "one"),
        Message("assistant", "word " * 200),
        Message("user", "And now?"),
    ]
    kept = sent("litellm.trim_messages(max_tokens=60)", messages, counter)
    assert kept[-1] == messages[-1]
    assert ".." in kept[-2].text
    assert kept[-2].text.startswith("word word")


def test_system_messages_become_one_at_the_beginning(counter: TokenCounter) -> None:
    messages = [
        Message("system", "Be brief."),
        Message("user", "word " * 80),
        Message("system", "Be kind."),
        Message("user", "Hello"),
    ]
    kept = sent("litellm.trim_messages(max_tokens=60)", messages, counter)
    assert (kept[0].role, kept[0].text) == ("system", "Be brief.\nBe kind.")
    assert [m.role for m in kept].count("system") == 1


def test_the_newest_results_go_out_whatever_their_size(counter: TokenCounter) -> None:
    call = ToolCall("c1", "look")
    messages = [
        Message("user", "Look " * 60),
        Message("assistant", "I look.", tool_calls=(call,)),
        Message("tool", "word " * 500, tool_call_id="c1"),
    ]
    assert sent("litellm.trim_messages(max_tokens=40)", messages, counter)[-1] == messages[-1]


def test_a_call_without_text_that_does_not_fit_makes_it_send_everything(
    counter: TokenCounter,
) -> None:
    call = ToolCall("c1", "write", '{"text": "' + "word " * 100 + '"}')
    messages = [
        Message("user", "Write it"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "ok", tool_call_id="c1"),
        Message("user", "And now?"),
    ]
    assert sent("litellm.trim_messages(max_tokens=60)", messages, counter) == messages


def tried(messages: list[Message], room: int, counter: TokenCounter) -> list[Message]:
    """Return the messages that fit if each is tried in turn, from the newest to the oldest."""
    sizes = _MessageSizes(counter)
    results = next((i for i, m in enumerate(reversed(messages)) if m.role != "tool"), 0)
    older, newest = messages[: len(messages) - results], messages[len(messages) - results :]
    if sum(map(sizes._message_tokens, older)) + 3 < room:
        return messages
    try:
        system = [m for m in older if m.role == "system"]
        if system:
            if sizes._message_tokens(system[0]) + 3 > room:
                system = [sizes._shorten(system[0], room)]
            room -= sizes._message_tokens(system[0]) + 3
            if room == 0:
                return system
        kept: list[Message] = []
        for message in reversed([m for m in older if m.role != "system"]):
            left = room - 3 - sum(map(sizes._message_tokens, kept))
            if left <= 3:
                break
            if sizes._message_tokens(message) > left:
                message = sizes._shorten(message, left)
            if sizes._message_tokens(message) <= left:
                kept.append(message)
    except TypeError:
        return messages
    return [*system, *reversed(kept), *newest]


@given(messages=conversations(), room=st.integers(1, 400))
def test_looking_small_messages_up_finds_what_trying_each_does(
    messages: tuple[Message, ...], room: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    for request in run(prepared, f"litellm.trim_messages(max_tokens={room})", 100_000)[1]:
        assert request.messages == tried(list(messages[: request.position]), room, counter)


@given(sizes=st.lists(st.integers(3, 12), max_size=30), most=st.integers(0, 14))
def test_the_newest_on_a_shelf_is_the_last_that_is_small_enough(
    sizes: list[int], most: int
) -> None:
    shelves: dict[int, list[int]] = {}
    for index, size in enumerate(sizes):
        shelves.setdefault(size, []).append(index)
    for before in range(len(sizes) + 1):
        small = [i for i in range(before) if sizes[i] <= most]
        assert _newest_before(shelves, before, most) == (small[-1] if small else -1)
