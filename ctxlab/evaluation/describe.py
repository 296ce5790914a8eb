"""Describe recordings without replaying them: size, references to earlier messages, and bills.

Bills are the numbers of tokens that a provider billed for the recorded requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.progress import track
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.metrics import FAR_TOKENS
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.messages.validation import find_violations
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.images import count_image_tokens, image_parts
from ctxlab.tokens.model_choice import ModelChoice

if TYPE_CHECKING:
    import pandas as pd

RecordingDescription: TypeAlias = dict[str, Any]
"""Description of one recording. The keys are listed under ``iter_descriptions``."""

_MAX_LARGEST_RESULTS = 3

Schema: TypeAlias = dict[str, tuple[str, str, str]]
"""Type, unit and meaning of each column of a table."""

RECORDING_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "cluster": ("text", "", "cluster; the id of the recording if it names none"),
    "source": ("text", "path", "file that the recording was read from; None if it was none"),
    "format": ("text", "", "format of the file; None if it was none"),
    "model": ("text", "", "model of the recording; None if it names none"),
    "counted_as": ("text", "", "model whose tokenizer counted the tokens"),
    "messages": ("int64", "messages", "number of messages"),
    "requests": ("int64", "requests", "number of model calls"),
    "tokens": ("int64", "tokens", "tokens of all messages and of the tool definitions"),
    "valid": ("bool", "", "True if the provider would accept the recorded messages"),
    "tool_tokens": ("int64", "tokens", "tokens of all tool results"),
    "largest_result": ("int64", "tokens", "tokens of the largest tool result"),
    "images": ("int64", "images", "number of images in messages"),
    "image_tokens": ("int64", "tokens", "tokens of all images"),
    "reasoning_tokens": (
        "int64",
        "tokens",
        "tokens of hidden reasoning, which are not in the others",
    ),
    "longest_request": ("int64", "tokens", "tokens of the longest request with the full history"),
    "needs": ("int64", "needs", "values in tool calls that an earlier message mentioned"),
    "far_needs": ("int64", "needs", "needs last mentioned more than 4,000 tokens earlier"),
    "probes": ("int64", "probes", "questions about the recording"),
    "compactions": ("int64", "compactions", "compactions that the recorded product made"),
    "violations": ("int64", "violations", "violations of the rules of the provider"),
    "skipped_rows": ("int64", "rows", "rows, messages or parts that the reader left out"),
    "warning": ("text", "", "warning if the reader probably missed tool calls, otherwise None"),
    "billed_requests": ("Int64", "requests", "number of billed requests"),
    "billed_tokens": (
        "Int64",
        "tokens",
        "billed input tokens of the request with the highest bill",
    ),
    "billed_counted": ("Int64", "tokens", "counted tokens of this request, with the unlogged ones"),
    "billed_unlogged": ("Int64", "tokens", "estimated tokens per request that are not in the log"),
    "count_error": (
        "Float64",
        "share",
        "median difference of counted and billed tokens of a request",
    ),
    "count_error_after": ("Float64", "share", "the same directly after recorded compactions"),
    "counted": ("text", "", "how the tokens were counted, and how exactly"),
    "strategy": ("text", "", "strategy of the agent if the recording is a session of ctxlab"),
}
"""Columns of ``Descriptions.recordings``."""

COMPACTION_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "position": ("int64", "message", "position of the first message after the compaction"),
    "kind": ("text", "", "clear if only tool results were removed, otherwise summary"),
    "trigger": ("text", "", "recorded cause, such as auto; None if it is not known"),
    "tokens_before": ("Int64", "tokens", "recorded tokens of the context before the compaction"),
}
"""Columns of ``Descriptions.compactions``."""

RESULT_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "message": ("int64", "message", "position of the tool result"),
    "tool": ("text", "", "name of the tool"),
    "tokens": ("int64", "tokens", "tokens of the tool result"),
}
"""Columns of ``Descriptions.largest_results``."""

VIOLATION_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "rule": ("text", "", "name of the violated rule"),
    "violations": ("int64", "violations", "number of violations"),
}
"""Columns of ``Descriptions.violations``."""

SKIPPED_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "reason": ("text", "", "why the reader left something out"),
    "rows": ("int64", "rows", "number of rows, messages or parts"),
}
"""Columns of ``Descriptions.skipped``."""

BILL_CHANGE_COLUMNS: Schema = {
    "recording": ("text", "", "id of the recording"),
    "position": ("int64", "message", "position of the first reply after the change"),
    "tokens": ("int64", "tokens", "change of the difference between bill and count"),
    "cause": ("text", "", "probable cause; see ctxlab.tokens.billing.ChangeCause"),
}
"""Columns of ``Descriptions.bill_changes``."""


@dataclass(frozen=True, repr=False)
class Descriptions(Sequence["RecordingDescription"]):
    """Descriptions of recordings, as tables and as a sequence of dicts.

    The dicts are those of ``iter_descriptions``. A notebook displays a table and what it means for an
    evaluation.

    Examples
    --------
    >>> import ctxlab
    >>> found = ctxlab.describe(ctxlab.load("bundled:coding-agent"), progress=False)
    >>> found
    <Descriptions of 8 recordings>
    >>> int(found.recordings["messages"].sum()), found[0]["format"]
    (1992, 'native')
    """

    items: tuple[RecordingDescription, ...]
    "one description per recording"

    @overload
    def __getitem__(self, index: int) -> RecordingDescription: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordingDescription]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return the description of a recording, or of several."""
        return self.items[index]

    def __len__(self) -> int:
        """Return the number of recordings."""
        return len(self.items)

    @cached_property
    def recordings(self) -> pd.DataFrame:
        """Table with one row per recording: metadata, size, references to earlier messages, and bills.

        ``compactions``, ``violations`` and ``skipped_rows`` are numbers of rows of the other tables, or
        sums of them. The columns that begin with ``billed_``, and ``count_error``, are missing if the
        recording has no usage data.
        """
        rows = [_recording_row(each) for each in self.items]
        return _make_frame(rows, RECORDING_COLUMNS)

    @cached_property
    def compactions(self) -> pd.DataFrame:
        """Table with one row per compaction that the recorded product made."""
        rows = [
            (each["recording"], c["before"], c["kind"], c["trigger"], c["tokens"])
            for each in self.items
            for c in each["compactions"]
        ]
        return _make_frame(rows, COMPACTION_COLUMNS)

    @cached_property
    def largest_results(self) -> pd.DataFrame:
        """Table with at most three rows per recording: its largest tool results."""
        rows = [
            (each["recording"], result["message"], result["tool"], result["tokens"])
            for each in self.items
            for result in each["largest"]
        ]
        return _make_frame(rows, RESULT_COLUMNS)

    @cached_property
    def violations(self) -> pd.DataFrame:
        """Table with one row per recording and violated rule of the provider."""
        rows = [(e["recording"], *pair) for e in self.items for pair in e["faults"].items()]
        return _make_frame(rows, VIOLATION_COLUMNS)

    @cached_property
    def skipped(self) -> pd.DataFrame:
        """Table with one row per recording and reason for which its reader left out rows."""
        rows = [(e["recording"], *pair) for e in self.items for pair in e["skipped"].items()]
        return _make_frame(rows, SKIPPED_COLUMNS)

    @cached_property
    def bill_changes(self) -> pd.DataFrame:
        """Table with one row per change of the context that the bill shows, but not the log."""
        rows = [
            (each["recording"], position, tokens, cause)
            for each in self.items
            if each["billed"]
            for (position, tokens), cause in zip(
                each["billed"]["unsaid"], each["billed"]["causes"], strict=True
            )
        ]
        return _make_frame(rows, BILL_CHANGE_COLUMNS)

    def __repr__(self) -> str:
        """Return a short description with the number of recordings."""
        return f"<Descriptions of {pluralize(len(self), 'recording')}>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.description_table import descriptions_html

        return descriptions_html(self)


