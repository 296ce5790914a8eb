"""Tests of lines and titles that a model writes in the background, each once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from storing import STORES, a_store, exchange, stored
from talking import Call, Fault, Slow, talking

from ctxlab.context.turns import MAX_HEADLINE_CHARS
from ctxlab.errors import CtxlabError, ModelRequestRejected, ModelUnavailable
from ctxlab.llm import LiteLLMClient, ScriptedClient
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message
from ctxlab.sessions.background_summaries import (
    MAX_BACKLOG,
    MAX_CONCURRENT_CALLS,
    BackgroundSummarizer,
)
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.table_of_contents import get_contents
from ctxlab.sessions.titles import MAX_TITLE_LENGTH

LOGGER = "ctxlab.sessions"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    made = a_store(request.param, tmp_path)
    yield made
    made.close()


def is_title(request: Request) -> bool:
    return "Generate a session title" in request.messages[-1].text


def writer(request: Request) -> str:
    """Scripted model that writes valid lines and titles."""
    if is_title(request):
        return "Parsing"
    asked = request.messages[-1].text.partition("\n")[0].removeprefix("User: ")
    return f"About {asked}"


def summarised(store: SessionStore, id: str, client: ScriptedClient) -> None:
    with BackgroundSummarizer(store, client, "gpt-4o") as summaries:
        summaries.turn_completed(id)
        assert summaries.wait(60)


def test_a_completed_turn_gets_its_line_and_then_the_session_its_title(store: SessionStore) -> None:
    """Seed 003, background: the line first, then the title."""
    id, client = stored(store, "Fix the parser"), ScriptedClient(writer)
    summarised(store, id, client)
    assert store.turn_summaries(id) == {1: "About Fix the parser"}
    assert [is_title(request) for request in client.requests] == [False, True]
    assert "[RECENT] Turn 1: About Fix the parser" in client.requests[1].messages[-1].text
    session = store.get(id)
    assert (session.title, session.titles[0].turn) == ("Parsing", 1)
    assert session.titles[0].interaction_id == f"{id}:1"
    assert get_contents(store, id).formatted == "1. About Fix the parser"


def test_whoever_completes_a_turn_does_not_wait(store: SessionStore) -> None:
    """Seed 003, background: the call returns at once."""
    held = threading.Event()

    def slow(request: Request) -> str:
        held.wait(90)
        return writer(request)

    id = stored(store, "Fix the parser")
    with BackgroundSummarizer(store, ScriptedClient(slow), "gpt-4o") as summaries:
        begun = time.perf_counter()
        summaries.turn_completed(id)
        assert time.perf_counter() - begun < 60
        assert not summaries.wait(0.1)
        store.append(id, *exchange("Meanwhile the conversation goes on"))
        held.set()
        assert summaries.wait(60)
    assert store.turn_summaries(id)


def test_each_turn_is_asked_about_once(store: SessionStore) -> None:
    """Seed 003, summaries: what was written is kept and not asked for again."""
    id, client = stored(store, "One", "Two", "Three"), ScriptedClient(writer)
    for _ in range(3):
        summarised(store, id, client)
    assert [is_title(request) for request in client.requests].count(False) == 3
    assert [is_title(request) for request in client.requests].count(True) == 1
    store.append(id, *exchange("Four"))
    summarised(store, id, client)
    assert len(client.requests) == 4 + 2
    assert set(store.turn_summaries(id)) == {1, 2, 3, 4}


def test_steps_are_extracted_and_only_prompts_asked_about(store: SessionStore) -> None:
    """Seed 003, summaries: a step of an agent's run costs no call."""
    store.create(id="s")
    store.append("s", *exchange("Fix the parser", "It is fixed now.", steps=40))
    client = ScriptedClient(writer)
    summarised(store, "s", client)
    assert list(store.turn_summaries("s")) == [1]
    (asked,) = [r.messages[-1].text for r in client.requests if not is_title(r)]
    assert "Fix the parser" in asked
    assert "It is fixed now." in asked
    assert "read_file src/39.py" in asked
    assert get_contents(store, "s").formatted.count("read_file") == 40


