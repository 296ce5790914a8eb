"""A replay asks, before every recorded model call, what a strategy would have sent.

It is off-policy: what the agent did next is what the recording says, whatever the strategy left out.
The engine is one loop, ``replay_trace``; metrics are worked out from the trace that it leaves.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from ctxlab.context.context import Budget, Context, Ledger
from ctxlab.context.history import Entry, History
from ctxlab.context.preview import preview_question
from ctxlab.errors import CtxlabError, SpecError, StrategyError
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.probe_questions import EvidenceOracleInfo, ProbeFormatter, probe_to_message
from ctxlab.evaluation.references import NeedIndex
from ctxlab.llm.base import Client
from ctxlab.messages.missing_calls import missing_calls_warning
from ctxlab.messages.types import Probe, Recording
from ctxlab.messages.validation import find_violations, is_valid
from ctxlab.strategies.base import Strategy
from ctxlab.tokens.billing import BilledSession, compare_counts_with_bills
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import Model, rules_provider
from ctxlab.tokens.profiles import profile_key
from ctxlab.tokens.tool_schemas import render_tools

__all__ = ["PreparedRecording", "RequestObserver", "Trace", "replay_trace", "replay_traces"]

_POSITION = attrgetter("position")

RequestObserver = Callable[[Context], Any]
"""Told of every request as it would be sent; what it returns is kept in ``Trace.observations``."""


class PreparedRecording:
    """A recording made ready to be replayed: counted once, whatever the number of configurations.

    ``format_probe``: how its questions are put in every replay; None puts none. ``model``: whose
    prices, cache rules and validity rules apply; None: the model that ``counter`` counts for.
    """

    def __init__(
        self,
        recording: Recording,
        counter: TokenCounter,
        client: Client | None = None,
        format_probe: ProbeFormatter | None = probe_to_message,
        model: Model | None = None,
    ) -> None:
        self.recording = recording
        self.counter = counter
        self.history = History(counter, recording.messages, model)
        self.model = self.history.model
        self.provider = rules_provider(self.model.name)
        "whose rules a request must keep"
        self.history.client = client
        self.history.oracle_info = self
        self.history.compactions = tuple(sorted(recording.compactions, key=_POSITION))
        self.request_positions = recording.request_positions
        "positions of the recorded model calls"
        self.fixed_tokens = counter.count_tools(recording.tools) + counter.REPLY_TOKENS
        "tokens of every request that are no messages"
        last = self.request_positions[-1] if self.request_positions else 0
        self.valid = not last or is_valid(recording.messages[:last], self.provider)
        "whether the recording itself, as far as any request holds it, is a valid conversation"
        self.probes: tuple[Probe, ...] = recording.probes if format_probe else ()
        "the questions that are put"
        self.probe_messages = [format_probe(probe) for probe in self.probes] if format_probe else []
        "each of them as it is put"

    @classmethod
    def from_recording(
        cls,
        recording: Recording,
        model_choice: ModelChoice,
        client: Client | None = None,
        format_probe: ProbeFormatter | None = probe_to_message,
    ) -> PreparedRecording:
        """Count and price a recording by the model that was chosen for it."""
        return cls(recording, model_choice.counter_for(recording), client, format_probe)

    @cached_property
    def needs(self) -> NeedIndex:
        """What each request's next action uses, and where it had stood."""
        return NeedIndex(self.history, render_tools(list(self.recording.tools)))

    @cached_property
    def probes_by_request(self) -> dict[int, list[int]]:
        """Numbers of the probes that are put before each request; those after the last come last."""
        order = sorted(range(len(self.probes)), key=self.probe_position)
        found: dict[int, list[int]] = {}
        for number in order:
            found.setdefault(
                bisect_left(self.request_positions, self.probe_position(number)), []
            ).append(number)
        return found

    def probe_position(self, number: int) -> int:
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
    def longest_request_tokens(self) -> int:
        """Tokens of the largest request when everything is sent."""
        last = self.request_positions[-1] if self.request_positions else 0
        return self.history.tokens_before[last] + self.fixed_tokens

    @property
    def description(self) -> dict[str, Any]:
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
            "requests": len(self.request_positions),
            "tokens": self.history.tokens_before[-1] + self.fixed_tokens,
            "valid": self.valid,
            "skipped": dict(recording.skipped),
            "warning": missing_calls_warning(recording),
        }

    @cached_property
    def bills(self) -> BilledSession | None:
        """How the provider's bills compare with the counts; None where the log has none."""
        counts = [entry.tokens for entry in self.history.entries]
        return compare_counts_with_bills(self.recording, counts, self.counter)

    @property
    def manifest_entry(self) -> dict[str, Any]:
        """The description as a manifest has it: with what bills tell, and a fingerprint.

        ``unlogged``: tokens of each request that were billed and are in no log; None where that is not
        known, as where the recording was made with a model of another family than it is counted for.
        """
        model = self.recording.model
        same_family = model is not None and profile_key(model) == profile_key(self.counter.model)
        return {
            **self.description,
            "unlogged": self.bills.fixed if same_family and self.bills else None,
            "digest": recording_digest(self.recording),
        }

    def make_budget(self, limit: float, reserve: int = 0) -> Budget:
        """The budget for a limit in tokens, or for a fraction of the recording's own length.

        A fraction is a float of at most 1; ``reserve`` is in tokens either way.
        """
        if not 0 < limit < math.inf:
            raise SpecError(f"a limit is a positive number, not {limit}")
        tokens = (
            int(limit * self.longest_request_tokens)
            if isinstance(limit, float) and limit <= 1
            else int(limit)
        )
        return Budget(max(tokens, 1), reserve, self.fixed_tokens)


