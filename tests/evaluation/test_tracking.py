"""Tests that results are logged to MLflow and Weights & Biases, offline and with the real packages."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ctxlab
from ctxlab.errors import DataMissing, SpecError
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tracking import tracked_configurations, tracked_settings
from ctxlab.messages.types import Message, Recording, ToolCall

STRATEGIES = ["full", "sliding_window(messages=4) | panic()"]


def recording(number: int) -> Recording:
    """Return an agent that reads the files that it listed, and returns to the first ones."""
    paths = [f"/srv/confidential/part{number}{step}.py" for step in range(8)]
    messages = [
        Message("user", "Read all files."),
        Message("assistant", None, (ToolCall("ls", "ls", "{}"),)),
        Message("tool", " ".join(paths), tool_call_id="ls"),
    ]
    for step in range(8 + number):
        call = ToolCall(f"c{step}", "read", json.dumps({"path": paths[step % 8]}))
        messages.append(Message("assistant", f"Step {step}.", (call,)))
        words = " ".join(f"word{step}{i}" for i in range(300))
        messages.append(Message("tool", f"{words}", tool_call_id=call.id))
    return Recording(f"r{number}", tuple(messages), model="gpt-4o")


@pytest.fixture(scope="module")
def results() -> Results:
    return ctxlab.evaluate([recording(i) for i in range(6)], STRATEGIES, [4000, 0.5], workers=1)


def test_each_configuration_has_its_finite_scores_and_one_is_recommended(results: Results) -> None:
    board = results.leaderboard()
    found = list(tracked_configurations(results))
    assert [each.params["strategy"] for each in found] == list(board["strategy"])
    assert found[0].name.startswith("full() @ ")
    for each, (_, row) in zip(found, board.iterrows(), strict=True):
        assert each.metrics == row.drop(["strategy", "limit"]).dropna().to_dict()
    assert {"recall_low", "recall_high"} <= found[1].metrics.keys()
    assert sum(each.recommended for each in found) <= 1


def test_settings_name_strategies_limits_and_options(results: Results) -> None:
    settings = tracked_settings(results)
    assert settings["strategies"] == "full(); sliding_window(messages=4) | panic()"
    assert settings["limits"] == "4,000; 50 %"
    assert (settings["recordings"], settings["cache_ttl"]) == (6, "recorded")


def test_an_unknown_tracker_and_a_missing_package_are_errors_with_a_remedy(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match="expected mlflow or wandb, got 'neptune'"):
        results.log_to("neptune")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(DataMissing, match=r"pip install '.\[wandb\]'"):
        results.log_to("wandb")


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    package = pytest.importorskip("mlflow", reason="mlflow is not installed: nox -s ecosystem")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = package.get_tracking_uri()
    package.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    yield package
    package.set_tracking_uri(before)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_nested_runs_with_scores_and_the_files(results: Results, mlflow: Any) -> None:
    id = results.log_to("mlflow", project="windows", name="week 48")
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("windows").experiment_id
    runs = {run.info.run_id: run for run in client.search_runs([experiment])}
    parent = runs.pop(id)
    assert parent.info.run_name == "week 48"
    assert parent.data.params["recordings"] == "6"
    assert parent.data.tags["mlflow.note.content"] == results.verdict()
    by_name = {run.info.run_name: run for run in runs.values()}
    assert all(run.data.tags["mlflow.parentRunId"] == id for run in runs.values())
    for each in tracked_configurations(results):
        run = by_name.pop(each.name)
        assert run.info.status == "FINISHED"
        assert run.data.params["strategy"] == each.params["strategy"]
        assert run.data.metrics == pytest.approx(each.metrics)
        assert run.data.tags["recommended"] == str(each.recommended).lower()
    assert not by_name
    folder = Path(
        mlflow.artifacts.download_artifacts(run_id=id, tracking_uri=mlflow.get_tracking_uri())
    )
    with (folder / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["tokens_mean"]) for row in rows] == list(results.leaderboard()["tokens_mean"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["spec"] == json.loads(json.dumps(results.manifest["spec"]))
    assert not any("confidential" in file.read_text() for file in folder.iterdir())


@pytest.mark.filterwarnings("ignore")
def test_mlflow_nests_the_run_in_the_active_one(results: Results, mlflow: Any) -> None:
    with mlflow.start_run() as active:
        id = results.log_to("mlflow")
        assert mlflow.active_run().info.run_id == active.info.run_id
    assert mlflow.get_run(id).data.tags["mlflow.parentRunId"] == active.info.run_id


def read_offline_run(path: Path) -> list[Any]:
    """Return the records of the file of an offline run of Weights & Biases (in LevelDB's log format)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole, records = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            records.append(Record.FromString(whole))
            whole = b""
    return records


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_a_group_of_runs_with_scores_and_the_files(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: nox -s ecosystem")
    settings = {"MODE": "offline", "SILENT": "true", "CONSOLE": "off", "DIR": str(tmp_path)}
    for key, value in {**settings, "DATA_DIR": str(tmp_path), "CACHE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{key}", value)
    id = results.log_to("wandb", project="windows", name="week-48")
    found: dict[str, dict[str, Any]] = {}
    for file in tmp_path.glob("wandb/*/*.wandb"):
        records = read_offline_run(file)
        (run,) = (each.run for each in records if each.HasField("run"))
        summary: dict[str, Any] = {}
        for each in records:
            if each.HasField("summary"):
                summary |= {item.key: json.loads(item.value_json) for item in each.summary.update}
        files = [
            e.path for each in records for e in each.request.log_artifact.artifact.manifest.contents
        ]
        files += [e.path for each in records for e in each.artifact.manifest.contents]
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        found[run.display_name] = {"run": run, "summary": summary, "files": files, "config": config}
    main = found.pop("week-48")
    assert (main["run"].run_id, main["run"].project, main["run"].notes) == (
        id,
        "windows",
        results.verdict(),
    )
    assert {"leaderboard.csv", "manifest.json"} <= set(main["files"])
    for each in tracked_configurations(results):
        logged = found.pop(each.name)
        assert logged["run"].run_group == main["run"].run_group
        assert logged["config"]["strategy"] == each.params["strategy"]
        assert {k: logged["summary"][k] for k in each.metrics} == pytest.approx(each.metrics)
    assert not found
