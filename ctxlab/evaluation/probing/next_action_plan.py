"""What a model is asked that is to make the recorded calls: which requests, what is sent, which tools.

A recording is replayed as ``evaluate`` does it, and some of its requests are put to a model as each
configuration would send them. Requests that are equal are one question.
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

__all__ = ["NextActionPlan", "NextActionRequests", "ToolOrigin", "sample_stretches"]

ToolOrigin: TypeAlias = Literal["recorded", "derived", "given"]
"""Where tool definitions are from: the recording, its calls, or the caller."""

_SentMessages = tuple[Message, ...]


@dataclass(frozen=True)
class NextActionRequests:
    """The questions that one recording gives; empty of questions where it holds no call."""

    prepared: PreparedRecording
    positions: tuple[int, ...]
    "of the recorded messages that are to be said again, in order"
    traces: list[Trace]
    "a replay for each configuration, in the order of ``ExperimentGrid.configurations``"
    request_index: list[list[int]]
    "by configuration and position: which of the questions; -1 where a provider would refuse it"
    is_changed: list[list[bool]]
    "by configuration and position: whether anything is not sent as it was said"
    requests: list[Request]
    "every question, replicates of one side by side"
    tools: tuple[dict[str, Any], ...]
    tool_origin: ToolOrigin
    eligible_count: int
    "requests among which it was drawn"
    invalid_count: int
    "recorded calls before which the recording itself is no valid request"

    @property
    def tool_tokens(self) -> int:
        """Tokens of definitions that are sent beyond those that the replay has counted."""
        counter = self.prepared.counter
        return counter.count_tools(self.tools) - counter.count_tools(self.prepared.recording.tools)

    @property
    def tokens(self) -> FloatArray:
        """Tokens of each request as it is sent, ``(configurations, positions)``."""
        place = {position: i for i, position in enumerate(self.prepared.request_positions)}
        chosen = [place[position] for position in self.positions]
        counted = np.array([[trace.tokens[i] for i in chosen] for trace in self.traces], np.float64)
        return counted.reshape(len(self.traces), len(chosen)) + self.tool_tokens

    def recorded_calls(self, number: int) -> tuple[ToolCall, ...]:
        """The calls of the message that was said at a position of ``positions``."""
        return self.prepared.recording.messages[self.positions[number]].tool_calls


@dataclass(frozen=True)
class NextActionPlan:
    """Which requests of every recording are asked, of whom, and how often."""

    grid: ExperimentGrid
    answer_model: str
    requests: int = 20
    "drawn of each recording; 0: all"
    replicates: int = 1
    "times that each is asked"
    tools: tuple[dict[str, Any], ...] | None = None
    "definitions for every recording; None: its own, or those that its calls show"
    include_text_only: bool = False
    "turns at which the recorded agent called no tool are asked too"
    only_changed: bool = False
    "only requests are drawn that some configuration would not send as they were recorded"
    max_tokens: int | None = None
    "of a reply"
    seed: int = 0

    def make_requests(
        self, recording: Recording, client: Client | None = None
    ) -> NextActionRequests:
        """Replays one recording; ``client``: whom strategies ask that call a model."""
        prepared = PreparedRecording.from_recording(recording, self.grid.model_choice, client)
        turns = self._candidate_positions(recording)
        sound = eligible = self._valid_positions(prepared, turns)
        wanted = set(sound if self.only_changed else self._sample_positions(recording, sound))
        budgets = [prepared.make_budget(limit, self.grid.reserve) for limit in self.grid.limits]
        messages = recording.messages

        def observe(context: Context) -> _SentMessages | None:
            """What is sent; None where that is what was said, or where nobody will ask."""
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
        """Turns before which the recording is a request that a provider takes."""
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
    """One of each of ``count`` equal stretches, so that late ones are among them; 0 takes all.

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
    """The different requests that a provider takes, each with its number."""
    distinct = dict.fromkeys(sent for row in said for sent in row)
    return {sent: i for i, sent in enumerate(s for s in distinct if is_valid(s, provider))}
