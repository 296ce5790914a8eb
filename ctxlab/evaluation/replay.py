"""Inspect the replay of one recording through one strategy, request by request.

The tables show which messages the strategy drops from the conversation, and which later tool calls
needed them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace, replay_trace
from ctxlab.evaluation.grid import StrategyLike, measure_metrics, resolve_strategy
from ctxlab.evaluation.metrics import DEFAULT_METRICS, METRICS
from ctxlab.evaluation.metrics.compactions import find_compactions
from ctxlab.evaluation.metrics.cost import split_cost
from ctxlab.evaluation.metrics.probes import measure_probe_visibility
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.sent import SentRequest
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.llm import default_client
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording
from ctxlab.strategies import models_used
from ctxlab.tokens.model_choice import ModelChoice

MESSAGE_STATES: tuple[str, ...] = ("absent", *(form.value for form in Form), "dropped")
"""States of a message in a request. An ``absent`` message comes after the request."""

_INTEGER_COLUMNS = [
    column.name for name in DEFAULT_METRICS for column in METRICS[name].columns if column.integer
]
_STATE_CODES = {state: code for code, state in enumerate(MESSAGE_STATES)}


@dataclass(frozen=True)
class Replay:
    """Replay of one recording through one strategy, with tables of its requests, needs and probes.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.replay(recording, "sliding_window()", 8000)
    >>> len(found.requests) == len(found.states)
    True
    >>> bool(found.requests["tokens"].max() <= 8000)
    True
    >>> sorted(set(found.needs.query("far")["tier"]))
    ['held', 'lost']
    """

    prepared: PreparedRecording
    "the recording that was replayed, with its token counts"
    trace: Trace
    "measurements of the requests that the strategy built"

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Table with one row per request: position in the recording and the columns of each metric."""
        columns = measure_metrics(
            [METRICS[name] for name in DEFAULT_METRICS], self.prepared, [self.trace]
        ).items()
        places = {"position": self.prepared.request_positions}
        frame = pd.DataFrame({**places, **{name: column[0] for name, column in columns}})
        if len(self.trace.draws) == 1:
            frame = frame.astype(dict.fromkeys(_INTEGER_COLUMNS, np.int64))
        return frame.rename_axis("request")

    @cached_property
    def needs(self) -> pd.DataFrame:
        """Table of needs: entities that tool calls used, their last mentions, and their visibility.

        There is one row per need. ``tier`` is ``held``, ``named``, ``pointer`` or ``lost`` (see
        ``ctxlab.evaluation.metrics.recall``). ``similar`` is True if a path is not in view, but its
        folder and name are. ``origin`` is the role of the message that mentioned the entity first.
        ``gap`` is the number of tokens since the last mention, and ``far`` is True if it exceeds
        4,000.
        """
        needs = self.prepared.needs
        kept = measure_need_visibility(needs, [self.trace])
        rows = [needs.get_need(i) for i in range(len(needs))]
        positions = self.prepared.request_positions
        tiers = [kept.held[0], kept.in_view[0], kept.fetchable[0]]
        tier = np.select(tiers, ["held", "named", "pointer"], "lost")
        return pd.DataFrame(
            {
                "request": _positions(n.argument.request for n in rows),
                "position": _positions(positions[n.argument.request] for n in rows),
                "tool": _texts(n.argument.tool for n in rows),
                "argument": _texts(n.argument.path for n in rows),
                "kind": _texts(n.entity.kind for n in rows),
                "entity": _texts(n.entity.text for n in rows),
                "origin": _texts(n.origin_role for n in rows),
                "last": _positions(n.last_mention for n in rows),
                "gap": _positions(n.gap_tokens for n in rows),
                "far": np.array([n.gap_tokens > FAR_TOKENS for n in rows], dtype=bool),
                "tier": _texts(map(str, tier)),
                "similar": kept.similar[0],
            }
        )

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Rows of ``needs`` that were not in view, the largest loss first, and each entity once.

        Lost needs come before those that can be fetched again, and far ones before others. Among
        equals, those whose last mention is further back come first.
        """
        missed = self.needs[self.needs["tier"].isin(["pointer", "lost"])]
        ordered = missed.sort_values(["tier", "far", "gap"], ascending=[True, False, False])
        return ordered.drop_duplicates("entity")

    @cached_property
    def probes(self) -> pd.DataFrame:
        """Table of probes: the share of their evidence in view, and whether an answer was in view.

        There is one row per probe. ``request`` is the number of the request that follows the probe,
        or of the last request if none follows. ``evidence`` is the share of the probe's evidence
        messages in view, and ``pointer`` is the share that is not in view but can be fetched again.
        Both shares are nan if the probe names no evidence. ``answer`` is True if the request
        contains an acceptable answer, and <NA> if the probe has no answer (see
        ``ctxlab.evaluation.metrics.probes``). ``tokens`` is the size of the request including the
        question.
        """
        prepared = self.prepared
        seen, probes = measure_probe_visibility(prepared, [self.trace]), prepared.probes
        requests = {i: at for at, numbers in prepared.probes_by_request.items() for i in numbers}
        last = len(prepared.request_positions) - 1
        named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)
        answered = zip(probes, seen.answer_in_view[0], strict=True)
        in_view = [bool(there) if probe.answers else None for probe, there in answered]
        return pd.DataFrame(
            {
                "id": _texts(probe.id for probe in probes),
                "category": _texts(probe.category for probe in probes),
                "question": _texts(probe.question for probe in probes),
                "request": _positions(min(requests[i], last) for i in range(len(probes))),
                "position": _positions(map(prepared.probe_position, range(len(probes)))),
                "evidence": np.where(named, seen.evidence_in_view[0], np.nan),
                "pointer": np.where(named, seen.evidence_fetchable[0], np.nan),
                "answer": pd.array(in_view, dtype="boolean"),
                "tokens": seen.request_tokens[0].astype(np.int64),
            }
        )

    @cached_property
    def compactions(self) -> pd.DataFrame:
        """Table with one row per compaction: a request that changes what the previous one sent.

        The columns are those of ``Results.compactions`` without the names of the recording and the
        configuration.
        """
        return pd.DataFrame(find_compactions(self.prepared, [self.trace]).columns())

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Table with the input cost of each request in USD, by what the provider bills.

        ``cache_read``: tokens read from the prompt cache; ``cache_write``: tokens written to it;
        ``uncached``: other tokens; ``strategy``: the strategy's own model calls. The sum is the
        column ``cost_usd`` of ``requests``. It is nan if the prices of the model are unknown.
        """
        figures = measure_metrics([METRICS["cost"]], self.prepared, [self.trace])
        tokens = {name: values[0] for name, values in figures.items()}
        split = split_cost(self.prepared, tokens)
        return pd.DataFrame({**split, "strategy": tokens["strategy_usd"]}).rename_axis("request")

    @cached_property
    def contents(self) -> pd.DataFrame:
        """Table with the tokens of each request by what they are: one column per role and tool.

        Columns are ``system``, ``user`` and ``assistant``, ``results of`` each tool, and ``tools and
        framing`` for tool definitions and the framing of the reply. The largest sums come
        first. The recording is replayed once more, because a replay keeps no messages.
        """
        fixed = self.trace.budget.fixed
        tools = {c.id: c.name for m in self.prepared.recording.messages for c in m.tool_calls}

        def observe(sent: Context) -> dict[str, int]:
            sums: dict[str, int] = {"tools and framing": fixed}
            for entry in sent.entries:
                message = entry.message
                name: str = message.role
                if name == "tool":
                    name = f"results of {message.name or tools.get(message.tool_call_id or '', '')}"
                sums[name] = sums.get(name, 0) + entry.tokens
            return sums

        rows = self._observe(observe)
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = np.array([[row.get(name, 0) for name in names] for row in rows], np.int64)
        table = table.reshape(len(rows), len(names))
        order = np.argsort(-table.sum(axis=0), kind="stable")
        # Names of tools may contain lone surrogates, so the columns are objects.
        columns = pd.Index([names[i] for i in order], dtype=object)
        frame = pd.DataFrame(table[:, order], columns=columns)
        return frame.rename_axis("request")

    def _observe(self, observe: RequestObserver) -> list[Any]:
        """Replay the recording once more, and return what a function finds in each request."""
        seeded = self.trace.seeded_strategy or self.trace.strategy
        again = replay_trace(self.prepared, seeded, self.trace.budget, {"seen": observe})
        return again.observations["seen"]

    @cached_property
    def states(self) -> npt.NDArray[np.int8]:
        """Array with the state of each message in each request.

        Its shape is ``(requests, messages)``. Its values are indices into ``MESSAGE_STATES``.
        """
        context, positions = self.trace.context, np.array(self.prepared.request_positions)
        requests, messages = len(positions), len(context.dropped_at)
        numbers = np.arange(requests)[:, None]
        died = np.array(context.dropped_at)[None, :]
        verbatim, dropped = _STATE_CODES["verbatim"], _STATE_CODES["dropped"]
        states = np.where(died > numbers, verbatim, dropped).astype(np.int8)
        for entry in context.edited_entries:
            rows = slice(entry.since, min(entry.until, requests))
            block = states[rows, entry.start : entry.stop]
            block[block != verbatim] = _STATE_CODES[entry.form.value]
        for request, entries in self.trace.forked_requests.items():
            states[request] = dropped
            for entry in entries:
                block = states[request, entry.start : entry.stop]
                block[block != verbatim] = _STATE_CODES[entry.form.value]
        states[np.arange(messages)[None, :] >= positions[:, None]] = _STATE_CODES["absent"]
        return states

    def sent(self, request: int) -> SentRequest:
        """Return the messages of one request, with what each stands for.

        The recording is replayed once more, because a replay keeps no messages.

        Parameters
        ----------
        request : int
            Number of the request, from 0. A negative number counts from the end.

        Returns
        -------
        SentRequest
            Messages of the request, as a table, and with a method ``diff``.

        Raises
        ------
        IndexError
            If the recording has no such request.
        """
        number = self._number(request)

        def observe(sent: Context) -> tuple[Entry, ...]:
            return tuple(sent.entries) if sent.request_index == number else ()

        return self.make_sent(number, self._observe(observe)[number])

    def diff(self, request: int, other: Replay | None = None) -> pd.DataFrame:
        """Compare one request with that of the full history, or of another strategy.

        Parameters
        ----------
        request : int
            Number of the request, from 0. A negative number counts from the end.
        other : Replay, optional
            Replay of the same recording through another strategy. None compares with the full history.

        Returns
        -------
        pandas.DataFrame
            One row per message that differs; see ``SentRequest.diff``.

        Raises
        ------
        IndexError
            If the recording has no such request.
        """
        number = self._number(request)
        if other is not None:
            return self.sent(number).diff(other.sent(number))
        whole = tuple(self.prepared.history.entries[: self.prepared.request_positions[number]])
        return self.sent(number).diff(self.make_sent(number, whole, "full()"))

    def _number(self, request: int) -> int:
        count = len(self.prepared.request_positions)
        if not -count <= request < count:
            raise IndexError(f"Expected a request from 0 to {count - 1}, got {request}")
        return request % count

    def sent_entries(self) -> list[tuple[Entry, ...]]:
        """Return the messages of all requests. The recording is replayed once more.

        Returns
        -------
        list of tuple of Entry
            Messages of each request.
        """
        return self._observe(lambda sent: tuple(sent.entries))

    def make_sent(
        self, number: int, entries: tuple[Entry, ...], strategy: str | None = None
    ) -> SentRequest:
        """Describe a request of which the messages are known.

        Parameters
        ----------
        number : int
            Number of the request, from 0.
        entries : tuple of Entry
            Messages of the request.
        strategy : str, optional
            Text form of the strategy that built the request; that of the replay if left out.

        Returns
        -------
        SentRequest
            Messages of the request, as a table.
        """
        tokens = sum(each.tokens for each in entries) + self.trace.budget.fixed
        position = self.prepared.request_positions[number]
        name = repr(self.trace.strategy) if strategy is None else strategy
        return SentRequest(name, number, position, entries, tokens)

    def __repr__(self) -> str:
        """Return a string with the recording's id, the strategy and the number of requests."""
        name, strategy = self.prepared.recording.id, self.trace.strategy
        return f"<{name} through {strategy!r}: {len(self.trace.tokens)} requests>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.replay_html import replay_html

        return replay_html(self)


