"""Tests of the tau-bench format: one recording for each run, clustered by task."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load


def run(task: int, trial: int, **changes: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    traj: list[dict[str, Any]] = [{"role": "system", "content": "policy"}]
    for _ in range(2):
        traj.append({"role": "assistant", "content": None, "tool_calls": [call]})
        traj.append({"role": "tool", "tool_call_id": "c", "name": "find", "content": "found"})
    info = {"task": {"actions": [{"name": "find", "kwargs": {}}]}}
    whole = {"task_id": task, "reward": 1.0, "info": info, "traj": traj, "trial": trial}
    return whole | changes


def test_runs_of_a_task_share_a_cluster_and_have_ids_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "air.json"
    path.write_text(json.dumps([run(3, 0), run(3, 1), run(4, 0)], indent=2))
    first, second, third = load(path)
    assert (first.id, second.id) == ("air/task-3/trial-0", "air/task-3/trial-1")
    assert first.cluster == second.cluster == "air/task-3" != third.cluster
    assert first.meta == {
        "task_id": 3,
        "trial": 0,
        "reward": 1.0,
        "actions": [{"name": "find", "kwargs": {}}],
    }


def test_a_call_id_that_is_used_again_stays(tmp_path: Path) -> None:
    path = tmp_path / "air.json"
    path.write_text(json.dumps([run(3, 0)]))
    (recording,) = load(path)
    assert [m.tool_call_id for m in recording.messages if m.role == "tool"] == ["c", "c"]


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (17, "a run must be an object, got int"),
        (run(1, 1, traj=None), "traj must be a list of messages, got NoneType"),
        (run(1, 1, traj=[{"role": "judge"}]), "message 0: unknown role 'judge'"),
    ],
)
def test_a_broken_run_is_named_by_its_place_and_costs_only_itself(
    tmp_path: Path, element: Any, reason: str
) -> None:
    path = tmp_path / "air.json"
    path.write_text(json.dumps([run(0, 0), element, run(2, 0)]))
    with pytest.raises(ReadError, match=f"element 1: .*{reason}"):
        list(load(path))
    first, last = load(path, on_error="skip")
    assert first.skipped == {}
    ((key, count),) = last.skipped.items()
    assert reason in key
    assert key.endswith("(1)")
    assert count == 1


def test_what_is_broken_after_the_last_run_is_counted_with_it(tmp_path: Path) -> None:
    path = tmp_path / "air.json"
    path.write_text(json.dumps([run(0, 0), 1, 2]))
    (recording,) = load(path, on_error="skip")
    assert recording.skipped == {"broken element: a run must be an object, got int (1, 2)": 2}


def test_a_cut_off_list_is_known_by_its_beginning_and_says_where_it_breaks(tmp_path: Path) -> None:
    path = tmp_path / "air.json"
    path.write_text(json.dumps([run(0, 0), run(1, 0)], indent=2)[:-200])
    known = detect_format(path)
    assert known is not None
    assert known.name == "tau-bench"
    with pytest.raises(ReadError, match="not JSON") as caught:
        list(load(path, on_error="skip"))
    assert caught.value.line is not None
    assert caught.value.line > 1


def test_the_real_file_holds_fifty_tasks_four_times(data: Path) -> None:
    recordings = list(load(data / "tau-bench"))
    assert len(recordings) == len({recording.id for recording in recordings}) == 200
    clusters = Counter(recording.cluster for recording in recordings)
    assert set(clusters.values()) == {4}
    assert len(clusters) == 50
    messages = [message for recording in recordings for message in recording.messages]
    assert len(messages) == 1690 + 1290 + 1164 + 1164
    assert sum(len(m.tool_calls) for m in messages) == 1164
    assert sum(m.role == "tool" for m in messages) == 1164
    assert all(recording.messages[0].role == "system" for recording in recordings)
    assert sum(len(recording.meta["actions"]) for recording in recordings) == 632
