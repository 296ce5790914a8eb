"""Tests of ``retrieval``: which messages it quotes, their position, the size, and calls for vectors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import Sent, run

from ctxlab.context.history import Entry
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace
from ctxlab.llm.base import Client, Embedding, Reply, Request
from ctxlab.messages.types import Message, Recording, ToolCall, Usage
from ctxlab.strategies import parse_strategy, retrieval
from ctxlab.strategies.base import models_used
from ctxlab.tokens.counter import TokenCounter

HEADER = "Earlier messages that may matter now, quoted:\n"


def talk(turns: int = 60, ends: str = "What was the key of HAT136?") -> list[Message]:
    said = [Message("system", "Be brief."), Message("user", "Hello")]
    for n in range(turns):
        fact = "The key of HAT136 is 4711." if n == 7 else f"Nothing new on day {n}."
        said += [Message("user", fact + " word" * 30), Message("assistant", f"Fine, {n}.")]
    return [*said, Message("user", ends), Message("assistant", "It was 4711.")]


def quotes(sent: Sent) -> list[Entry]:
    return [e for e in sent.entries if e.message.text.startswith(HEADER) and e.start == e.stop]


def test_an_old_message_is_quoted_when_the_newest_is_about_it(counter: TokenCounter) -> None:
    _, sent = run(prepare_messages(talk(), counter), retrieval(k=1), 900)
    (quote,) = quotes(sent[-1])
    assert quote.message.role == "user"
    assert quote.message.text.startswith(HEADER + "[step 9.1, user] The key of HAT136 is 4711.")
    assert sent[-1].entries[-2] is quote
    assert not any("4711" in text for text in sent[-1].texts if text != quote.message.text)


def test_as_long_as_everything_fits_nothing_is_cut_or_quoted(counter: TokenCounter) -> None:
    messages = talk(10)
    _, sent = run(prepare_messages(messages, counter), retrieval(), 10_000)
    assert [s.messages for s in sent] == [messages[: s.position] for s in sent]


@given(
    messages=conversations(turns=6),
    limit=limits(),
    k=st.integers(0, 4),
    share=st.sampled_from([0.1, 0.3, 0.6]),
)
def test_quotes_stand_before_the_newest_unit_and_keep_to_number_and_share(
    messages: tuple[Message, ...], limit: int, k: int, share: float, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    _, requests = run(prepared, retrieval(k=k, share=share, chars=80), budget)
    for sent in requests:
        for quote in quotes(sent):
            newest = prepared.history.unit_starts[sent.position - 1]
            index = sent.entries.index(quote)
            assert [e.start for e in sent.entries[index + 1 :]] == [*range(newest, sent.position)]
            assert k
            assert quote.tokens <= share * budget.available
            assert sum(e.tokens for e in sent.entries) <= budget.available


def test_what_is_quoted_is_older_than_the_window_and_in_its_order(counter: TokenCounter) -> None:
    messages = [Message("user", "go")]
    for n in range(80):
        messages += [Message("user", f"note_{n % 5} number {n}"), Message("assistant", "ok " * 9)]
    messages += [Message("user", "what of note_3?"), Message("assistant", "this")]
    _, sent = run(prepare_messages(messages, counter), retrieval(k=5, share=0.4), 700)
    (quote,) = quotes(sent[-1])
    numbers = [int(line.rsplit(" ", 1)[1]) for line in quote.message.text.splitlines()[1:]]
    assert len(numbers) == 5
    assert numbers == sorted(numbers)
    assert all(number % 5 == 3 for number in numbers)
    window = min(e.start for e in sent[-1].entries[1:])
    assert all(2 * number + 1 < window for number in numbers)


def test_a_long_message_is_clipped_around_what_matched(counter: TokenCounter) -> None:
    call = ToolCall("c", "bash", '{"command": "ls"}')
    huge = "line\n" * 400 + "src/deep/io.py is here\n" + "line\n" * 400
    messages = [Message("user", "go"), Message("assistant", None, tool_calls=(call,))]
    messages += [Message("tool", huge, tool_call_id="c"), *talk(60, "Open src/deep/io.py")[2:]]
    _, sent = run(prepare_messages(messages, counter), retrieval(k=1, chars=120), 1500)
    (quote,) = quotes(sent[-1])
    assert "src/deep/io.py is here" in quote.message.text
    assert len(quote.message.text) < len(HEADER) + 150
    assert quote.message.text.startswith(HEADER + "[step 1.1, tool] …")


def test_only_so_many_messages_before_the_window_are_looked_at(counter: TokenCounter) -> None:
    for back, found in ((1000, True), (20, False)):
        _, sent = run(prepare_messages(talk(), counter), retrieval(k=1, look_back=back), 900)
        assert any("4711" in text for text in sent[-1].texts) == found


def test_between_two_cuts_what_stands_before_the_quotes_is_unchanged(counter: TokenCounter) -> None:
    deep = run(prepare_messages(talk(200), counter), retrieval(keep=0.5), 1500)
    full = run(prepare_messages(talk(200), counter), retrieval(keep=1.0), 1500)
    shares = []
    for trace, requests in (deep, full):
        starts = {sent.entries[2].start for sent in requests}
        shares.append((len(starts), sum(trace.unchanged_prefix_tokens) / sum(trace.tokens)))
    assert shares[0][0] < shares[1][0] / 3
    assert shares[0][1] > 2 * shares[1][1]


def test_it_quotes_from_before_a_summary_and_leaves_the_summary(counter: TokenCounter) -> None:
    spec = parse_strategy("rolling_summary(0.7, 0.4) | retrieval(k=1, share=0.2)")
    _, sent = run(prepare_messages(talk(), counter), spec, 900)
    texts = [e.message.text for e in sent[-1].entries]
    assert texts[2].startswith("Summary")
    assert "The key of HAT136 is 4711." in texts[-2]


# --- vectors -----------------------------------------------------------------------------------


class Counting:
    """Embedding model with vectors by one word, which keeps the texts it got."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.asked: list[list[str]] = []
        self.fails = fails

    def complete(self, request: Request, /) -> Reply:
        raise SpecError("nobody asks for text here")

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        return [self.complete(request) for request in requests]

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        self.asked.append(list(texts))
        if self.fails:
            raise self.fails
        vectors = [[float("HAT136" in text), 0.1] for text in texts]
        return Embedding(vectors, Usage(10 * len(texts)), usd=0.5, attempts=2)


