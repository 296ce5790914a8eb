"""Tests of streaming with a local HTTP server that cuts off, hangs and fails during a stream."""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from talking import Action, Fault, Raw, Refusal, Said, Slow, Talker, talking

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm import CostLimitedClient, CostLimitExceeded, LiteLLMClient, ScriptedClient
from ctxlab.llm.base import Reply, Request, Streamer
from ctxlab.llm.streaming import StreamChannel, parse_stream
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.tokens.models import find_model

MODEL = "openai/gpt-4o-mini"
CALLS = (ToolCall("c1", "read", '{"path": "src/a.py"}'), ToolCall("c2", "list_files", "{}"))


def asking(server: Talker, **settings: Any) -> LiteLLMClient:
    quick = {"timeout": 30, "delay": 0.01, "backoff": 2.0, "retries": 3}
    return LiteLLMClient(server.address, "sk-test", **{**quick, **settings})


def question(text: str = "Who is there?", **fields: Any) -> Request:
    return Request(MODEL, (Message("user", text),), **fields)


def heard(stream: Iterator[str | Reply]) -> tuple[list[str], Reply]:
    *pieces, reply = stream
    assert isinstance(reply, Reply)
    assert all(isinstance(piece, str) for piece in pieces)
    return pieces, reply  # type: ignore[return-value]


def agree(client: LiteLLMClient, server: Talker) -> None:
    totals = client.totals
    assert totals.attempts == server.attempts
    assert (totals.answered, totals.failed) == (server.answered, server.failed)
    assert totals.interrupted == server.interrupted
    assert (totals.prompt_tokens, totals.completion_tokens) == (server.prompt, server.completion)


def test_a_stream_gives_the_pieces_as_the_server_sent_them_and_then_the_reply() -> None:
    pieces = ("No", "body", " is here", ".")
    with talking(Said("Nobody is here.", pieces=pieces, cached=4, reasoning=7)) as server:
        client = asking(server)
        said, reply = heard(client.stream(question()))
        (call,) = server.calls
        agree(client, server)
    assert said == [*pieces]
    assert reply.message == Message("assistant", "Nobody is here.")
    assert reply.usage == Usage(call.prompt - 4, 4, 0, call.completion, 7)
    assert reply.usd == find_model(MODEL).prices.cost(reply.usage) == client.totals.usd > 0
    assert (reply.finish, reply.attempts) == ("stop", 1)
    assert isinstance(client, Streamer)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "action",
    [
        Said("Nobody.", cached=2, reasoning=3),
        Message("assistant", "I look.", CALLS, reasoning="Where could it be? In the sources."),
        Message("assistant", None, CALLS),
        Said("", pieces=3),
        Said("word " * 50, pieces=2),
        Said("Stopped", finish="content_filter"),
    ],
    ids=str,
)
def test_a_reply_that_was_streamed_is_the_one_that_comes_whole(action: Action) -> None:
    with talking(action) as server:
        client = asking(server)
        _, streamed = heard(client.stream(question(max_tokens=30)))
        whole = client.complete(question(max_tokens=30))
        bodies = [call.body for call in server.calls]
    assert streamed == whole
    assert bodies[0].pop("stream") is True
    assert bodies[0].pop("stream_options") == {"include_usage": True}
    assert bodies[0] == bodies[1]


@pytest.mark.e2e
def test_a_piece_is_given_before_the_next_has_come() -> None:
    with talking(Said("one two", pieces=("one ", "two"), pace=0.3)) as server:
        stream = asking(server).stream(question())
        with closing(stream):
            assert next(stream) == "one "
            assert server.calls[0].outcome == "interrupted"  # as long as it is not over
            assert heard(stream)[1].text == "one two"


BEFORE: list[Action] = [
    *(429, 500, 503),
    *(Refusal(429, "0.01"), Fault.DROP, Slow(4, "too late")),
    Said("never heard", breaks=Fault.CUT),
    Said("never heard", breaks=Fault.HANG),
    Said("never heard", breaks=Refusal(500)),
    Said(None, breaks=Fault.CUT, after=1),
]


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("fault", BEFORE, ids=str)
def test_what_fails_before_the_first_piece_is_asked_again(fault: Action) -> None:
    """Seed 002, criterion 2: a rate limit is retried while a reply is streamed, too."""
    with talking([fault, fault, "At last."]) as server:
        client = asking(server, timeout=1.5)
        said, reply = heard(client.stream(question()))
        assert ("".join(said), reply.attempts, server.attempts) == ("At last.", 3, 3)
        agree(client, server) if not isinstance(fault, Slow) else None


