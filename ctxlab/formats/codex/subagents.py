"""Find the rollout and the tool call that started a subagent of Codex.

Each subagent is a thread with a rollout of its own. Its ``session_meta`` names the thread that started
it: ``parent_thread_id``, in older versions ``source.subagent.thread_spawn.parent_thread_id``. The
rollout of the parent names the threads that its calls started, in one of two events:

- ``collab_agent_spawn_end`` contains ``call_id`` and ``new_thread_id``.
- ``sub_agent_activity`` of kind ``started`` (multi-agent version 2) contains ``agent_thread_id``. Its
  ``event_id`` is the id of the call.

Codex itself starts some threads, such as ``guardian``, which reviews commands. They have no call.

The rollout of the parent is found by its name, ``rollout-TIME-THREAD.jsonl``. It is searched in the
folder of the subagent's rollout, and in the folders ``YYYY/MM/DD`` of the day on which the parent was
created and of the days next to it, because the names of the folders are in local time. The id of a
thread (a UUID of version 7) contains this day. Files outside of the requested folder are not read.

References
----------
github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (``SessionMeta``, ``SubAgentSource``,
``CollabAgentSpawnEndEvent``, ``SubAgentActivityEvent``) of 2026. Real rollouts of 0.125 to 0.144 contain
both events, and subagents that Codex itself started. Rollouts of subagents that a call started were not
at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from ctxlab.formats.base import Source
from ctxlab.formats.fields import first_text, get_in, get_text
from ctxlab.formats.io.related_files import is_file_name, is_related_file, local_path


def find_parent_thread(meta: Any) -> str | None:
    """Return the id of the thread that started a subagent.

    Parameters
    ----------
    meta : Any
        The payload of the ``session_meta`` line, or None.

    Returns
    -------
    str or None
        The id. None if the thread is not that of a subagent, or if its parent is unknown.

    Examples
    --------
    >>> find_parent_thread({"id": "t2", "parent_thread_id": "t1"})
    't1'
    """
    spawned = get_in(meta, "source", "subagent", "thread_spawn", "parent_thread_id")
    parent = first_text((get_in(meta, "parent_thread_id"), spawned))
    return None if parent == get_text(meta, "id") else parent


def find_agent_name(meta: Any) -> str | None:
    """Return the role of a subagent, or the name under which Codex itself started it.

    Parameters
    ----------
    meta : Any
        The payload of the ``session_meta`` line, or None.

    Returns
    -------
    str or None
        The name, such as ``worker`` or ``guardian``. None if it is unknown.

    Examples
    --------
    >>> find_agent_name({"source": {"subagent": {"other": "guardian"}}})
    'guardian'
    """
    kind = get_in(meta, "source", "subagent")
    role = get_in(kind, "thread_spawn", "agent_role")
    return first_text((get_in(meta, "agent_role"), role, get_in(kind, "other"), kind))


def parse_start(event: dict[str, Any]) -> tuple[str, str] | None:
    """Return the thread of a subagent and the call that started it.

    Parameters
    ----------
    event : dict
        The payload of an ``event_msg`` line.

    Returns
    -------
    tuple of (str, str) or None
        Id of the thread and id of the call. None if the event does not report that a call started a
        subagent.

    Examples
    --------
    >>> parse_start({"type": "collab_agent_spawn_end", "call_id": "c1", "new_thread_id": "t2"})
    ('t2', 'c1')
    """
    thread = call = None
    if event.get("type") == "collab_agent_spawn_end":
        thread, call = get_text(event, "new_thread_id"), get_text(event, "call_id")
    elif event.get("type") == "sub_agent_activity" and event.get("kind") == "started":
        thread, call = get_text(event, "agent_thread_id"), get_text(event, "event_id")
    return (thread, call) if thread and call else None


def find_rollout(source: Source, thread: str) -> Path | None:
    """Find the rollout of another thread on the same disk.

    Parameters
    ----------
    source : Source
        The rollout that is being read.
    thread : str
        Id of the other thread.

    Returns
    -------
    Path or None
        The rollout. None if there is none, or if the rollout that is being read is not on a local disk.
    """
    path = local_path(source.path)
    if path is None or not is_file_name(thread):
        return None
    sessions = path.absolute().parent.parent.parent.parent
    folders = [path.parent, *(sessions / day for day in _list_days(thread))]
    found = (each for folder in folders for each in folder.glob(f"rollout-*-{thread}.jsonl*"))
    others = (each for each in found if each != path)
    return next((e for e in others if is_related_file(path, e, source.root)), None)


def _list_days(thread: str) -> Iterator[str]:
    """Yield the folders of the day on which a thread was created, and of the days next to it."""
    try:
        id = UUID(thread)
        created = datetime.fromtimestamp((id.int >> 80) / 1000, UTC) if id.version == 7 else None
        if created:
            for days in (0, -1, 1):
                yield f"{created + timedelta(days):%Y/%m/%d}"
    except (ValueError, OverflowError, OSError):
        return
