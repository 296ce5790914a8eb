"""Describe recordings without replaying them: size, references to earlier messages, and bills.

Bills are the numbers of tokens that a provider billed for the recorded requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ctxlab._utils.progress import track
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.metrics import FAR_TOKENS
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.model_choice import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

RecordingDescription: TypeAlias = dict[str, Any]
"""Description of one recording. The keys are listed under ``iter_descriptions``."""

_MAX_LARGEST_RESULTS = 3


def describe(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Describe recordings in a table, with one row per recording.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to describe.
    model : str, optional
        Model whose tokenizer counts the tokens. None takes the model of each recording, or
        ``DEFAULT_MODEL`` if the recording does not name one.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.

    Returns
    -------
    pandas.DataFrame
        Metadata, size, references to earlier messages, and billed tokens of each recording. The
        columns are listed under ``iter_descriptions``.

    Raises
    ------
    SpecError
        If ``recordings`` is a path or a single recording.
    """
    import pandas as pd

    found = iter_descriptions(recordings, model, workers=workers, progress=progress)
    return pd.DataFrame(list(found))


def iter_descriptions(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    project: Path = Path(),
    workers: int | None = None,
    progress: bool | None = None,
) -> Iterator[RecordingDescription]:
    """Describe recordings one at a time, without keeping them in memory.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to describe. They are read one at a time, so an iterator may have any length.
    model : str, optional
        Model whose tokenizer counts the tokens. None takes the model of each recording.
    project : Path, optional
        Folder of the project whose stored calibration of token counts is used; the current folder
        if left out.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.

    Returns
    -------
    iterator of dict
        One description per recording, with these keys among others:

        - ``recording``, ``cluster``, ``source``, ``format``, ``model``: metadata of the recording
        - ``counted_as``: model whose tokenizer counted the tokens
        - ``messages``, ``requests``, ``tokens``: size of the whole recording
        - ``valid``: True if the recorded messages follow the rules of the provider
        - ``skipped``: number of lines or messages that were not read, by reason
        - ``warning``: warning if the reader probably missed tool calls, otherwise None
        - ``tool_tokens``: number of tokens of all tool results
        - ``largest``: list of the largest tool results: position of the ``message``, name of the
          ``tool``, and number of ``tokens`` of each
        - ``reasoning_tokens``: number of tokens of hidden reasoning, as billed if known and
          otherwise as recorded; other token counts do not include them
        - ``longest_request``: number of tokens of the longest request if the full history is sent
        - ``needs``: number of needs: entities (such as paths or ids) that a tool call uses and that
          an earlier message mentioned
        - ``far_needs``: number of needs that were last mentioned more than 4,000 tokens earlier
        - ``compactions``: list of the compactions that the recorded product made
        - ``faults``: number of violations of the provider's rules in the recording, by rule (see
          the metric ``validity``)
        - ``billed``: fields of ``ctxlab.tokens.billing.BilledSession``; None if the recording has
          no usage data
        - ``strategy``: strategy of the agent, if the recording is a session of ctxlab; otherwise None
    """
    check_recordings(recordings)
    describe_one = partial(_describe_recording, model=model, project=project)
    return track(map_parallel(describe_one, recordings, workers), "reading", None, progress)


def _describe_recording(recording: Recording, model: str | None, project: Path) -> dict[str, Any]:
    counter = ModelChoice(model, project=project).counter_for(recording)
    try:
        return _describe_with(counter, recording)
    finally:
        counter.clear_cache()  # it is shared, and would keep texts of many recordings in memory


def _describe_with(counter: TokenCounter, recording: Recording) -> dict[str, Any]:
    prepared = PreparedRecording(recording, counter)
    history, messages = prepared.history, recording.messages
    counted = [entry.tokens for entry in history.entries]
    results = [
        {"message": place, "tool": _tool_name(prepared, place), "tokens": counted[place]}
        for place in history.result_positions
    ]
    largest = sorted(results, key=itemgetter("tokens"), reverse=True)[:_MAX_LARGEST_RESULTS]
    sent = messages[: prepared.last_request]
    violations = () if prepared.valid else find_violations(sent, prepared.provider)
    return {
        **prepared.description,
        "tool_tokens": sum(counted[place] for place in history.result_positions),
        "largest_result": largest[0]["tokens"] if largest else 0,
        "largest": largest,
        "reasoning_tokens": sum(
            (message.usage and message.usage.reasoning) or counter.count_reasoning(message)
            for message in messages
        ),
        "longest_request": prepared.longest_request_tokens if prepared.request_positions else 0,
        "needs": len(prepared.needs),
        "far_needs": int((prepared.needs.gap_tokens > FAR_TOKENS).sum()),
        "probes": len(recording.probes),
        "compactions": [
            {"before": c.position, "kind": c.kind, "trigger": c.trigger, "tokens": c.tokens_before}
            for c in recording.compactions
        ],
        "faults": dict(Counter(found.rule for found in violations)),
        "counted": counter.accuracy_note,
        "billed": vars(prepared.bills) if prepared.bills else None,
        "strategy": recording.meta.get("strategy"),
    }


def _tool_name(prepared: PreparedRecording, place: int) -> str:
    call = prepared.history.calls_by_result.get(place)
    return call.name if call else prepared.recording.messages[place].name or "?"
