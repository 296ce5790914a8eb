"""A replay asks, before every recorded model call, what a strategy would have sent.

It is off-policy: what the agent did next is what the recording says, whatever the strategy left out.
The engine is one loop, ``play``; metrics are worked out from the trace that it leaves.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from ctxlab.context.budget import Budget
from ctxlab.context.context import Context
from ctxlab.context.history import (
    Entry,
    History,
)
from ctxlab.context.ledger import Account
from ctxlab.context.preview import aside
from ctxlab.errors import (
    CtxlabError,
    SpecError,
    StrategyError,
)
from ctxlab.evaluation.probe_questions import (
    Ask,
    Evidence,
    question,
)
from ctxlab.evaluation.references import Needs
from ctxlab.llm.base import Client
from ctxlab.messages.missing_calls import missing_calls
from ctxlab.messages.types import (
    Probe,
    Recording,
)
from ctxlab.messages.validation import (
    check,
    is_valid,
)
from ctxlab.strategies.base import Strategy
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import (
    Model,
    look_up_model,
    rules_for,
)
from ctxlab.tokens.tool_schemas import render_tools

__all__ = ["Tape", "Trace", "Watcher", "play", "play_all"]

_POSITION = attrgetter("position")

Watcher = Callable[[Context], Any]
"""Told of every request as it would be sent; what it returns is kept in ``Trace.watched``."""


class Tape:
    """A recording made ready to be replayed: counted once, whatever the number of configurations.

    ``ask``: how its questions are put in every replay; None puts none. ``model``: whose prices, cache
    rules and validity rules apply; None: the model that ``counter`` counts for.
    """

    def __init__(
        self,
        recording: Recording,
        counter: TokenCounter,
        client: Client | None = None,
        ask: Ask | None = question,
        model: Model | None = None,
    ) -> None:
        self.recording = recording
        self.counter = counter
        self.model = look_up_model(counter.model) if model is None else model
        self.provider = rules_for(self.model.name)
        "whose rules a request must keep"
        self.history = History(counter, recording.messages)
        self.history.client = client
        self.history.foresight = self
        self.history.compactions = tuple(sorted(recording.compactions, key=_POSITION))
        self.requests = recording.requests
        "positions of the recorded model calls"
        self.fixed = counter.tools(recording.tools) + counter.REPLY
        "tokens of every request that are no messages"
        last = self.requests[-1] if self.requests else 0
        self.valid = not last or is_valid(recording.messages[:last], self.provider)
        "whether the recording itself, as far as any request holds it, is a valid conversation"
        self.probes: tuple[Probe, ...] = recording.probes if ask else ()
        "the questions that are put"
        self.questions = [ask(probe) for probe in self.probes] if ask else []
        "each of them as it is put"

    @classmethod
    def of(
        cls,
        recording: Recording,
        models: ModelChoice,
        client: Client | None = None,
        ask: Ask | None = question,
    ) -> Tape:
        """Count and price a recording by the model that was chosen for it."""
        return cls(recording, models.counter_for(recording), client, ask)

    @cached_property
    def needs(self) -> Needs:
        """What each request's next action uses, and where it had stood."""
        return Needs(self.history, render_tools(list(self.recording.tools)))

    @cached_property
    def asked(self) -> dict[int, list[int]]:
        """Numbers of the probes that are put before each request; those after the last come last."""
        order = sorted(range(len(self.probes)), key=self.place)
        found: dict[int, list[int]] = {}
        for number in order:
            found.setdefault(bisect_left(self.requests, self.place(number)), []).append(number)
        return found

    def place(self, number: int) -> int:
        """How many messages have been said when a probe is put."""
        position, messages = self.probes[number].position, len(self.history)
        return messages if position is None else min(max(position, 0), messages)

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """What the message at ``position`` will use: for controls that know the future."""
        return self.needs.needed(position)

    def passage(self, position: int, text: str) -> str:
        """The line of the message at ``position`` that holds the text."""
        return self.needs.passage(position, text)

    @property
    def length(self) -> int:
        """Tokens of the largest request when everything is sent."""
        last = self.requests[-1] if self.requests else 0
        return self.history.before[last] + self.fixed

    @property
    def facts(self) -> dict[str, Any]:
        """What is said of the recording wherever it is listed; tokens are those of all of it."""
        recording = self.recording
        return {
            "recording": recording.id,
            "cluster": recording.cluster or recording.id,
            "source": recording.source,
            "format": recording.format,
            "model": recording.model,
            "counted_as": self.counter.model,
            "messages": len(recording.messages),
            "requests": len(self.requests),
            "tokens": self.history.before[-1] + self.fixed,
            "valid": self.valid,
            "skipped": dict(recording.skipped),
            "warning": missing_calls(recording),
        }

    def budget(self, limit: float, reserve: int = 0) -> Budget:
        """The budget for a limit in tokens, or for a fraction of the recording's own length.

        A fraction is a float of at most 1; ``reserve`` is in tokens either way.
        """
        if not 0 < limit < math.inf:
            raise SpecError(f"a limit is a positive number, not {limit}")
        tokens = int(limit * self.length) if isinstance(limit, float) and limit <= 1 else int(limit)
        return Budget(max(tokens, 1), reserve, self.fixed)


