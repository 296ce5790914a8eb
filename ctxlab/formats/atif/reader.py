"""Read the Agent Trajectory Interchange Format (ATIF).

A file is one JSON object per run, ``{schema_version: "ATIF-v1.x", agent, steps, …}``. A step has
the source system, user or agent, and holds the agent's calls and their observations. All versions
are read alike and without strict validation: the models of the package ``atif`` accept a single
version, reject unknown keys and reject documents that were valid in earlier versions.

- Steps with ``is_copied_context`` repeat steps of another trajectory. They are counted and not
  read.
- A system step that reports a compaction becomes a compaction, not a message.
- ``metrics`` of a step that covers several model calls (``llm_call_count``) are not the usage of
  one call; they are kept in ``extra``. Token ids and log probabilities repeat the text and are not
  read.
- Embedded subagents become recordings of their own. A run that continues in another file is not
  joined; its files share a cluster, which is the ``session_id``.
- Images remain references by path or URL.

The writer (``writer``) produces ``ATIF-v1.7``. Values that ATIF cannot express are stored under
``ctxlab`` in an ``extra`` and are read back from there.

References
----------
Harbor RFC 0001, "Agent Trajectory Interchange Format", versions 1.0 to 1.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from ctxlab.errors import ReadError
from ctxlab.formats.atif.steps import parse_document
from ctxlab.formats.atif.writer import dump
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_in, get_list, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording


def sniff(head: FileHead) -> bool:
    """Return whether a file declares an ATIF schema version.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file is ATIF.
    """
    version = get_in(head.value, "schema_version")
    return isinstance(version, str) and version.startswith("ATIF")


def read(source: Source) -> Iterator[Recording]:
    """Read a run and its embedded subagents.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The run, then each subagent.

    Raises
    ------
    ReadError
        If the document has no list of steps.
    """
    root = source.read_json()
    if not isinstance(get_in(root, "steps"), list):
        raise ReadError(source.path, None, "expected a list of steps in the ATIF document")
    waiting = deque([(root, source.name, "step")])
    session = get_text(root, "session_id")
    cluster = session or (source.name if root.get("subagent_trajectories") else None)
    number = 0
    while waiting:
        document, name, unit = waiting.popleft()
        number += 1
        with source.handle_errors(number, "trajectory"):
            below = get_list(document, "subagent_trajectories")
            for place, each in enumerate(below, start=1):
                id = get_text(each, "trajectory_id") or str(place)
                waiting.append((each, f"{name}/{id}", f"step of {id}"))
            guard = partial(source.handle_errors, item=unit)
            recording = parse_document(document, name, cluster, source.skip, guard)
            if recording is not None:
                yield recording


_ABOUT = "Agent Trajectory Interchange Format (Harbor)"
FORMAT = Format("atif", _ABOUT, sniff, read, dump, single_recording=True)
