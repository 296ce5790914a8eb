"""Tests of ``ScriptedClient``."""

from __future__ import annotations

import pickle

import pytest

from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Client, Embedder, Reply, Request, Streamer
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.tokens.counter import TokenCounter


def question(text: str = "Hi") -> Request:
    return Request("gpt-4o", (Message("user", text),))


def test_answers_are_given_in_their_order_and_requests_remembered() -> None:
    message = Message("assistant", None, (ToolCall("c1", "read"),))
    reply = Reply(Message("assistant", "paid"), Usage(1), 0.5)
    client = ScriptedClient("text", message, reply)
    asked = [question(str(i)) for i in range(3)]
    first, *rest = client.complete_all(asked)
    assert isinstance(first, Reply)
    assert first.message == Message("assistant", "text")
    assert [r.message if isinstance(r, Reply) else r for r in rest] == [message, reply.message]
    assert rest[1] is reply
    assert client.requests == asked


def test_usage_is_counted_as_the_model_counts(counter: TokenCounter) -> None:
    reply = ScriptedClient("Hello there.").complete(question())
    assert reply.usage == Usage(counter.count_request(question().messages), output=3)
    assert (reply.usd, reply.attempts, reply.finish) == (0.0, 1, "stop")


def test_a_function_answers_every_request() -> None:
    client = ScriptedClient(lambda request: request.messages[0].text.upper())
    texts = [client.complete(question(text)).text for text in ("a", "b")]
    assert texts == ["A", "B"]


def test_an_error_is_raised_or_stands_in_its_place() -> None:
    client = ScriptedClient(ModelUnavailable("busy", 4), ModelUnavailable("busy"), "x")
    with pytest.raises(ModelUnavailable) as caught:
        client.complete(question())
    assert caught.value.attempts == 4
    busy, reply = client.complete_all([question(), question()])
    assert isinstance(busy, ModelUnavailable)
    assert isinstance(reply, Reply)
    with pytest.raises(ModelRequestRejected):
        ScriptedClient(ModelRequestRejected("no")).complete_all([question()])


def test_an_answer_too_many_is_an_error_of_the_script() -> None:
    client = ScriptedClient("only one")
    client.complete(question())
    with pytest.raises(SpecError, match=r"for request 2 \(answers given: 1\)"):
        client.complete(question())


def test_texts_that_share_words_are_near_and_vectors_do_not_change() -> None:
    texts = ["the cat sat on the mat", "a cat on a mat", "tax law of 1986", ""]
    client = ScriptedClient()
    cat, other_cat, tax, empty = client.embed("gpt-4o", texts).vectors

    def near(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert near(cat, cat) == pytest.approx(1)
    assert near(cat, other_cat) > 0.4 > near(cat, tax)
    assert near(empty, empty) == 0
    assert ScriptedClient().embed("gpt-4o", texts[:1]).vectors == [cat]
    assert client.embedded_texts == texts


def test_it_is_a_client_that_travels() -> None:
    client = ScriptedClient("a", "b")
    client.complete(question())
    copy = pickle.loads(pickle.dumps(client))
    assert copy.complete(question()).text == "a"
    assert isinstance(client, Client)
    assert isinstance(client, Embedder)
    assert isinstance(client, Streamer)


@pytest.mark.parametrize("text", ["", " ", "one", "Two words.\n\n  And\tmore \n", " é 😀 "])
def test_a_stream_gives_the_next_answer_in_pieces_that_make_it_up(text: str) -> None:
    message = Message("assistant", text, (ToolCall("c1", "read"),))
    streamed, whole = ScriptedClient(message), ScriptedClient(message)
    *pieces, reply = streamed.stream(question())
    assert "".join(map(str, pieces)) == text
    assert len(pieces) == max(len(text.split()), bool(text))
    assert reply == whole.complete(question())
    assert streamed.requests == [question()]


def test_an_error_of_the_script_is_raised_when_the_stream_is_begun() -> None:
    stream = ScriptedClient(ModelUnavailable("busy")).stream(question())
    with pytest.raises(ModelUnavailable):
        next(stream)
