"""Tests of ``docs/scaling.md``: it follows from its data, and its arithmetic keeps simple rules."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaling_page", DOCS / "scaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "scaling.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def task(script: ModuleType) -> Any:
    """Return a task of ten seconds, for which the main process takes a tenth of a second."""
    return script.Task(
        recordings=5,
        seconds=10,
        main_seconds=0.06,
        send_seconds=0.04,
        scheduler_seconds=0.001,
        read_files=5,
        read_bytes=1e6,
        sent_bytes=2e6,
        written_files=3,
        written_bytes=1e6,
    )


@pytest.fixture
def free(script: ModuleType) -> Any:
    """Return assumptions under which the storage takes no time."""
    return script.Assumptions(latency=0, bandwidth=1e18)


def test_the_page_follows_from_its_data(script: ModuleType, data: dict[str, Any]) -> None:
    page = (DOCS / "scaling.md").read_text(encoding="utf-8")
    assert page == script.write_page(data), "run: python docs/scaling.py --write"


def test_the_data_identify_no_machine_and_no_recording(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    assert not re.search(r"/(home|tmp|work|root|Users)/", text)
    assert "hostname" not in text


def test_a_mean_task_divides_the_time_of_workers_and_of_the_main_process(
    script: ModuleType, data: dict[str, Any]
) -> None:
    cluster, task = data["cluster"], script.mean_task(data["cluster"])
    first, again, start = (cluster[name]["cpu_seconds"] for name in ("first", "again", "start"))
    assert (task.seconds + task.main_seconds) * cluster["parts"] == pytest.approx(first - start)
    assert task.main_seconds * cluster["parts"] == pytest.approx(again - start)
    assert min(task) > 0


def test_few_workers_are_the_limit_and_many_wait_for_the_main_process(
    script: ModuleType, task: Any, free: Any
) -> None:
    few, many = (script.rates(task, workers, free, True) for workers in (10, 1000))
    assert min(few.values()) == few["workers"] == pytest.approx(10 / 10.06)
    assert min(many.values()) == many["main process"] == pytest.approx(1 / 0.061)


def test_the_saturation_is_where_workers_are_as_fast_as_the_slowest_other_part(
    script: ModuleType, task: Any, free: Any
) -> None:
    assert script.saturation(task, free, True) == (pytest.approx(10.06 / 0.061), "main process")
    slow = free._replace(write_rate=7)  # a task has two requests per file, and one to list
    assert script.saturation(task, slow, True) == (pytest.approx(10.06), "storage")


def test_workers_do_not_wait_for_a_main_process_that_reads_nothing(
    script: ModuleType, task: Any, free: Any
) -> None:
    assert script.saturation(task, free, False)[0] > script.saturation(task, free, True)[0]
    assert "main process" not in script.rates(task, 1, free, False)


def test_latency_and_bandwidth_of_the_storage_slow_down_a_worker(
    script: ModuleType, task: Any, free: Any
) -> None:
    assert task.worker_seconds(free) == pytest.approx(10.06)  # it reads as fast as the main process
    late = free._replace(latency=0.1)
    assert task.worker_seconds(late) == pytest.approx(10.06 + 11 * 0.1)
    narrow = free._replace(bandwidth=1e6)
    assert task.worker_seconds(narrow) == pytest.approx(12.06)


def test_the_main_process_reads_recordings_and_parts_one_by_one(
    script: ModuleType, task: Any, free: Any
) -> None:
    assert task.main_process_seconds(free) == pytest.approx(0.061)
    assert task.main_process_seconds(free._replace(latency=0.1)) == pytest.approx(0.061 + 8 * 0.1)
    assert task.main_process_seconds(free._replace(bandwidth=1e6)) == pytest.approx(0.061 + 2)


def test_the_costs_of_a_job_are_proportional_to_its_recordings(
    script: ModuleType, task: Any
) -> None:
    assumed = script.Assumptions(transfer=0.09)
    one, two = (script.costs(task, recordings, assumed) for recordings in (1000, 2000))
    assert two == pytest.approx({name: 2 * dollars for name, dollars in one.items()})


def test_the_costs_of_a_job_are_its_requests_bytes_and_hours_times_their_prices(
    script: ModuleType, task: Any, free: Any
) -> None:
    prices = free._replace(core_hour=3600, writes=1000, reads=1000, month=1e9, transfer=1e9)
    found = script.costs(task, 5, prices)  # one task
    assert found == pytest.approx({
        "cores": 10.06,
        "requests that write, copy or list": 7,
        "requests that read": 13,
        "transfer": 4e6,
        "storage for a month": 2e6,
    })  # fmt: skip
