"""An exam paper says which questions are put to which model, as every strategy would send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    play_all,
)
from ctxlab.evaluation.experiment import Grid
from ctxlab.evaluation.metrics.probes import (
    Found,
    found,
)
from ctxlab.evaluation.probing.judge import judging
from ctxlab.evaluation.probing.qa_prompts import (
    definitions,
    pose,
    shaped,
)
from ctxlab.llm.base import (
    Client,
    Reply,
    Request,
)
from ctxlab.messages.types import (
    Message,
    Probe,
    Recording,
)
from ctxlab.messages.validation import is_valid
from ctxlab.tokens.models import rules_for

__all__ = ["REPLY", "Paper", "Sheet"]

REPLY = 1024
"""Tokens that a reply may take: an answer takes twenty, and reasoning before it some hundreds."""

_Replies = Sequence[Reply | ModelUnavailable]


@dataclass(frozen=True)
class Sheet:
    """The questions of one recording, as every configuration would send them."""

    tape: Tape
    traces: list[Trace]
    "a replay for each configuration, in the order of ``Grid.labels``"
    seen: Found
    "what of them is in view without asking anybody"
    place: list[list[int]]
    "by configuration and question: which of the requests, before replicates; -1: none would be taken"
    requests: list[Request]
    "different ones, the replicates of each side by side"
    replicates: int

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The questions."""
        return self.tape.probes

    def sorted(self, replies: _Replies) -> list[list[list[Reply | ModelUnavailable | None]]]:
        """Replies to ``requests`` by configuration, question and replicate; None was not asked."""
        several = range(self.replicates)
        return [
            [[None if at < 0 else replies[at * self.replicates + r] for r in several] for at in row]
            for row in self.place
        ]


@dataclass(frozen=True)
class Paper:
    """What is asked of whom, and how often."""

    grid: Grid
    answer_model: str
    judges: tuple[str, ...] = ()
    replicates: int = 1
    max_tokens: int = REPLY

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

    def sheet(self, recording: Recording, client: Client | None = None) -> Sheet:
        """Replays one recording; ``client``: whom strategies ask that call a model."""
        tape = Tape.of(recording, self.grid.models, client, pose)
        budgets = [tape.budget(limit, self.grid.reserve) for limit in self.grid.limits]
        traces = play_all(tape, self.grid.strategies, budgets) if tape.probes else []
        provider = rules_for(self.answer_model)
        made: dict[int, tuple[Message, Message]] = {}
        places: dict[tuple[Message, ...], int] = {}
        place: list[list[int]] = []
        asked = 0
        for trace in traces:
            row = []
            for entries in trace.asides:
                sent = shaped((entry.message for entry in entries), made)
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
            for tools in [definitions(recording, sent)]
            for replicate in range(self.replicates)
        ]
        return Sheet(tape, traces, found(tape, traces), place, requests, self.replicates)

    def judgements(
        self, sheet: Sheet, judge: str, replies: _Replies
    ) -> dict[tuple[int, str], Request]:
        """What a judge is asked, by question and reply; an empty reply is judged by nobody."""
        asked: dict[tuple[int, str], Request] = {}
        for row in sheet.sorted(replies):
            for number, again in enumerate(row):
                for reply in again:
                    if isinstance(reply, Reply) and (text := reply.text.strip()):
                        key = number, text
                        if key not in asked:
                            probe = sheet.probes[number]
                            asked[key] = judging(judge, probe, text, self.max_tokens)
        return asked
