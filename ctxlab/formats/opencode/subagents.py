"""Tie the sessions of opencode's subagents to the sessions and tool calls that started them.

The session of a subagent names the session that started it (``parentID``). In the parent, the part of
the tool call names the session of the subagent: ``state.metadata.sessionId`` in opencode 1, and
``state.structured.sessionID`` or ``state.metadata.sessionID`` in opencode 2. ``parts`` stores it in
``extra["subagent"]`` of the result. If several calls name a session, the first one started it, and the
others continued it.

The sessions of a database are in one file. Of the sessions that are stored in several files, the parent
is read from the same folder ``storage``. The parent of an exported session is read if it is next to it
and has the name of its session, such as ``ses_1.json``. Files outside of the requested folder are not
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from ctxlab.errors import ReadError
from ctxlab.formats.base import Source
from ctxlab.formats.fields import get_text
from ctxlab.formats.io.related_files import (
    is_file_name,
    is_related_file,
    local_path,
    recording_prefix,
)
from ctxlab.messages.types import Recording


def list_subagents(recording: Recording) -> dict[str, str]:
    """List the subagents that a session started.

    Parameters
    ----------
    recording : Recording
        The recording of the session.

    Returns
    -------
    dict of str to str
        Id of the session of the subagent → id of the first tool call that names it.
    """
    found: dict[str, str] = {}
    for message in recording.messages:
        session = get_text(message.extra, "subagent")
        if session and message.tool_call_id:
            found.setdefault(session, message.tool_call_id)
    return found


def tie_to_parent(recording: Recording, parent: str, call: str | None) -> Recording:
    """Store the parent of a subagent and the call that started it in ``meta``.

    Parameters
    ----------
    recording : Recording
        The recording of the subagent.
    parent : str
        Id of the recording of the session that started it.
    call : str or None
        Id of the tool call, if it is known.

    Returns
    -------
    Recording
        The recording with ``meta["parent"]`` and, if the call is known, ``meta["call_id"]``.
    """
    tie = {"parent": parent} | ({"call_id": call} if call else {})
    return replace(recording, meta=recording.meta | tie)


def tie_to_file(
    recording: Recording, source: Source, read: Callable[[Source], Iterator[Recording]]
) -> Recording:
    """Tie a subagent to its parent, which is stored in other files on the same disk.

    Parameters
    ----------
    recording : Recording
        The recording of a session.
    source : Source
        The files that it was read from.
    read : Callable
        Reader for the files of a session.

    Returns
    -------
    Recording
        The recording, tied to its parent and in its cluster. The recording itself if the session has no
        parent, or if the files of the parent do not exist or cannot be read.
    """
    session, parent = get_text(recording.meta, "session"), get_text(recording.meta, "parent")
    path = local_path(source.path)
    if path is None or not parent or parent == session or not is_file_name(parent):
        return recording
    if path.parent.name == session:
        stored = _list_stored_files(path.absolute().parent.parent.parent, parent)
        files = [each for each in stored if is_related_file(path, each, source.root)]
        name = "/".join([*source.name.split("/")[:-1], parent])
    else:
        beside = path.with_name(f"{parent}{''.join(path.suffixes)}")
        files = [beside] if is_related_file(path, beside, source.root) else []
        name = recording_prefix(path, source.name, beside)
    if not files:
        return recording
    first, *others = files
    try:
        found = next(read(Source(first, name, "skip", tuple(others), source.root)), None)
    except (OSError, ReadError):
        found = None
    if found is None:
        source.skip("session of the parent, which could not be read")
        return recording
    tied = tie_to_parent(recording, found.id, list_subagents(found).get(session or ""))
    return replace(tied, cluster=found.cluster)


def _list_stored_files(storage: Path, session: str) -> list[Path]:
    """Return the files of a session in the folder ``storage``, or nothing if it has no messages."""
    messages = sorted(storage.glob(f"message/{session}/*.json"))
    parts = (path for each in messages for path in sorted(storage.glob(f"part/{each.stem}/*.json")))
    about = storage.glob(f"session/*/{session}.json")
    return [*messages, *parts, *about] if messages else []
