"""Tests of ``LiteLLMClient`` with a local HTTP server that counts requests and tokens."""

from __future__ import annotations

import json
import logging
import math
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from talking import (
    EMPTY,
    ENORMOUS,
    HALF_JSON,
    NO_CHOICES,
    NOT_JSON,
    NULL_CONTENT,
    REPETITION,
    Action,
    Call,
    Fault,
    Raw,
    Refusal,
    Said,
    Slow,
    Talker,
    talking,
)

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Client, Embedder, Reply, Request
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.tokens.models import find_model

MODEL = "openai/gpt-4o-mini"
TOOLS = (
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}},
)  # fmt: skip


def asking(server: Talker, **settings: Any) -> LiteLLMClient:
    quick = {"timeout": 30, "delay": 0.01, "backoff": 2.0, "retries": 3}
    return LiteLLMClient(server.address, "sk-test", **{**quick, **settings})


def question(text: str = "Who is there?", **fields: Any) -> Request:
    return Request(MODEL, (Message("system", "Be brief."), Message("user", text)), **fields)


def agree(client: LiteLLMClient, server: Talker) -> None:
    """Assert that client and server have the same counts of requests and tokens."""
    totals = client.totals
    assert totals.attempts == server.attempts
    assert totals.attempts == totals.answered + totals.failed + totals.interrupted
    assert (totals.answered, totals.failed) == (server.answered, server.failed)
    assert totals.interrupted == server.interrupted
    assert (totals.prompt_tokens, totals.completion_tokens) == (server.prompt, server.completion)


def test_the_reply_is_what_the_server_said_and_billed() -> None:
    with talking(Said("Nobody.", cached=4, reasoning=7)) as server:
        client = asking(server)
        reply = client.complete(question())
        (call,) = server.calls
        agree(client, server)
    assert reply.message == Message("assistant", "Nobody.")
    assert (reply.finish, reply.attempts, reply.cached) == ("stop", 1, False)
    assert reply.usage == Usage(call.prompt - 4, 4, 0, call.completion, 7)
    assert reply.usd == find_model(MODEL).prices.cost(reply.usage) > 0
    assert client.totals.usd == reply.usd
    assert isinstance(client, Client)
    assert isinstance(client, Embedder)


def test_what_was_written_to_a_cache_is_told_apart() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    usage |= {"cache_creation_input_tokens": 30, "cache_read_input_tokens": 20}
    body = {"choices": [{"message": {"role": "assistant", "content": "x"}}], "usage": usage}
    with talking(Raw(json.dumps(body))) as server:
        assert asking(server).complete(question()).usage == Usage(50, 20, 30, 5)


def test_the_whole_request_is_sent_and_no_bookkeeping() -> None:
    call = ToolCall("c1", "read", '{"path": "a.py"}')
    messages = (
        Message("user", "Look.", file="a.py", time=1.0),
        Message("assistant", tool_calls=(call,), reasoning="hm", usage=Usage(1)),
        Message("tool", "text", tool_call_id="c1", extra={"_compacted": True}),
    )
    asked = Request(MODEL, messages, TOOLS, max_tokens=50, temperature=0.5)
    with talking(Message("assistant", None, (call,), reasoning="I see")) as server:
        reply = asking(server).complete(asked)
        body, key = server.calls[0].body, server.calls[0].key
    wire = [message.to_dict() for message in messages]
    del wire[1]["content"]  # litellm leaves out what is null
    assert body["messages"] == wire
    assert (body["tools"], body["max_tokens"], body["temperature"]) == ([*TOOLS], 50, 0.5)
    assert (body["model"], key) == ("gpt-4o-mini", "sk-test")
    assert reply.message.tool_calls == (call,)
    assert (reply.message.reasoning, reply.finish) == ("I see", "tool_calls")


def test_what_is_not_asked_for_is_not_sent() -> None:
    with talking() as server:
        asking(server).complete(question())
        assert set(server.calls[0].body) == {"model", "messages"}