@dataclass
class Trace:
    """What a replay leaves: for each request its size, and in ``context`` what happened to what."""

    strategy: Strategy
    budget: Budget
    context: Context
    tokens: list[int] = field(default_factory=list)
    "tokens of each request"
    message_counts: list[int] = field(default_factory=list)
    "messages of each request"
    unchanged_prefix_tokens: list[int] = field(default_factory=list)
    "tokens of messages at its beginning that are those of the request before"
    system_prompt_tokens: list[int] = field(default_factory=list)
    "tokens of the system messages that it begins with"
    last_message_tokens: list[int] = field(default_factory=list)
    "tokens of its last message"
    violation_counts: list[int] = field(default_factory=list)
    "how many rules of its provider (``validity``) it breaks"
    forked_requests: dict[int, list[Entry]] = field(default_factory=dict)
    "what was sent by a request that was made for itself alone"
    observations: dict[str, list[Any]] = field(default_factory=dict)
    "what each watcher returned for each request"
    preview_entries: list[list[Entry]] = field(default_factory=list)
    "what would be sent for each probe of the recording, the question last"
    preview_ledgers: list[Ledger] = field(default_factory=list)
    "what the strategy reported and whom it asked for each of them: no part of the replay"


def replay_trace(
    prepared: PreparedRecording,
    strategy: Strategy,
    budget: Budget,
    observers: Mapping[str, RequestObserver] | None = None,
) -> Trace:
    """Replays a recording through one strategy under one budget, and previews its probes.

    Raises ``StrategyError`` where the strategy fails, naming the recording and the message.
    """
    context = Context(budget, prepared.history)
    observers_by_name = observers or {}
    trace = Trace(strategy, budget, context, observations={name: [] for name in observers_by_name})
    trace.preview_entries = [[] for _ in prepared.probes]
    trace.preview_ledgers = [Ledger(prepared.history) for _ in prepared.probes]
    for position in prepared.request_positions:
        _preview_probes(prepared, trace)
        context.advance(position)
        sent = _apply_strategy(strategy, context, prepared.recording.id)
        trace.tokens.append(sent.tokens + budget.fixed)
        trace.message_counts.append(len(sent.entries))
        trace.unchanged_prefix_tokens.append(sent.unchanged_tokens)
        trace.system_prompt_tokens.append(sent.system_tokens)
        trace.last_message_tokens.append(sent.entries[-1].tokens if sent.entries else 0)
        if sent is not context:
            trace.forked_requests[context.request_index] = (
                sent.entries.copy() if sent.is_persistent else sent.entries
            )
        if prepared.valid and not sent.maybe_invalid:
            trace.violation_counts.append(not _starts_validly(sent.entries, prepared.provider))
        else:
            trace.violation_counts.append(len(find_violations(sent.messages, prepared.provider)))
        for name, observe in observers_by_name.items():
            trace.observations[name].append(observe(sent))
        context.commit_request(sent)
    _preview_probes(prepared, trace)
    context.advance(len(prepared.history))
    return trace


def _preview_probes(prepared: PreparedRecording, trace: Trace) -> None:
    """What would be sent for the questions that come before the next request; nothing of it stays."""
    context = trace.context
    for number in prepared.probes_by_request.get(context.request_index, ()):
        context.advance(prepared.probe_position(number))
        asked = prepared.probe_messages[number]
        apart = preview_question(
            context, asked, EvidenceOracleInfo(context, prepared.probes[number], asked)
        )
        sent = _apply_strategy(trace.strategy, apart, prepared.recording.id)
        context.budget_read = context.budget_read or apart.budget_read
        trace.preview_entries[number] = sent.entries
        trace.preview_ledgers[number].events = apart.events
        trace.preview_ledgers[number].model_calls = apart.model_calls


def _apply_strategy(strategy: Strategy, context: Context, recording: str) -> Context:
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
    where = f"message {context.history_length} of {recording}"
    raise StrategyError(f"{strategy!r} failed at {where}: {what}") from cause


def _starts_validly(entries: Sequence[Entry], provider: str) -> bool:
    """Check that a message follows the system prompt, and for Anthropic that it is the user's."""
    for entry in entries:
        role = entry.message.role
        if role != "system":
            return role == "user" or provider != "anthropic"
    return False


def replay_traces(
    prepared: PreparedRecording,
    strategies: Sequence[Strategy],
    budgets: Sequence[Budget],
    observers: Mapping[str, RequestObserver] | None = None,
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
            trace = replay_trace(prepared, strategy, budget, observers)
            traces.append(trace)
            if not trace.context.budget_read and not observers:
                blind[number] = trace
    return traces
