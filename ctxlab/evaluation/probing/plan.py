"""Plans that ask a model about recordings: requests for every configuration, replies, results.

A recording is replayed as in ``evaluate``. Each configuration needs one request per question, and
equal requests are sent once. A plan knows what to ask and how to score the replies; asking, the
estimate of the cost and the collection of the results are the same for all plans.
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
from ctxlab.evaluation.experiment import ExperimentGrid
from ctxlab.evaluation.metrics.base import Figures, FloatArray, Score
from ctxlab.evaluation.metrics.strategy_calls import collect_strategy_calls
from ctxlab.evaluation.probing.results import AnsweredResults
from ctxlab.evaluation.results import Results, ResultsBuilder
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
"""A reply, or the reason why there is none."""
Row: TypeAlias = dict[str, Any]
"""An answer with its scores, as a row of ``AnsweredResults.answers``."""
SentMessages: TypeAlias = tuple[Message, ...]
"""The messages of a request."""


@dataclass(frozen=True)
class ProbingRequests:
    """Requests about one recording, for all configurations."""

    plan: ProbingPlan[Any]
    "what is asked of which model, and how often"
    prepared: PreparedRecording
    "the recording"
    traces: list[Trace]
    """one replay per configuration, in the order of ``ExperimentGrid.configurations``; none if
    there is no question"""
    positions: Sequence[int]
    "the questions: positions of recorded messages to predict, or numbers of probes"
    sent: Sequence[Sequence[SentMessages]]
    "messages by configuration and question"
    tools: Callable[[SentMessages], tuple[dict[str, Any], ...]]
    "returns the tool definitions to send with some messages"
    facts: dict[str, Any] = field(default_factory=dict)
    "more about the recording for the manifest"

    @cached_property
    def _numbers(self) -> dict[SentMessages, int]:
        """Numbers of the distinct messages that the provider accepts."""
        provider = rules_provider(self.plan.answer_model)
        distinct = dict.fromkeys(messages for row in self.sent for messages in row)
        valid = (messages for messages in distinct if is_valid(messages, provider))
        return {messages: number for number, messages in enumerate(valid)}

    @cached_property
    def request_index(self) -> list[list[int]]:
        """By configuration and question, the number of the request before replicates; -1 if invalid."""
        return [[self._numbers.get(messages, -1) for messages in row] for row in self.sent]

    @cached_property
    def requests(self) -> list[Request]:
        """The distinct requests; the replicates of each are adjacent."""
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
            Configuration, question, replicate and reply; None for a request that was not sent.
        """
        several = self.plan.replicates
        for c, row in enumerate(self.request_index):
            for (q, at), r in product(enumerate(row), range(several)):
                yield c, q, r, None if at < 0 else replies[at * several + r]

    def stack(self, rows: Sequence[Row], name: str) -> FloatArray:
        """Return a figure of the answers as an array.

        Parameters
        ----------
        rows : sequence of dict
            One row per answer, in the order of ``arrange``.
        name : str
            Key of the figure.

        Returns
        -------
        numpy.ndarray of shape (configurations, questions, replicates)
            The figures.
        """
        shape = len(self.traces), len(self.positions), self.plan.replicates
        return np.array([row[name] for row in rows], dtype=np.float64).reshape(shape)


ResultsT = TypeVar("ResultsT", bound=AnsweredResults)


