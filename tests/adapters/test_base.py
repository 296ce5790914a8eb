"""Tests of ``ConversationPool``, which recognises a framework's conversation by its first messages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import takewhile

import pytest
from generated import conversations, limits
from hypothesis import given
from hypothesis import strategies as st
from replaying import SPECS

from ctxlab.adapters import ConversationPool
from ctxlab.agent.manager import ContextManager
from ctxlab.errors import SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.base import walk_strategies
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter

LIVE = [
    spec
    for spec in SPECS
    if all(each.supports_live for each in walk_strategies(parse_strategy(spec)))
]


def handed(messages: list[Message]) -> list[tuple[Message, int]]:
    return [(message, i) for i, message in enumerate(messages)]


@given(messages=conversations(), limit=limits(), spec=st.sampled_from(LIVE))
def test_a_framework_that_keeps_everything_gets_what_a_manager_sends(
    messages: tuple[Message, ...], limit: int, spec: str
) -> None:
    known = ConversationPool[int](spec, "gpt-4o", limit=limit, reserve=0)
    manager = ContextManager(spec, "gpt-4o", limit=limit, reserve=0)
    system = list(takewhile(lambda message: message.role == "system", messages))
    manager.set_fixed(system=system)
    for end, message in enumerate(messages[len(system) :], len(system) + 1):
        manager.append(message)
        if message.role in ("user", "tool"):
            sent = known.prepare_messages(handed(list(messages[:end])))
            assert [each.message for each in sent[: len(system)]] == system
            assert [each.message.to_dict() for each in sent[len(system) :]] == manager.request()
            for each in sent:
                if each.original is not None:
                    own = messages[each.original]
                    assert own.role == each.message.role
                    assert own == each.message or not each.unchanged


def test_a_framework_that_keeps_what_was_sent_goes_on_from_there() -> None:
    known = ConversationPool[int]("rolling_summary()", "gpt-4o", limit=600, reserve=0)
    kept = [Message("user", f"{i} " + "word " * 40) for i in range(20)]
    kept = [each.message for each in known.prepare_messages(handed(kept))]
    assert kept[1].text.startswith("Summary")
    for i in range(20, 40):
        kept.append(Message("user", f"{i} " + "word " * 40))
        kept = [each.message for each in known.prepare_messages(handed(kept))]
    assert sum(message.text.startswith("Summary") for message in kept) == 1
    assert known._conversations[0].manager.history[0].text.startswith("0 ")
    assert len(known._conversations[0].manager.history) == 40


def test_conversations_that_begin_alike_part_where_they_differ() -> None:
    known = ConversationPool[int]("full", "gpt-4o")
    begin = [Message("system", "Be kind."), Message("user", "Hello")]
    known.prepare_messages(handed(begin))
    for answer in ("Hi", "Good day"):
        talk = [*begin, Message("assistant", answer), Message("user", "Bye")]
        assert [each.message for each in known.prepare_messages(handed(talk))] == talk


def test_no_more_conversations_are_kept_than_asked_for() -> None:
    known = ConversationPool[int]("full", "gpt-4o", max_conversations=2)
    for i in range(5):
        known.prepare_messages(handed([Message("user", f"conversation {i}")]))
    assert len(known._conversations) == 2


def test_threads_share_one() -> None:
    known = ConversationPool[int]("sliding_window(messages=4)", "gpt-4o")
    wrong: list[str] = []

    def talk(name: str) -> None:
        said = [Message("user", f"{name} begins")]
        for i in range(60):
            said.append(Message("user", f"{name} {i}"))
            sent = [each.message.text for each in known.prepare_messages(handed(said))]
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
        ConversationPool[int]("no_such()")


def summarising(
    prepare: Callable[[ConversationPool[int], int, list[Message]], object], turns: int = 40
) -> int:
    """Prepare a conversation turn by turn and return the number of summaries that were made."""
    client = ScriptedClient(lambda _: "## Goal\nRead.")
    known = ConversationPool[int](
        "rolling_summary(model='gpt-4o') | panic", "gpt-4o", limit=2000, reserve=0, client=client
    )
    said: list[Message] = []
    for turn in range(turns):
        said.append(Message("user", f"{turn} " + "word " * 60))
        prepare(known, turn, said)
        said.append(Message("assistant", f"answer {turn} " + "word " * 30))
    return len(client.requests)


def test_a_system_prompt_or_tools_that_change_are_the_same_conversation() -> None:
    def system(now: int) -> list[Message]:
        return [Message("system", f"You read. It is {now} o'clock.")]

    def tools(now: int) -> list[dict[str, str]]:
        return [{"name": f"tool{i}"} for i in range(1 + now % 2)]

    same = summarising(lambda known, _, said: known.prepare_messages(handed(system(0) + said)))
    assert same > 2
    prompts = summarising(
        lambda known, now, said: known.prepare_messages(handed(system(now) + said))
    )
    definitions = summarising(
        lambda known, now, said: known.prepare_messages(handed(said), tools(now))
    )
    assert prompts == definitions == same


@pytest.mark.parametrize(
    "spec", ["sliding_window(messages=4) | panic", "panic", "rolling_summary | panic", "contents"]
)
def test_the_system_prompt_of_this_request_stands_first_and_takes_room(spec: str) -> None:
    known = ConversationPool[int](spec, "gpt-4o", limit=900, reserve=0)
    counter = TokenCounter("gpt-4o")
    said = [Message("user", "The task.")]
    for turn in range(20):
        system = [Message("system", "Be kind. " * 20), Message("system", f"It is {turn}.")]
        sent = [each.message for each in known.prepare_messages(handed(system + said))]
        assert sent[:2] == system
        assert said[0] in sent
        assert find_violations(sent) == []
        assert counter.count_request(sent) <= 900
        said += [Message("assistant", "word " * 40), Message("user", f"{turn} " + "word " * 40)]


def test_a_summary_as_system_message_that_the_framework_keeps_is_not_told_twice() -> None:
    def fold(messages: list[Message]) -> list[Message]:
        rest = [message for message in messages if message.role != "system"]
        return [Message("system", f"Summary of {len(messages) - 2}."), *rest[-2:]]

    known = ConversationPool[int](fold, "gpt-4o")
    kept = [Message("system", "Be kind."), Message("user", "The task.")]
    for turn in range(5):
        kept += [Message("assistant", "Yes."), Message("user", f"{turn}")]
        kept = [each.message for each in known.prepare_messages(handed(kept))]
        assert [message.role for message in kept] == ["system", "system", "assistant", "user"]
    assert len(known._conversations) == 1


def test_what_failed_is_not_appended_again() -> None:
    broken = [True]

    def strategy(messages: list[Message]) -> list[Message]:
        if len(messages) > 1 and broken[0]:
            raise RuntimeError("no answer")
        return messages

    known = ConversationPool[int](strategy, "gpt-4o")
    said = [Message("user", "one")]
    known.prepare_messages(handed(said))
    said += [Message("assistant", "1"), Message("user", "two")]
    for _ in range(2):
        with pytest.raises(RuntimeError):
            known.prepare_messages(handed(said))
    broken[0] = False
    assert [each.message for each in known.prepare_messages(handed(said))] == said
    said += [Message("assistant", "2"), Message("user", "three")]
    assert [each.message for each in known.prepare_messages(handed(said))] == said


def test_a_request_that_is_made_again_is_the_same_conversation_in_either_form() -> None:
    known = ConversationPool[int]("rolling_summary", "gpt-4o", limit=600, reserve=0)
    said: list[Message] = []
    for turn in range(20):
        said.append(Message("user", f"{turn} " + "word " * 40))
        sent = [each.message for each in known.prepare_messages(handed(said))]
        assert [each.message for each in known.prepare_messages(handed(sent))] == sent
        assert [each.message for each in known.prepare_messages(handed(said))] == sent
    assert len(known._conversations) == 1


def test_a_conversation_whose_past_was_edited_begins_anew_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ctxlab.adapters")
    known = ConversationPool[int]("sliding_window(messages=4)", "gpt-4o")
    said = [Message("user", f"{turn}") for turn in range(9)]
    known.prepare_messages(handed([*said[:2], Message("user", "other")]))
    assert "restarts" not in caplog.text  # nothing is lost where nothing was changed
    for turn in range(3):
        known.prepare_messages(handed(said))
        said[-1] = Message("user", f"edited {turn}")
        sent = [each.message for each in known.prepare_messages(handed(said))]
        assert sent[-1] == said[-1]
        assert len(sent) < len(said)
        said.append(Message("user", "more"))
    assert caplog.text.count("restarts because its message 9 was edited") == 1


def test_a_conversation_does_not_wait_for_the_strategy_of_another() -> None:
    asked, go = threading.Event(), threading.Event()

    def slow(messages: list[Message]) -> list[Message]:
        if messages[0].text == "slow":
            asked.set()
            assert go.wait(30)
        return messages

    known = ConversationPool[int](slow, "gpt-4o")
    results: list[int] = []
    first = handed([Message("user", "slow")])
    longer = [*first, (Message("user", "more"), 1)]
    threads = [
        threading.Thread(target=lambda said=said: results.append(len(known.prepare_messages(said))))
        for said in (first, longer)
    ]
    threads[0].start()
    assert asked.wait(30)
    threads[1].start()
    assert len(known.prepare_messages(handed([Message("user", "quick")]))) == 1
    assert results == []
    go.set()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [1, 2]


def test_the_model_that_a_request_names_is_the_one_whose_window_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = ConversationPool[int]("panic")
    said = handed([Message("user", f"{i} " + "word " * 600) for i in range(30)])
    for model in ("gpt-4", "gpt-4o", "gpt-4"):
        sent = [each.message for each in known.prepare_messages(said, model=model)]
        assert (len(sent) < len(said)) == (model == "gpt-4")
        assert TokenCounter(model).count_request(sent) <= {"gpt-4": 8192, "gpt-4o": 128_000}[model]
    assert len(known._conversations) == 2
    assert "does not name its model" not in caplog.text
    for _ in range(2):
        known.prepare_messages(said)
    assert known._conversations[-1].model == DEFAULT_MODEL
    assert caplog.text.count("does not name its model") == 1
    assert (
        ConversationPool[int]("panic", "gpt-4").prepare_messages(said, model="gpt-4o")[0].original
        == 0
    )


def test_what_a_framework_changed_in_place_is_seen() -> None:
    known = ConversationPool[int]("full", "gpt-4o")
    part = {"type": "text", "text": "one"}
    said = [Message("user", (part,)), Message("user", "two")]
    known.prepare_messages(handed(said))
    part["text"] = "another"
    assert known.prepare_messages(handed(said))[0].message.text == "another"
