"""A close-up is one recording through one strategy: every request, every need, every message.

It answers "what does it forget, and where did that hurt" for a single conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.context.budget import Budget
from ctxlab.context.history import Form
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    play,
)
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.probes import found
from ctxlab.evaluation.metrics.recall import (
    FAR,
    tiers,
)
from ctxlab.llm import default_client
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording
from ctxlab.strategies import (
    Strategy,
    as_strategy,
    models_asked,
    parse,
)
from ctxlab.tokens.model_choice import ModelChoice

__all__ = ["STATES", "Replay", "replay"]

STATES: tuple[str, ...] = ("absent", *(form.value for form in Form), "dropped")
"""What can be the matter with a message in a request; ``absent``: not said yet."""

_CODES = {state: code for code, state in enumerate(STATES)}


@dataclass(frozen=True)
class Replay:
    """One recording as one strategy would have sent it."""

    tape: Tape
    trace: Trace

    @cached_property
    def requests(self) -> pd.DataFrame:
        """A row a request: its position in the recording, and every column of every metric."""
        frame = pd.DataFrame({"position": self.tape.requests})
        for metric in METRICS.values():
            for name, column in metric.measure(self.tape, [self.trace]).items():
                frame[name] = column[0]
        frame.index.name = "request"
        return frame

    @cached_property
    def needs(self) -> pd.DataFrame:
        """A row a need: who used what, where it had last stood, and whether it was still there.

        ``tier`` is ``in view``, ``pointer`` or ``lost``; ``gap`` is in tokens; ``far`` is a gap over
        4,000.
        """
        needs = self.tape.needs
        kept = tiers(needs, [self.trace])
        rows = [needs.need(i) for i in range(len(needs))]
        tier = np.select([kept.seen[0], kept.pointer[0]], ["in view", "pointer"], "lost")
        return pd.DataFrame(
            {
                "request": [n.argument.request for n in rows],
                "position": [self.tape.requests[n.argument.request] for n in rows],
                "tool": [n.argument.tool for n in rows],
                "argument": [n.argument.path for n in rows],
                "kind": [n.entity.kind for n in rows],
                "entity": [n.entity.text for n in rows],
                "origin": [n.origin for n in rows],
                "last": [n.last for n in rows],
                "gap": [n.gap for n in rows],
                "far": [n.gap > FAR for n in rows],
                "tier": tier.astype(str),
            }
        )

    @cached_property
    def probes(self) -> pd.DataFrame:
        """A row a question: the request that puts it, and what of its evidence and answer is there.

        ``request`` is that before which it is put, and the last one after the last message. ``evidence``
        and ``pointer`` are shares, nan where it names no evidence; ``answer`` is whether an acceptable
        answer stands in what is sent, <NA> where it has none; see
        ``ctxlab.evaluation.metrics.probes``. ``tokens``
        are those of the request, the question included.
        """
        tape = self.tape
        seen, probes = found(tape, [self.trace]), tape.probes
        put = {number: request for request, numbers in tape.asked.items() for number in numbers}
        named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)
        return pd.DataFrame(
            {
                "id": [probe.id for probe in probes],
                "category": [probe.category for probe in probes],
                "question": [probe.question for probe in probes],
                "request": [min(put[i], len(tape.requests) - 1) for i in range(len(probes))],
                "position": [tape.place(i) for i in range(len(probes))],
                "evidence": np.where(named, seen.evidence[0], np.nan),
                "pointer": np.where(named, seen.pointer[0], np.nan),
                "answer": pd.array(
                    [
                        bool(there) if probe.answers else None
                        for probe, there in zip(probes, seen.answer[0], strict=True)
                    ],
                    dtype="boolean",
                ),
                "tokens": seen.tokens[0].astype(np.int64),
            }
        )

    @cached_property
    def states(self) -> npt.NDArray[np.int8]:
        """What became of each message in each request: codes into ``STATES``, requests × messages."""
        context, positions = self.trace.context, np.array(self.tape.requests)
        requests, messages = len(positions), len(context.died)
        turn = np.arange(requests)[:, None]
        died = np.array(context.died)[None, :]
        states = np.where(died > turn, _CODES["verbatim"], _CODES["dropped"]).astype(np.int8)
        for entry in context.edited:
            rows = slice(entry.since, min(entry.until, requests))
            block = states[rows, entry.start : entry.stop]
            block[block != _CODES["verbatim"]] = _CODES[entry.form.value]
        for request, entries in self.trace.forks.items():
            states[request] = _CODES["dropped"]
            for entry in entries:
                states[request, entry.start : entry.stop] = _CODES[entry.form.value]
        states[np.arange(messages)[None, :] >= positions[:, None]] = _CODES["absent"]
        return states

    def __repr__(self) -> str:
        name, strategy = self.tape.recording.id, self.trace.strategy
        return f"<{name} through {strategy!r}: {len(self.trace.tokens)} requests>"


def replay(
    recording: Recording,
    strategy: Strategy | str | Callable[..., Any],
    budget: Budget | float,
    model: str | None = None,
    client: Client | None = None,
) -> Replay:
    """Replays one recording through one strategy and keeps everything to look at.

    ``budget`` is a ``Budget``, a number of tokens, or a fraction (a float up to 1) of the recording's
    own length. ``model``: whose tokenizer, prices and rules apply; None: the recording's own.
    ``client``: whom a strategy asks that calls a model; None asks the provider, and keeps
    the answers in ``.ctxlab/calls``. Raises ``StrategyError`` where the strategy fails.
    """
    chosen = parse(strategy) if isinstance(strategy, str) else as_strategy(strategy)
    if client is None and models_asked(chosen):
        client = default_client()
    tape = Tape.of(recording, ModelChoice(model), client)
    limit = budget if isinstance(budget, Budget) else tape.budget(budget)
    return Replay(tape, play(tape, chosen, limit))