PASSING: list[Action] = [
    *(408, 429, 500, 502, 503, 504, 529),
    *(Refusal(429, "0.01"), Fault.CUT, Fault.DROP),
]


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_what_passes_is_asked_again_and_every_attempt_counted(fault: Action) -> None:
    with talking([fault, fault, "At last."]) as server:
        client = asking(server)
        reply = client.complete(question())
        agree(client, server)
    assert (reply.text, reply.attempts, server.attempts) == ("At last.", 3, 3)


@pytest.mark.e2e
def test_a_timeout_is_asked_again() -> None:
    with talking([Fault.HANG, "At last."]) as server:
        client = asking(server, timeout=1.5)
        assert client.complete(question()).attempts == 2
        agree(client, server)
    assert client.totals.interrupted == 1
    assert server.unseen > 0


def test_nobody_at_the_address_is_asked_again_and_given_up() -> None:
    with talking() as server:
        address = server.address
    client = LiteLLMClient(address, "sk-test", delay=0.001, retries=2)
    with pytest.raises(ModelUnavailable, match="no reply after 3 attempts") as caught:
        client.complete(question())
    assert caught.value.attempts == 3


@pytest.mark.e2e
def test_where_nobody_answered_no_status_is_told_and_nothing_twice() -> None:
    with talking() as server:
        address = server.address
    for model, root in ((MODEL, address), ("anthropic/claude-sonnet-4-5", address[:-3])):
        client = LiteLLMClient(root, "sk-test", retries=0)
        with pytest.raises(ModelUnavailable, match=r"refused|10061") as caught:
            client.complete(Request(model, question().messages))
        assert "status" not in str(caught.value)
        assert "InternalServerError" not in str(caught.value)
    for fault in (Fault.HANG, Fault.CUT, Fault.DROP, NOT_JSON):
        with talking(fault) as server, pytest.raises(ModelUnavailable) as caught:
            asking(server, retries=0, timeout=1.5).complete(question())
        assert "status" not in str(caught.value)
    with talking(500) as server, pytest.raises(ModelUnavailable) as caught:
        asking(server, retries=0).complete(question())
    assert str(caught.value).count("InternalServerError") == 1
    assert str(caught.value).endswith("(status 500)")


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("fault", [503, Fault.DROP, NOT_JSON, Refusal(429, "3600")], ids=str)
def test_a_provider_that_is_down_is_refused_at_the_last_of_so_many_calls(fault: Action) -> None:
    with talking(fault) as server:
        client = asking(server, retries=1, patience=3)
        for _ in range(2):
            with pytest.raises(ModelUnavailable):
                client.complete(question())
        with pytest.raises(ModelRequestRejected, match="3 calls in a row failed") as caught:
            client.complete(question())
        assert str(caught.value).count(MODEL) == 1
        with pytest.raises(
            ModelRequestRejected
        ):  # who asks on all the same is asked for, and refused
            client.complete(question())
        agree(client, server)


@pytest.mark.parametrize("word", ["x", Refusal(400, code="content_filter")], ids=["said", "no"])
def test_any_word_of_the_provider_begins_the_count_anew(word: Action) -> None:
    with talking([503, 503, word, 503, 503, word, 503, 503]) as server:
        client = asking(server, retries=0, patience=3)
        for _ in range(8):
            client.complete_all([question()])


def test_calls_without_an_answer_are_counted_over_all_threads_of_a_client() -> None:
    with talking(503) as server:
        with pytest.raises(ModelRequestRejected, match="5 calls in a row"):
            asking(server, retries=0).complete_all(numbered(30))
        assert server.attempts < 15
        endless = asking(server, retries=0, patience=0)
        assert len(endless.complete_all(numbered(9))) == 9


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_used_up_are_unavailability_with_the_count(retries: int) -> None:
    with talking(503) as server:
        client = asking(server, retries=retries)
        with pytest.raises(ModelUnavailable, match="503") as caught:
            client.complete(question())
        agree(client, server)
    assert caught.value.attempts == server.attempts == retries + 1