def embedded(client: Client, counter: TokenCounter) -> tuple[Trace, list[Sent]]:
    prepared = PreparedRecording(Recording("r", tuple(talk())), counter, client)
    return run(prepared, retrieval(k=1, embedding="text-embedding-3-small"), 900)


def test_with_vectors_each_message_is_embedded_once_and_paid_for(counter: TokenCounter) -> None:
    client = Counting()
    trace, sent = embedded(client, counter)
    assert "The key of HAT136 is 4711." in quotes(sent[-1])[0].message.text
    older = [text for asked in client.asked for text in asked[:-1]]
    assert len(older) == len(set(older)) > 50
    spent = trace.context.model_calls
    assert len(spent) == len(client.asked)
    assert {(s.model, s.usd, s.attempts, s.completion_tokens) for s in spent} == {
        ("text-embedding-3-small", 0.5, 2, 0)
    }
    assert [s.prompt_tokens for s in spent] == [10 * len(asked) for asked in client.asked]
    assert models_used(retrieval(embedding="m")) == ("m",)


def test_without_vectors_words_are_compared_and_that_is_reported(counter: TokenCounter) -> None:
    client = Counting(ModelUnavailable("busy", attempts=3))
    trace, sent = embedded(client, counter)
    plain = run(prepare_messages(talk(), counter), retrieval(k=1), 900)[1]
    assert [s.messages for s in sent] == [s.messages for s in plain]
    assert "retrieval fallback: busy" in {event for _, event in trace.context.events}
    assert {s.attempts for s in trace.context.model_calls} == {3}


def test_a_refusal_is_raised_and_so_is_the_lack_of_a_client(counter: TokenCounter) -> None:
    with pytest.raises(ModelRequestRejected, match="wrong key"):
        embedded(Counting(ModelRequestRejected("wrong key")), counter)
    prepared = prepare_messages(talk(), counter)
    with pytest.raises(SpecError, match="pass a client that can embed"):
        replay_trace(prepared, retrieval(embedding="m"), prepared.make_budget(900))
