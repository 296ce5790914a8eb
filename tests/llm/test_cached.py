"""Tests of ``CachedClient``: it keeps all replies that were paid for, and no failures."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import diskcache
import pytest
from hypothesis import given
from hypothesis import strategies as st
from talking import Action, Call, Talker, talking

from ctxlab.errors import ModelRequestRejected, ModelUnavailable, UnknownName
from ctxlab.llm import CachedClient, LiteLLMClient, ScriptedClient, default_client
from ctxlab.llm.base import Client, Embedder, Reply, Request
from ctxlab.messages.types import Message, ToolCall, Usage

MODEL = "openai/gpt-4o-mini"


def question(text: str = "Who is there?", **fields: Any) -> Request:
    return Request(MODEL, (Message("user", text),), **fields)


def asking(server: Talker, **settings: Any) -> LiteLLMClient:
    return LiteLLMClient(server.address, "sk-test", timeout=30, delay=0.01, **settings)


def test_an_answer_comes_from_disk_with_the_figures_of_when_it_was_asked(tmp_path: Path) -> None:
    with talking(["Nobody.", "Somebody."]) as server:
        first = CachedClient(asking(server), tmp_path).complete(question())
        again = CachedClient(asking(server), tmp_path).complete(question())
        assert server.attempts == 1
    assert (first.cached, first.attempts) == (False, 1)
    assert (again.cached, again.attempts) == (True, 0)
    assert (again.message, again.usage, again.usd) == (first.message, first.usage, first.usd)
    assert again.usd > 0


def test_what_was_recorded_is_replayed_without_anybody_to_ask(tmp_path: Path) -> None:
    CachedClient(ScriptedClient("Nobody."), tmp_path).complete(question())
    assert CachedClient(None, tmp_path, "replay").complete(question()).text == "Nobody."


def test_a_missing_answer_is_refused_in_replay_with_what_to_do(tmp_path: Path) -> None:
    scripted = ScriptedClient("Nobody.")
    client = CachedClient(scripted, tmp_path, "replay")
    with pytest.raises(ModelRequestRejected, match=r"gpt-4o-mini to “Who is there\?”.*mode 'auto'"):
        client.complete(question())
    with pytest.raises(ModelRequestRejected, match=r"\(replicate 2\)"):
        client.complete_all([question(replicate=2)])
    with pytest.raises(ModelRequestRejected, match="the embedding by e of “some text”"):
        client.embed("e", ["some text"])
    assert scripted.requests == []


def test_recording_asks_anew_and_overwrites(tmp_path: Path) -> None:
    CachedClient(ScriptedClient("old"), tmp_path).complete(question())
    assert (
        CachedClient(ScriptedClient("new"), tmp_path, "record").complete(question()).text == "new"
    )
    assert CachedClient(None, tmp_path, "replay").complete(question()).text == "new"


def test_another_mode_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="record"):
        CachedClient(None, tmp_path, "recrod")  # type: ignore[arg-type]


ONE = question()
OTHERS = [
    question("Who is here?"),
    question(tools=({"type": "function", "function": {"name": "f"}},)),
    question(max_tokens=9),
    question(temperature=0.0),
    question(replicate=1),
    Request("openai/gpt-4o", ONE.messages),
    Request(MODEL, (Message("assistant", "Who is there?"),)),
    Request(MODEL, (Message("user", "Who is there?", name="Ann"),)),
    Request(MODEL, (Message("user", ({"type": "text", "text": "Who is there?"},)),)),
    Request(MODEL, (*ONE.messages, Message("user", "Who?"))),
]


def test_any_difference_in_what_is_sent_is_another_question(tmp_path: Path) -> None:
    scripted = ScriptedClient(*[str(i) for i in range(1 + len(OTHERS))])
    client = CachedClient(scripted, tmp_path)
    given = [client.complete(request).text for request in (ONE, *OTHERS)]
    assert given == [str(i) for i in range(1 + len(OTHERS))]
    assert [client.complete(request).text for request in (ONE, *OTHERS)] == given
    assert len(scripted.requests) == 1 + len(OTHERS)


def test_what_is_never_sent_makes_no_other_question(tmp_path: Path) -> None:
    client = CachedClient(ScriptedClient("Nobody."), tmp_path)
    client.complete(question())
    noted = Message("user", "Who is there?", time=5.0, file="a.py", extra={"_compacted": True})
    assert client.complete(Request(MODEL, (noted,))).cached


def test_the_order_of_keys_makes_no_other_question(tmp_path: Path) -> None:
    client = CachedClient(ScriptedClient("Nobody."), tmp_path)
    client.complete(question(tools=({"a": 1, "b": {"c": 2, "d": 3}},)))
    assert client.complete(question(tools=({"b": {"d": 3, "c": 2}, "a": 1},))).cached


def test_other_options_of_the_client_make_another_question(tmp_path: Path) -> None:
    with talking(["low", "high"]) as server:
        for effort in ("low", "high", "low"):
            client = CachedClient(asking(server, user=effort), tmp_path)
            assert client.complete(question()).text == effort
        assert server.attempts == 2


def test_other_credentials_make_no_other_question(tmp_path: Path) -> None:
    with talking() as server:
        for key in ("a", "b"):
            client = CachedClient(asking(server, extra_headers={"X-Team": key}), tmp_path)
            client.complete(question())
        assert server.attempts == 1


@pytest.mark.parametrize("fault", [503, 401, 400], ids=str)
def test_an_error_is_never_kept(fault: Action, tmp_path: Path) -> None:
    with talking([fault, "Nobody."]) as server:
        client = CachedClient(asking(server, retries=0), tmp_path)
        with pytest.raises((ModelRequestRejected, ModelUnavailable)):
            client.complete(question())
        reply = client.complete(question())
    assert (reply.text, reply.cached) == ("Nobody.", False)


def test_of_many_only_what_is_missing_is_asked(tmp_path: Path) -> None:
    def echo(call: Call) -> Action:
        return 503 if "4" in call.text else f"to {call.text}"

    with talking(echo) as server:
        client = CachedClient(asking(server, retries=0), tmp_path)
        client.complete_all([question("1"), question("3")])
        replies = client.complete_all([question(str(i)) for i in range(6)])
        assert server.attempts == 6
        assert isinstance(replies[4], ModelUnavailable)
        client.complete_all([question(str(i)) for i in range(6)])
        assert server.attempts == 7
    answered = [reply for reply in replies if isinstance(reply, Reply)]
    assert [reply.text for reply in answered] == [f"to {i}" for i in (0, 1, 2, 3, 5)]
    assert [reply.cached for reply in answered] == [False, True, False, True, False]


@pytest.mark.parametrize("mode", ["auto", "record"])
def test_a_question_that_is_put_twice_at_once_is_asked_and_billed_once(
    mode: Any, tmp_path: Path
) -> None:
    with talking(lambda call: 503 if "busy" in call.text else call.text) as server:
        client = CachedClient(asking(server, retries=0), tmp_path, mode)
        asked = [question("a"), question("b"), question("a"), question("busy"), question("busy")]
        replies = client.complete_all(asked)
        assert sum(reply.attempts for reply in replies) == server.attempts == 3
    assert [reply.cached for reply in replies if isinstance(reply, Reply)] == [False, False, True]


def test_answers_that_came_before_a_refusal_are_kept(tmp_path: Path) -> None:
    def refuse_last(call: Call) -> Action:
        return 400 if "9" in call.text else "x"

    with talking(refuse_last) as server:
        client = CachedClient(asking(server, concurrency=1), tmp_path)
        with pytest.raises(ModelRequestRejected):
            client.complete_all([question(str(i)) for i in range(10)])
    assert all(CachedClient(None, tmp_path, "replay").complete_all([question("0"), question("8")]))


def test_any_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    recording = CachedClient(None, tmp_path, "record")
    replaying = CachedClient(None, tmp_path, "replay")

    @given(
        content=st.one_of(st.none(), st.text(), st.just("\ud800")),
        arguments=st.text(max_size=5),
        usd=st.one_of(st.just(math.nan), st.floats(0, 10)),
    )
    def holds(content: str | None, arguments: str, usd: float) -> None:
        call = ToolCall("c1", "read", arguments)
        message = Message("assistant", content, (call,), reasoning=content)
        reply = Reply(message, Usage(1, 2, 3, 4, 5), usd, "stop", 3)
        recording.client = ScriptedClient(reply)
        assert recording.complete(question()) is reply
        again = replaying.complete(question())
        assert (again.message, again.usage, again.finish) == (message, reply.usage, "stop")
        assert again.usd == usd or (math.isnan(again.usd) and math.isnan(usd))

    holds()


PROCESS = """
import sys
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.llm import CachedClient, ScriptedClient
who, folder = sys.argv[1:]
client = CachedClient(ScriptedClient(lambda request: f"{who} {request.messages[0].text}"), folder)
requests = [Request("gpt-4o", (Message("user", str(i)),)) for i in range(40)]
replies = client.complete_all(requests if who == "a" else requests[::-1])
print(len(replies))
"""


@pytest.mark.e2e
def test_processes_share_a_folder(tmp_path: Path) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROCESS, who, str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for who in "ab"
    ]  # fmt: skip
    assert [run.communicate(timeout=60) for run in runs] == [("40\n", "")] * 2
    requests = [Request("gpt-4o", (Message("user", str(i)),)) for i in range(40)]
    texts = [
        reply.text
        for reply in CachedClient(None, tmp_path, "replay").complete_all(requests)
        if isinstance(reply, Reply)
    ]
    assert [text.split()[1] for text in texts] == [str(i) for i in range(40)]


def test_a_client_travels_and_is_shared_with_its_folder(tmp_path: Path) -> None:
    client = CachedClient(LiteLLMClient(concurrency=4), tmp_path, "replay")
    copy = pickle.loads(pickle.dumps(client))
    assert repr(copy) == repr(client)
    part = client.split_for_workers(2)
    assert isinstance(part.client, LiteLLMClient)
    assert (part.client.concurrency, part.folder, part.mode) == (2, tmp_path, "replay")
    assert isinstance(client, Client)
    assert isinstance(client, Embedder)


# --- embeddings -----------------------------------------------------------------------------------

EMBEDDER = "openai/text-embedding-3-small"


def test_each_text_is_kept_on_its_own(tmp_path: Path) -> None:
    with talking() as server:
        client = CachedClient(asking(server), tmp_path)
        first = client.embed(EMBEDDER, ["one", "two words"])
        second = client.embed(EMBEDDER, ["two words", "three more words", "two words"])
        third = client.embed(EMBEDDER, ["one", "three more words"])
        assert [call.texts for call in server.calls] == [
            ("one", "two words"),
            ("three more words",),
        ]
        assert first.usage.input == server.calls[0].prompt
        whole = client.embed(EMBEDDER, ["one", "two words", "three more words"])
        assert whole.usage.input == server.prompt
    assert (first.attempts, second.attempts, third.attempts) == (1, 1, 0)
    assert (first.cached, second.cached, third.cached) == (False, False, True)
    assert second.vectors[0] == second.vectors[2] == first.vectors[1]
    assert third.vectors == [first.vectors[0], second.vectors[1]]
    assert third.usd == pytest.approx(third.usage.input * 2e-8)


def test_a_client_without_embeddings_says_so(tmp_path: Path) -> None:
    class Mute:
        complete = complete_all = None

    with pytest.raises(ModelRequestRejected, match="with an embed method"):
        CachedClient(Mute(), tmp_path).embed("e", ["x"])  # type: ignore[arg-type]


# --- the disk -------------------------------------------------------------------------------------


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(Path(os.environ["TRAP"])),)


def test_reading_a_folder_of_somebody_elses_executes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    folder = tmp_path / "calls"
    CachedClient(ScriptedClient("Nobody."), folder).complete(question())
    with sqlite3.connect(folder / "cache.db") as connection:
        trapped = (diskcache.core.MODE_PICKLE, pickle.dumps(Trap()))
        connection.execute("UPDATE Cache SET mode = ?, value = ?", trapped)
    connection.close()
    client = CachedClient(ScriptedClient("Somebody."), folder)
    assert client.complete(question()).text == "Somebody."
    assert not (tmp_path / "sprung").exists()


def test_nothing_on_disk_is_a_pickle(tmp_path: Path) -> None:
    client = CachedClient(ScriptedClient("x" * 100_000, "short"), tmp_path)
    client.complete_all([question("long"), question("short")])
    client.embed("e", ["text"])
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        modes = {mode for (mode,) in connection.execute("SELECT mode FROM Cache")}
    connection.close()
    assert diskcache.core.MODE_PICKLE not in modes
    assert CachedClient(None, tmp_path, "replay").complete(question("long")).text == "x" * 100_000


def test_what_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    CachedClient(ScriptedClient("Nobody."), tmp_path).complete(question())
    for broken in (b"{", b"[]", b'{"usd": 1}', "text"):
        with sqlite3.connect(tmp_path / "cache.db") as connection:
            connection.execute("UPDATE Cache SET value = ?", (broken,))
        connection.close()
        client = CachedClient(ScriptedClient("Somebody."), tmp_path)
        assert client.complete(question()).text == "Somebody."


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelRequestRejected, match="cannot open the cache"):
        CachedClient(ScriptedClient("x"), tmp_path / "file").complete(question())


def test_the_usual_client_opens_nothing_before_it_is_asked(tmp_path: Path) -> None:
    client = default_client(tmp_path / "calls")
    assert isinstance(client, CachedClient)
    assert isinstance(client.client, LiteLLMClient)
    assert not client.folder.exists()


@pytest.mark.e2e
def test_a_signal_in_the_middle_of_a_transaction_does_not_lock_the_folder(tmp_path: Path) -> None:
    """A signal is heard once a call into sqlite has returned: here after the first, the second, …"""
    for number in itertools.count(1):
        client = CachedClient(ScriptedClient("Nobody."), tmp_path / str(number))
        finished = True
        with interruption_after(number, "execute"):
            try:
                client.complete(question())
            except KeyboardInterrupt:
                finished = False
        with closing(sqlite3.connect(client.folder / "cache.db", timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
        if finished:
            break
    assert number > 5


@contextmanager
def interruption_after(number: int, name: str) -> Iterator[None]:
    left = number

    def interrupt(frame: object, event: str, arg: object) -> None:
        nonlocal left
        left -= event == "c_return" and getattr(arg, "__name__", "") == name
        if left == 0:
            left = -1
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        yield
    finally:
        sys.setprofile(None)
