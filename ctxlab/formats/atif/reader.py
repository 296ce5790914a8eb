"""ATIF, the Agent Trajectory Interchange Format, is one JSON object a run, with a step a turn.

The object is ``{schema_version: "ATIF-v1.x", agent, steps, …}``; a step is said by system, user or
agent, and holds the calls of the agent with what was observed. It is read loosely, all versions
alike: the models of the package ``atif`` know one version, refuse every key that is not in it, and
refuse what was right in versions before.

- Steps with ``is_copied_context`` stand in another trajectory too. They are counted and not read.
- A system step that says that the context was compacted is a compaction and no message.
- ``metrics`` of a step that stands for several model calls (``llm_call_count``) are no usage of one:
  they stay in ``extra``. Token ids and log probabilities say the text again and are not read.
- Embedded subagents are recordings of their own. A run that goes on in another file is not joined;
  its files share the cluster, which is the ``session_id``.
- Images are referred to by path or URL, and stay so.

Written is ``ATIF-v1.7`` (``writer``). Every field that ATIF has no place for goes under ``ctxlab``
in an ``extra`` and is read back from there.

Source: Harbor RFC 0001, "Agent Trajectory Interchange Format", versions 1.0 to 1.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from ctxlab.errors import ReadError
from ctxlab.formats.atif.document import parse_document
from ctxlab.formats.atif.writer import dump
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_nested, list_or_empty, text_or_none
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]


def sniff(head: FileHead) -> bool:
    """Whether a file says that it is ATIF."""
    version = get_nested(head.value, "schema_version")
    return isinstance(version, str) and version.startswith("ATIF")


def read(source: Source) -> Iterator[Recording]:
    """The run, and behind it the subagents that are embedded in it."""
    root = source.read_json()
    if not isinstance(get_nested(root, "steps"), list):
        raise ReadError(source.path, None, "ATIF has a list of steps")
    waiting = deque([(root, source.name, "step")])
    session = text_or_none(root.get("session_id"))
    cluster = session or (source.name if root.get("subagent_trajectories") else None)
    number = 0
    while waiting:
        document, name, unit = waiting.popleft()
        number += 1
        with source.handle_errors(number, "trajectory"):
            below = list_or_empty(get_nested(document, "subagent_trajectories"))
            for place, each in enumerate(below, start=1):
                id = text_or_none(get_nested(each, "trajectory_id")) or str(place)
                waiting.append((each, f"{name}/{id}", f"step of {id}"))
            guard = partial(source.handle_errors, item=unit)
            recording = parse_document(document, name, cluster, source.skip, guard)
            if recording is not None:
                yield recording


FORMAT = Format(
    "atif", "Agent Trajectory Interchange Format (Harbor)", sniff, read, dump, single_recording=True
)
