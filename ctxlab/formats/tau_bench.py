"""Reader for tau-bench runs: chats of an agent with a simulated customer.

The file is a JSON list of ``{task_id, reward, info, traj, trial}``. ``traj`` is the conversation,
including its system message. The trials of a task are near-duplicates, so they share a cluster.
Tool call ids repeat within a conversation and are kept as recorded. A result answers the last call
before it with the same id. ``meta`` contains the reward and the ground truth
(``info.task.actions``).

References
----------
github.com/sierra-research/tau-bench, ``historical_trajectories``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.chat_format import parse_chat_messages
from ctxlab.formats.fields import get_in, get_objects, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording


def sniff(head: FileHead) -> bool:
    """Check whether a file is a list of tau-bench runs.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first elements has ``task_id`` and a list under ``traj``.
    """
    runs = get_objects(head.value)
    return any("task_id" in run and isinstance(run.get("traj"), list) for run in runs)


def read(source: Source) -> Iterator[Recording]:
    """Read one recording for each run, named after its task and trial.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The conversation of a run.

    Raises
    ------
    ReadError
        If the file is not a JSON list.
    """
    runs = source.read_json()
    if not isinstance(runs, list):
        raise ReadError(source.path, None, f"expected a list of runs, got {type(runs).__name__}")
    for number, run in enumerate(runs):
        with source.handle_errors(number, "element"):
            yield _parse_run(run, source.name)


FORMAT = Format(
    "tau-bench",
    "tau-bench runs: a JSON list with traj, reward, trial",
    sniff,
    read,
    versions="gpt-4o-airline.json of the repository at 59a200c",
    not_read=(
        "not in the file: tool definitions, model, times, usage; left out: details of the reward"
    ),
)


def _parse_run(run: Any, name: str) -> Recording:
    run = require_object(run, "a run")
    if not isinstance(run.get("traj"), list):
        raise ValueError(f"traj must be a list of messages, got {type(run.get('traj')).__name__}")
    meta = {key: run[key] for key in ("task_id", "trial", "reward") if key in run}
    task = get_in(run, "info", "task")
    if isinstance(task, dict) and "actions" in task:
        meta["actions"] = task["actions"]
    cluster = f"{name}/task-{run.get('task_id')}"
    id = f"{cluster}/trial-{run.get('trial', 0)}"
    return Recording(id, parse_chat_messages(run["traj"]), cluster=cluster, meta=meta)
