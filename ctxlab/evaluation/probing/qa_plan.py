"""A QA plan says which questions are put to which model, as every strategy would send them."""

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

__all__ = ["DEFAULT_MAX_TOKENS", "QAPlan", "QARequests"]

DEFAULT_MAX_TOKENS = 1024
"""Tokens that a reply may take: an answer takes twenty, and reasoning before it some hundreds."""

_Replies = Sequence[Reply | ModelUnavailable]


@dataclass(frozen=True)
class QARequests:
    """The questions of one recording, as every configuration would send them."""

    prepared: PreparedRecording
    traces: list[Trace]
    "a replay for each configuration, in the order of ``ExperimentGrid.configurations``"
    visibility: ProbeVisibility
    "what of them is in view without asking anybody"
    request_index: list[list[int]]
    "by configuration and question: which of the requests, before replicates; -1: none would be taken"
    requests: list[Request]
    "different ones, the replicates of each side by side"
    replicates: int

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The questions."""
        return self.prepared.probes

    def arrange_replies(
        self, replies: _Replies
    ) -> list[list[list[Reply | ModelUnavailable | None]]]:
        """Replies to ``requests`` by configuration, question and replicate; None was not asked."""
        several = range(self.replicates)
        return [
            [[None if at < 0 else replies[at * self.replicates + r] for r in several] for at in row]
            for row in self.request_index
        ]


@dataclass(frozen=True)
class QAPlan:
    """What is asked of whom, and how often."""

    grid: ExperimentGrid
    answer_model: str
    judges: tuple[str, ...] = ()
    replicates: int = 1
    max_tokens: int = DEFAULT_MAX_TOKENS

    def __post_init__(self) -> None:
        if not self.answer_model:
            raise SpecError("name the model that is to answer")
        for name, value in (("replicates", self.replicates), ("max_tokens", self.max_tokens)):
            if value < 1:
                raise SpecError(f"{name}: 1 or more, not {value}")
        if len(set(self.judges)) < len(self.judges):
            raise SpecError(
                "each judge is named once: the same model twice would agree with itself"
            )

    def make_requests(self, recording: Recording, client: Client | None = None) -> QARequests:
        """Replays one recording; ``client``: whom strategies ask that call a model."""
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
        """What a judge is asked, by question and reply; an empty reply is judged by nobody."""
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