@pytest.mark.parametrize(
    "refusal",
    [400, 401, 402, 403, 404, 413, 422, Refusal(429, code="insufficient_quota")],
    ids=str,
)
def test_what_would_be_refused_again_is_raised_at_once(refusal: Action) -> None:
    with talking(refusal) as server:
        client = asking(server)
        with pytest.raises(ModelRequestRejected, match=MODEL):
            client.complete(question())
        assert server.attempts == 1
        agree(client, server)


def test_the_word_of_the_provider_stands_in_the_error() -> None:
    refusal = Refusal(401, says="Incorrect API key provided")
    with talking(refusal) as server, pytest.raises(ModelRequestRejected, match="Incorrect API key"):
        asking(server).complete(question())


def test_an_invalid_request_is_refused_by_a_server_that_checks() -> None:
    orphan = Message("tool", "42", tool_call_id="c1")
    with talking() as server:
        with pytest.raises(ModelRequestRejected, match="orphaned_result"):
            asking(server).complete(Request(MODEL, (Message("user", "Hi"), orphan)))
        assert server.calls[0].violations


def test_a_request_that_is_too_long_is_unavailable_at_once() -> None:
    with talking(window=100) as server:
        client = asking(server)
        with pytest.raises(ModelUnavailable, match="maximum context length") as caught:
            client.complete(question("word " * 200))
        with pytest.raises(ModelUnavailable, match="maximum context length"):
            client.complete(question(max_tokens=90))
        assert caught.value.attempts == 1
        agree(client, server)


@pytest.mark.parametrize("code", ["content_policy_violation", "content_filter"])
def test_what_a_policy_forbids_is_unavailable_at_once(code: str) -> None:
    with talking(Refusal(400, code=code, says="Your request was rejected.")) as server:
        client = asking(server)
        with pytest.raises(ModelUnavailable, match="was rejected"):
            client.complete(question())
        assert server.attempts == 1
        agree(client, server)


NONSENSE = [NOT_JSON, HALF_JSON, NO_CHOICES, Raw(""), Raw("null"), Raw("[]"), Raw("{}")]
NONSENSE += [Raw('{"choices": [{}]}'), Raw('{"choices": [{"message": null}]}'), Raw('"text"')]


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("body", NONSENSE, ids=[body.body[:30] for body in NONSENSE])
def test_a_body_that_is_no_answer_is_unavailable_and_not_paid_twice(body: Raw) -> None:
    with talking(body) as server:
        client = asking(server)
        with pytest.raises(ModelUnavailable) as caught:
            client.complete(question())
        assert (caught.value.attempts, server.attempts) == (1, 1)
        agree(client, server)
    assert client.totals.interrupted == 1


@pytest.mark.parametrize("answer", [EMPTY, NULL_CONTENT, ENORMOUS, REPETITION])
def test_nonsense_in_an_answer_is_an_answer_and_billed(answer: Action) -> None:
    with talking(answer) as server:
        client = asking(server)
        reply = client.complete(question())
        agree(client, server)
        assert server.calls[0].answer is not None
        assert reply.text == server.calls[0].answer.text


def test_an_answer_that_was_cut_says_so() -> None:
    with talking(REPETITION) as server:
        reply = asking(server).complete(question(max_tokens=5))
    assert (reply.usage.output, reply.finish) == (5, "length")


@pytest.mark.filterwarnings("ignore::ctxlab.tokens.models.ModelWarning")
def test_a_request_that_litellm_itself_refuses_counts_no_attempt() -> None:
    with talking() as server:
        client = asking(server)
        with pytest.raises(ModelRequestRejected, match="temperature"):
            client.complete(Request("openai/gpt-5-mini", (Message("user", "Hi"),), temperature=0.3))
        with pytest.raises(ModelRequestRejected, match="LLM Provider NOT provided"):
            client.complete(Request("no-such-model", (Message("user", "Hi"),)))
        assert (client.totals.attempts, server.attempts) == (0, 0)


