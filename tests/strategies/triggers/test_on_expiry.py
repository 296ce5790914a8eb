"""Tests of ``on_expiry``: it edits when the cache has expired, or when a request does not fit."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages, with_times
from hypothesis import given
from hypothesis import strategies as st
from replaying import pauses, run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import History
from ctxlab.messages.request_times import request_time
from ctxlab.messages.types import Message
from ctxlab.strategies import observation_mask, on_expiry, sliding_window
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model_without_warning

MASK = observation_mask(keep=0)


@given(
    messages=with_times(conversations(turns=6)),
    limit=limits(),
    trigger=st.sampled_from([0, 0.3, 100]),
)
def test_it_edits_only_if_the_cache_is_cold_and_the_context_large_or_too_large(
    messages: tuple[Message, ...], limit: int, trigger: float, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    budget = prepared.make_budget(limit)
    trace, sent = run(prepared, on_expiry(MASK, 5, trigger), budget)
    level = trigger if trigger > 1 else trigger * budget.available
    edited = {entry.since for entry in trace.context.edited_entries}
    whole = 0
    for turn, pause in enumerate(pauses(messages, sent)):
        newer = prepared.history.tokens_before
        whole += newer[sent[turn].position] - (newer[sent[turn - 1].position] if turn else 0)
        cold = pause is not None and pause > 300 and whole > level
        assert turn not in edited or cold or whole > budget.available
        whole = sum(entry.tokens for entry in sent[turn].entries)


def test_the_first_request_is_not_edited_if_it_fits(counter: TokenCounter) -> None:
    said = [Message("user", "word " * 9, time=1e9 + i) for i in range(9)]
    trace, sent = run(
        prepare_messages([*said, Message("assistant", "ok")], counter),
        on_expiry(sliding_window(messages=1), trigger=0),
        10**6,
    )
    assert sent[0].messages == said
    assert trace.context.version == 0


def test_the_lifetime_is_that_of_the_model_or_five_minutes(counter: TokenCounter) -> None:
    def edits(model: str, pause: float) -> bool:
        said = [Message("user", "a", time=0.0), Message("assistant", "b"), Message("user", "c")]
        said += [Message("user", "d", time=pause), Message("assistant", "e")]
        context = Context(Budget(1000), History(counter, said, find_model_without_warning(model)))
        strategy = on_expiry(sliding_window(messages=1), trigger=0)
        for position in (1, 4):
            context.advance(position)
            context.set_time(request_time(said, position))
            context.commit_request(strategy(context))
        return context.version > 0

    for model in ("claude-sonnet-4-5", "a-model-that-nobody-knows"):
        lifetime = find_model_without_warning(model).cache.lifetime or 300
        assert not edits(model, lifetime)
        assert edits(model, lifetime + 1)
