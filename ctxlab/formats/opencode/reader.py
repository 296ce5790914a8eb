"""Read opencode sessions that are stored as JSON.

There are two forms. ``session`` describes how the messages are converted.

- ``opencode export`` writes a session to one file: ``{info, messages: [{info, parts}]}``.
- Until version 1.1, opencode stored each session, message and part in a file of its own, below
  ``~/.local/share/opencode/storage``: ``session/<project>/<id>.json``, ``message/<session>/<id>.json``
  and ``part/<message>/<id>.json``. These files are read together, so load the folder ``storage``. The
  ids of messages and parts ascend with time. Since version 1.2, opencode stores sessions in a
  database (``opencode-db``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import (
    get_in,
    get_number,
    get_object,
    get_text,
    require_list,
    require_object,
)
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.opencode.session import StoredMessage, build_recording
from ctxlab.formats.opencode.subagents import tie_to_file
from ctxlab.messages.types import Recording

_Stored: TypeAlias = tuple[PathOrUrl, dict[str, Any]]


def sniff(head: FileHead) -> bool:
    """Check whether a file is an exported session, or a stored session, message or part.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file has one of these forms.
    """
    value = head.value
    # The info of a session may contain whole files, and be longer than the beginning that was read.
    is_cut_off = not head.is_complete and "messages" not in get_object(value)
    is_export = isinstance(get_in(value, "messages"), list) or is_cut_off
    return (is_export and _is_session_info(get_in(value, "info"))) or _stored_kind(
        value
    ) is not None


def find_session_id(head: FileHead) -> str | None:
    """Return the id of the session to which a stored file belongs.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    str or None
        The id. None for an exported session, which is complete.
    """
    kind = _stored_kind(head.value)
    return get_text(head.value, "id" if kind == "session" else "sessionID") if kind else None


def read(source: Source) -> Iterator[Recording]:
    """Read an exported session, or the files of a stored session.

    Parameters
    ----------
    source : Source
        The file to read. For a stored session, ``other_paths`` contains its other files.

    Yields
    ------
    Recording
        The session. Nothing is yielded if it has no messages.

    Raises
    ------
    ReadError
        If a file or a message is malformed and ``on_error`` is ``"raise"``.
    """
    for recording in _read_session(source):
        yield tie_to_file(recording, source, _read_session)


_ABOUT = "opencode sessions (opencode export; ~/.local/share/opencode/storage)"
FORMAT = Format(
    "opencode",
    _ABOUT,
    sniff,
    read,
    group_key=find_session_id,
    spans_folders=True,
    versions="exports of 1.14.30 to 1.18.16; 0.5 to 1.18 from source",
    not_read=(
        "not in the file: tool definitions, in newer versions most of the system prompt; "
        "left out: failed answers, patches, files that are neither images nor text, usage of "
        "summaries"
    ),
)


def _read_session(source: Source) -> Iterator[Recording]:
    files = [(path, value) for path, value in source.read_json_files()]
    exports = [(path, value) for path, value in files if get_in(value, "messages") is not None]
    for path, export in exports:
        with source.handle_errors(1, "session"):
            info = require_object(get_in(export, "info"), "info of the session")
            messages = require_list(export["messages"], "messages of the session")
            rows = [
                StoredMessage(get_in(row, "info"), get_in(row, "parts"), path, number)
                for number, row in enumerate(messages)
            ]
            if recording := build_recording(source, source.name, info, rows):
                yield recording
    if not exports:
        yield from _read_stored(source, files)


def _read_stored(source: Source, files: list[tuple[PathOrUrl, Any]]) -> Iterator[Recording]:
    """Yield the recording of a session that is stored in several files."""
    stored: dict[str, list[_Stored]] = {"session": [], "message": [], "part": []}
    for path, value in files:
        kind = _stored_kind(value)
        if kind is None:
            source.skip("file that is no session, message or part")
        else:
            stored[kind].append((path, value))
    parts: dict[str, list[dict[str, Any]]] = {}
    for _, part in sorted(stored["part"], key=_stored_id):
        parts.setdefault(part["messageID"], []).append(part)
    rows = [
        StoredMessage(info, parts.pop(info["id"], []), path, number)
        for number, (path, info) in enumerate(sorted(stored["message"], key=_stored_id))
    ]
    for orphans in parts.values():
        source.skip("part without its message; load the folder storage", count=len(orphans))
    if not rows:
        source.skip("session without messages; load the folder storage")
    info = next((value for _, value in stored["session"]), {})
    if recording := build_recording(source, source.name, info, rows):
        yield recording


def _stored_id(stored: _Stored) -> str:
    return str(stored[1]["id"])


def _is_session_info(info: Any) -> bool:
    named = get_text(info, "id") and isinstance(get_in(info, "title"), str)
    return bool(named and get_text(info, "version"))


def _has_time(value: Any) -> bool:
    return get_number(value, "time", "created") is not None


def _stored_kind(value: Any) -> str | None:
    """Return whether the JSON value of a file is a session, a message or a part; None if neither."""
    if _is_session_info(value) and _has_time(value):
        return "session"
    if not (get_text(value, "id") and get_text(value, "sessionID")):
        return None
    if get_in(value, "role") in ("user", "assistant") and _has_time(value):
        return "message"
    return "part" if get_text(value, "messageID") and get_text(value, "type") else None
