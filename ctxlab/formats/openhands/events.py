"""OpenHands saves a run as its events, alone or as the ``history`` of a row of an evaluation.

An evaluation's ``output.jsonl`` has a row an instance, ``{instance_id, test_result, metadata,
history, metrics, …}``; a saved trajectory is the JSON list of events alone. An event is an action or
an observation; ``history`` of older versions holds ``[action, observation]`` pairs of them.

- What the model saw is made of the events as OpenHands makes it: actions with
  ``tool_call_metadata`` are what the model answered (its response stands again in every observation,
  and is read once), observations are tool results with the working directory and the exit code
  behind them. Results longer than ``max_message_chars`` were cut, and are cut here.
- Runs without any ``tool_call_metadata`` (older versions, other agents) called no
  functions: actions and observations are texts of assistant and user, which is what was sent.
- A model that cannot call functions is sent the same calls as text; the log does not tell. Its
  usage counts the tool descriptions and an example besides.
- ``condensation`` is a ``Compaction``. ``finish`` is a call; where the user goes on after it,
  OpenHands sends its words and no call. An answer that was no valid call is not logged, only the
  ``error`` that the model was told of.
- Recalled knowledge (``recall``) is a message of the user in a trajectory. Evaluations switch it off
  (``enable_prompt_extensions``), which their usage confirms: there it is counted as skipped.

Events of other types are counted by type. Older versions do not log the system prompt. Trajectories
of the newer Agent SDK (events with ``kind``) are another format.

Source: github.com/All-Hands-AI/OpenHands, ``openhands/memory/conversation_memory.py``,
``memory/view.py``, ``events/serialization``, ``evaluation/utils/shared.py``, as of 2025; logs of
version 0.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.openhands.history import History
from ctxlab.formats.optional_fields import (
    first_of,
    is_small,
    number,
    text,
    whole_number,
    within,
)
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]

_LONG = 200


def sniff(head: Head) -> bool:
    """Whether a file has rows with a history of events, or is a list of events."""
    if isinstance(head.value, list):
        return _is_events(head.value)
    return any(_is_events(within(row, "history")) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """One recording a row, clustered by instance; a trajectory is one recording."""
    if Head.of(source.path).start.lstrip()[:1] == b"[":
        events = [event for _, event in source.items()]
        history = History(source.skip, _calls_functions(events), recalls=True)
        for place, event in enumerate(events):
            with source.guard(place, "element"):
                history.add(event)
        messages, compactions = history.told()
        if messages:
            yield Recording(
                source.name,
                messages,
                tools=history.tools,
                model=history.model,
                compactions=compactions,
            )
        return
    for line, row in source.rows():
        with source.guard(line):
            yield from _row(row, line, source)


FORMAT = Format(
    "openhands-events", "OpenHands: evaluation output.jsonl, saved trajectories", sniff, read
)


def _is_events(value: Any) -> bool:
    first = first_of(value)
    for event in first if isinstance(first, list) else [first]:
        if text(within(event, "action")) and isinstance(within(event, "args"), dict):
            return True
        if text(within(event, "observation")) and isinstance(within(event, "content"), str):
            return True
    return False


def _row(row: Any, line: int, source: Source) -> Iterator[Recording]:
    """The run of a row; none where no event became a message."""
    listed = within(row, "history")
    if not isinstance(listed, list):
        raise ValueError("a row has its events in history, which is a list")
    events = list(_flat(listed))
    config = within(row, "metadata", "llm_config")
    history = History(
        source.skip,
        _calls_functions(events),
        recalls=within(row, "metadata", "agent_config", "enable_prompt_extensions") is True,
        longest=whole_number(within(config, "max_message_chars")),
    )
    for place, event in enumerate(events):
        with source.guard(line):
            try:
                history.add(event)
            except ValueError as error:
                raise ValueError(f"event {place}: {error}") from None
    instance = row.get("instance_id", line)
    messages, compactions = history.told()
    if not messages:
        source.skip("row without messages", line)
        return
    yield Recording(
        f"{source.name}/{instance}",
        messages,
        tools=history.tools,
        model=text(within(config, "model")) or history.model,
        compactions=compactions,
        cluster=text(instance) or f"{within(row, 'metadata', 'dataset') or source.name}/{instance}",
        meta=_meta(row),
    )


def _flat(listed: Iterable[Any]) -> Iterator[Any]:
    for each in listed:
        if isinstance(each, list):
            yield from each
        else:
            yield each


def _calls_functions(events: Iterable[Any]) -> bool:
    return any(isinstance(within(event, "tool_call_metadata"), dict) for event in events)


def _meta(row: dict[str, Any]) -> dict[str, Any]:
    """What is said of a run in a word or a number: its result, its cost, its error."""
    result = row.get("test_result")
    meta: dict[str, Any] = {"instance_id": row.get("instance_id")}
    for part in (result, within(result, "report"), row.get("report")):
        if isinstance(part, dict):
            meta |= {key: part[key] for key in part if key != "git_patch"}
    meta["resolved"] = row.get("resolved", meta.get("resolved"))
    meta["cost"] = number(within(row, "metrics", "accumulated_cost"))
    error = text(row.get("error"))
    meta["error"] = error.splitlines()[0][:_LONG] if error else None
    return {key: value for key, value in meta.items() if is_small(value)}