def test_a_rate_limit_is_retried_three_times_with_growing_delays_and_then_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, criterion 2: three retries, exponential backoff, a warning, then the error."""
    with talking(429) as server, caplog.at_level(logging.INFO, "ctxlab.llm"):
        started = time.perf_counter()
        with pytest.raises(ModelUnavailable, match="no reply after 4 attempts") as caught:
            list(asking(server, delay=0.05).stream(question()))
        assert time.perf_counter() - started >= 0.05 + 0.1 + 0.2
        assert (caught.value.attempts, server.attempts) == (4, 4)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]


MIDDLE = [
    Said("one two three", pieces=("one ", "two ", "three"), breaks=breaks, after=2)
    for breaks in (Fault.CUT, Fault.HANG, Refusal(500), Refusal(429))
]


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("action", MIDDLE, ids=str)
def test_a_stream_that_breaks_after_a_piece_is_unavailable_and_not_asked_again(
    action: Action,
) -> None:
    with talking([action, "never asked"]) as server:
        client, said = asking(server, timeout=1.5), []
        with pytest.raises(
            ModelUnavailable, match="StreamInterrupted: the stream stopped after 8 characters"
        ) as caught:
            said += client.stream(question())
        agree(client, server)
    assert (caught.value.attempts, server.attempts) == (1, 1)
    assert "MidStream" not in str(caught.value)
    assert "status" not in str(caught.value)


def test_what_was_said_before_it_broke_was_given() -> None:
    with talking(MIDDLE[0]) as server:
        stream = asking(server).stream(question())
        assert [next(stream), next(stream)] == ["one ", "two "]
        with pytest.raises(ModelUnavailable):
            next(stream)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_is_refused_is_refused_at_once(status: int) -> None:
    with talking(status) as server:
        client = asking(server)
        with pytest.raises(ModelRequestRejected):
            list(client.stream(question()))
        agree(client, server)
        assert server.attempts == 1


NONSENSE = [
    Raw("<html>Bad gateway</html>"),
    Raw('data: {"id": \n\n'),
    Raw(""),
    Raw("data: [DONE]\n\n"),
]


@pytest.mark.parametrize("body", NONSENSE, ids=str)
def test_an_answer_that_is_no_stream_is_unavailable_and_never_an_empty_reply(body: Raw) -> None:
    with talking(body) as server:
        client = asking(server)
        with pytest.raises(ModelUnavailable):
            list(client.stream(question()))
        agree(client, server)


def test_a_stream_that_ends_without_a_reason_was_cut() -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "Half of"}}
    body = f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n"
    with (
        talking(Raw(body)) as server,
        pytest.raises(ModelUnavailable, match=r"finish.reason"),
    ):
        list(asking(server).stream(question()))


def test_usage_that_the_provider_did_not_tell_is_not_made_up() -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    body = f"data: {json.dumps(chunk | {'choices': [choice]})}\n\ndata: [DONE]\n\n"
    with talking(Raw(body)) as server:
        said, reply = heard(asking(server).stream(question()))
    assert (said, reply.usage, reply.finish) == (["Hi."], Usage(), "stop")


@pytest.mark.e2e
def test_the_time_limit_is_for_each_piece_and_not_for_the_whole() -> None:
    said = Said("abcdef", pieces=1, pace=0.5)
    with talking(said) as server:
        assert "".join(heard(asking(server, timeout=2).stream(question()))[0]) == "abcdef"
        assert server.attempts == 1


def test_closing_the_iterator_closes_the_connection_at_once() -> None:
    with talking(Said("one two", pieces=("one ", "two"), breaks=Fault.HANG, after=1)) as server:
        client = asking(server, timeout=30)
        stream = client.stream(question())
        assert next(stream) == "one "
        assert server._open == 1
        stream.close()
        deadline = time.monotonic() + 2
        while server._open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server._open == 0  # the server, which looks for it, saw the client leave
        assert client.totals.interrupted == client.totals.attempts == 1


def test_nothing_is_asked_before_the_first_piece_is_wanted() -> None:
    with talking() as server:
        asking(server).stream(question()).close()
        assert server.attempts == 0


def test_a_stream_takes_one_of_the_places_of_a_client() -> None:
    with talking(Said("abcd", pieces=1, pace=0.03)) as server:
        client = asking(server, concurrency=2)
        threads = [
            threading.Thread(target=lambda: list(client.stream(question()))) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (server.most_at_once, server.answered) == (2, 5)


INTERRUPTED = """
import sys, threading, signal, os, time
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.llm import LiteLLMClient
client = LiteLLMClient(sys.argv[1], "k", timeout=120)
try:
    for piece in client.stream(Request("openai/gpt-4o-mini", (Message("user", "hi"),))):
        print(piece, flush=True)
