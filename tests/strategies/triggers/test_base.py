"""Tests of trial runs of triggers: they have no side effects, ask no model, and are rare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given, settings
from replaying import SPECS

from ctxlab.context.context import Context
from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import replay_trace
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import in_batches, parse_strategy, rolling_summary, when_it_pays
from ctxlab.strategies.base import BaseStrategy, models_used
from ctxlab.strategies.triggers.base import dry_run_strategy, without_models
from ctxlab.tokens.counter import TokenCounter

ODD = (
    "oracle",
    "recorded",
    "file_sessions",
)  # they know what is not in the context, or keep branches
TRIED = [spec for spec in SPECS if not any(name in spec for name in ODD)]


@dataclass(frozen=True, repr=False)
class needs_a_model(BaseStrategy):
    model: str | None = "gpt-5-mini"

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", "gpt-5-mini")


@dataclass(frozen=True, repr=False)
class counts_trials(BaseStrategy):
    """Strategy that changes no message and counts its calls in ``ASKED``."""

    name: str

    def __call__(self, context: Context, /) -> Context:
        ASKED[self.name] = ASKED.get(self.name, 0) + 1
        return context


ASKED: dict[str, int] = {}


def state(context: Context) -> dict[str, Any]:
    names = (
        *("tokens", "request_index", "dropped_at", "edited_entries", "events", "model_calls"),
        *("maybe_invalid", "version"),
    )
    seen = {name: getattr(context, name) for name in names}
    seen = {name: list(v) if isinstance(v, list) else v for name, v in seen.items()}
    return {
        **seen,
        "messages": context.messages,
        "ends": [entry.until for entry in context.entries],
        "unchanged": context.unchanged_tokens,
        "available": context.available,
    }


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", TRIED)
@settings(max_examples=15)
@given(messages=conversations(), limit=limits())
def test_a_trial_leaves_no_trace(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    strategy = parse_strategy(spec)
    prepared = prepare_messages(messages, counter)
    watched = Context(prepared.make_budget(limit), prepared.history)
    history = History(counter, messages, prepared.model)
    alone = Context(prepared.make_budget(limit), history)
    alone.history.oracle_info = prepared.history.oracle_info
    for position in prepared.request_positions:
        for context in (watched, alone):
            context.advance(position)
        before = state(watched)
        then = dry_run_strategy(watched, strategy)
        assert state(watched) == before
        sent, expected = strategy(watched), strategy(alone)
        assert then.messages == sent.messages == expected.messages
        assert watched.events == alone.events
        watched.commit_request(sent)
        alone.commit_request(expected)


def test_a_trial_asks_no_model() -> None:
    strategy = parse_strategy(
        'rolling_summary(model="gpt-5-mini") | in_batches(rolling_summary(model="o3"))'
    )
    plain = without_models(strategy)
    assert models_used(strategy) == ("gpt-5-mini", "o3")
    assert models_used(plain) == ()
    assert plain == parse_strategy("rolling_summary() | in_batches(rolling_summary())")
    assert without_models(rolling_summary()) is not None


@pytest.mark.parametrize("wrapper", [partial(in_batches, trigger=0, tokens=1), when_it_pays])
def test_what_cannot_do_without_a_model_is_refused(wrapper: Any) -> None:
    with pytest.raises(SpecError, match="which would call gpt-5-mini"):
        wrapper(needs_a_model())


def test_what_keeps_branches_is_refused_and_may_stand_before(counter: TokenCounter) -> None:
    call = ToolCall("c1", "read", '{"path": "a.py"}')
    said = [Message("user", "go"), Message("assistant", tool_calls=(call,))]
    said += [Message("tool", "x = 1", tool_call_id="c1"), Message("assistant", "done")]
    prepared = prepare_messages(said, counter)
    with pytest.raises(SpecError, match="put it before the wrapper"):
        replay_trace(
            prepared, parse_strategy("when_it_pays(file_sessions())"), prepared.make_budget(10**6)
        )
    replay_trace(
        prepared,
        parse_strategy("file_sessions() | when_it_pays(observation_mask())"),
        prepared.make_budget(10**6),
    )


@pytest.mark.parametrize("wrapper", [partial(in_batches, trigger=0, tokens=1), when_it_pays])
def test_trials_grow_with_the_logarithm_of_what_is_appended(
    wrapper: Any, counter: TokenCounter
) -> None:
    name = repr(wrapper)
    strategy = wrapper(counts_trials(name))
    asked = []
    messages = [Message("user" if i % 2 else "assistant", f"message {i}") for i in range(4001)]
    prepared = prepare_messages([Message("user", "go"), *messages], counter)
    context = Context(prepared.make_budget(10**9), prepared.history)
    ASKED.pop(name, None)
    for position in prepared.request_positions:
        context.advance(position)
        context.commit_request(strategy(context))
        asked.append(ASKED.get(name, 0))
    assert asked[-1] - asked[len(asked) // 2] < 20
    assert asked[-1] < 150