@dataclass
class Trace:
    """What a replay leaves: for each request its size, and in ``context`` what happened to what."""

    strategy: Strategy
    budget: Budget
    context: Context
    tokens: list[int] = field(default_factory=list)
    "tokens of each request"
    messages: list[int] = field(default_factory=list)
    "messages of each request"
    unchanged: list[int] = field(default_factory=list)
    "tokens of messages at its beginning that are those of the request before"
    opening: list[int] = field(default_factory=list)
    "tokens of the system messages that it begins with"
    newest: list[int] = field(default_factory=list)
    "tokens of its last message"
    faults: list[int] = field(default_factory=list)
    "how many rules of its provider (``validity``) it breaks"
    forks: dict[int, list[Entry]] = field(default_factory=dict)
    "what was sent by a request that was made for itself alone"
    watched: dict[str, list[Any]] = field(default_factory=dict)
    "what each watcher returned for each request"
    asides: list[list[Entry]] = field(default_factory=list)
    "what would be sent for each probe of the tape, the question last"
    accounts: list[Account] = field(default_factory=list)
    "what the strategy reported and whom it asked for each of them: no part of the replay"


def play(
    tape: Tape, strategy: Strategy, budget: Budget, watchers: Mapping[str, Watcher] | None = None
) -> Trace:
    """Replays a recording through one strategy under one budget, and asks its probes aside.

    Raises ``StrategyError`` where the strategy fails, naming the recording and the message.
    """
    context = Context(budget, tape.history)
    watching = watchers or {}
    trace = Trace(strategy, budget, context, watched={name: [] for name in watching})
    trace.asides = [[] for _ in tape.probes]
    trace.accounts = [Account(tape.history) for _ in tape.probes]
    for position in tape.requests:
        _put_questions(tape, trace)
        context.advance(position)
        sent = _ask(strategy, context, tape.recording.id)
        trace.tokens.append(sent.tokens + budget.fixed)
        trace.messages.append(len(sent.entries))
        trace.unchanged.append(sent.unchanged)
        trace.opening.append(sent.opening)
        trace.newest.append(sent.entries[-1].tokens if sent.entries else 0)
        if sent is not context:
            trace.forks[context.turn] = sent.entries.copy() if sent.lasting else sent.entries
        if tape.valid and not sent.strange:
            trace.faults.append(not _may_begin(sent.entries, tape.provider))
        else:
            trace.faults.append(len(check(sent.messages, tape.provider)))
        for name, watch in watching.items():
            trace.watched[name].append(watch(sent))
        context.settle(sent)
    _put_questions(tape, trace)
    context.advance(len(tape.history))
    return trace


def _put_questions(tape: Tape, trace: Trace) -> None:
    """What would be sent for the questions that come before the next request; nothing of it stays."""
    context = trace.context
    for number in tape.asked.get(context.turn, ()):
        context.advance(tape.place(number))
        asked = tape.questions[number]
        apart = aside(context, asked, Evidence(context, tape.probes[number], asked))
        sent = _ask(trace.strategy, apart, tape.recording.id)
        context.looked = context.looked or apart.looked
        trace.asides[number] = sent.entries
        trace.accounts[number].events = apart.events
        trace.accounts[number].spent = apart.spent


def _ask(strategy: Strategy, context: Context, recording: str) -> Context:
    """What the strategy would send; a failure of its own names the place."""
    try:
        sent: object = strategy(context)
    except CtxlabError:
        raise
    except Exception as error:
        cause: Exception | None = error
        what = f"{type(error).__name__}: {error}"
    else:
        if isinstance(sent, Context):
            return sent
        cause, what = None, f"it returned {sent!r}, not the context or a fork of it"
    where = f"message {context.length} of {recording}"
    raise StrategyError(f"{strategy!r} failed at {where}: {what}") from cause


def _may_begin(entries: Sequence[Entry], provider: str) -> bool:
    """Check that a message follows the system prompt, and for Anthropic that it is the user's."""
    for entry in entries:
        role = entry.message.role
        if role != "system":
            return role == "user" or provider != "anthropic"
    return False


def play_all(
    tape: Tape,
    strategies: Sequence[Strategy],
    budgets: Sequence[Budget],
    watchers: Mapping[str, Watcher] | None = None,
) -> list[Trace]:
    """Every strategy under every budget, budgets outermost.

    A strategy that never asks how much room there is does the same under each budget, so it is replayed
    once.
    """
    traces: list[Trace] = []
    blind: dict[int, Trace] = {}
    for budget in budgets:
        for number, strategy in enumerate(strategies):
            if number in blind:
                traces.append(replace(blind[number], budget=budget))
                continue
            trace = play(tape, strategy, budget, watchers)
            traces.append(trace)
            if not trace.context.looked and not watchers:
                blind[number] = trace
    return traces
