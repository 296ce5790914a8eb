"""Replay a recording through a strategy, request by request.

Before each recorded model call, the strategy edits the context and so builds the request to send. The
replay is off-policy: the agent's next message is always the recorded one, even if it depends on
information that the strategy dropped. ``replay_trace`` contains the only loop over requests. It
returns a trace, from which metrics are computed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

from ctxlab.context.context import Budget, Context, Ledger
from ctxlab.context.history import Entry, History
from ctxlab.context.preview import preview_question
from ctxlab.errors import CtxlabError, SpecError, StrategyError
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.references import NeedIndex
from ctxlab.llm.base import Client
from ctxlab.messages.content_parts import missing_calls_warning
from ctxlab.messages.request_times import request_time
from ctxlab.messages.types import Message, Probe, Recording, message_text
from ctxlab.messages.validation import find_violations, is_valid
from ctxlab.strategies.base import Strategy, seeded_strategies
from ctxlab.tokens.billing import BilledSession, compare_counts_with_bills
from ctxlab.tokens.cache_timeline import (
    AS_RECORDED,
    CacheTimeline,
    CostSettings,
    build_cache_timeline,
)
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import Model, find_model_without_warning, rules_provider
from ctxlab.tokens.profiles import profile_key
from ctxlab.tokens.tool_schemas import render_tools

_POSITION = attrgetter("position")

RequestObserver = Callable[[Context], Any]
"""Function called with each request of a replay. ``Trace.observations`` contains the return values."""
ProbeFormatter = Callable[[Probe], Message]
"""Function that converts a probe to the user message that asks its question."""


def probe_to_message(probe: Probe) -> Message:
    """Create a user message with the question of a probe.

    Parameters
    ----------
    probe : Probe
        Probe to ask.

    Returns
    -------
    Message
        User message that contains only the question.

    Examples
    --------
    >>> probe_to_message(Probe("q1", "Where does she live?")).content
    'Where does she live?'
    """
    return Message("user", probe.question)


class PreparedRecording:
    """A recording with its token counts, ready to be replayed through strategies under budgets.

    Parameters
    ----------
    recording : Recording
        Recording to replay.
    counter : TokenCounter
        Counts the tokens of messages and tools.
    client : Client, optional
        Client for the model calls of strategies.
    format_probe : callable, optional
        Converts a probe to the message that asks its question. None leaves out all probes.
    model : Model, optional
        Model whose prices and cache rules apply, and whose provider decides which requests are
        valid. None takes the model of ``counter``.
    costs : CostSettings, optional
        Assumptions about the prompt cache, the unlogged tokens and the hidden reasoning of requests.
    """

    def __init__(
        self,
        recording: Recording,
        counter: TokenCounter,
        client: Client | None = None,
        format_probe: ProbeFormatter | None = probe_to_message,
        model: Model | None = None,
        costs: CostSettings = AS_RECORDED,
    ) -> None:
        self.costs = costs
        self.recording = recording
        self.counter = counter
        self.model = model or find_model_without_warning(counter.model)
        rule = costs.reasoning_rule(self.model.name)
        self.history = History(counter, recording.messages, self.model, rule)
        self.provider = rules_provider(self.model.name)
        "provider whose rules a valid request must follow"
        self.history.client = client
        self.history.oracle_info = self
        self.history.compactions = tuple(sorted(recording.compactions, key=_POSITION))
        self.request_positions = recording.request_positions
        "positions of the recorded model calls"
        self.fixed_tokens = counter.count_tools(recording.tools) + counter.REPLY_TOKENS
        "tokens of each request that are not in messages: tool definitions and reply framing"
        self.last_request = self.request_positions[-1] if self.request_positions else 0
        "position of the last recorded model call; 0 if there is none"
        before_last = recording.messages[: self.last_request]
        self.valid = not before_last or is_valid(before_last, self.provider)
        "True if the recorded messages up to the last request follow the rules of ``provider``"
        self.probes: tuple[Probe, ...] = recording.probes if format_probe else ()
        "probes to ask; empty if ``format_probe`` is None"
        self.probe_messages = [format_probe(probe) for probe in self.probes] if format_probe else []
        "message that asks the question of each probe"

    @cached_property
    def needs(self) -> NeedIndex:
        """Index of the needs: entities that a recorded action uses and an earlier message mentioned."""
        workspace = self.recording.meta.get("cwd")
        return NeedIndex(
            self.history,
            render_tools(list(self.recording.tools)),
            workspace=workspace if isinstance(workspace, str) else None,
        )

    @cached_property
    def invalid_requests(self) -> list[bool]:
        """For each recorded model call: True if the provider would reject the full history before it."""
        messages, entries = self.recording.messages, self.history.entries
        if self.valid:
            return [
                not _starts_validly(entries[:position], self.provider)
                for position in self.request_positions
            ]
        return [
            not is_valid(messages[:position], self.provider) for position in self.request_positions
        ]

    @cached_property
    def request_times(self) -> list[datetime | None]:
        """Time of each recorded model call; None if it is unknown."""
        messages = self.recording.messages
        return [request_time(messages, position) for position in self.request_positions]

    @cached_property
    def probes_by_request(self) -> dict[int, list[int]]:
        """Indices of the probes that are asked before each request, by request number.

        The key of probes after the last request is the number of requests.
        """
        found: dict[int, list[int]] = {}
        for number in sorted(range(len(self.probes)), key=self.probe_position):
            request = bisect_left(self.request_positions, self.probe_position(number))
            found.setdefault(request, []).append(number)
        return found

    def probe_position(self, number: int) -> int:
        """Return the number of messages that precede a probe.

        Parameters
        ----------
        number : int
            Index of the probe in ``probes``.

        Returns
        -------
        int
            Number of messages before the probe: all messages if the probe has no position.
        """
        position, messages = self.probes[number].position, len(self.history)
        return messages if position is None else min(max(position, 0), messages)

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Return the needs of a recorded model call, for controls such as ``oracle``.

        A need is an entity, such as a path, that the call uses and an earlier message mentioned.

        Parameters
        ----------
        position : int
            Position of the recorded model call.

        Returns
        -------
        sequence of (int, str)
            For each entity that the call uses: the position of its last mention, and its text.
        """
        return self.needs.needed(position)

    def needed_messages(self, position: int) -> Sequence[tuple[float, Sequence[int]]]:
        """Return the messages that mention what a recorded model call uses, for ``message_oracle``.

        Parameters
        ----------
        position : int
            Position of the recorded model call.

        Returns
        -------
        list of (float, list of int)
            For each need: one divided by the number of needs of its argument, and the positions of
            its earlier mentions in ascending order.
        """
        needs = self.needs
        request = bisect_left(self.request_positions, position)
        if request == len(self.request_positions) or self.request_positions[request] != position:
            return []
        rows = slice(*needs.request_offsets[request : request + 2].tolist())
        arguments = needs.argument[rows].tolist()
        counts = Counter(arguments)
        first = needs.mention_offsets[needs.entity[rows]].tolist()
        stop = (needs.last_mention_row[rows] + 1).tolist()
        return [
            (1 / counts[argument], needs.mentions[i:j].tolist())
            for argument, i, j in zip(arguments, first, stop, strict=True)
        ]

    def passage(self, position: int, text: str) -> str:
        """Return the line of a message that contains an entity, such as a path or an id.

        Parameters
        ----------
        position : int
            Position of the message.
        text : str
            Text of the entity.

        Returns
        -------
        str
            Line with the entity, shortened if it is long.
        """
        return self.needs.passage(position, text)

    @cached_property
    def longest_request_tokens(self) -> int:
        """Number of tokens of the longest request if the full history is sent."""
        requests = map(self.history.full_tokens, self.request_positions)
        return max(requests, default=0) + self.fixed_tokens

    @property
    def description(self) -> dict[str, Any]:
        """Metadata and size of the recording, by name of the column in tables of recordings."""
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
            "tokens": self.history.full_tokens(len(self.history)) + self.fixed_tokens,
            "valid": self.valid,
            "skipped": dict(recording.skipped),
            "warning": missing_calls_warning(recording),
        }

    @cached_property
    def bills(self) -> BilledSession | None:
        """Token counts compared with the provider's bills; None if the recording has no usage data."""
        both = zip(self.history.tokens_before, self.history.reasoning_before, strict=True)
        visible = [tokens - hidden for tokens, hidden in both]
        counts = [after - before for before, after in pairwise(visible)]
        return compare_counts_with_bills(self.recording, counts, self.counter)

    @property
    def _bills_apply(self) -> bool:
        """True if the models of the recording and the counter belong to the same family."""
        model = self.recording.model
        return model is not None and profile_key(model) == profile_key(self.counter.model)

    @property
    def unlogged_tokens(self) -> int | None:
        """Number of tokens per request that were billed but are not in the recording.

        It is None if it is unknown, or if the models of the recording and the counter belong to
        different families.
        """
        return self.bills.fixed if self._bills_apply and self.bills else None

    @property
    def priced_fixed_tokens(self) -> int:
        """Number of unlogged tokens that the cost of each request includes; see ``CostSettings``."""
        given = self.costs.fixed
        return max(self.unlogged_tokens or 0, 0) if given == "recorded" else given

    @cached_property
    def priced_reasoning_tokens(self) -> dict[int, int]:
        """Tokens of the hidden reasoning that the cost of requests includes, by message position.

        They are included where the bills contain them, which is where the bills reveal the unlogged
        tokens; see ``CostSettings.fixed``. It is empty if the tokens of messages include the reasoning,
        or if no reasoning is to be counted; see ``CostSettings.reasoning``.
        """
        follow_bills = self.costs.reasoning == self.costs.fixed == "recorded"
        if not follow_bills or self.unlogged_tokens is None:
            return {}
        found = enumerate(map(self.counter.count_reasoning, self.recording.messages))
        return {place: tokens for place, tokens in found if tokens}

    @cached_property
    def cache_timeline(self) -> CacheTimeline:
        """State of the prompt cache at each request; see ``CostSettings.cache_ttl``."""
        ttl = self.costs.cache_ttl
        if ttl == "recorded" and not self._bills_apply:
            ttl = "5m"
        return build_cache_timeline(self.recording, self.request_positions, self.model.cache, ttl)

    @property
    def manifest_entry(self) -> dict[str, Any]:
        """Entry of the recording in a manifest: ``description``, ``unlogged`` and ``digest``.

        ``unlogged`` is ``unlogged_tokens``.
        """
        return {
            **self.description,
            "unlogged": self.unlogged_tokens,
            "digest": recording_digest(self.recording),
        }

    def make_budget(self, limit: float, reserve: int = 0) -> Budget:
        """Create the budget for a limit, given in tokens or as a fraction of the longest request.

        The limit includes the unlogged tokens if ``costs.fixed_in_limit`` is True.

        Parameters
        ----------
        limit : float
            Number of tokens, or a fraction of the longest request if it is a float of at most 1.
        reserve : int, default 0
            Tokens of the limit kept for the reply.

        Returns
        -------
        Budget
            Budget of each request of this recording.

        Raises
        ------
        SpecError
            If ``limit`` is not positive or not finite.
        """
        if not 0 < limit < math.inf:
            raise SpecError(f"limit: expected a finite number above 0, got {limit}")
        is_share = isinstance(limit, float) and limit <= 1
        unlogged = self.priced_fixed_tokens if self.costs.fixed_in_limit else 0
        tokens = int(limit * (self.longest_request_tokens + unlogged) if is_share else limit)
        return Budget(max(tokens, 1), reserve, self.fixed_tokens, unlogged)


