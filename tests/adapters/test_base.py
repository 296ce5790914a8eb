"""A conversation that a framework hands over is recognised by how it begins, whatever it keeps."""

from __future__ import annotations

import threading

import pytest
from generated import conversations, limits
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.adapters import Conversations
from ctxlab.conversation import Message
from ctxlab.errors import SpecError
from ctxlab.manager import ContextManager

LIVE = [spec for spec in SPECS if "oracle" not in spec]


def handed(messages: list[Message]) -> list[tuple[Message, int]]:
    return [(message, i) for i, message in enumerate(messages)]


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_a_framework_that_keeps_everything_gets_what_a_manager_sends(
    messages: tuple[Message, ...], limit: int, spec: str
) -> None:
    known = Conversations[int](spec, "gpt-4o", limit=limit, reserve=0)
    manager = ContextManager(spec, "gpt-4o", limit=limit, reserve=0)
    for end, message in enumerate(messages, 1):
        manager.append(message)
        if message.role in ("user", "tool"):
            sent = known.prepare(handed(list(messages[:end])))
            assert [m.to_dict() for m, _ in sent] == manager.request()
            assert all(theirs is None or messages[theirs] == m for m, theirs in sent)


def test_a_framework_that_keeps_what_was_sent_goes_on_from_there() -> None:
    known = Conversations[int]("rolling_summary()", "gpt-4o", limit=600, reserve=0)
    kept = [Message("user", f"{i} " + "word " * 40) for i in range(20)]
    kept = [message for message, _ in known.prepare(handed(kept))]
    assert kept[1].text.startswith("Summary")
    for i in range(20, 40):
        kept.append(Message("user", f"{i} " + "word " * 40))
        kept = [message for message, _ in known.prepare(handed(kept))]
    assert sum(message.text.startswith("Summary") for message in kept) == 1
    assert known._known[0].manager.history[0].text.startswith("0 ")
    assert len(known._known[0].manager.history) == 40


def test_conversations_that_begin_alike_part_where_they_differ() -> None:
    known = Conversations[int]("full", "gpt-4o")
    begin = [Message("system", "Be kind."), Message("user", "Hello")]
    known.prepare(handed(begin))
    for answer in ("Hi", "Good day"):
        talk = [*begin, Message("assistant", answer), Message("user", "Bye")]
        assert [message for message, _ in known.prepare(handed(talk))] == talk


def test_no_more_conversations_are_kept_than_asked_for() -> None:
    known = Conversations[int]("full", "gpt-4o", keep=2)
    for i in range(5):
        known.prepare(handed([Message("user", f"conversation {i}")]))
    assert len(known._known) == 2


def test_threads_share_one() -> None:
    known = Conversations[int]("sliding_window(messages=4)", "gpt-4o")
    wrong: list[str] = []

    def talk(name: str) -> None:
        said = [Message("user", f"{name} begins")]
        for i in range(60):
            said.append(Message("user", f"{name} {i}"))
            sent = [message.text for message, _ in known.prepare(handed(said))]
            if sent[-1] != f"{name} {i}" or any(not text.startswith(name) for text in sent):
                wrong.append(name)

    threads = [threading.Thread(target=talk, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_strategy_that_is_written_wrongly_is_refused_at_once() -> None:
    with pytest.raises(SpecError):
        Conversations[int]("no_such()")
