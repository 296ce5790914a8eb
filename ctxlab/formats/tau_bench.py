"""tau-bench writes a JSON list of runs, each a chat of an agent with a simulated customer.

An element is ``{task_id, reward, info, traj, trial}`` with the conversation in ``traj``, its system
message included. The trials of a task are near-duplicates, so they share a cluster. Tool-call ids
are used again within a conversation and stay as they are: a result belongs to the call before it.
``meta`` keeps the reward and the ground truth (``info.task.actions``).

Source: github.com/sierra-research/tau-bench, ``historical_trajectories``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import parse_chat_messages
from ctxlab.formats.fields import get_nested, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]


def sniff(head: FileHead) -> bool:
    """Whether a file is a list of runs with a task and a trajectory."""
    value = head.value
    return isinstance(value, list) and any(
        isinstance(run, dict) and "task_id" in run and isinstance(run.get("traj"), list)
        for run in value
    )


def read(source: Source) -> Iterator[Recording]:
    """One recording a run, called after its task and trial."""
    runs = source.read_json()
    if not isinstance(runs, list):
        raise ReadError(source.path, None, "tau-bench is a list of runs")
    for number, run in enumerate(runs):
        with source.handle_errors(number, "element"):
            yield _parse_run(run, source.name)


FORMAT = Format("tau-bench", "tau-bench runs: a JSON list with traj, reward, trial", sniff, read)


def _parse_run(run: Any, name: str) -> Recording:
    run = require_object(run, "a run")
    if not isinstance(run.get("traj"), list):
        raise ValueError("a run has its messages in traj, which is a list")
    meta = {key: run[key] for key in ("task_id", "trial", "reward") if key in run}
    task = get_nested(run, "info", "task")
    if isinstance(task, dict) and "actions" in task:
        meta["actions"] = task["actions"]
    cluster = f"{name}/task-{run.get('task_id')}"
    return Recording(
        id=f"{cluster}/trial-{run.get('trial', 0)}",
        messages=parse_chat_messages(run["traj"]),
        cluster=cluster,
        meta=meta,
    )