@dataclass
class Trace:
    """Result of replaying one recording through one strategy under one budget.

    The lists have one element per request unless their description says otherwise.
    """

    strategy: Strategy
    "strategy of the configuration"
    budget: Budget
    "budget of each request"
    context: Context
    "context after the last request; it records at which request each message was dropped or edited"
    seeded_strategy: Strategy | None = None
    "strategy that was replayed, if it differs from ``strategy`` by its seed; see ``other_draws``"
    tokens: list[int] = field(default_factory=list)
    "tokens of each request"
    message_counts: list[int] = field(default_factory=list)
    "number of messages of each request"
    unchanged_prefix_tokens: list[int] = field(default_factory=list)
    "tokens of the leading messages of each request that equal those of the previous request"
    system_prompt_tokens: list[int] = field(default_factory=list)
    "tokens of the leading system messages of each request"
    last_message_tokens: list[int] = field(default_factory=list)
    "tokens of the last message of each request"
    violation_counts: list[int] = field(default_factory=list)
    "number of violations of the provider's rules in each request (see metric ``validity``)"
    forked_requests: dict[int, list[Entry]] = field(default_factory=dict)
    """entries (messages with their token counts) of each request that the strategy built on a copy of
    the context (``Context.fork``), by request number"""
    observations: dict[str, list[Any]] = field(default_factory=dict)
    "return values of each observer by name, one value per request"
    preview_entries: list[list[Entry]] = field(default_factory=list)
    "for each probe: entries of the request that would ask the probe; the last one is the question"
    preview_ledgers: list[Ledger] = field(default_factory=list)
    "for each probe: the strategy's events and model calls while it built the request of the probe"
    other_draws: list[Trace] = field(default_factory=list)
    """replays of the same configuration with other seeds, if the strategy is random and has no seed;
    metrics average over them"""

    @property
    def draws(self) -> list[Trace]:
        """Trace itself, followed by the replays of the same configuration with other seeds."""
        return [self, *self.other_draws]

    @cached_property
    def verbatim_in_forks(self) -> dict[int, list[int]]:
        """Positions of the unchanged messages in each of the ``forked_requests``, by request number."""
        return {
            request: [e.start for e in entries if e.is_verbatim and not e.is_aggregate]
            for request, entries in self.forked_requests.items()
        }

    def add_request(self, sent: Context, prepared: PreparedRecording) -> None:
        """Measure the next request.

        Parameters
        ----------
        sent : Context
            Context that the strategy returned: ``context`` or a copy of it.
        prepared : PreparedRecording
            Recording that is replayed.
        """
        entries = sent.entries
        self.tokens.append(sent.tokens + self.budget.fixed)
        self.message_counts.append(len(entries))
        self.unchanged_prefix_tokens.append(sent.unchanged_tokens)
        self.system_prompt_tokens.append(sent.system_tokens)
        self.last_message_tokens.append(entries[-1].tokens if entries else 0)
        if sent is not self.context:
            kept = entries.copy() if sent.is_persistent else entries
            self.forked_requests[self.context.request_index] = kept
        if prepared.valid and not sent.maybe_invalid:
            self.violation_counts.append(not _starts_validly(entries, prepared.provider))
        else:
            self.violation_counts.append(len(find_violations(sent.messages, prepared.provider)))


