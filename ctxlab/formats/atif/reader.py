"""Reader for the Agent Trajectory Interchange Format (ATIF).

A file contains one run of an agent as a JSON object, ``{schema_version: "ATIF-v1.x", agent, steps,
…}``. A step has the source ``system``, ``user`` or ``agent``. A step of the agent also contains its
tool calls and their observations. All versions are read by the same code, which does not validate
strictly. The classes of the package ``atif`` are not used for reading: they accept a single version,
and reject unknown keys and documents that were valid in earlier versions.

- Steps with ``is_copied_context`` repeat steps of another trajectory. They are skipped and counted.
- A system step that reports a compaction becomes a ``Compaction``, not a message.
- If a step covers several model calls (``llm_call_count``), its ``metrics`` are not the usage of a
  single call. They are stored in ``extra``. Token ids and log probabilities are not read.
- Embedded subagents become separate recordings. ``meta["parent"]`` is the id of the recording that
  embeds the subagent. ``meta["call_id"]`` is the id of the call whose result refers to the subagent, if
  there is one. If a run continues in another file, the parts are not joined. Their recordings have the
  same cluster, the ``session_id``.
- Images are stored as references by path or URL.

The module ``writer`` writes version ``ATIF-v1.7``. Values that ATIF cannot express are stored under
``ctxlab`` in the object ``extra`` of a step, a result, a call or the document. The reader restores
them.

References
----------
Harbor RFC 0001, "Agent Trajectory Interchange Format", versions 1.0 to 1.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from ctxlab.errors import ReadError
from ctxlab.formats.atif.steps import parse_document
from ctxlab.formats.atif.writer import dump
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_in, get_list, get_objects, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording


def sniff(head: FileHead) -> bool:
    """Check whether a file declares an ATIF schema version.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if ``schema_version`` starts with ``ATIF``.
    """
    version = get_in(head.value, "schema_version")
    return isinstance(version, str) and version.startswith("ATIF")


def read(source: Source) -> Iterator[Recording]:
    """Read a run of an agent and the runs of its embedded subagents.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        The main run, followed by one recording for each subagent.

    Raises
    ------
    ReadError
        If the document has no list under ``steps``.
    """
    root = source.read_json()
    if not isinstance(get_in(root, "steps"), list):
        raise ReadError(source.path, None, "expected a list of steps in the ATIF document")
    waiting = deque([(root, source.name, "step", dict[str, str]())])
    session = get_text(root, "session_id")
    cluster = session or (source.name if root.get("subagent_trajectories") else None)
    number = 0
    while waiting:
        document, name, unit, about = waiting.popleft()
        number += 1
        recording = None
        with source.handle_errors(number, "trajectory"):
            guard = partial(source.handle_errors, item=unit)
            recording = parse_document(document, name, cluster, source.skip, guard)
        parent = {} if recording is None else {"parent": name}
        calls = _find_subagent_calls(document)
        below = get_list(document, "subagent_trajectories")
        for place, each in enumerate(below, start=1):
            id = get_text(each, "trajectory_id") or str(place)
            call = {"call_id": calls[id]} if id in calls else {}
            waiting.append((each, f"{name}/{id}", f"step of {id}", parent | call))
        if recording is not None:
            yield replace(recording, meta=recording.meta | about)


_ABOUT = "Agent Trajectory Interchange Format (Harbor)"
FORMAT = Format(
    "atif",
    _ABOUT,
    sniff,
    read,
    dump,
    single_recording=True,
    versions="1.0 to 1.8 from the specification; no real file",
    not_read=(
        "left out: token ids, log probabilities, audio, steps copied from other documents; "
        "usage of a step with several model calls is only in extra"
    ),
)


def _find_subagent_calls(document: Any) -> dict[str, str]:
    """Return the calls whose results refer to subagents: id of the subagent → id of the call."""
    calls: dict[str, str] = {}
    for step in get_objects(document, "steps"):
        for result in get_objects(step, "observation", "results"):
            call = get_text(result, "source_call_id")
            for reference in get_objects(result, "subagent_trajectory_ref"):
                if call and (id := get_text(reference, "trajectory_id")):
                    calls.setdefault(id, call)
    return calls
