"""Base class of plans: a plan asks a model questions about recordings and scores its replies.

A recording is replayed as in ``evaluate``. A plan then sends one request to a model for each
configuration (a strategy and a limit) and question. A question is a probe, or asks for the next
action at a recorded request. Configurations that need the same request share its replies. A subclass
of ``ProbingPlan`` builds the requests and scores the replies. The base class estimates the cost,
sends the requests and collects the results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace, replay_traces
from ctxlab.evaluation.grid import ExperimentGrid
from ctxlab.evaluation.metrics.base import Figures, FloatArray, Score
from ctxlab.evaluation.metrics.strategy_calls import collect_strategy_calls
from ctxlab.evaluation.probing.results import AnsweredResults
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.results_builder import ResultsBuilder
from ctxlab.llm.base import Client, Reply, Request
from ctxlab.llm.batch import (
    RequestEstimate,
    add_cache_hint,
    build_cost_limited_client,
    cache_only_client,
    estimate_requests,
    iter_replies,
)
from ctxlab.messages.types import Message, Recording
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_provider

Answer: TypeAlias = Reply | ModelUnavailable
"""A reply, or the error that explains why a request has no reply."""
Row: TypeAlias = dict[str, Any]
"""Answer with its scores: a row of ``AnsweredResults.answers``."""
SentMessages: TypeAlias = tuple[Message, ...]
"""Messages of one request."""


@dataclass(frozen=True)
class ProbingRequests:
    """Requests to the answer model about one recording, for all configurations."""

    plan: ProbingPlan[Any]
    "plan that built the requests"
    prepared: PreparedRecording
    "recording that the requests are about"
    traces: list[Trace]
    """one replay per configuration, in the order of ``ExperimentGrid.configurations``; empty if the
    recording has no question"""
    positions: Sequence[int]
    "for each question: position of the recorded message to predict, or index of the probe to ask"
    sent: Sequence[Sequence[SentMessages]]
    "messages of the request for each configuration and question"
    tools: Callable[[SentMessages], tuple[dict[str, Any], ...]]
    "function that returns the tool definitions to send with the given messages"
    facts: dict[str, Any] = field(default_factory=dict)
    "additional values for the recording's entry in the manifest"

    @cached_property
    def _numbers(self) -> dict[SentMessages, int]:
        """Distinct sequences of messages that the provider accepts, numbered from 0."""
        provider = rules_provider(self.plan.answer_model)
        distinct = dict.fromkeys(messages for row in self.sent for messages in row)
        valid = (messages for messages in distinct if is_valid(messages, provider))
        return {messages: number for number, messages in enumerate(valid)}

    @cached_property
    def request_index(self) -> list[list[int]]:
        """Index of the distinct request for each configuration and question.

        Replicates of a request have the same index. A request that the provider would reject has
        the index -1.
        """
        return [[self._numbers.get(messages, -1) for messages in row] for row in self.sent]

    @cached_property
    def requests(self) -> list[Request]:
        """Requests to send: ``replicates`` adjacent copies of each distinct request.

        Configurations and questions that need the same request share its replies.
        """
        model, max_tokens = self.plan.answer_model, self.plan.max_tokens
        return [
            Request(model, messages, tools, max_tokens, replicate=replicate)
            for messages in self._numbers
            for tools in [self.tools(messages)]
            for replicate in range(self.plan.replicates)
        ]

    def arrange(self, replies: Sequence[Answer]) -> Iterator[tuple[int, int, int, Answer | None]]:
        """Arrange the replies to ``requests`` by configuration, question and replicate.

        Parameters
        ----------
        replies : sequence of Reply or ModelUnavailable
            One reply per request.

        Yields
        ------
        tuple of (int, int, int, Reply or ModelUnavailable or None)
            Indices of configuration, question and replicate, and the reply. The reply is None if the
            request was not sent.
        """
        several = self.plan.replicates
        for c, row in enumerate(self.request_index):
            for (q, at), r in product(enumerate(row), range(several)):
                yield c, q, r, None if at < 0 else replies[at * several + r]

    def stack(self, rows: Sequence[Row], name: str) -> FloatArray:
        """Convert one numeric column of the answers to an array.

        Parameters
        ----------
        rows : sequence of dict
            One row per answer, in the order of ``arrange``.
        name : str
            Name of the column.

        Returns
        -------
        numpy.ndarray of shape (configurations, questions, replicates)
            Values of the column.
        """
        shape = len(self.traces), len(self.positions), self.plan.replicates
        return np.array([row[name] for row in rows], dtype=np.float64).reshape(shape)


ResultsT = TypeVar("ResultsT", bound=AnsweredResults)


class ProbingPlan(ABC, Generic[ResultsT]):
    """Base class of plans: a plan builds questions about recordings and scores the replies."""

    grid: ExperimentGrid
    "strategies, limits, and the models that count tokens"
    answer_model: str
    "model that answers the requests"
    replicates: int
    "number of times that each request is sent"
    max_tokens: int | None
    "maximum tokens of a reply; None sets no limit"
    results: type[ResultsT]
    "class of the results that ``run`` returns"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a setting of this base class is not valid."""
        if not self.answer_model:
            raise SpecError("answer_model: expected the name of a model, got an empty string")
        for name in ("replicates", "max_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SpecError(f"{name}: expected at least 1, got {value}")

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Names of the columns that ``score`` computes for each question."""

    @property
    @abstractmethod
    def scores(self) -> Sequence[Score]:
        """Scores of the leaderboard, in the order of its columns."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Settings of the plan, as stored in the manifest."""

    @property
    def models(self) -> tuple[str, ...]:
        """Models that receive requests: the answer model, followed by the judges."""
        return (self.answer_model,)

    @abstractmethod
    def make_requests(self, recording: Recording, client: Client | None = None) -> ProbingRequests:
        """Replay one recording, and build the requests that ask about it.

        Parameters
        ----------
        recording : Recording
            Recording to replay.
        client : Client, optional
            Client for the model calls that strategies make during the replay.

        Returns
        -------
        ProbingRequests
            Distinct requests, and the request that each configuration needs for each question.
        """

    @abstractmethod
    def score(
        self,
        batch: ProbingRequests,
        replies: Sequence[Answer],
        verdicts: Sequence[Mapping[Any, Answer]],
    ) -> tuple[list[Row], Figures]:
        """Score the answers to the questions about one recording.

        Parameters
        ----------
        batch : ProbingRequests
            Requests about the recording.
        replies : sequence of Reply or ModelUnavailable
            One reply per request of ``batch.requests``.
        verdicts : sequence of mapping
            Replies of the judges, one mapping per judge with the keys of ``judge_requests``.

        Returns
        -------
        rows : list of dict
            One row per answer, in the order of ``ProbingRequests.arrange``.
        figures : mapping of str to numpy.ndarray of shape (configurations, questions)
            Values of each column of ``columns``.
        """

    @abstractmethod
    def explain_nothing(self, recordings: Sequence[Mapping[str, Any]]) -> str:
        """Explain why no request can be made about any recording.

        Parameters
        ----------
        recordings : sequence of mapping
            Manifest entries of all recordings.

        Returns
        -------
        str
            Reason, used as the message of an error.
        """

    def judge_requests(
        self, batch: ProbingRequests, replies: Sequence[Answer]
    ) -> list[dict[Any, Request]]:
        """Build the requests to the judges, which are the models after the first one in ``models``.

        Plans whose replies are not graded by judges return an empty list.

        Parameters
        ----------
        batch : ProbingRequests
            Requests about a recording.
        replies : sequence of Reply or ModelUnavailable
            One reply per request of ``batch.requests``.

        Returns
        -------
        list of dict
            One mapping of keys to requests per judge. The plan chooses the keys.
        """
        return []

    def replay(
        self, prepared: PreparedRecording, observers: Mapping[str, RequestObserver] | None = None
    ) -> list[Trace]:
        """Replay a recording through every configuration.

        Parameters
        ----------
        prepared : PreparedRecording
            Recording to replay.
        observers : mapping of str to callable, optional
            Functions by name. Each is called with the context of every request, and its results are
            stored in the trace.

        Returns
        -------
        list of Trace
            One trace per configuration, in the order of ``ExperimentGrid.configurations``.
        """
        budgets = [prepared.make_budget(limit, self.grid.reserve) for limit in self.grid.limits]
        return replay_traces(prepared, self.grid.strategies, budgets, observers)

    def estimate_cost(
        self, recordings: Iterable[Recording], client: Client, progress: bool | None = None
    ) -> list[RequestEstimate]:
        """Estimate the maximum cost of a run; no model is called. Cached replies are free.

        The estimate does not include model calls that strategies make. If the reply to such a call
        is not cached, the strategy is replayed without it, and the contexts that it builds are
        approximations.

        Parameters
        ----------
        recordings : iterable of Recording
            Recordings of the run.
        client : Client
            Client of the run, whose cache is read.
        progress : bool, optional
            Show a progress bar. None shows it only on a terminal.

        Returns
        -------
        list of RequestEstimate
            Number and cost of the requests to each model of ``models``.
        """
        nobody, seen = cache_only_client(client), set[str]()
        totals = [RequestEstimate() for _ in self.models]
        for recording in track(recordings, "recordings examined", None, progress):
            found = self.estimate_batch(self.make_requests(recording, nobody), client, seen)
            totals = [total.plus(one) for total, one in zip(totals, found, strict=True)]
        return totals

    def estimate_batch(
        self, batch: ProbingRequests, client: Client, seen: set[str]
    ) -> list[RequestEstimate]:
        """Estimate the cost of the requests about one recording.

        Parameters
        ----------
        batch : ProbingRequests
            Requests about the recording.
        client : Client
            Client of the run, whose cache is read.
        seen : set of str
            Cache keys of the requests counted so far, which are not counted again. The method adds
            the keys of this batch.

        Returns
        -------
        list of RequestEstimate
            Number and cost of the requests to each model of ``models``.
        """
        return [estimate_requests(batch.requests, client, seen)]

    def run(
        self,
        recordings: Iterable[Recording],
        client: Client | None,
        data: Sequence[str] = (),
        progress: bool | None = None,
        total: int | None = None,
        max_cost: float | None = None,
    ) -> ResultsT:
        """Send the requests about all recordings, one recording at a time, and score the replies.

        Parameters
        ----------
        recordings : iterable of Recording
            Recordings to ask about.
        client : Client or None
            Client that sends the requests. None calls the provider and caches replies in
            ``.ctxlab/calls``.
        data : sequence of str, optional
            Sources of the recordings, such as paths, for the manifest.
        progress : bool, optional
            Show a progress bar. None shows it only on a terminal.
        total : int, optional
            Expected number of replies, for the progress bar.
        max_cost : float, optional
            Maximum cost of the run in USD. None sets no limit.

        Returns
        -------
        AnsweredResults
            Scores of each question, and all answers.

        Raises
        ------
        SpecError
            If there is no request to send.
        """
        if client is None or max_cost is not None:
            client = build_cost_limited_client(max_cost, client=client)
        table = ResultsBuilder(self.columns, self.grid.configurations, self.scores)
        answers: list[Row] = []
        work = self._ask_recordings(recordings, client, table, answers)
        with add_cache_hint(client), closing(work):
            for _ in track(work, "questions answered", total, progress):
                pass
        if not answers:
            raise SpecError(self.explain_nothing(table.recordings))
        manifest = self.grid.manifest(data, table.models) | {self.results.kind: self.settings}
        del manifest["spec"]["metrics"]  # Without it, the spec can be run with default metrics.
        return self.results(Results.from_builder(table, manifest), pd.DataFrame(answers))

    def _ask_recordings(
        self,
        recordings: Iterable[Recording],
        client: Client,
        table: ResultsBuilder,
        answers: list[Row],
    ) -> Generator[None, None, None]:
        """Ask about each recording, and add the results to ``table`` and ``answers``.

        Yield after each reply, for a progress bar.
        """
        for recording in recordings:
            batch = self.make_requests(recording, client)
            table.add_recording(batch.prepared.manifest_entry | batch.facts)
            if not batch.traces:
                continue
            replies = yield from _collect(batch.requests, client)
            table.calls.add(collect_strategy_calls(batch.traces))
            table.calls.add_replies(self.answer_model, replies)
            judging, verdicts = self.judge_requests(batch, replies), []
            for judge, wanted in zip(self.models[1:], judging, strict=True):
                said = yield from _collect([*wanted.values()], client)
                table.calls.add_replies(judge, said)
                verdicts.append(dict(zip(wanted, said, strict=True)))
            rows, figures = self.score(batch, replies, verdicts)
            table.add_columns([trace.budget.limit for trace in batch.traces], figures)
            names = {key: table.recordings[-1][key] for key in ("recording", "cluster")}
            answers += [{**names, **row} for row in rows]


def _collect(requests: Sequence[Request], client: Client) -> Generator[None, None, list[Answer]]:
    """Send requests, and yield after each reply, for a progress bar.

    The generator returns the replies in the order of the requests.
    """
    found: dict[int, Answer] = {}
    with closing(iter_replies(requests, client)) as each:
        for place, reply in each:
            found[place] = reply
            yield
    return [found[place] for place in range(len(requests))]
