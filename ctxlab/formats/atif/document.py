"""Convert an ATIF document to a recording.

The reader (``reader``) uses this for a run and its subagents, the writer (``writer``) to check its
output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ctxlab.formats.atif.steps import CTXLAB_KEY, parse_compaction, parse_step
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.fields import first_text, get_in, get_objects, get_text, require_object
from ctxlab.messages.types import Compaction, Message, Recording

CTXLAB_FIELDS = ("tools", "model", "probes", "compactions", "cluster", "meta", "skipped")
"""Fields of a recording that are stored under ``ctxlab`` if ATIF cannot express their value."""

_NON_META_KEYS = frozenset(["schema_version", "agent", "steps", "extra", "subagent_trajectories"])
_NON_META_AGENT_KEYS = frozenset(["model_name", "tool_definitions"])


def parse_document(
    root: Any,
    name: str,
    cluster: str | None,
    skip: SkipCallback,
    handle_errors: Callable[[int], AbstractContextManager[None]],
) -> Recording | None:
    """Convert one ATIF document, without its subagents.

    Parameters
    ----------
    root : Any
        The JSON value of the document.
    name : str
        Id of the recording.
    cluster : str or None
        Cluster of the recording.
    skip : callable
        Called with a reason for each part that is left out.
    handle_errors : callable
        Returns a context manager that is entered for each step, given the number of the step from
        1.

    Returns
    -------
    Recording or None
        The recording, or None if no step is a message.

    Raises
    ------
    ValueError, msgspec.ValidationError
        If the document itself is invalid.
    """
    steps = get_in(root, "steps")
    if not isinstance(steps, list):
        raise ValueError("expected a list of steps in the ATIF document")
    model = get_text(root, "agent", "model_name") or _first_model(steps)
    messages: list[Message] = []
    compactions: list[Compaction] = []
    for number, step in enumerate(steps, start=1):
        with handle_errors(number):
            step = require_object(step, "a step")
            if step.get("is_copied_context") is True:
                skip("step copied from another trajectory")
            elif (summary := parse_compaction(step)) is not None:
                compactions.append(Compaction(len(messages), summary=summary or None))
            else:
                messages += parse_step(step, model, skip)
    if not messages:
        return None
    recording = Recording(
        name,
        tuple(messages),
        tools=get_objects(root, "agent", "tool_definitions"),
        model=model,
        compactions=tuple(compactions),
        cluster=cluster,
        meta=_build_meta(root),
    )
    ours = get_in(root, "extra", CTXLAB_KEY)
    return recording if ours is None else _restore_fields(recording, ours)


def _restore_fields(recording: Recording, ours: Any) -> Recording:
    ours = require_object(ours, f"{CTXLAB_KEY} in extra")
    fields = {key: msgspec.to_builtins(getattr(recording, key)) for key in CTXLAB_FIELDS}
    fields |= {key: ours[key] for key in CTXLAB_FIELDS if key in ours}
    told = msgspec.convert({"id": recording.id, "messages": (), **fields}, Recording)
    return msgspec.structs.replace(told, messages=recording.messages)


def _first_model(steps: list[Any]) -> str | None:
    return first_text(get_in(step, "model_name") for step in steps)


def _build_meta(root: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the run and the agent, under their names in ATIF."""
    meta = {key: root[key] for key in root if key not in _NON_META_KEYS and root[key] is not None}
    agent = root.get("agent")
    if isinstance(agent, dict):
        said = {key: agent[key] for key in agent if key not in _NON_META_AGENT_KEYS}
        meta["agent"] = {key: value for key, value in said.items() if value is not None}
    extra = root.get("extra")
    beside = extra if isinstance(extra, dict) else {}
    return meta | {key: value for key, value in beside.items() if key != CTXLAB_KEY}