def describe(
    recordings: Iterable[Recording],
    model: str | None = None,
    *,
    workers: int | None = None,
    progress: bool | None = None,
) -> Descriptions:
    """Describe recordings in tables, without replaying them.

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
    Descriptions
        Tables of the recordings, their compactions, largest results and more. A notebook displays them
        as ``ctxlab describe`` prints them.

    Raises
    ------
    SpecError
        If ``recordings`` is a path or a single recording.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:3]
    >>> found = ctxlab.describe(recordings, workers=1)
    >>> found.recordings[["messages", "requests"]].values.tolist()
    [[251, 120], [251, 120], [253, 121]]
    """
    found = iter_descriptions(recordings, model, workers=workers, progress=progress)
    return Descriptions(tuple(found))


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
        - ``images``, ``image_tokens``: number of images in messages, and of their tokens
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
    images = [part for message in messages for part in image_parts(message)]
    sent = messages[: prepared.last_request]
    violations = () if prepared.valid else find_violations(sent, prepared.provider)
    return {
        **prepared.description,
        "tool_tokens": sum(counted[place] for place in history.result_positions),
        "largest_result": largest[0]["tokens"] if largest else 0,
        "largest": largest,
        "images": len(images),
        "image_tokens": sum(count_image_tokens(part, counter.model) for part in images),
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


def _recording_row(facts: RecordingDescription) -> dict[str, Any]:
    """Return the row of a recording: what the description says, without lists and dicts."""
    bill = facts["billed"] or {}
    return {
        **{name: facts[name] for name in RECORDING_COLUMNS if name in facts},
        "compactions": len(facts["compactions"]),
        "violations": sum(facts["faults"].values()),
        "skipped_rows": sum(facts["skipped"].values()),
        "billed_requests": bill.get("requests"),
        "billed_tokens": bill.get("billed"),
        "billed_counted": bill.get("counted"),
        "billed_unlogged": bill.get("fixed"),
        "count_error": bill.get("error"),
        "count_error_after": bill.get("error_after"),
    }


def _make_frame(rows: Sequence[Any], columns: Schema) -> pd.DataFrame:
    import pandas as pd

    # Texts stay objects, because texts of logs may contain lone surrogates.
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    return frame.astype({n: kind for n, (kind, *_) in columns.items() if kind != "text"})


def _tool_name(prepared: PreparedRecording, place: int) -> str:
    call = prepared.history.calls_by_result.get(place)
    return call.name if call else prepared.recording.messages[place].name or "?"
