"""Plan of a next-action run: the sampled requests, their messages and their tools.

A recording is replayed as in ``evaluate``, and a sample of its requests is sent to a model with the
context of each configuration. Equal requests are sent once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_traces
from ctxlab.evaluation.experiment import ExperimentGrid
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.llm.base import Client, Request
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_provider

ToolOrigin: TypeAlias = Literal["recorded", "derived", "given"]
"""Origin of the tool definitions: the recording, its calls, or the caller."""

_SentMessages = tuple[Message, ...]


@dataclass(frozen=True)
class NextActionRequests:
    """The requests of one recording; empty if it has no tool call."""

    prepared: PreparedRecording
    "the recording"
    positions: tuple[int, ...]
    "positions of the recorded messages that the model should produce, in order"
    traces: list[Trace]
    "one replay per configuration, in the order of ``ExperimentGrid.configurations``"
    request_index: list[list[int]]
    """by configuration and position, the index of the request before replicates; -1 if it is not
    valid"""
    is_changed: list[list[bool]]
    "by configuration and position, True if the messages differ from the recorded ones"
    requests: list[Request]
    "the distinct requests; the replicates of each are adjacent"
    tools: tuple[dict[str, Any], ...]
    "tool definitions sent with each request"
    tool_origin: ToolOrigin
    "origin of the tool definitions"
    eligible_count: int
    "number of requests from which the sample was drawn"
    invalid_count: int
    "number of calls whose recorded history is not a valid request"

    @property
    def tool_tokens(self) -> int:
        """Tokens of tool definitions beyond those that the replay counted."""
        counter = self.prepared.counter
        return counter.count_tools(self.tools) - counter.count_tools(self.prepared.recording.tools)

    @property
    def tokens(self) -> FloatArray:
        """Tokens of each request as it is sent: shape ``(configurations, positions)``."""
        place = {position: i for i, position in enumerate(self.prepared.request_positions)}
        chosen = [place[position] for position in self.positions]
        counted = np.array([[trace.tokens[i] for i in chosen] for trace in self.traces], np.float64)
        return counted.reshape(len(self.traces), len(chosen)) + self.tool_tokens

    def recorded_calls(self, number: int) -> tuple[ToolCall, ...]:
        """Return the recorded calls at one of the positions.

        Parameters
        ----------
        number : int
            Index into ``positions``.

        Returns
        -------
        tuple of ToolCall
            The calls of the recorded message.
        """
        return self.prepared.recording.messages[self.positions[number]].tool_calls


@dataclass(frozen=True)
class NextActionPlan:
    """Which requests of each recording are sent, to which model, and how often."""

    grid: ExperimentGrid
    "strategies, limits and counting models"
    answer_model: str
    "the model that is asked"
    requests: int = 20
    "requests sampled from each recording; 0 takes all"
    replicates: int = 1
    "how often each request is sent"
    tools: tuple[dict[str, Any], ...] | None = None
    "definitions for every recording; None takes the recorded ones, or derives them from the calls"
    include_text_only: bool = False
    "include requests at which the recorded agent called no tool"
    only_changed: bool = False
    "sample only requests that some configuration would send differently from the recording"
    max_tokens: int | None = None
    "maximum tokens of a reply"
    seed: int = 0
    "seed of the sample"

    def make_requests(
        self, recording: Recording, client: Client | None = None
    ) -> NextActionRequests:
        """Replay one recording and build the sampled requests.

        Parameters
        ----------
        recording : Recording
            The recording.
        client : Client, optional
            Answers the model calls of strategies.

        Returns
        -------
        NextActionRequests
            The distinct requests, and which configuration needs which.
        """
        prepared = PreparedRecording.from_recording(recording, self.grid.model_choice, client)
        turns = self._candidate_positions(recording)
        sound = eligible = self._valid_positions(prepared, turns)
        wanted = set(sound if self.only_changed else self._sample_positions(recording, sound))
        budgets = [prepared.make_budget(limit, self.grid.reserve) for limit in self.grid.limits]
        messages = recording.messages

        def observe(context: Context) -> _SentMessages | None:
            """Return the messages that are sent; None if they are unchanged or not needed."""
            if context.history_length not in wanted:
                return None
            sent = tuple(context.messages)
            return None if sent == messages[: context.history_length] else sent

        traces = (
            replay_traces(prepared, self.grid.strategies, budgets, {"sent": observe})
            if wanted
            else []
        )
        edited = [
            dict(zip(prepared.request_positions, t.observations["sent"], strict=True))
            for t in traces
        ]
        if self.only_changed:
            eligible = [p for p in sound if any(each[p] is not None for each in edited)]
            positions = self._sample_positions(recording, eligible)
        else:
            positions = tuple(sorted(wanted))
        said = [[_edited_or_recorded(each[p], messages[:p]) for p in positions] for each in edited]
        numbers = _number_requests(said, rules_provider(self.answer_model))
        tools, origin = self._tools(recording)
        return NextActionRequests(
            prepared,
            positions,
            traces if positions else [],
            request_index=[[numbers.get(sent, -1) for sent in row] for row in said],
            is_changed=[[each[p] is not None for p in positions] for each in edited],
            requests=[
                self._request(sent, tools, r) for sent in numbers for r in range(self.replicates)
            ],
            tools=tools,
            tool_origin=origin,
            eligible_count=len(eligible),
            invalid_count=len(turns) - len(sound),
        )

    def _candidate_positions(self, recording: Recording) -> list[int]:
        said = recording.messages
        return [
            p for p in recording.request_positions if self.include_text_only or said[p].tool_calls
        ]

    def _valid_positions(self, prepared: PreparedRecording, turns: list[int]) -> list[int]:
        """Return the positions whose recorded history is a valid request."""
        said, provider = prepared.recording.messages, rules_provider(self.answer_model)
        if prepared.valid and prepared.provider == provider:
            return turns
        return [position for position in turns if is_valid(said[:position], provider)]

    def _sample_positions(self, recording: Recording, candidates: Sequence[int]) -> tuple[int, ...]:
        own = zlib.crc32(recording.id.encode("utf-8", "surrogatepass"))
        return sample_stretches(candidates, self.requests, (self.seed, own))

    def _tools(self, recording: Recording) -> tuple[tuple[dict[str, Any], ...], ToolOrigin]:
        if self.tools is not None:
            return self.tools, "given"
        if recording.tools:
            return recording.tools, "recorded"
        return infer_tool_definitions(recording.messages), "derived"

    def _request(
        self, sent: _SentMessages, tools: tuple[dict[str, Any], ...], replicate: int
    ) -> Request:
        return Request(self.answer_model, sent, tools, self.max_tokens, replicate=replicate)


def sample_stretches(candidates: Sequence[int], count: int, seed: Sequence[int]) -> tuple[int, ...]:
    """Draw one candidate from each of ``count`` equal stretches, so that late ones are included.

    Parameters
    ----------
    candidates : sequence of int
        The candidates, in order.
    count : int
        Number of stretches; 0 takes all candidates.
    seed : sequence of int
        Seed of the sample.

    Returns
    -------
    tuple of int
        The sample, in order.

    Examples
    --------
    >>> sample_stretches(range(100), 4, (0,)), sample_stretches([3, 5], 4, (0,))
    ((21, 40, 62, 81), (3, 5))
    """
    if not 0 < count < len(candidates):
        return tuple(candidates)
    edges = np.arange(count + 1) * len(candidates) // count
    picked = np.random.default_rng(seed).integers(edges[:-1], edges[1:])
    return tuple(candidates[int(i)] for i in picked)


def _edited_or_recorded(edited: _SentMessages | None, said: _SentMessages) -> _SentMessages:
    return said if edited is None else edited


def _number_requests(said: list[list[_SentMessages]], provider: str) -> dict[_SentMessages, int]:
    """Assign a number to each distinct valid request."""
    distinct = dict.fromkeys(sent for row in said for sent in row)
    return {sent: i for i, sent in enumerate(s for s in distinct if is_valid(s, provider))}