except KeyboardInterrupt:
    print("Cancelled", client.totals.interrupted, flush=True)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("after", [0, 1])
def test_an_interruption_is_heard_at_once_wherever_a_stream_hangs(
    after: int, tmp_path: Path
) -> None:
    """Seed 002, section 10.4: an interrupted stream is cleaned up, and the interruption goes on."""
    action = Said("one two", pieces=("one ", "two"), breaks=Fault.HANG, after=after)
    with talking(action if after else Fault.HANG) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, server.address], stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        try:
            if after:
                assert program.stdout.readline() == "one \n"
            while not server.calls:
                time.sleep(0.02)
            time.sleep(0.1)
            program.send_signal(2)
            started = time.monotonic()
            assert program.stdout.readline() == f"Cancelled {after}\n"
            assert time.monotonic() - started < 60
            assert program.wait(60) == 0  # a program that loaded litellm takes its time to end
        finally:
            program.kill()
            program.communicate()


def test_a_cost_limited_client_streams_as_long_as_it_can_pay() -> None:
    with talking("Hello there.") as server:
        client = CostLimitedClient(asking(server), 0.001)
        _, reply = heard(client.stream(question(max_tokens=100)))
        assert client.cost_limit.spent == pytest.approx(reply.usd)
        assert reply.usd > 0
        with pytest.raises(CostLimitExceeded):
            list(client.stream(question(max_tokens=10_000_000)))
        assert server.attempts == 1


def test_a_cost_limited_client_counts_a_stream_that_broke_at_its_worst() -> None:
    with talking(MIDDLE[0]) as server:
        client = CostLimitedClient(asking(server), 0.001)
        with pytest.raises(ModelUnavailable):
            list(client.stream(question(max_tokens=100)))
        assert client.cost_limit.spent >= 100 * find_model(MODEL).prices.output


def test_a_cost_limited_client_says_at_once_what_another_does_not_stream() -> None:
    class Whole:
        complete = ScriptedClient("Hello.", "").complete
        complete_all = ScriptedClient().complete_all

    client = CostLimitedClient(Whole(), 0.001)
    assert heard(client.stream(question(max_tokens=9)))[0] == ["Hello."]
    assert heard(client.stream(question(max_tokens=9)))[0] == []


# --- what providers send that is not as OpenAI sends it ------------------------------------------


class Chunks(list[Any]):
    """Stand-in for a stream of litellm."""

    received_finish_reason = "tool_calls"

    @property
    def chunks(self) -> list[Any]:
        return list(self)


def delta(**fields: Any) -> SimpleNamespace:
    calls = [
        SimpleNamespace(
            index=each.get("index"),
            id=each.get("id"),
            function=SimpleNamespace(name=each.get("name"), arguments=each.get("arguments")),
        )
        for each in fields.pop("calls", ())
    ]
    made = SimpleNamespace(**{"content": None, **fields}, tool_calls=calls or None)
    return SimpleNamespace(choices=[SimpleNamespace(delta=made, finish_reason=None)], usage=None)


def calls_of(*rows: dict[str, Any]) -> list[tuple[str, str, str]]:
    chunks = Chunks(delta(calls=[row]) for row in rows)
    message = parse_stream(find_model(MODEL).prices, StreamChannel(), chunks).message
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


