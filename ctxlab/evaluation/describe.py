"""What a recording is like is known before anything is replayed: its size, its needs, its bills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxlab._utils.progress import track
from ctxlab.evaluation.engine import Tape
from ctxlab.evaluation.metrics import FAR
from ctxlab.evaluation.parallel import execute
from ctxlab.messages.types import (
    Message,
    Recording,
    several,
)
from ctxlab.messages.validation import check
from ctxlab.tokens.billing import session
from ctxlab.tokens.model_choice import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Facts", "Surveyor", "describe", "survey"]

Facts: TypeAlias = dict[str, Any]
"""What is known of one recording, by name."""

_LARGEST = 3


def describe(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """A row a recording: what it holds, how large it is, what it uses again, what was billed for it.

    ``model``: whose tokenizer counts; None counts each recording as the model that it was made with,
    and as ``DEFAULT_MODEL`` where it names none. Columns are the keys of ``survey``. Raises
    ``SpecError`` for a path or a single recording in the place of recordings.
    """
    import pandas as pd

    return pd.DataFrame(list(survey(recordings, model, workers=workers, progress=progress)))


def survey(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    project: Path = Path(),
    workers: int | None = None,
    progress: bool | None = None,
) -> Iterator[Facts]:
    """The facts of each recording, one by one, so that a stream of any length stays a stream.

    - ``recording, cluster, source, format, model, counted_as, messages, requests, tokens, valid,
      skipped``
    - ``warning``: that tool calls were probably not read, see ``missing_calls``; most often None
    - ``tool_tokens``; ``largest``: the largest tool results as ``{message, tool, tokens}``
    - ``reasoning_tokens``: hidden reasoning, as billed where the provider says, else as recorded; it
      stands in no other figure
    - ``longest_request``: tokens when everything is sent
    - ``needs, far_needs``: uses in tool calls of what was said before, and over 4,000 tokens before
    - ``compactions``: what the product did itself; ``faults``: rule of ``validity`` → how often the
      recording breaks it
    - ``billed``: ``billing.Session`` as a dict, None where no usage is recorded
    - ``strategy``: what managed the context of a session as it went, so that bills are of what it sent;
      None where the recording does not say

    ``project`` is the folder whose calibration profile counts, if it has one; the current one.
    """
    several(recordings)
    outcomes = execute(Surveyor(model, project), recordings, workers)
    return track(outcomes, "reading", None, progress)


@dataclass(frozen=True)
class Surveyor:
    """What ``survey`` does to one recording, in whichever process."""

    model: str | None = None
    project: Path = Path()

    def __call__(self, recording: Recording) -> Facts:
        """The facts of one recording."""
        tape = Tape.of(recording, ModelChoice(self.model, project=self.project))
        counter = tape.counter
        history, needs, messages = tape.history, tape.needs, recording.messages
        counted = [entry.tokens for entry in history.entries]
        results = [
            {"message": place, "tool": _tool(tape, place), "tokens": counted[place]}
            for place in history.results
        ]
        largest = sorted(results, key=itemgetter("tokens"), reverse=True)[:_LARGEST]
        last = tape.requests[-1] if tape.requests else 0
        bills = session(recording, counted, counter)
        return {
            **tape.facts,
            "tool_tokens": sum(counted[place] for place in history.results),
            "largest_result": largest[0]["tokens"] if largest else 0,
            "largest": largest,
            "reasoning_tokens": sum(
                message.usage.reasoning
                if message.usage and message.usage.reasoning
                else counter.reasoning(message)
                for message in messages
            ),
            "longest_request": tape.length if tape.requests else 0,
            "needs": len(needs),
            "far_needs": int((needs.gap > FAR).sum()),
            "probes": len(recording.probes),
            "compactions": [
                {
                    "before": c.position,
                    "kind": c.kind,
                    "trigger": c.trigger,
                    "tokens": c.tokens_before,
                }
                for c in recording.compactions
            ],
            "faults": {} if tape.valid else _faults(tape, messages[:last]),
            "counted": counter.note,
            "billed": vars(bills) if bills else None,
            "strategy": recording.meta.get("strategy"),
        }


def _faults(tape: Tape, messages: Sequence[Message]) -> dict[str, int]:
    """Each rule of the recording's provider that it breaks, and how often."""
    return dict(Counter(found.rule for found in check(messages, tape.provider)))


def _tool(tape: Tape, place: int) -> str:
    call = tape.history.calls.get(place)
    return call.name if call else tape.recording.messages[place].name or "?"
