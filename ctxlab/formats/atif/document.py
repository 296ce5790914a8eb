"""An ATIF document is a recording: its steps, and what it says of the run as a whole.

The reader (``atif``) takes the run and its subagents so, and the writer (``atif_dump``) what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ctxlab.formats.atif.steps import (
    OURS,
    compaction,
    messages_of,
)
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.optional_fields import (
    first_text,
    objects_in,
    text,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Compaction,
    Message,
    Recording,
)

__all__ = ["CARRIED", "recording_of"]

CARRIED = ("tools", "model", "probes", "compactions", "cluster", "meta", "skipped")
"""Fields of a recording that stand under ``ctxlab`` where ATIF says them otherwise, or cannot."""

_ELSEWHERE = frozenset(["schema_version", "agent", "steps", "extra", "subagent_trajectories"])
_OF_THE_AGENT = frozenset(["model_name", "tool_definitions"])


def recording_of(
    root: Any,
    name: str,
    cluster: str | None,
    leave_out: LeaveOut,
    guard: Callable[[int], AbstractContextManager[None]],
) -> Recording | None:
    """The recording of one document without its subagents; None where no step is a message.

    ``guard`` is entered for each step with its number, from 1. ``ValueError`` and
    ``msgspec.ValidationError`` say what is wrong with the document itself.
    """
    steps = within(root, "steps")
    if not isinstance(steps, list):
        raise ValueError("ATIF has a list of steps")
    model = text(within(root, "agent", "model_name")) or _first_model(steps)
    messages: list[Message] = []
    compactions: list[Compaction] = []
    for number, step in enumerate(steps, start=1):
        with guard(number):
            step = an_object(step, "a step")
            if step.get("is_copied_context") is True:
                leave_out("step copied from another trajectory")
            elif (summary := compaction(step)) is not None:
                compactions.append(Compaction(len(messages), summary=summary or None))
            else:
                messages += messages_of(step, model, leave_out)
    if not messages:
        return None
    recording = Recording(
        name,
        tuple(messages),
        tools=objects_in(within(root, "agent", "tool_definitions")),
        model=model,
        compactions=tuple(compactions),
        cluster=cluster,
        meta=_meta(root),
    )
    ours = within(root, "extra", OURS)
    return recording if ours is None else _restored(recording, ours)


def _restored(recording: Recording, ours: Any) -> Recording:
    ours = an_object(ours, f"{OURS} in extra")
    fields = {key: msgspec.to_builtins(getattr(recording, key)) for key in CARRIED}
    fields |= {key: ours[key] for key in CARRIED if key in ours}
    told = msgspec.convert({"id": recording.id, "messages": (), **fields}, Recording)
    return msgspec.structs.replace(told, messages=recording.messages)


def _first_model(steps: list[Any]) -> str | None:
    return first_text(within(step, "model_name") for step in steps)


def _meta(root: dict[str, Any]) -> dict[str, Any]:
    """What is said of the run and the agent, under the names that ATIF gives it."""
    meta = {key: root[key] for key in root if key not in _ELSEWHERE and root[key] is not None}
    agent = root.get("agent")
    if isinstance(agent, dict):
        said = {key: agent[key] for key in agent if key not in _OF_THE_AGENT}
        meta["agent"] = {key: value for key, value in said.items() if value is not None}
    extra = root.get("extra")
    beside = extra if isinstance(extra, dict) else {}
    return meta | {key: value for key, value in beside.items() if key != OURS}