def test_whole_calls_that_share_one_index_or_have_none_are_several() -> None:
    """As Gemini and Ollama send them."""
    one = {"id": "a", "name": "read", "arguments": "{}"}
    two = {"id": "b", "name": "read", "arguments": '{"x":1}'}
    both = [("a", "read", "{}"), ("b", "read", '{"x":1}')]
    assert calls_of({**one, "index": 0}, {**two, "index": 0}) == both
    assert calls_of(one, two) == both


def test_parts_of_a_call_without_id_or_index_go_to_the_call_they_follow() -> None:
    assert calls_of(
        {"id": "a", "name": "read", "arguments": '{"x"'}, {"arguments": ":1}"}
    ) == [("a", "read", '{"x":1}')]  # fmt: skip


def test_an_id_and_a_name_that_come_again_with_every_part_are_one_call() -> None:
    again = {"index": 0, "id": "a", "name": "read"}
    assert calls_of({**again, "arguments": '{"x"'}, {**again, "arguments": ":1}"}) == [
        ("a", "read", '{"x":1}')
    ]


def test_calls_without_ids_get_different_ones_and_a_call_without_a_name_has_one() -> None:
    (first, *_), (second, *_) = calls_of(
        {"index": 0, "name": "a", "arguments": "{}"}, {"index": 1, "name": "b", "arguments": "{}"}
    )
    assert first != second
    assert first.startswith("call_")
    assert calls_of({"index": 0, "id": "c"}) == [("c", "unnamed", "{}")]


@given(
    st.lists(st.text('{}":, xé\ud7ff😀', min_size=1, max_size=30), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_however_calls_are_cut_and_interleaved_they_come_together(
    arguments: list[str], random: Any
) -> None:
    streams = []
    for index, text in enumerate(arguments):
        cuts = sorted(random.randrange(len(text) + 1) for _ in range(3))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        head = {"index": index, "id": f"c{index}", "name": "tool", "arguments": ""}
        streams.append([head, *({"index": index, "arguments": part} for part in parts)])
    order = [index for index, rows in enumerate(streams) for _ in rows]
    random.shuffle(order)
    firsts = list(dict.fromkeys(order))
    rows = [streams[index].pop(0) for index in order]
    assert calls_of(*rows) == [(f"c{i}", "tool", arguments[i]) for i in firsts]


def test_a_price_that_is_not_known_is_nan() -> None:
    with talking("Hi.") as server:
        client = asking(server, custom_llm_provider="openai")
        reply = heard(client.stream(Request("no-such-model-7", question().messages)))[1]
    assert math.isnan(reply.usd)


def test_a_call_that_begins_after_a_whole_one_is_another_whatever_its_number_and_id() -> None:
    def row(name: str, arguments: str, **more: Any) -> dict[str, Any]:
        return {"index": 0, "id": None, "name": name, "arguments": arguments, **more}

    wanted = [("f", '{"a":1}'), ("g", '{"b":2}')]
    for second in ({}, {"id": "c1"}, {"id": "c1", "index": 1}):
        first = {"id": "c1"} if "id" in second else {}
        calls = calls_of(row("f", '{"a":1}', **first), row("g", '{"b":2}', **second))
        assert [call[1:] for call in calls] == wanted
        assert len({call[0] for call in calls}) == 2
    again = calls_of(row("f", '{"a":1}', id="c1"), row("f", "", id="c1"))  # said once more
    assert again == [("c1", "f", '{"a":1}')]


def test_a_character_that_comes_in_two_halves_is_one() -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    parts = [{"content": "a\ud83d"}, {"content": "\ude00b"}, {"content": "\ud83d"}]
    ends = [None, None, "stop"]
    body = "".join(
        f"data: {json.dumps(chunk | {'choices': [{'index': 0, 'delta': d, 'finish_reason': f}]})}\n\n"
        for d, f in zip(parts, ends, strict=True)
    )
    with talking(Raw(body + "data: [DONE]\n\n")) as server:
        said, reply = heard(asking(server).stream(question()))
    assert "".join(said).startswith("a\U0001f600b")
    assert reply.text.encode()  # it can be stored and printed