def replay_trace(
    prepared: PreparedRecording,
    strategy: Strategy,
    budget: Budget,
    observers: Mapping[str, RequestObserver] | None = None,
) -> Trace:
    """Replay a recording through one strategy under one budget, and build the previews of its probes.

    A preview is the request that would ask a probe. Previews do not affect the replay.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording to replay.
    strategy : Strategy
        Strategy that builds each request.
    budget : Budget
        Maximum number of tokens of each request.
    observers : mapping of str to callable, optional
        Functions by name. Each is called with every request, and its return values are stored in
        ``Trace.observations``.

    Returns
    -------
    Trace
        Measurements of each request, and a preview of each probe.

    Raises
    ------
    StrategyError
        If the strategy fails. The message names the recording and the position.
    """
    context = Context(budget, prepared.history)
    observers = observers or {}
    trace = Trace(strategy, budget, context, observations={name: [] for name in observers})
    trace.preview_entries = [[] for _ in prepared.probes]
    trace.preview_ledgers = [Ledger(prepared.history) for _ in prepared.probes]
    for position, time in zip(prepared.request_positions, prepared.request_times, strict=True):
        if prepared.probes:
            _preview_probes(prepared, trace)
        context.advance(position)
        context.set_time(time)
        sent = apply_strategy(strategy, context, prepared.recording.id)
        trace.add_request(sent, prepared)
        for name, observe in observers.items():
            trace.observations[name].append(observe(sent))
        context.commit_request(sent)
    _preview_probes(prepared, trace)
    context.advance(len(prepared.history))
    return trace


