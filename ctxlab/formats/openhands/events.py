"""Read agent runs that OpenHands saved as events.

The file ``output.jsonl`` of an evaluation has one row per task instance: ``{instance_id,
test_result, metadata, history, metrics, …}``. A saved trajectory contains only the JSON list of
events. An event is an action or an observation. In older versions of OpenHands, ``history`` is a
list of pairs ``[action, observation]``.

- OpenHands builds the messages of each request from the events. This reader follows the rules of
  OpenHands. An action with ``tool_call_metadata`` contains the answer of the model. The observations of
  this action repeat the answer, so it is read only once. Observations become tool results, followed
  by the working directory and the exit code. Results longer than ``max_message_chars`` are
  truncated.
- If a run has no ``tool_call_metadata`` (older versions, other agents), the agent did not use
  function calling. Its actions become the text of assistant messages, and its observations the text
  of user messages.
- If OpenHands converted the calls to text for a model without function calling, the log does not
  show it. The tool calls are then read as usual, but the recorded usage includes the descriptions
  of the tools and an example.
- The action ``condensation`` becomes a ``Compaction``. The action ``finish`` is a tool call. If the
  user continued after it, OpenHands sent the text of the action instead of the call. If an answer
  was not a valid call, the log contains the ``error`` that the model received, but not the answer.
- Recalled knowledge (``recall``) becomes a user message if the file is a trajectory. In an
  evaluation, it is sent to the model only if ``enable_prompt_extensions`` is true, as the recorded
  usage confirms. Otherwise, it is skipped and counted.

Events of other types are skipped and counted by type. Older versions do not log the system prompt.
The module ``openhands/sdk`` reads the events of the newer Agent SDK, which have a ``kind``.

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
    """Check whether a file contains OpenHands events, as one list or in ``history`` of its rows.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the first event is an action or an observation.
    """
    if isinstance(head.value, list):
        return _is_events(head.value)
    return any(_is_events(fields.get_in(row, "history")) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the agent runs of a file.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        One recording per row of an evaluation, or one recording for a trajectory. Rows of the same
        task instance have the same cluster.
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
FORMAT = Format(
    "openhands-events",
    _ABOUT,
    sniff,
    read,
    versions="0.35; other versions from source of 2025",
    not_read=(
        "not in the file: system prompts of older versions, answers that were no valid "
        "calls; left out: recalled knowledge in evaluations, the middle of long results, "
        "changes of the agent's state"
    ),
)


def _is_events(value: Any) -> bool:
    first = fields.first_or_none(value)
    parts = {"action": ("args", dict), "observation": ("content", str)}
    return any(
        fields.get_text(event, name) and isinstance(fields.get_in(event, key), kind)
        for event in (first if isinstance(first, list) else [first])
        for name, (key, kind) in parts.items()
    )


def _read_row(row: Any, line: int, source: Source) -> Iterator[Recording]:
    """Yield the recording of an evaluation row, if the row has messages."""
    listed = fields.get_in(row, "history")
    if not isinstance(listed, list):
        raise ValueError(f"expected a list of events in history, got {type(listed).__name__}")
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
        meta=describe_row(row),
    )


def _flatten(listed: Iterable[Any]) -> Iterator[Any]:
    for each in listed:
        yield from each if isinstance(each, list) else [each]


def _uses_function_calling(events: Iterable[Any]) -> bool:
    return any(isinstance(fields.get_in(event, "tool_call_metadata"), dict) for event in events)


def describe_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return short values that describe a run, such as its result, cost and error.

    Parameters
    ----------
    row : dict
        A row of an evaluation.

    Returns
    -------
    dict
        Values for ``Recording.meta``.
    """
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
