"""What a recording is like is known before anything is replayed: its size, its needs, its bills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxlab._utils.progress import track
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.metrics import FAR_TOKENS
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.messages.types import Message, Recording, check_recordings
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.model_choice import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecordingDescriber", "RecordingDescription", "describe", "iter_descriptions"]

RecordingDescription: TypeAlias = dict[str, Any]
"""What is known of one recording, by name."""

_MAX_LARGEST_RESULTS = 3


def describe(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """A row a recording: what it holds, how large it is, what it uses again, what was billed for it.

    ``model``: whose tokenizer counts; None counts each recording as the model that it was made with,
    and as ``DEFAULT_MODEL`` where it names none. Columns are the keys of ``iter_descriptions``. Raises
    ``SpecError`` for a path or a single recording in the place of recordings.
    """
    import pandas as pd

    return pd.DataFrame(
        list(iter_descriptions(recordings, model, workers=workers, progress=progress))
    )


def iter_descriptions(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    project: Path = Path(),
    workers: int | None = None,
    progress: bool | None = None,
) -> Iterator[RecordingDescription]:
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
    check_recordings(recordings)
    outcomes = map_parallel(RecordingDescriber(model, project), recordings, workers)
    return track(outcomes, "reading", None, progress)


@dataclass(frozen=True)
class RecordingDescriber:
    """What ``iter_descriptions`` does to one recording, in whichever process."""

    model: str | None = None
    project: Path = Path()

    def __call__(self, recording: Recording) -> RecordingDescription:
        """The facts of one recording."""
        prepared = PreparedRecording.from_recording(
            recording, ModelChoice(self.model, project=self.project)
        )
        counter = prepared.counter
        history, needs, messages = prepared.history, prepared.needs, recording.messages
        counted = [entry.tokens for entry in history.entries]
        results = [
            {"message": place, "tool": _tool_name(prepared, place), "tokens": counted[place]}
            for place in history.result_positions
        ]
        largest = sorted(results, key=itemgetter("tokens"), reverse=True)[:_MAX_LARGEST_RESULTS]
        last = prepared.request_positions[-1] if prepared.request_positions else 0
        bills = prepared.bills
        return {
            **prepared.description,
            "tool_tokens": sum(counted[place] for place in history.result_positions),
            "largest_result": largest[0]["tokens"] if largest else 0,
            "largest": largest,
            "reasoning_tokens": sum(
                message.usage.reasoning
                if message.usage and message.usage.reasoning
                else counter.count_reasoning(message)
                for message in messages
            ),
            "longest_request": prepared.longest_request_tokens if prepared.request_positions else 0,
            "needs": len(needs),
            "far_needs": int((needs.gap_tokens > FAR_TOKENS).sum()),
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
            "faults": {} if prepared.valid else _count_violations(prepared, messages[:last]),
            "counted": counter.accuracy_note,
            "billed": vars(bills) if bills else None,
            "strategy": recording.meta.get("strategy"),
        }


def _count_violations(prepared: PreparedRecording, messages: Sequence[Message]) -> dict[str, int]:
    """Each rule of the recording's provider that it breaks, and how often."""
    return dict(Counter(found.rule for found in find_violations(messages, prepared.provider)))


def _tool_name(prepared: PreparedRecording, place: int) -> str:
    call = prepared.history.calls_by_result.get(place)
    return call.name if call else prepared.recording.messages[place].name or "?"
