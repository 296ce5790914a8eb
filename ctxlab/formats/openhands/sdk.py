"""Read conversations of the OpenHands Agent SDK, which OpenHands 1 uses.

The SDK stores a conversation in a folder: ``base_state.json`` with the configuration and the usage,
and the folder ``events`` with one file per event. The number in the name of an event file is its
position. All files of a folder ``events`` are read together, and ``base_state.json`` is read from the
folder above. A file may also contain the JSON list of all events, JSONL with one event per line, a page
``{"items": [...]}`` of the agent server, or evaluation rows with the events in ``history``.

- The module ``openhands/sdk_conversation`` builds the messages. A ``Condensation`` becomes a
  ``Compaction``. Events that the model never sees are skipped and counted by kind.
- Newer versions store a tree of events: ``parent_id`` is the event before, and ``leaf_event_id`` of the
  state is the last event of the active branch. Only the active branch is read. The events of the other
  branches are counted.
- The usage of a response is in the state (or in an event with the statistics), and is matched by the id
  of the response. ``prompt_tokens`` includes cached tokens, except if there are more cached tokens than
  input tokens (agents that are run by the Agent Client Protocol).
- The log has the names and descriptions of built-in tools, but not their parameters.
- The conversations of tasks are in the folder ``subagents`` of their parent. They are in the cluster of
  the parent.

The requests that version 1.55.1 sent in a conversation with condensations, parallel calls and an
unknown tool are equal to those of the recording. Assumed: a summary without ``summary_offset`` is not
sent, and a later condensation also forgets the summary of an earlier one.

References
----------
github.com/OpenHands/software-agent-sdk, as of February 2026 and later: ``openhands-sdk``
``event`` (``base.py``, ``condenser.py``, ``llm_convertible``), ``context/view``,
``conversation/state.py``, ``event_store.py`` and ``persistence_const.py``, ``tool/schema.py``;
``openhands-tools`` ``terminal/definition.py`` and ``task/manager.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.fields import (
    get_in,
    get_number,
    get_object,
    get_objects,
    get_text,
    is_short_value,
)
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openhands.events import describe_row
from ctxlab.formats.openhands.sdk_conversation import (
    BilledCall,
    SdkConversation,
    read_stats,
    read_usages,
)
from ctxlab.messages.types import Recording

_OTHER_KINDS = ("Condensation", "CondensationRequest", "UserRejectObservation")
_STATE_KEYS = frozenset({"id", "agent", "workspace"})
_STATE_FILE = "base_state.json"
_EVENTS_FOLDER, _SUBAGENTS_FOLDER = "events", "subagents"
_EVENT_NUMBER = re.compile(r"event-(\d+)-")
# An event is recognised by one of these keys if its file was cut off or is too long for ``FileHead``,
# because its ``kind`` is the last key.
_EVENT_KEYS = frozenset({"system_prompt", "llm_message", "tool_call_id", "thought", "observation"})


class _LoggedEvent(NamedTuple):
    """An event with its position, for error messages."""

    value: Any
    file: Source
    number: int
    item: str


def sniff(head: FileHead) -> bool:
    """Check whether a file contains events of the SDK, or the state of a conversation.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if one of the first events has a ``kind`` of the SDK, or if the file is a state.
    """
    if _is_state(head.value) or _is_single_event(head):
        return True
    return any(_is_event(event) for row in head.rows for event in _events_of(row)[:5])


def find_folder(head: FileHead) -> str | None:
    """Return the same key for all files with a single event, so that a folder is read together.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    str or None
        A constant key, or None for a file with several events and for a state.
    """
    return _EVENTS_FOLDER if _is_single_event(head) else None


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of a folder, or the conversations of a file.

    Parameters
    ----------
    source : Source
        The first file with an event, whose folder is in ``other_paths``, or a file with several events.

    Yields
    ------
    Recording
        One recording per conversation, or per row of an evaluation.
    """
    head = FileHead.from_file(source.path)
    if _is_state(head.value):
        source.skip("state of a conversation; it is read together with the folder events")
    elif _is_single_event(head):
        yield from _read_folder(source)
    else:
        yield from _read_file(source)


