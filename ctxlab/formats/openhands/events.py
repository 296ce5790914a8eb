"""Read runs that OpenHands saved as events.

An evaluation's ``output.jsonl`` has one row per instance, ``{instance_id, test_result, metadata,
history, metrics, …}``. A saved trajectory is only the JSON list of events. An event is an action or
an observation. In older versions, ``history`` holds ``[action, observation]`` pairs.

- Messages are built from events in the way OpenHands builds them. An action with
  ``tool_call_metadata`` holds the answer of the model, which is repeated in every observation and
  read once. Observations are tool results, followed by the working directory and the exit code.
  Results longer than ``max_message_chars`` were truncated, and are truncated here.
- Runs without any ``tool_call_metadata`` (older versions, other agents) did not use function
  calling: actions and observations are texts of assistant and user, as they were sent.
- A model without function calling is sent the same calls as text; the log does not show this. Its
  usage then includes the tool descriptions and an example.
- ``condensation`` becomes a ``Compaction``. ``finish`` is a call; if the user continues after it,
  OpenHands sends its text and no call. An answer that was not a valid call is not logged, only the
  ``error`` that the model received.
- Recalled knowledge (``recall``) is a user message in a trajectory. Evaluations disable it
  (``enable_prompt_extensions``), which their usage confirms, so there it is counted as skipped.

Events of other types are counted by type. Older versions do not log the system prompt. Trajectories
of the newer Agent SDK (events with ``kind``) are another format.

References
----------
github.com/All-Hands-AI/OpenHands, ``openhands/memory/conversation_memory.py``, ``memory/view.py``,
``events/serialization``, ``evaluation/utils/shared.py``, as of 2025; logs of version 0.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from ctxlab.formats import fields
from ctxlab.formats.base import Format, Source
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openhands.history import EventHistory
from ctxlab.messages.types import Recording

_MAX_ERROR_CHARS = 200


def sniff(head: FileHead) -> bool:
    """Return whether a file is a list of events, or has rows with a history of events.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file holds events.
    """
    if isinstance(head.value, list):
        return _is_events(head.value)
    return any(_is_events(fields.get_in(row, "history")) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the runs of a file.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        One recording per row, with one cluster per instance; a trajectory is one recording.
    """
    if FileHead.from_file(source.path).first_bytes.lstrip()[:1] == b"[":
        events = [event for _, event in source.read_json_array()]
        history = EventHistory(source.skip, _uses_function_calling(events), shows_recalls=True)
        for place, event in enumerate(events):
            with source.handle_errors(place, "element"):
                history.add(event)
        messages, compactions = history.build_messages()
        if messages:
            built = Recording(source.name, messages, history.tools, history.model)
            yield replace(built, compactions=compactions)
        return
    for line, row in source.read_jsonl():
        with source.handle_errors(line):
            yield from _read_row(row, line, source)


_ABOUT = "OpenHands: evaluation output.jsonl, saved trajectories"
FORMAT = Format("openhands-events", _ABOUT, sniff, read)


def _is_events(value: Any) -> bool:
    first = fields.first_or_none(value)
    parts = {"action": ("args", dict), "observation": ("content", str)}
    return any(
        fields.get_text(event, name) and isinstance(fields.get_in(event, key), kind)
        for event in (first if isinstance(first, list) else [first])
        for name, (key, kind) in parts.items()
    )


def _read_row(row: Any, line: int, source: Source) -> Iterator[Recording]:
    """Yield the run of a row, if it has messages."""
    listed = fields.get_in(row, "history")
    if not isinstance(listed, list):
        raise ValueError("expected a list of events in history of the row")
    events = list(_flatten(listed))
    config = fields.get_in(row, "metadata", "llm_config")
    extends = fields.get_in(row, "metadata", "agent_config", "enable_prompt_extensions") is True
    limit = fields.get_count(config, "max_message_chars")
    history = EventHistory(source.skip, _uses_function_calling(events), extends, limit)
    for place, event in enumerate(events):
        with source.handle_errors(line):
            try:
                history.add(event)
            except ValueError as error:
                raise ValueError(f"event {place}: {error}") from None
    instance, dataset = row.get("instance_id", line), fields.get_in(row, "metadata", "dataset")
    messages, compactions = history.build_messages()
    if not messages:
        source.skip("row without messages", line)
        return
    yield Recording(
        f"{source.name}/{instance}",
        messages,
        tools=history.tools,
        model=fields.get_text(config, "model") or history.model,
        compactions=compactions,
        cluster=fields.get_text(instance) or f"{dataset or source.name}/{instance}",
        meta=_build_meta(row),
    )


def _flatten(listed: Iterable[Any]) -> Iterator[Any]:
    for each in listed:
        yield from each if isinstance(each, list) else [each]


def _uses_function_calling(events: Iterable[Any]) -> bool:
    return any(isinstance(fields.get_in(event, "tool_call_metadata"), dict) for event in events)


def _build_meta(row: dict[str, Any]) -> dict[str, Any]:
    """Return the short values about a run: its result, its cost, its error."""
    result = row.get("test_result")
    meta: dict[str, Any] = {"instance_id": row.get("instance_id")}
    for part in (result, fields.get_in(result, "report"), row.get("report")):
        if isinstance(part, dict):
            meta |= {key: part[key] for key in part if key != "git_patch"}
    meta["resolved"] = row.get("resolved", meta.get("resolved"))
    meta["cost"] = fields.get_number(row, "metrics", "accumulated_cost")
    error = fields.get_text(row, "error")
    meta["error"] = error.splitlines()[0][:_MAX_ERROR_CHARS] if error else None
    return {key: value for key, value in meta.items() if fields.is_short_value(value)}