class EvidenceOracleInfo:
    """Source of information for oracles: a probe's evidence that fits the budget.

    ``needed`` chooses the shortest messages first, so that as many evidence messages as possible fit.

    Parameters
    ----------
    context : Context
        Context before the probe is asked.
    probe : Probe
        Probe with the positions of its evidence.
    question : Message
        Message that asks the question of the probe.
    """

    def __init__(self, context: Context, probe: Probe, question: Message) -> None:
        self._context, self._probe, self._question = context, probe, question

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Return the positions of the evidence messages that fit the budget.

        Parameters
        ----------
        position : int
            Position of the request; not used.

        Returns
        -------
        list of (int, str)
            Positions in ascending order, each with an empty string, because the whole message is
            needed and not a single entity.
        """
        context, history = self._context, self._context.history
        room = context.available - history.tokens_before[history.head_length]
        room -= history.counter.count_message(self._question)
        first, end = history.head_length, context.history_length
        places = [place for place in self._probe.evidence if first <= place < end]
        found = []
        for place in sorted(places, key=lambda place: history.entries[place].tokens):
            room -= history.entries[place].tokens
            if room < 0:
                break
            found.append((place, ""))
        return sorted(found)

    def needed_messages(self, position: int) -> Sequence[tuple[float, Sequence[int]]]:
        """Return the positions of all evidence messages before the probe.

        Parameters
        ----------
        position : int
            Position of the request; not used.

        Returns
        -------
        list of (float, list of int)
            One pair for each evidence message: 1.0 and its position.
        """
        end = self._context.history_length
        return [(1.0, [place]) for place in sorted(self._probe.evidence) if 0 <= place < end]

    def passage(self, position: int, text: str) -> str:
        """Return the whole text of a message.

        Parameters
        ----------
        position : int
            Position of the message.
        text : str
            Not used.

        Returns
        -------
        str
            Text of the message without surrounding whitespace.
        """
        return message_text(self._context.history[position]).strip()


def _preview_probes(prepared: PreparedRecording, trace: Trace) -> None:
    """Build the requests that would ask the probes positioned before the next recorded request."""
    context = trace.context
    for number in prepared.probes_by_request.get(context.request_index, ()):
        position = prepared.probe_position(number)
        context.advance(position)
        context.set_time(request_time(prepared.recording.messages, position))
        asked = prepared.probe_messages[number]
        oracle_info = EvidenceOracleInfo(context, prepared.probes[number], asked)
        apart = preview_question(context, asked, oracle_info)
        sent = apply_strategy(trace.strategy, apart, prepared.recording.id)
        context.budget_read = context.budget_read or apart.budget_read
        trace.preview_entries[number] = sent.entries
        trace.preview_ledgers[number].events = apart.events
        trace.preview_ledgers[number].model_calls = apart.model_calls


def apply_strategy(strategy: Strategy, context: Context, recording: str) -> Context:
    """Apply a strategy to the context before a request.

    Parameters
    ----------
    strategy : Strategy
        Strategy to apply.
    context : Context
        Context to edit.
    recording : str
        Id of the recording, for error messages.

    Returns
    -------
    Context
        Context to send: the same one, or a copy of it.

    Raises
    ------
    StrategyError
        If the strategy fails. The message has the recording and the number of messages so far.
    """
    try:
        sent: object = strategy(context)
        if not isinstance(sent, Context):
            raise TypeError(f"expected the strategy to return a Context, got {sent!r}")
    except Exception as error:
        if isinstance(error, CtxlabError) and not isinstance(error, StrategyError):
            raise
        where = f"message {context.history_length} of {recording}"
        what = (
            str(error) if isinstance(error, StrategyError) else f"{type(error).__name__}: {error}"
        )
        raise StrategyError(f"{strategy!r} failed at {where}: {what}") from error
    return sent


def _starts_validly(entries: Sequence[Entry], provider: str) -> bool:
    """Check if a request has a message after its system messages.

    For Anthropic, this message must be a user message.
    """
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
    """Replay a recording through each strategy under each budget.

    A strategy that never reads its budget builds the same requests under all budgets. It is
    therefore replayed only once, unless there are observers. A random strategy without a seed is
    replayed with several seeds (see ``Trace.other_draws``).

    Parameters
    ----------
    prepared : PreparedRecording
        Recording to replay.
    strategies : sequence of Strategy
        Strategies to replay the recording through.
    budgets : sequence of Budget
        Budgets to apply to each strategy.
    observers : mapping of str to callable, optional
        Functions by name. Each is called with every request, and its return values are stored in
        ``Trace.observations``.

    Returns
    -------
    list of Trace
        One trace per configuration, ordered by budget, then by strategy.
    """
    traces: list[Trace] = []
    blind: dict[int, Trace] = {}
    for budget in budgets:
        for number, strategy in enumerate(strategies):
            if number in blind:
                trace = replace(blind[number], budget=budget)
            else:
                trace, *others = (
                    replace(
                        replay_trace(prepared, seeded, budget, observers),
                        strategy=strategy,
                        seeded_strategy=seeded,
                    )
                    for seeded in seeded_strategies(strategy)
                )
                trace.other_draws = others
                if not trace.context.budget_read and not observers:
                    blind[number] = trace
            traces.append(trace)
    return traces


def distinct_replays(traces: Iterable[Trace]) -> tuple[list[Trace], list[int]]:
    """Find the distinct replays of traces, so that measurements are computed once per replay.

    The traces of a strategy under several budgets share one replay if it never reads its budget.

    Parameters
    ----------
    traces : iterable of Trace
        Traces of one recording.

    Returns
    -------
    replays : list of Trace
        One trace of each distinct replay.
    order : list of int
        For each trace, the index of its replay in ``replays``.
    """
    traces = list(traces)
    replays = {id(trace.context): trace for trace in traces}
    rows = {key: row for row, key in enumerate(replays)}
    return list(replays.values()), [rows[id(trace.context)] for trace in traces]