def test_no_key_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with talking() as server:
        client = LiteLLMClient(server.address)
        with pytest.raises(ModelRequestRejected) as refusal:
            client.complete(question())
        hint = "no API key is set; set the environment variable OPENAI_API_KEY"
        assert str(refusal.value) == f"{question().model}: {hint}"
        assert (client.totals.attempts, server.attempts) == (0, 0)


@pytest.mark.filterwarnings("ignore::ctxlab.tokens.models.ModelWarning")
def test_a_model_that_no_table_knows_is_asked_and_has_no_price() -> None:
    messages = (Message("user", "Hi"),)
    with talking("Hello.") as server:
        client = asking(server, custom_llm_provider="openai")
        named = asking(server).complete(Request("openai/zyx-900", messages))
        bare = client.complete(Request("zyx-900", messages))
        assert [call.model for call in server.calls] == ["zyx-900", "zyx-900"]
    assert named.text == bare.text == "Hello."
    assert math.isnan(named.usd)
    assert math.isnan(client.totals.usd)


def test_options_are_given_to_each_call() -> None:
    with talking() as server:
        client = asking(server, seed=7)
        client.complete(question())
        assert server.calls[0].body["seed"] == 7


# --- waiting --------------------------------------------------------------------------------------


def waits(server: Talker, client: LiteLLMClient, caplog: pytest.LogCaptureFixture) -> list[float]:
    """Return the waiting times in seconds from the log."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "ctxlab.llm"):
        client.complete(question())
    return [record.args[3] for record in caplog.records]  # type: ignore[index, misc]


@pytest.mark.e2e
def test_delays_grow_by_the_backoff_with_jitter(caplog: pytest.LogCaptureFixture) -> None:
    with talking([500, 500, 500, "x", 500, 500, 500, "x"]) as server:
        client = asking(server, delay=0.02, backoff=3.0)
        first, second = waits(server, client, caplog), waits(server, client, caplog)
    for waited in (first, second):
        for number, seconds in enumerate(waited):
            assert 0.02 * 3**number <= seconds <= 0.02 * 3**number + 0.02
    assert first != second


def test_a_call_warns_once_however_often_it_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    with talking([500, 500, 500, "x"]) as server:
        waits(server, asking(server), caplog)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.INFO, logging.INFO]


def test_each_retry_is_logged_with_its_attempt_reason_and_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with talking([429, 500, "x"]) as server:
        waits(server, asking(server), caplog)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(f"{MODEL}: attempt 1 of 4 failed, next attempt in 0.0")
    assert "RateLimitError" in first
    assert "attempt 2 of 4" in second
    assert "status 500" in second


@pytest.mark.e2e
def test_a_wait_that_the_provider_asks_for_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    with talking([Refusal(429, "0.3"), "x"]) as server:
        begun = time.perf_counter()
        (waited,) = waits(server, asking(server), caplog)
        assert 0.3 <= waited <= 0.32
        assert time.perf_counter() - begun >= 0.3


def test_a_wait_may_be_asked_for_as_a_date(caplog: pytest.LogCaptureFixture) -> None:
    long_ago = "Wed, 21 Oct 2015 07:28:00 GMT"
    with talking([Refusal(503, long_ago), Refusal(503, "soon"), "x"]) as server:
        assert max(waits(server, asking(server), caplog)) < 0.1


def test_a_wait_of_an_hour_is_not_waited_for() -> None:
    with talking(Refusal(429, "3600")) as server:
        with pytest.raises(ModelUnavailable, match="asks to wait 3,600 s") as caught:
            asking(server).complete(question())
        assert caught.value.attempts == server.attempts == 1


# --- many at once ---------------------------------------------------------------------------------


def numbered(count: int) -> list[Request]:
    return [question(f"Number {i}") for i in range(count)]


def echo(call: Call) -> Action:
    return call.messages[-1].text


@pytest.mark.e2e
def test_replies_stand_in_the_order_of_requests() -> None:
    def later_first(call: Call) -> Action:
        return Slow(0.05 if call.messages[-1].text == "Number 0" else 0.0, call.messages[-1].text)

    with talking(later_first) as server:
        client = asking(server)
        replies = client.complete_all(numbered(8))
        agree(client, server)
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == [
        f"Number {i}" for i in range(8)
    ]
    assert client.complete_all([]) == []


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(("settings", "most"), [({}, 5), ({"concurrency": 2}, 2)])
def test_no_more_are_asked_at_once_than_allowed(settings: dict[str, int], most: int) -> None:
    # The server holds each call long enough for all allowed calls to arrive on a busy machine.
    with talking(Slow(0.3, "x")) as server:
        asking(server, **settings).complete_all(numbered(12))
        assert server.most_at_once == most


def test_the_limit_holds_over_all_threads_of_a_client() -> None:
    with talking(Slow(0.03, "x")) as server:
        client = asking(server, concurrency=3)
        threads = [
            threading.Thread(target=client.complete_all, args=(numbered(4),)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        agree(client, server)
        assert (server.attempts, server.most_at_once) == (12, 3)


@pytest.mark.e2e
def test_the_account_of_a_client_is_that_of_a_server_that_does_everything_wrong() -> None:
    wrongs: list[Action] = [429, 500, 503, Fault.CUT, Fault.DROP, NOT_JSON, NO_CHOICES, 502]
    wrongs += [EMPTY, Refusal(429, "0.02"), NULL_CONTENT, "Fine.", Fault.HANG]

    def in_turn(call: Call) -> Action:
        return wrongs[call.number % len(wrongs)]

    with talking(in_turn) as server:
        client = asking(server, timeout=1.5)
        replies = client.complete_all(numbered(20))
        agree(client, server)
    assert sum(reply.attempts for reply in replies) == server.attempts
    answered = [reply for reply in replies if isinstance(reply, Reply)]
    assert sum(reply.usage.total_input for reply in answered) == server.prompt
    assert sum(reply.usage.output for reply in answered) == server.completion
    assert client.totals.usd == pytest.approx(sum(reply.usd for reply in answered))
    assert {type(reply) for reply in replies} == {Reply, ModelUnavailable}


def test_a_refusal_among_many_is_raised_and_no_more_are_begun() -> None:
    def refuse(call: Call) -> Action:
        return 401 if call.number == 0 else Slow(0.05, "x")

    with talking(refuse) as server:
        with pytest.raises(ModelRequestRejected):
            asking(server, concurrency=2).complete_all(numbered(30))
        assert server.attempts < 10


INTERRUPTED = """
import _thread, sys, threading, time
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.llm import LiteLLMClient
client = LiteLLMClient(sys.argv[1], "sk-test", retries=0, timeout=120)
request = Request("openai/gpt-4o-mini", (Message("user", "Hi"),))
client.complete(request)  # litellm is loaded
threading.Timer(0.3, _thread.interrupt_main).start()
begun = time.perf_counter()
try:
    client.complete_all([request] * 9)
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - begun < 60)
"""


@pytest.mark.e2e
def test_ctrl_c_ends_the_wait_and_the_program_at_once() -> None:
    with talking(["Hello.", Fault.HANG]) as server:
        program = [sys.executable, "-c", INTERRUPTED, server.address]
        run = subprocess.run(program, capture_output=True, text=True, timeout=110, check=True)
        assert server.attempts == 6
    assert run.stdout == "interrupted True\n"


# --- embeddings -----------------------------------------------------------------------------------

EMBEDDER = "openai/text-embedding-3-small"


@pytest.mark.e2e
def test_texts_become_vectors_in_their_order() -> None:
    texts = [f"text {'x' * i} number {i}" for i in range(600)]
    with talking() as server:
        client = asking(server)
        embedding = client.embed(EMBEDDER, texts)
        agree(client, server)
        assert server.attempts == embedding.attempts == 3
    assert [vector[0] for vector in embedding.vectors] == pytest.approx(
        [len(text) / 100 for text in texts]
    )
    assert embedding.usage == Usage(server.prompt)
    assert embedding.usd == pytest.approx(server.prompt * 2e-8)
    assert asking(server).embed(EMBEDDER, []).vectors == []


@pytest.mark.e2e
def test_embeddings_are_retried_and_refused_as_replies_are() -> None:
    with talking([500, "any"]) as server:
        assert asking(server).embed(EMBEDDER, ["a"]).attempts == 2
    with talking(401) as server, pytest.raises(ModelRequestRejected):
        asking(server).embed(EMBEDDER, ["a"])
    with talking(500) as server, pytest.raises(ModelUnavailable):
        asking(server, retries=1).embed(EMBEDDER, ["a"])


# --- the client itself ----------------------------------------------------------------------------


def test_a_client_travels_to_another_process() -> None:
    with talking("Hello.") as server:
        client = asking(server, seed=3)
        copy = pickle.loads(pickle.dumps(client))
        assert copy.complete(question()).text == "Hello."
        assert server.calls[0].body["seed"] == 3
    assert repr(copy) == repr(client)
    assert (client.totals.attempts, copy.totals.attempts) == (0, 1)


@pytest.mark.parametrize(("workers", "each"), [(1, 5), (2, 2), (5, 1), (8, 1)])
def test_workers_share_what_one_client_may_do_at_once(workers: int, each: int) -> None:
    client = LiteLLMClient("http://127.0.0.1:1/v1", "sk-test", seed=3)
    part = client.split_for_workers(workers)
    assert part.concurrency == each
    assert (part.api_base, part.api_key, part.options) == (client.api_base, "sk-test", {"seed": 3})


def test_a_key_is_in_no_text_form() -> None:
    client = LiteLLMClient(api_key="sk-test", retries=1, azure_ad_token="sk-test")
    assert repr(client) == "LiteLLMClient(retries=1, azure_ad_token=…)"


SILENT = """
import socket, sys, threading
def refuse(*_, **__): raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from ctxlab.llm import LiteLLMClient
assert "litellm" not in sys.modules and "tenacity" not in sys.modules
from ctxlab.llm.lazy_litellm import load_litellm
load_litellm()
assert "litellm" in sys.modules
"""


@pytest.mark.e2e
def test_litellm_is_loaded_late_and_without_a_word_or_the_network() -> None:
    program = [sys.executable, "-W", "error", "-c", SILENT]
    run = subprocess.run(program, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


HALFWAY = """
import _thread, sys, threading
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.llm import LiteLLMClient
client = LiteLLMClient(sys.argv[1], "sk-test", retries=0)
request = Request("openai/gpt-4o-mini", (Message("user", "Hi"),))
while "litellm" not in sys.modules:
    threading.Timer(0.1, _thread.interrupt_main).start()
    try:
        client.complete(request)
    except KeyboardInterrupt:
        print("interrupted")
print(client.complete(request).text)
"""


@pytest.mark.e2e
def test_ctrl_c_while_litellm_is_imported_leaves_it_whole() -> None:
    with talking("Hello.") as server:
        program = [sys.executable, "-c", HALFWAY, server.address]
        run = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (run.stdout.split(), run.stderr) == (["interrupted", "Hello."], "")


LEFT = """
import sys, time
from ctxlab.llm import LiteLLMClient
LiteLLMClient().warm_up()
while "litellm" not in sys.modules:
    time.sleep(0.01)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.e2e
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_program_ends_while_litellm_is_warmed_up(seconds: float) -> None:
    program = [sys.executable, "-c", LEFT, str(seconds)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_errors_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with talking([500, 401]) as server, pytest.raises(ModelRequestRejected):
        asking(server).complete(question())
    assert capfd.readouterr() == ("", "")