@pytest.mark.e2e(smoke=True)
def test_what_a_model_is_shown_of_a_turn_is_bounded(store: SessionStore) -> None:
    store.create(id="s")
    store.append("s", *exchange("begin " + "x" * 200_000 + " end", "y" * 200_000, steps=300))
    client = ScriptedClient(writer)
    summarised(store, "s", client)
    assert all(len(r.messages[-1].text) < 8_000 for r in client.requests)
    assert all(r.max_tokens for r in client.requests)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n ",
        "long " * 50,
        Reply(Message("assistant", "A line that"), finish="length"),
        Reply(Message("assistant", "I cannot"), finish="content_filter"),
    ],
    ids=["empty", "blank", "long", "cut", "filtered"],
)
def test_a_line_that_is_of_no_use_gives_way_to_the_extracted_one_and_is_reported(
    store: SessionStore, answer: str | Reply, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 003, extractive: also where a model answers what is no line."""
    id = stored(store, "Fix the parser", "Write the docs")
    client = ScriptedClient(lambda request: "Parsing" if is_title(request) else answer)
    with caplog.at_level(logging.WARNING, LOGGER):
        summarised(store, id, client)
    assert store.turn_summaries(id) == {1: "Fix the parser", 2: "Write the docs"}
    assert all(len(line) <= MAX_HEADLINE_CHARS for line in store.turn_summaries(id).values())
    assert len([r for r in caplog.records if "the model's summary is" in r.message]) == 1
    summarised(store, id, client)
    assert len(client.requests) == 3  # what was answered is not asked again


def test_markup_and_line_breaks_around_an_answer_are_taken_off(store: SessionStore) -> None:
    id = stored(store, "Fix the parser")
    line = '<think>\n\n</think>\n\nSummary: "Port the C# parser, page title: Foo"'
    client = ScriptedClient(line, "# Title: **Parser\n repairs**")
    summarised(store, id, client)
    assert (store.turn_summaries(id), store.get(id).title) == (
        {1: "Port the C# parser, page title: Foo"},
        "Parser repairs",
    )


@pytest.mark.parametrize(
    "failure",
    [
        ModelRequestRejected("wrong key"),
        ModelUnavailable("busy"),
        RuntimeError("a bug"),
        CtxlabError("no"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failure_reaches_nobody_and_is_reported_once(
    store: SessionStore, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 003, background: whatever the model does, the conversation goes on."""
    id = stored(store, "Fix the parser")
    client = ScriptedClient(lambda request: failure)
    with (
        caplog.at_level(logging.WARNING, LOGGER),
        BackgroundSummarizer(store, client, "gpt-4o") as summaries,
    ):
        for number in range(3):
            summaries.turn_completed(id)
            assert summaries.wait(60)
            store.append(id, *exchange(f"More {number}"))
    assert len(caplog.records) == 1
    assert get_contents(store, id).formatted.startswith("1. Fix the parser")
    assert store.turn_summaries(id) == {}
    assert store.get(id).title == "Fix the parser"


def test_after_a_failure_a_turn_is_asked_about_again_by_the_next_program(
    store: SessionStore,
) -> None:
    id = stored(store, "Fix the parser")
    summarised(store, id, ScriptedClient(lambda request: ModelUnavailable("busy")))
    summarised(store, id, ScriptedClient(writer))
    assert store.turn_summaries(id) == {1: "About Fix the parser"}


# --- no loops -------------------------------------------------------------------------------------


def test_a_summary_is_no_message_and_no_session(store: SessionStore) -> None:
    """Seed 003, no loops: the client is asked directly."""
    id = stored(store, "Fix the parser")
    before = list(store.read_messages(id)), store.get(id).messages, store.count_turns(id)
    client = ScriptedClient(writer)
    summarised(store, id, client)
    assert (list(store.read_messages(id)), store.get(id).messages, store.count_turns(id)) == before
    assert [session.id for session in store.sessions()] == [id]
    assert len(client.requests) == 2


def test_a_session_of_a_system_gets_no_lines_and_no_title(store: SessionStore) -> None:
    """Seed 003, no loops: sessions of a system are left alone."""
    id, client = stored(store, "Summarise this", system=True), ScriptedClient(writer)
    before = store.get(id)
    summarised(store, id, client)
    with BackgroundSummarizer(store) as plain:
        plain.turn_completed(id)
        assert plain.wait(60)
    assert client.requests == []
    assert store.turn_summaries(id) == {}
    assert store.get(id) == before


@pytest.mark.e2e
def test_no_more_than_five_calls_are_made_at_a_time(tmp_path: Path) -> None:
    """Seed 003, no loops: five calls at a time, of all sessions together."""
    store = a_store("chunks", tmp_path)
    ids = [stored(store, *(f"Question {n}" for n in range(6)), id=f"s{n}") for n in range(3)]

    def said(call: Call) -> Slow:
        title = "Generate a session title" in call.text
        return Slow(0.05, "Questions" if title else "A line")

    with talking(said) as server:
        client = LiteLLMClient(server.address, "k", retries=0, timeout=10)
        with (
            BackgroundSummarizer(store, client, "gpt-4o") as one,
            BackgroundSummarizer(store, client, "gpt-4o") as two,
        ):
            for id in ids:
                (one if id == "s0" else two).turn_completed(id)
            assert one.wait(60)
            assert two.wait(60)
        assert server.answered == 3 * 6 + 3
        assert server.most_at_once == MAX_CONCURRENT_CALLS
    assert all(set(store.turn_summaries(id)) == set(range(1, 7)) for id in ids)


# --- titles ---------------------------------------------------------------------------------------


def test_a_title_that_stays_is_not_entered_again(store: SessionStore) -> None:
    """Seed 003, titles: kept while the topic is the same."""
    id = stored(store, "Fix the parser")
    for prompt in ("More", "And more"):
        summarised(store, id, ScriptedClient(lambda r: "parsing." if is_title(r) else "A line"))
        store.append(id, *exchange(prompt))
    session = store.get(id)
    assert session.title == "parsing."
    assert [change.turn for change in session.titles][:1] == [1]


def test_a_title_follows_a_new_topic_and_its_history_says_with_which_turn(
    store: SessionStore,
) -> None:
    """Seed 003, titles: a new topic in the last turns gives another title."""
    id = stored(store, "Fix the parser")
    summarised(store, id, ScriptedClient("A line", "Parsing"))
    store.append(id, *exchange("Now write the docs"))
    client = ScriptedClient("Another line", "Documentation")
    summarised(store, id, client)
    assert 'Current session title: "Parsing"' in client.requests[1].messages[-1].text
    session = store.get(id)
    assert [(c.title, c.turn) for c in session.titles][:2] == [("Documentation", 2), ("Parsing", 1)]


@pytest.mark.parametrize(
    "answer", ["", "...", "t" * 61, "Because the turns are about it, I keep " * 3]
)
def test_a_title_that_is_none_is_not_taken_and_is_reported(
    store: SessionStore, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 003, titles: 60 characters at most."""
    id = stored(store, "Fix the parser")
    with caplog.at_level(logging.WARNING, LOGGER):
        summarised(store, id, ScriptedClient("A line", answer))
    assert store.get(id).title == "Fix the parser"
    assert len(store.get(id).title) <= MAX_TITLE_LENGTH
    assert any("keeps its title" in record.message for record in caplog.records)


@pytest.mark.parametrize("title", ["Mine", "Fix the parser"], ids=["another", "the same"])
def test_a_title_given_by_hand_meanwhile_stays(store: SessionStore, title: str) -> None:
    id = stored(store, "Fix the parser")

    def answer(request: Request) -> str:
        if is_title(request):
            store.retitle(id, title)
            return "Parsing"
        return "A line"

    summarised(store, id, ScriptedClient(answer))
    assert store.get(id).title == title


def test_a_title_given_by_hand_stays_whatever_comes(store: SessionStore) -> None:
    id = stored(store, "Fix the parser that fails on empty files")
    store.retitle(id, "Mine")
    store.append(id, *exchange("Please write documentation about installing plugins"))
    summarised(store, id, ScriptedClient(writer))
    with BackgroundSummarizer(store) as summaries:
        summaries.turn_completed(id)
        assert summaries.wait(60)
    assert store.get(id).title == "Mine"
    assert len(store.turn_summaries(id)) == 2


@pytest.mark.parametrize("begun", [1, 2, 3], ids=["asked", "called", "answered by a tool"])
def test_a_turn_that_goes_on_has_no_line_yet(store: SessionStore, begun: int) -> None:
    """Another turn begins while the one before is seen to."""
    id = stored(store, "Fix the parser")
    store.append(id, *exchange("Now the docs", steps=1)[:begun])
    client = ScriptedClient(writer)
    summarised(store, id, client)
    assert list(store.turn_summaries(id)) == [1]
    store.append(id, Message("assistant", "Written."))
    summarised(store, id, client)
    assert [len(store.turn_summaries(id)), "Written." in client.requests[2].messages[-1].text] == [
        2,
        True,
    ]


# --- without a model ------------------------------------------------------------------------------


def test_without_a_model_lines_are_extracted_and_nothing_is_kept(store: SessionStore) -> None:
    """Seed 003, extractive: the first line of prompt or response."""
    id = stored(store, "Fix the parser\nwhich fails")
    with BackgroundSummarizer(store) as summaries:
        summaries.turn_completed(id)
        assert summaries.wait(60)
    assert store.turn_summaries(id) == {}
    assert get_contents(store, id).formatted == "1. Fix the parser"


def titles_after(store: SessionStore, id: str, *prompts: str) -> list[str]:
    titles = []
    with BackgroundSummarizer(store) as summaries:
        for prompt in prompts:
            store.append(id, *exchange(prompt))
            summaries.turn_completed(id)
            assert summaries.wait(60)
            titles.append(store.get(id).title)
    return titles


def test_without_a_model_the_title_follows_a_prompt_about_something_else(
    store: SessionStore,
) -> None:
    """Seed 003, extractive: the title is the first line of a prompt that begins another topic."""
    first = "Fix the parser that fails on empty files"
    titles = titles_after(
        store,
        stored(store, first),
        "yes",
        "Does the parser still fail on empty files then?",
        "Please write documentation about installing plugins\nin Markdown",
        "thanks, go on",
    )
    new = "Please write documentation about installing plugin..."
    assert titles == [first, first, new, new]


def test_without_a_model_the_title_follows_a_topic_in_a_script_without_spaces(
    store: SessionStore,
) -> None:
    """Seed 003, extractive: the title is the first line of a prompt that begins another topic."""
    first, new = "请帮我修复登录页面的认证错误", "现在请编写数据库迁移脚本并备份所有用户表格"
    id = stored(store, first)
    titles = titles_after(store, id, "好的,谢谢", "登录页面的认证错误还在吗", new)
    assert titles == [first, first, new]


# --- long sessions and the end of a program -------------------------------------------------------


def test_a_long_session_without_lines_is_gone_back_to_in_part(store: SessionStore) -> None:
    id, client = stored(store, *(f"Question {n}" for n in range(30))), ScriptedClient(writer)
    summarised(store, id, client)
    assert sorted(store.turn_summaries(id)) == list(range(31 - MAX_BACKLOG, 31))
    assert [is_title(r) for r in client.requests].count(False) == MAX_BACKLOG


def test_a_session_that_is_deleted_meanwhile_is_no_matter(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    id = stored(store, "Fix the parser")

    def answer(request: Request) -> str:
        store.delete(id)
        return "A line"

    with caplog.at_level(logging.WARNING, LOGGER):
        summarised(store, id, ScriptedClient(answer))
    assert caplog.records == []
    assert store.sessions() == []


@pytest.mark.e2e
def test_a_conversation_goes_on_while_it_is_summarised(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 003, background: writer and summaries share a store and lose nothing."""
    ids = [stored(store, "Question 0", id=f"s{n}") for n in range(3)]
    with (
        caplog.at_level(logging.WARNING, LOGGER),
        BackgroundSummarizer(store, ScriptedClient(writer), "gpt-4o") as summaries,
    ):
        for number in range(1, 30):
            for id in ids:
                store.append(id, *exchange(f"Question {number}", steps=1))
                store.save(id)
                summaries.turn_completed(id)
        assert summaries.wait(60)
    assert caplog.records == []
    for id in ids:
        prompts = [m.text for m in store.read_messages(id) if m.role == "user"]
        assert prompts == [f"Question {number}" for number in range(30)]
        listed = get_contents(store, id).entries
        assert sorted(store.turn_summaries(id)) == [
            entry.turn for entry in listed if entry.has_prompt
        ]
        assert store.get(id).title == "Parsing"


def test_closing_takes_no_longer_than_it_may_and_begins_nothing_more(tmp_path: Path) -> None:
    store = a_store("chunks", tmp_path)
    ids = [stored(store, "Fix the parser", id=f"s{n}") for n in range(8)]
    with talking(Fault.HANG) as server:
        summaries = BackgroundSummarizer(
            store, LiteLLMClient(server.address, "k", retries=0), "gpt-4o"
        )
        for id in ids:
            summaries.turn_completed(id)
        while server.attempts < MAX_CONCURRENT_CALLS:
            time.sleep(0.01)
        begun = time.perf_counter()
        summaries.close(timeout=0.3)
        assert time.perf_counter() - begun < 60
        summaries.turn_completed(ids[0])
    assert summaries.wait(60)
    assert server.attempts == MAX_CONCURRENT_CALLS
    assert all(store.turn_summaries(id) == {} for id in ids)


PROGRAM = """
import sys, signal, threading
from pathlib import Path
sys.path.insert(0, {tests!r})
from storing import a_store
from ctxlab.llm import ScriptedClient
from ctxlab.sessions.background_summaries import BackgroundSummarizer

def hang(request):
    print("asked", flush=True)
    threading.Event().wait(600)

store = a_store({kind!r}, Path({folder!r}))
with BackgroundSummarizer(store, ScriptedClient(hang), "gpt-4o") as summaries:
    summaries.turn_completed("s")
    summaries.wait()
"""


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("kind", STORES)
def test_an_interrupt_ends_a_program_that_waits_for_a_summary(kind: str, tmp_path: Path) -> None:
    """Seed 003, background: nobody waits for it who wants to leave."""
    store = a_store(kind, tmp_path)
    stored(store, "Fix the parser")
    store.close()
    tests = str(Path(__file__).parents[1] / "helpers")
    program = PROGRAM.format(tests=tests, kind=kind, folder=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "asked\n"
        run.send_signal(2)
        _, said = run.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert [m.text for m in store.read_messages("s")] == ["Fix the parser", "Fix the parser: done."]


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from storing import a_store
from ctxlab.llm import ScriptedClient
from ctxlab.sessions.background_summaries import BackgroundSummarizer

def answer(request):
    return "Parsing" if "session title" in request.messages[-1].text else "A line"

store = a_store({kind!r}, Path({folder!r}))
with BackgroundSummarizer(store, ScriptedClient(answer), "gpt-4o") as summaries:
    for _ in range(2):
        summaries.turn_completed("s")
        assert summaries.wait(60)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("kind", STORES)
def test_two_processes_may_write_the_lines_of_one_session(kind: str, tmp_path: Path) -> None:
    store = a_store(kind, tmp_path)
    stored(store, *(f"Question {n}" for n in range(10)))
    tests = str(Path(__file__).parents[1] / "helpers")
    program = WRITER.format(tests=tests, kind=kind, folder=str(tmp_path))
    runs = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        _, said = run.communicate(timeout=60)
        assert (run.returncode, said) == (0, "")
    assert store.turn_summaries("s") == dict.fromkeys(range(1, 11), "A line")
    assert store.get("s").title == "Parsing"