_ABOUT = "OpenHands 1 and Agent SDK conversations (~/.openhands/conversations)"
FORMAT = Format(
    "openhands-sdk",
    _ABOUT,
    sniff,
    read,
    group_key=find_folder,
    versions=("1.55.1, in one conversation run with the library; from source since February 2026"),
    not_read=(
        "not in the log: parameters of built-in tools; left out: other branches, usage of "
        "condensations, events that the model never saw; limits on the length of results are "
        "not applied"
    ),
)


def _is_state(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() >= _STATE_KEYS:
        return False
    return get_text(value, "agent", "kind") is not None and "workspace" in value


def _is_event(value: Any) -> bool:
    kind = get_text(value, "kind") or ""
    known = kind.endswith("Event") or kind in _OTHER_KINDS
    return known and _has_event_fields(value)


def _has_event_fields(value: Any) -> bool:
    return all(get_text(value, key) for key in ("id", "timestamp", "source"))


def _is_single_event(head: FileHead) -> bool:
    """Check whether a file contains one event."""
    if len(head.rows) != 1 or not isinstance(head.value, dict):
        return False
    if "kind" in head.value:
        return _is_event(head.value)
    return _has_event_fields(head.value) and not _EVENT_KEYS.isdisjoint(head.value)


def _events_of(value: Any) -> list[Any]:
    """Return the events of an evaluation row, a page, a list, or a single event."""
    if isinstance(value, list):
        return value
    held = (get_in(value, key) for key in ("history", "items"))
    return next((each for each in held if isinstance(each, list)), [value])


def _read_folder(source: Source) -> Iterator[Recording]:
    """Read the events of a folder, which has one file per event."""
    state = _read_state(source)
    paths = sorted((source.path, *source.other_paths), key=_event_number)
    events = []
    for number, path in enumerate(paths):
        file = Source(path, source.name, source.on_error)
        try:
            events.append(_LoggedEvent(file.read_json(), file, number, "event"))
        except ReadError as error:
            if source.on_error == "raise":
                raise
            source.skip(f"broken file: {error.reason}", number)
    name, meta = source.name, {}
    cluster: str | None = None
    if (here := _to_path(source.path).parent).name == _EVENTS_FOLDER:
        folder, above = here.parent, here.parent.parent
        nested = "/" in name
        name = name.removesuffix(f"/{_EVENTS_FOLDER}") if nested else folder.name or name
        cluster = folder.name or None
        if above.name == _SUBAGENTS_FOLDER:
            cluster = above.parent.name
            meta = {"parent": cluster}
    yield from _build(source, name, events, state, cluster=cluster, meta=meta)


def _read_file(source: Source) -> Iterator[Recording]:
    """Read a file with several events, or with evaluation rows."""
    events = []
    rows = 0
    for where, value in source.read_json_values():
        number, item = where or (1, "line")
        if isinstance(listed := get_in(value, "history"), list):
            rows += 1
            with source.handle_errors(number, item):
                instance = value.get("instance_id", rows)
                logged = (_LoggedEvent(each, source, number, item) for each in listed)
                usages = read_usages(get_objects(value, "metrics", "token_usages"))
                model = get_text(value, "metadata", "llm", "model")
                yield from _build(
                    source,
                    f"{source.name}/{instance}",
                    logged,
                    {"agent": {"llm": {"model": model}}},
                    cluster=str(instance),
                    meta=describe_row(value),
                    billed=usages,
                )
            continue
        found = _events_of(value)
        single = where is not None and len(found) == 1
        places = ((number, item) if single else (n, "event") for n in range(len(found)))
        events += [_LoggedEvent(e, source, *at) for e, at in zip(found, places, strict=True)]
    if events:
        yield from _build(source, source.name, events, {}, cluster=None, meta={})


def _build(
    source: Source,
    name: str,
    events: Iterable[_LoggedEvent],
    state: dict[str, Any],
    *,
    cluster: str | None,
    meta: dict[str, Any],
    billed: dict[str, BilledCall] | None = None,
) -> Iterator[Recording]:
    """Yield the recording of a conversation, if it has messages."""
    events = list(events)
    stats = get_in(state, "stats") or _find_stats(events)
    conversation = SdkConversation(source.skip, read_stats(stats) | (billed or {}))
    for event in _active_branch(events, get_text(state, "leaf_event_id"), source):
        with event.file.handle_errors(event.number, event.item):
            conversation.add(event.value)
        if event.file is not source:
            for reason, count in event.file.pop_skipped().items():
                source.skip(reason, count=count)
    messages, compactions = conversation.build_messages()
    if all(message.role == "system" for message in messages):
        source.skip("conversation without messages")
        return
    model = get_text(state, "agent", "llm", "model")
    if model and not conversation.models:
        conversation.models[model] += 1
    costs = (
        get_number(e, "accumulated_cost") for e in get_object(stats, "usage_to_metrics").values()
    )
    found = {
        "conversation": state.get("id"),
        "agent": get_in(state, "agent", "kind"),
        "status": state.get("execution_status"),
        "folder": get_in(state, "workspace", "working_dir"),
        "cost": sum(filter(None, costs)) or None,
    }
    meta = {key: value for key, value in found.items() if is_short_value(value)} | meta
    made = (messages, compactions)
    session = build_session(name, made, conversation.models, cluster, meta)
    yield msgspec.structs.replace(session, tools=conversation.tools)


def _active_branch(
    events: list[_LoggedEvent], leaf: str | None, source: Source
) -> list[_LoggedEvent]:
    """Return the events of the active branch, in order.

    An event without ``parent_id`` follows the event before it. The active branch ends at the last event
    if this event follows ``leaf``, and otherwise at ``leaf``.
    """
    if not any(get_text(event.value, "parent_id") for event in events):
        return events
    ids = [get_text(event.value, "id") or "" for event in events]
    places = {id: place for place, id in enumerate(ids)}

    def path_to(place: int | None) -> set[int]:
        path: set[int] = set()
        while place is not None and place not in path:
            path.add(place)
            parent = get_text(events[place].value, "parent_id")
            # An unknown id, such as the mark of a root, ends the path.
            place = places.get(parent) if parent else (place - 1 if place else None)
        return path

    active = path_to(len(events) - 1)
    if leaf in places and places[leaf] not in active:
        active = path_to(places[leaf])
    if left := len(events) - len(active):
        source.skip("event of another branch", count=left)
    return [event for place, event in enumerate(events) if place in active]


def _find_stats(events: Iterable[_LoggedEvent]) -> Any:
    """Return the last statistics in the events. A remote conversation logs its changed state."""
    stats = None
    for event in events:
        if get_in(event.value, "kind") == "ConversationStateUpdateEvent":
            value = get_in(event.value, "value")
            key = get_in(event.value, "key")
            stats = (value if key == "stats" else get_in(value, "stats")) or stats
    return stats


def _read_state(source: Source) -> dict[str, Any]:
    """Read the state of a conversation from the folder above the events, if it is there."""
    for path in _state_paths(source.path):
        with suppress(ReadError):
            value = Source(path, source.name).read_json()
            if _is_state(value):
                return dict(value)
    if _to_path(source.path).parent.name == _EVENTS_FOLDER:
        source.skip(f"conversation without {_STATE_FILE}, which has the usage")
    return {}


def _state_paths(path: PathOrUrl) -> list[PathOrUrl]:
    if isinstance(path, Path):
        return sorted(path.parent.parent.glob(f"{_STATE_FILE}*"))
    inner, chained, outer = path.partition("::")
    folder = inner.rpartition("/")[0].rpartition("/")[0]
    return [f"{folder}/{_STATE_FILE}{chained}{outer}"]


def _event_number(path: PathOrUrl) -> tuple[int, str]:
    name = _to_path(path).name
    found = _EVENT_NUMBER.match(name)
    return int(found[1]) if found else 0, name


def _to_path(place: PathOrUrl) -> PurePath:
    return place if isinstance(place, Path) else PurePosixPath(place.partition("::")[0])
