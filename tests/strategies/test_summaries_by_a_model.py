"""Tests of ``rolling_summary`` with a model that misbehaves; no messages may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

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
    Said,
    Slow,
    Talker,
    talking,
)

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.formats import load
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import ModelCall
from ctxlab.messages.types import Recording
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import panic, rolling_summary
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

MODEL = "openai/gpt-4"
WINDOW = find_model(MODEL).limit
TIMEOUT = 3.0
LONGEST = 150
"""Messages of a recording at most."""

FOLDERS = {
    "claude-code-entireio": (2, 16_000),
    "pi-mono": (1, 16_000),
    "openhands": (1, 16_000),
    "swe-agent": (2, 8_000),
    "tau-bench": (2, 6_000),
}
"""How many of their recordings, and the limit: no single message of theirs is beyond it."""

HANGS = (4,)
"""Requests to which nothing is answered, each of which costs the client its timeout."""

TROUBLE: tuple[Action, ...] = (
    *(429, 429, 500, 503, Fault.CUT, Fault.DROP),
    *(NOT_JSON, HALF_JSON, NO_CHOICES),
    *(NULL_CONTENT, EMPTY, REPETITION, ENORMOUS, Said("I had no time.", finish="content_filter")),
    Slow(0.05, Said("The work goes on. " * 3, cached=64, reasoning=20)),
)


def answer(call: Call) -> Action:
    """Script that answers with a summary or a failure, with equal probability."""
    chance = Random(call.number)
    if call.number in HANGS:
        return Fault.HANG
    if chance.random() < 0.5:
        return chance.choice(TROUBLE)
    words = call.messages[-1].text.split()
    return " ".join(words[:: max(1, len(words) // 150)])


@dataclass
class Requests:
    """Data of a replay for each request."""

    summaries: int = 0
    events: tuple[str, ...] = ()
    spent: tuple[ModelCall, ...] = ()


def replayed(prepared: PreparedRecording, limit: int, prompt: str) -> Requests:
    """Replay ``rolling_summary | panic`` and check all rules on each request."""
    strategy = rolling_summary(tokens=600, model=MODEL, prompt=prompt)
    context = Context(prepared.make_budget(limit), prepared.history)
    summaries = 0
    for position in prepared.request_positions:
        context.advance(position)
        assert strategy(context) is context
        summaries += nothing_is_lost(context)
        sent = panic()(context)
        assert not find_violations(sent.messages)
        assert sent.tokens == sum(map(prepared.counter.count_message, sent.messages))
        assert sent.excess <= 0
        context.commit_request(sent)
    return Requests(summaries, tuple(e for _, e in context.events), tuple(context.model_calls))


def nothing_is_lost(context: Context) -> bool:
    """Assert that each message is unchanged or part of the summary; True if there is a summary."""
    history, entries = context.history, context.entries
    covered = [place for entry in entries for place in range(entry.start, entry.stop)]
    assert covered == list(range(context.history_length))
    summaries = [entry for entry in entries if entry.form is Form.SUMMARY]
    assert len(summaries) <= 1
    for entry in summaries:
        assert entry.start == history.head_length
        assert entry.stop <= history.unit_starts[context.history_length - 1]
        said = entry.message.text.removeprefix(SUMMARY_HEADER)
        assert len(said) < len(entry.message.text)
        assert said.strip()
        assert context.history.counter.count_text(said) <= 600
        assert entry.tokens < history.tokens_before[entry.stop] - history.tokens_before[entry.start]
    verbatim = [entry for entry in entries if entry.form is not Form.SUMMARY]
    assert all(
        entry.message is history[entry.start] and not entry.is_aggregate for entry in verbatim
    )
    return bool(summaries)


def fitting(
    recordings: Iterable[Recording], counter: TokenCounter, limit: int
) -> Iterator[PreparedRecording]:
    """Yield the recordings that exceed the limit and therefore need a summary."""
    for recording in recordings:
        prepared = PreparedRecording(Recording(recording.id, recording.messages[:LONGEST]), counter)
        if prepared.valid and prepared.longest_request_tokens > limit:
            yield prepared


def the_account_is_the_servers(server: Talker, spent: list[ModelCall]) -> None:
    assert sum(each.attempts for each in spent) == server.attempts
    assert sum(each.prompt_tokens for each in spent) == server.prompt
    assert sum(each.completion_tokens for each in spent) == server.completion
    assert server.attempts == server.answered + server.failed + server.interrupted


def no_request_was_the_clients_fault(server: Talker) -> None:
    for call in server.calls:
        assert call.violations == []
        assert call.prompt + (call.max_tokens or 0) <= 0.8 * WINDOW
        assert call.status != 400


def hold(prepared_recordings: list[tuple[PreparedRecording, int]]) -> None:
    """Replay recordings with their limits and check all rules of this file."""
    with talking(answer, window=WINDOW) as server:
        client = LiteLLMClient(
            server.address, "sk-test", timeout=TIMEOUT, retries=2, delay=0.001, backoff=1.0
        )
        done = []
        for number, (prepared, limit) in enumerate(prepared_recordings):
            prepared.history.client = client
            done.append(replayed(prepared, limit, ("summary", "structured")[number % 2]))
    spent = [each for requests in done for each in requests.spent]
    the_account_is_the_servers(server, spent)
    no_request_was_the_clients_fault(server)
    totals = client.totals
    assert (totals.answered, totals.failed) == (server.answered, server.failed)
    assert totals.interrupted == server.interrupted
    events = [event for requests in done for event in requests.events]
    assert "stuck" not in events
    # It was no easy walk, and no walk without the model either.
    assert min(server.answered, server.failed, server.interrupted) > 3
    assert sum(event.startswith("summary fallback: ") for event in events) > 3
    assert events.count("summary") > 10
    assert any("<summaries>" in call.text for call in server.calls if call.outcome == "answered")


@pytest.mark.properties
@pytest.mark.filterwarnings("ignore::ctxlab.strategies.summaries.llm.SummaryWarning")
def test_on_bundled_recordings(counter: TokenCounter) -> None:
    coding = fitting(load("bundled:coding-agent"), counter, 14_000)
    support = fitting(load("bundled:support-desk"), counter, 5_000)
    prepared_recordings = [*islice(coding, 3), *islice(support, 2)]
    hold(list(zip(prepared_recordings, (7_000, 14_000, 14_000, 5_000, 5_000), strict=True)))


@pytest.mark.filterwarnings("ignore::ctxlab.strategies.summaries.llm.SummaryWarning")
def test_on_real_recordings(recorded: Path, counter: TokenCounter) -> None:
    prepared_recordings = []
    for folder, (few, limit) in FOLDERS.items():
        found = fitting(load(str(recorded / folder), on_error="skip"), counter, limit)
        prepared_recordings += [(prepared, limit) for prepared in islice(found, few)]
    assert len(prepared_recordings) == sum(few for few, _ in FOLDERS.values())
    hold(prepared_recordings)