def _positions(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.fromiter(values, np.int64)


def _texts(values: Iterable[str | None]) -> pd.Series[Any]:
    """Return texts as objects, because texts of logs may contain lone surrogates."""
    return pd.Series(list(values), dtype=object)


def replay(
    recording: Recording,
    strategy: StrategyLike,
    budget: Budget | float,
    model: str | None = None,
    client: Client | None = None,
) -> Replay:
    """Replay one recording through one strategy, and return the details for inspection.

    Parameters
    ----------
    recording : Recording
        Recording to replay.
    strategy : Strategy, str or callable
        Strategy to apply before each request.
    budget : Budget or float
        Budget of each request. A number is the limit in tokens, or a fraction of the recording's
        length if it is a float of at most 1.
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of the recording.
    client : Client, optional
        Client for the model calls of the strategy. None calls the provider and caches replies in
        ``.ctxlab/calls``.

    Returns
    -------
    Replay
        Replay with its requests, needs, probes and message states.

    Raises
    ------
    StrategyError
        If the strategy fails.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.replay(recording, "observation_mask(keep=10) | panic()", 8000)
    >>> found
    <coding-agent/check-digits-1 through observation_mask() | panic(): 120 requests>
    >>> found.needs["tier"].unique().tolist()
    ['held', 'pointer', 'lost']
    """
    chosen = resolve_strategy(strategy)
    if client is None and models_used(chosen):
        client = default_client()
    prepared = PreparedRecording(recording, ModelChoice(model).counter_for(recording), client)
    limit = budget if isinstance(budget, Budget) else prepared.make_budget(budget)
    return Replay(prepared, replay_trace(prepared, chosen, limit))
