"""Tests of the fault-tolerant client, which returns failed calls as unanswered."""

from __future__ import annotations

import logging

import pytest

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm import FaultTolerantClient, ScriptedClient
from ctxlab.llm.base import Client, Embedder, Request
from ctxlab.messages.types import Message

REQUEST = Request("gpt-4o", (Message("user", "Hi"),))


def test_a_refusal_is_an_answer_that_did_not_come_and_is_an_error_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FaultTolerantClient(ScriptedClient(lambda _: ModelRequestRejected("no such key")))
    for _ in range(3):
        with pytest.raises(ModelUnavailable, match="no such key"):
            client.complete(REQUEST)
        assert [str(each) for each in client.complete_all([REQUEST] * 2)] == ["no such key"] * 2
    (record,) = caplog.records
    assert record.levelno == logging.ERROR


def test_answers_and_vectors_are_those_of_the_client_that_is_asked() -> None:
    client = FaultTolerantClient(ScriptedClient("Hello.", ModelUnavailable("busy"), "Hi."))
    assert isinstance(client, Client)
    assert isinstance(client, Embedder)
    assert client.complete(REQUEST).text == "Hello."
    busy, hi = client.complete_all([REQUEST] * 2)
    assert isinstance(busy, ModelUnavailable)
    assert not isinstance(hi, ModelUnavailable)
    assert client.embed("text-embedding-3-small", ["a"]) == ScriptedClient().embed("gpt-4o", ["a"])