class ProbingPlan(ABC, Generic[ResultsT]):
    """Base class of plans, which build requests about recordings and score the replies."""

    grid: ExperimentGrid
    "strategies, limits and counting models"
    answer_model: str
    "the model that is asked"
    replicates: int
    "how often each request is sent"
    max_tokens: int | None
    "maximum tokens of a reply"
    results: type[ResultsT]
    "type of the results"

    def __post_init__(self) -> None:
        """Check the settings that all plans share."""
        if not self.answer_model:
            raise SpecError("answer_model is empty; name the model that answers")
        for name in ("replicates", "max_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Names of the figures of a question."""

    @property
    @abstractmethod
    def scores(self) -> Sequence[Score]:
        """The scores of the leaderboard."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings as the manifest names them."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are asked, the answering one first."""
        return (self.answer_model,)

    @abstractmethod
    def make_requests(self, recording: Recording, client: Client | None = None) -> ProbingRequests:
        """Replay one recording and build its requests.

        Parameters
        ----------
        recording : Recording
            The recording.
        client : Client, optional
            Answers the model calls of strategies.

        Returns
        -------
        ProbingRequests
            The distinct requests, and which configuration needs which.
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
            Requests of the recording.
        replies : sequence of Reply or ModelUnavailable
            One reply per request.
        verdicts : sequence of mapping
            Replies to ``judge_requests``, one mapping per judge.

        Returns
        -------
        rows : list of dict
            A row per answer, in the order of ``ProbingRequests.arrange``.
        figures : mapping of str to numpy.ndarray of shape (configurations, questions)
            Figures of the questions by column name.
        """

    @abstractmethod
    def explain_nothing(self, recordings: Sequence[Mapping[str, Any]]) -> str:
        """Explain why there is nothing to ask.

        Parameters
        ----------
        recordings : sequence of mapping
            Manifest entries of all recordings.

        Returns
        -------
        str
            The reason.
        """

    def judge_requests(
        self, batch: ProbingRequests, replies: Sequence[Answer]
    ) -> list[dict[Any, Request]]:
        """Build the requests to the judges, the ``models`` after the first; often there are none.

        Parameters
        ----------
        batch : ProbingRequests
            Requests of a recording.
        replies : sequence of Reply or ModelUnavailable
            One reply per request.

        Returns
        -------
        list of dict
            For each judge, the requests by any key.
        """
        return []

    def replay(
        self, prepared: PreparedRecording, observers: Mapping[str, RequestObserver] | None = None
    ) -> list[Trace]:
        """Replay a recording through every configuration.

        Parameters
        ----------
        prepared : PreparedRecording
            The recording.
        observers : mapping of str to callable, optional
            Called with each request.

        Returns
        -------
        list of Trace
            One trace per configuration.
        """
        budgets = [prepared.make_budget(limit, self.grid.reserve) for limit in self.grid.limits]
        return replay_traces(prepared, self.grid.strategies, budgets, observers)

    def estimate_cost(
        self, recordings: Iterable[Recording], client: Client, progress: bool | None = None
    ) -> list[RequestEstimate]:
        """Estimate the maximum cost without asking anything; cached replies are free.

        Model calls of strategies are not included. Contexts that are not cached yet are
        approximated by those that the strategies build without their model.

        Parameters
        ----------
        recordings : iterable of Recording
            The recordings.
        client : Client
            Client of the run; its cache is read.
        progress : bool, optional
            Show a progress bar. None shows it on a terminal.

        Returns
        -------
        list of RequestEstimate
            Number and cost of the requests to each of ``models``.
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
        """Estimate the cost of one recording.

        Parameters
        ----------
        batch : ProbingRequests
            Requests of the recording.
        client : Client
            Client of the run; its cache is read.
        seen : set of str
            Cache keys of earlier requests; it is extended.

        Returns
        -------
        list of RequestEstimate
            Number and cost of the requests to each of ``models``.
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
        """Ask about one recording at a time.

        Parameters
        ----------
        recordings : iterable of Recording
            The recordings.
        client : Client or None
            Answers the requests. None calls the provider and caches replies in ``.ctxlab/calls``.
        data : sequence of str, optional
            Where the recordings come from, for the manifest.
        progress : bool, optional
            Show a progress bar. None shows it on a terminal.
        total : int, optional
            Expected number of replies, for the progress bar.
        max_cost : float, optional
            Maximum cost in USD. None sets no limit.

        Returns
        -------
        AnsweredResults
            One row per question, and all answers.

        Raises
        ------
        SpecError
            If there is nothing to ask.
        """
        if client is None or max_cost is not None:
            client = build_cost_limited_client(max_cost, client=client)
        table, answers = ResultsBuilder(self.columns, self.grid.configurations), list[Row]()
        work = self._ask_recordings(recordings, client, table, answers)
        with add_cache_hint(client), closing(work):
            for _ in track(work, "questions answered", total, progress):
                pass
        if not answers:
            raise SpecError(self.explain_nothing(table.recordings))
        manifest = self.grid.manifest(data, table.recordings) | {self.results.kind: self.settings}
        del manifest["spec"]["metrics"]  # a spec repeated as an evaluation uses its default metrics
        found = Results.from_builder(table, self.scores, manifest)
        return self.results(found.requests, found.scores, found.manifest, pd.DataFrame(answers))

    def _ask_recordings(
        self,
        recordings: Iterable[Recording],
        client: Client,
        table: ResultsBuilder,
        answers: list[Row],
    ) -> Generator[None, None, None]:
        """Ask about recording after recording; yield once per reply and store the results."""
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
    """Yield once per reply as it arrives; return the replies in the order of the requests."""
    found: dict[int, Answer] = {}
    with closing(iter_replies(requests, client)) as each:
        for place, reply in each:
            found[place] = reply
            yield
    return [found[place] for place in range(len(requests))]
