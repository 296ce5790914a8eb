"""Tests that the pages of a turn contain each character exactly once."""

from __future__ import annotations

from generated import strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message
from ctxlab.sessions.navigation.pagination import (
    MAX_MESSAGES_PER_PAGE,
    message_text,
    paginate_interaction,
)
from ctxlab.sessions.table_of_contents import Interaction


def interaction(messages: tuple[Message, ...], first: int = 7) -> Interaction:
    wire = [message.to_dict() for message in messages]
    return Interaction("a:1", "a", 1, "1", 1, None, "", "", "", len(wire), first, 0, wire)


@given(strange_conversations(), st.integers(1, 60))
def test_the_pages_hold_every_character_once(messages: tuple[Message, ...], limit: int) -> None:
    made, offset = interaction(messages), 0
    texts: dict[int, str] = {}
    while offset is not None:
        page, following = paginate_interaction(made, offset, limit)
        assert sum(len(each.text) for each in page.messages) <= limit
        for each in page.messages:
            assert each.starts == len(texts.get(each.position, ""))
            assert each.position not in texts or each.starts > 0
            texts[each.position] = texts.get(each.position, "") + each.text
        assert following is None or following > offset
        offset = following
    assert texts == {7 + n: message_text(wire) for n, wire in enumerate(made.messages)}


def test_a_page_holds_so_many_messages_at_most() -> None:
    made = interaction(tuple(Message("assistant", "") for _ in range(MAX_MESSAGES_PER_PAGE + 50)))
    page, following = paginate_interaction(made, 0, 10**6)
    assert (len(page.messages), following) == (MAX_MESSAGES_PER_PAGE, MAX_MESSAGES_PER_PAGE)
    rest, end = paginate_interaction(made, MAX_MESSAGES_PER_PAGE, 10**6)
    assert (len(rest.messages), end) == (50, None)


@given(strange_conversations(), st.integers(0, 10**12))
def test_any_offset_is_answered(messages: tuple[Message, ...], offset: int) -> None:
    page, following = paginate_interaction(interaction(messages), offset, 100)
    assert following is None or offset < following < page.total_characters


def test_pictures_are_told_and_not_sent() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    message = Message("user", ({"type": "text", "text": "look"}, picture))
    (shown,) = paginate_interaction(interaction((message,)), 0, 10**6)[0].messages
    assert shown.text.startswith("look\n[image_url, 1,000,0")
    assert len(shown.text) < 100
