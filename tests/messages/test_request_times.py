"""Tests of request times: a request is as new as its newest input, and never as its reply."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ctxlab.messages.request_times import request_time
from ctxlab.messages.types import Message, Role


def talk(*said: tuple[Role, float | None]) -> list[Message]:
    return [Message(role, time=time) for role, time in said]


def test_it_is_the_latest_time_of_the_messages_since_the_previous_reply() -> None:
    said = talk(("user", 10), ("assistant", 20), ("tool", 40), ("tool", 30), ("user", None))
    assert request_time(said, 5) == datetime.fromtimestamp(40, UTC)


def test_the_time_of_its_own_reply_plays_no_role() -> None:
    for reply in (20.0, 20_000.0, None):
        said = talk(("user", 10), ("assistant", reply))
        assert request_time(said, 1) == datetime.fromtimestamp(10, UTC)


def test_where_only_replies_have_times_no_request_has_one() -> None:
    said = talk(("user", None), ("assistant", 20), ("tool", None), ("assistant", 9000))
    assert [request_time(said, position) for position in (0, 1, 3)] == [None, None, None]


def test_a_request_directly_after_a_reply_is_as_old_as_this_reply() -> None:
    said = talk(("user", 10), ("assistant", 20), ("assistant", 30))
    assert request_time(said, 2) == datetime.fromtimestamp(20, UTC)


@pytest.mark.parametrize("time", [float("nan"), 1e18, float("inf")])
def test_a_number_that_is_no_time_is_none(time: float) -> None:
    assert request_time(talk(("user", time)), 1) is None
