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
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    play_all,
)
from ctxlab.evaluation.experiment import Grid
from ctxlab.evaluation.metrics.base import Array
from ctxlab.evaluation.probing.infer_tools import tools_seen
from ctxlab.llm.base import (
    Client,
    Request,
)
from ctxlab.messages.types import (
    Message,
    Recording,
    ToolCall,
)
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_for

__all__ = ["Batch", "Origin", "Plan", "drawn"]

Origin: TypeAlias = Literal["recorded", "derived", "given"]
"""Where tool definitions are from: the recording, its calls, or the caller."""

_Said = tuple[Message, ...]


@dataclass(frozen=True)
class Batch:
    """The questions that one recording gives; empty of questions where it holds no call."""

    tape: Tape
    positions: tuple[int, ...]
    "of the recorded messages that are to be said again, in order"
    traces: list[Trace]
    "a replay for each configuration, in the order of ``Grid.labels``"
    question: list[list[int]]
    "by configuration and position: which of the questions; -1 where a provider would refuse it"
    differs: list[list[bool]]
    "by configuration and position: whether anything is not sent as it was said"
    requests: list[Request]
    "every question, replicates of one side by side"
    tools: tuple[dict[str, Any], ...]
    origin: Origin
    eligible: int
    "requests among which it was drawn"
    unsound: int
    "recorded calls before which the recording itself is no valid request"

    @property
    def tool_tokens(self) -> int:
        """Tokens of definitions that are sent beyond those that the replay has counted."""
        counter = self.tape.counter
        return counter.tools(self.tools) - counter.tools(self.tape.recording.tools)

    @property
    def tokens(self) -> Array:
        """Tokens of each request as it is sent, ``(configurations, positions)``."""
        place = {position: i for i, position in enumerate(self.tape.requests)}
        chosen = [place[position] for position in self.positions]
        counted = np.array([[trace.tokens[i] for i in chosen] for trace in self.traces], np.float64)
        return counted.reshape(len(self.traces), len(chosen)) + self.tool_tokens

    def recorded(self, number: int) -> tuple[ToolCall, ...]:
        """The calls of the message that was said at a position of ``positions``."""
        return self.tape.recording.messages[self.positions[number]].tool_calls


@dataclass(frozen=True)
class Plan:
    """Which requests of every recording are asked, of whom, and how often."""

    grid: Grid
    answer_model: str
    requests: int = 20
    "drawn of each recording; 0: all"
    replicates: int = 1
    "times that each is asked"
    tools: tuple[dict[str, Any], ...] | None = None
    "definitions for every recording; None: its own, or those that its calls show"
    texts: bool = False
    "turns at which the recorded agent called no tool are asked too"
    differing: bool = False
    "only requests are drawn that some configuration would not send as they were recorded"
    max_tokens: int | None = None
    "of a reply"
    seed: int = 0

    def batch(self, recording: Recording, client: Client | None = None) -> Batch:
        """Replays one recording; ``client``: whom strategies ask that call a model."""
        tape = Tape.of(recording, self.grid.models, client)
        turns = self._turns(recording)
        sound = eligible = self._sound(tape, turns)
        wanted = set(sound if self.differing else self._draw(recording, sound))
        budgets = [tape.budget(limit, self.grid.reserve) for limit in self.grid.limits]
        messages = recording.messages

        def look(context: Context) -> _Said | None:
            """What is sent; None where that is what was said, or where nobody will ask."""
            if context.length not in wanted:
                return None
            sent = tuple(context.messages)
            return None if sent == messages[: context.length] else sent

        traces = play_all(tape, self.grid.strategies, budgets, {"sent": look}) if wanted else []
        edited = [dict(zip(tape.requests, t.watched["sent"], strict=True)) for t in traces]
        if self.differing:
            eligible = [p for p in sound if any(each[p] is not None for each in edited)]
            positions = self._draw(recording, eligible)
        else:
            positions = tuple(sorted(wanted))
        said = [[_or(each[p], messages[:p]) for p in positions] for each in edited]
        numbers = _numbered(said, rules_for(self.answer_model))
        tools, origin = self._tools(recording)
        return Batch(
            tape,
            positions,
            traces if positions else [],
            question=[[numbers.get(sent, -1) for sent in row] for row in said],
            differs=[[each[p] is not None for p in positions] for each in edited],
            requests=[
                self._request(sent, tools, r) for sent in numbers for r in range(self.replicates)
            ],
            tools=tools,
            origin=origin,
            eligible=len(eligible),
            unsound=len(turns) - len(sound),
        )

    def _turns(self, recording: Recording) -> list[int]:
        said = recording.messages
        return [p for p in recording.requests if self.texts or said[p].tool_calls]

    def _sound(self, tape: Tape, turns: list[int]) -> list[int]:
        """Turns before which the recording is a request that a provider takes."""
        said, provider = tape.recording.messages, rules_for(self.answer_model)
        if tape.valid and tape.provider == provider:
            return turns
        return [position for position in turns if is_valid(said[:position], provider)]

    def _draw(self, recording: Recording, among: Sequence[int]) -> tuple[int, ...]:
        own = zlib.crc32(recording.id.encode("utf-8", "surrogatepass"))
        return drawn(among, self.requests, (self.seed, own))

    def _tools(self, recording: Recording) -> tuple[tuple[dict[str, Any], ...], Origin]:
        if self.tools is not None:
            return self.tools, "given"
        if recording.tools:
            return recording.tools, "recorded"
        return tools_seen(recording.messages), "derived"

    def _request(self, sent: _Said, tools: tuple[dict[str, Any], ...], replicate: int) -> Request:
        return Request(self.answer_model, sent, tools, self.max_tokens, replicate=replicate)


def drawn(among: Sequence[int], count: int, seed: Sequence[int]) -> tuple[int, ...]:
    """One of each of ``count`` equal stretches, so that late ones are among them; 0 takes all.

    >>> drawn(range(100), 4, (0,)), drawn([3, 5], 4, (0,))
    ((21, 40, 62, 81), (3, 5))
    """
    if not 0 < count < len(among):
        return tuple(among)
    edges = np.arange(count + 1) * len(among) // count
    picked = np.random.default_rng(seed).integers(edges[:-1], edges[1:])
    return tuple(among[int(i)] for i in picked)


def _or(edited: _Said | None, said: _Said) -> _Said:
    return said if edited is None else edited


def _numbered(said: list[list[_Said]], provider: str) -> dict[_Said, int]:
    """The different requests that a provider takes, each with its number."""
    distinct = dict.fromkeys(sent for row in said for sent in row)
    return {sent: i for i, sent in enumerate(s for s in distinct if is_valid(s, provider))}
