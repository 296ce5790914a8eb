"""Plan of a QA run: the requests that ask each question with the context of each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_traces
from ctxlab.evaluation.experiment import ExperimentGrid
from ctxlab.evaluation.metrics.probes import ProbeVisibility, measure_probe_visibility
from ctxlab.evaluation.probing.judge import judge_request
from ctxlab.evaluation.probing.qa_prompts import (
    format_question,
    inline_speaker_names,
    request_tools,
)
from ctxlab.llm.base import Client, Reply, Request
from ctxlab.messages.types import Message, Probe, Recording
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_provider

DEFAULT_MAX_TOKENS = 1024
"""Maximum tokens of a reply: an answer takes about twenty, reasoning before it some hundreds."""

_Replies = Sequence[Reply | ModelUnavailable]


@dataclass(frozen=True)
class QARequests:
    """Requests for the questions of one recording, for all configurations."""

    prepared: PreparedRecording
    "the recording"
    traces: list[Trace]
    "one replay per configuration, in the order of ``ExperimentGrid.configurations``"
    visibility: ProbeVisibility
    "evidence and answers in view, without asking a model"
    request_index: list[list[int]]
    """by configuration and question, the index of the request before replicates; -1 if it is not
    valid"""
    requests: list[Request]
    "the distinct requests; the replicates of each are adjacent"
    replicates: int
    "how often each question is asked"

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The questions."""
        return self.prepared.probes

    def arrange_replies(
        self, replies: _Replies
    ) -> list[list[list[Reply | ModelUnavailable | None]]]:
        """Arrange the replies to ``requests`` by configuration, question and replicate.

        Parameters
        ----------
        replies : sequence of Reply or ModelUnavailable
            One reply per request.

        Returns
        -------
        list of list of list
            Replies; None for a request that was not sent.
        """
        several = range(self.replicates)
        return [
            [[None if at < 0 else replies[at * self.replicates + r] for r in several] for at in row]
            for row in self.request_index
        ]


@dataclass(frozen=True)
class QAPlan:
    """What to ask, which models, and how often."""

    grid: ExperimentGrid
    "strategies, limits and counting models"
    answer_model: str
    "the model that answers"
    judges: tuple[str, ...] = ()
    "models that judge the replies"
    replicates: int = 1
    "how often each question is asked"
    max_tokens: int = DEFAULT_MAX_TOKENS
    "maximum tokens of a reply"

    def __post_init__(self) -> None:
        if not self.answer_model:
            raise SpecError("answer_model is empty; name the model that answers")
        for name, value in (("replicates", self.replicates), ("max_tokens", self.max_tokens)):
            if value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")
        if len(set(self.judges)) < len(self.judges):
            raise SpecError(
                "judges must be different models: the same model twice would agree with itself"
            )

    def make_requests(self, recording: Recording, client: Client | None = None) -> QARequests:
        """Replay one recording and build the requests for its questions.

        Parameters
        ----------
        recording : Recording
            The recording.
        client : Client, optional
            Answers the model calls of strategies.

        Returns
        -------
        QARequests
            The distinct requests, and which configuration needs which.
        """
        prepared = PreparedRecording.from_recording(
            recording, self.grid.model_choice, client, format_question
        )
        budgets = [prepared.make_budget(limit, self.grid.reserve) for limit in self.grid.limits]
        traces = replay_traces(prepared, self.grid.strategies, budgets) if prepared.probes else []
        provider = rules_provider(self.answer_model)
        made: dict[int, tuple[Message, Message]] = {}
        places: dict[tuple[Message, ...], int] = {}
        place: list[list[int]] = []
        asked = 0
        for trace in traces:
            row = []
            for entries in trace.preview_entries:
                sent = inline_speaker_names((entry.message for entry in entries), made)
                if sent not in places:
                    taken = is_valid(sent, provider)
                    places[sent] = asked if taken else -1
                    asked += taken
                row.append(places[sent])
            place.append(row)
        requests = [
            Request(self.answer_model, sent, tools, self.max_tokens, replicate=replicate)
            for sent, at in places.items()
            if at >= 0
            for tools in [request_tools(recording, sent)]
            for replicate in range(self.replicates)
        ]
        return QARequests(
            prepared,
            traces,
            measure_probe_visibility(prepared, traces),
            place,
            requests,
            self.replicates,
        )

    def judge_requests(
        self, qa_requests: QARequests, judge: str, replies: _Replies
    ) -> dict[tuple[int, str], Request]:
        """Build the requests to a judge; empty replies are not judged.

        Parameters
        ----------
        qa_requests : QARequests
            The requests of a recording.
        judge : str
            Model of the judge.
        replies : sequence of Reply or ModelUnavailable
            Replies to the requests.

        Returns
        -------
        dict
            Requests by question index and reply text.
        """
        asked: dict[tuple[int, str], Request] = {}
        for row in qa_requests.arrange_replies(replies):
            for number, again in enumerate(row):
                for reply in again:
                    if isinstance(reply, Reply) and (text := reply.text.strip()):
                        key = number, text
                        if key not in asked:
                            probe = qa_requests.probes[number]
                            asked[key] = judge_request(judge, probe, text, self.max_tokens)
        return asked
