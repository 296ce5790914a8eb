"""Write ``scaling.md``: how time and memory grow, and an extrapolation to 1,000 workers.

Run it with ``python docs/scaling.py``, which prints the page, or with ``--write``, which writes it. All
figures follow from ``scaling.json``, which ``python tests/bench scaling`` measures, and from the
assumptions below.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ctxlab._utils.tables import markdown_table

PAGE = Path(__file__).with_suffix(".md")
DATA = Path(__file__).with_suffix(".json")
WORKERS = (1, 10, 100, 1000)
JOB = 100_000
"""Recordings of the job whose cost is computed."""
TITLES = {
    "messages": "Messages in one recording",
    "recordings": "Recordings of 24 messages",
    "short": "Recordings of 6 messages, one configuration",
    "short-parallel": "Recordings of 6 messages, one configuration, two processes",
    "configurations": "Configurations of ten recordings of 300 messages",
    "workers": "Processes for 1,000 recordings of 24 messages",
}
_COUNTED = {"workers": "processes", "short": "recordings", "short-parallel": "recordings"}

MEASURE = """\
python tests/bench scaling --json docs/scaling.json --plot docs/scaling.png --overwrite
python docs/scaling.py --write"""
INTRO = """\
How time and memory of an evaluation grow was measured on one machine. What 1,000 workers would do was
not: the second half of this page extrapolates, and says from what."""
HOW = """\
Each point is `ctxlab eval FOLDER --out DIR` in a new process, on one core unless the series says
otherwise, without stored token counts. The recordings are synthetic: conversations of a coding agent
with varied texts and tool calls on paths. The strategies are `full`, `sliding_window`,
`observation_mask(keep=10) | panic` and `rolling_summary | panic` at a limit of 32,000 tokens, with all
metrics. Recordings of 6 messages are evaluated under `full` only. The configurations are
`sliding_window`, `observation_mask`, `tool_stubs` and `tool_result_cap` with different parameters.
*Seconds* are wall time, *processor* is the time of all processes on their cores, and *memory* is the
peak of the largest process. Values are medians of up to three rounds. In the plot, lines show the range
of the rounds."""
SAMPLE = """\
Tasks were measured with the default grid ({configurations} configurations, all metrics) on
{read_files} files taken evenly from the corpus of real sessions of coding agents: {recordings}
recordings with {messages:,} messages. A task evaluates a bucket of recordings, about 1,000,000
characters, and writes a part. The command ran twice on one core. The second run found all parts, so
its time is that of the main process alone: reading and hashing recordings, finding parts and joining
results. The time to start was subtracted. Times of these runs are processor time. The Dask scheduler,
its client and two workers ran on this machine and talked over the loopback interface. Times of Dask are
wall time."""
TODAY = """\
The main process reads and hashes all recordings, and sends the addresses of their files with the tasks.
The workers read the files again, and write the parts into a folder that all machines see. (Contents
travel only where files cannot be read alone.) A worker is assumed to read a file as fast as the main
process. ctxlab does not write parts to object storage itself, so
the folder is assumed to be mounted. There, renaming a file is a copy. The tables show what so many
workers could do at most: the lowest of the rates of workers, main process, scheduler and storage."""
CAVEATS = """\
- Nothing was run on more than {cores} cores or over a network. Rates of the storage, latency and
  prices are assumptions.
- The scheduler shared {cores} cores with its client and workers. On a machine of its own it is faster,
  but with 1,000 workers it has 1,000 connections, whose cost was not measured.
- A task of a long recording takes longer than the mean, and the last tasks of a job leave workers
  idle. The rates assume that the work is spread evenly.
- The time of a task depends on the strategies: `nox -s bench -- linear` shows the time of each. A
  strategy that calls a model waits for it."""
BUSY = """\
Other programs used the cores during this run (the load exceeds the number of cores), so wall times are
too long, above all those of several processes. Processor times are less affected."""

BEFORE_PIECES = "47fa963"
"""Last commit at which a run held all its measurements in memory."""
HELD = """\
At the measured commit a run held all its measurements in memory until its end. Since then it writes
them bucket by bucket, so that the memory of long runs is lower than in these tables."""


class Assumptions(NamedTuple):
    """What was not measured: typical values of public clouds within one region, in November 2026."""

    core_hour: float = 0.04
    "dollars per core and hour"
    writes: float = 0.005
    "dollars per 1,000 requests that write, copy or list"
    reads: float = 0.0004
    "dollars per 1,000 requests that read"
    month: float = 0.023
    "dollars per GB and month"
    transfer: float = 0.0
    "dollars per GB between storage and workers"
    write_rate: float = 3500
    "requests per second that the storage accepts for one prefix: write, copy or list"
    read_rate: float = 5500
    "requests per second that the storage accepts for one prefix: read"
    latency: float = 0.03
    "seconds per request"
    bandwidth: float = 50e6
    "bytes per second of one connection to the storage"


DATE = "2026-11"
"""Date of the assumptions."""


class Task(NamedTuple):
    """A mean task: a bucket of recordings, and the part that a worker writes."""

    recordings: float
    seconds: float
    "processor seconds of a worker"
    main_seconds: float
    "processor seconds of the main process, without sending"
    send_seconds: float
    "seconds to send the contents to a worker, with the scheduler's work"
    scheduler_seconds: float
    "seconds of the scheduler for a task without contents"
    read_files: float
    read_bytes: float
    "bytes as stored, perhaps compressed"
    sent_bytes: float
    written_files: float
    written_bytes: float

    def write_requests(self) -> float:
        """Count requests that write, copy or list: files are written and renamed, a bucket is listed."""
        return 2 * self.written_files + 1

    def read_requests(self) -> float:
        """Count requests that read: the recordings twice, and the part when results are joined."""
        return 2 * self.read_files + self.written_files

    def worker_seconds(self, assumed: Assumptions) -> float:
        """Return the seconds of a worker, which reads recordings, with waiting for the storage."""
        requests = 2 * self.written_files + self.read_files
        moved = self.written_bytes + self.read_bytes
        computing = self.seconds + self.main_seconds  # the main process also reads and hashes
        return computing + requests * assumed.latency + moved / assumed.bandwidth

    def main_process_seconds(self, assumed: Assumptions) -> float:
        """Return the seconds of the main process, which reads recordings and parts one by one."""
        moved = self.read_bytes + self.written_bytes
        requests = self.read_files + self.written_files
        waiting = requests * assumed.latency + moved / assumed.bandwidth
        return self.main_seconds + self.scheduler_seconds + waiting


def mean_task(cluster: Mapping[str, Any]) -> Task:
    """Return the mean task of the measured sample."""
    parts = cluster["parts"]
    first, again, start = (cluster[name]["cpu_seconds"] for name in ("first", "again", "start"))
    return Task(
        recordings=cluster["recordings"] / parts,
        seconds=(first - again) / parts,
        main_seconds=(again - start) / parts,
        send_seconds=cluster["dask_payload_seconds"],
        scheduler_seconds=cluster["dask_seconds"],
        read_files=cluster["read_files"] / parts,
        read_bytes=cluster["read_bytes"] / parts,
        sent_bytes=cluster["pickled_bytes"] / parts,
        written_files=cluster["part_files"] / parts,
        written_bytes=cluster["part_bytes"] / parts,
    )


def rates(task: Task, workers: int, assumed: Assumptions, main_reads: bool) -> dict[str, float]:
    """Return the tasks per second that each part of the system can do.

    Parameters
    ----------
    task : Task
        Mean task.
    workers : int
        Number of workers.
    assumed : Assumptions
        Speed of the storage.
    main_reads : bool
        True if the main process reads the recordings to plan the tasks, as today; False if it only
        lists files, which is not implemented.

    Returns
    -------
    dict of str to float
        Rates by name.
    """
    found = {"workers": workers / task.worker_seconds(assumed)}
    found["scheduler"] = 1 / task.scheduler_seconds
    if main_reads:
        found["main process"] = 1 / task.main_process_seconds(assumed)
    found["storage"] = min(
        assumed.write_rate / task.write_requests(), assumed.read_rate / task.read_requests()
    )
    return found


def saturation(task: Task, assumed: Assumptions, main_reads: bool) -> tuple[float, str]:
    """Return the number of workers at which another part is as slow as they are, and its name."""
    found = rates(task, 1, assumed, main_reads)
    one = found.pop("workers")
    name = min(found, key=found.__getitem__)
    return found[name] / one, name


def costs(task: Task, recordings: int, assumed: Assumptions) -> dict[str, float]:
    """Return the dollars of a job by kind. Core-hours are those that workers compute or wait."""
    tasks = recordings / task.recordings
    moved = 2 * task.read_bytes + 2 * task.written_bytes
    stored = task.read_bytes + task.written_bytes
    return {
        "cores": tasks * task.worker_seconds(assumed) / 3600 * assumed.core_hour,
        "requests that write, copy or list": tasks * task.write_requests() / 1000 * assumed.writes,
        "requests that read": tasks * task.read_requests() / 1000 * assumed.reads,
        "transfer": tasks * moved / 1e9 * assumed.transfer,
        "storage for a month": tasks * stored / 1e9 * assumed.month,
    }


def show(value: float, digits: int = 3) -> str:
    """Format a number with some significant digits, and without an exponent."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{places}f}"


def series_section(points: Sequence[Mapping[str, Any]], series: str) -> list[str]:
    """Return the heading, the table and the conclusion of a series."""
    rows, values = [], []
    for point in points:
        if point["series"] == series:
            middle = [
                median(each[name] for each in point["rounds"])
                for name in ("seconds", "cpu_seconds", "peak_mb")
            ]
            values.append((point["size"], *middle))
            rows.append([
                f"{point['size']:,}",
                *map(show, middle),
                show(point["stored_bytes"] / 1e6),
            ])  # fmt: skip
    if not rows:
        return []
    heads = [
        _COUNTED.get(series, series),
        "seconds",
        "processor",
        "memory (MB)",
        "stored (MB)",
    ]
    return [f"### {TITLES[series]}", markdown_table(heads, rows), *_conclude(series, values)]


def _conclude(series: str, values: Sequence[tuple[float, ...]]) -> list[str]:
    if len(values) < 2:
        return []
    first, last = values[-2:]
    if series == "workers":
        return [
            f"{last[0]:,.0f} processes are {first[1] / last[1]:.2f} times as fast as {first[0]:,.0f}."
        ]
    growth = math.log(last[0] / first[0])
    time, memory = (math.log(last[i] / first[i]) / growth for i in (2, 3))
    return [
        f"From {first[0]:,} to {last[0]:,}, processor time grows with the power {time:.2f} of the "
        f"size, and memory with the power {memory:.2f} (1 is linear, 0 is constant)."
    ]


def task_section(cluster: Mapping[str, Any]) -> list[str]:
    """Return the section on a mean task."""
    task = mean_task(cluster)
    messages = cluster["messages"] / cluster["recordings"]
    each = task.recordings
    rows = [
        ("recordings per task", show(each)),
        ("messages per recording", show(messages)),
        ("stored bytes per recording (compressed)", _bytes(task.read_bytes / each)),
        ("bytes per recording if contents are sent", _bytes(task.sent_bytes / each)),
        ("bytes written per part", _bytes(task.written_bytes)),
        ("files per part", show(task.written_files)),
        ("time of a task (worker)", f"{show(task.seconds)} s"),
        ("time of the main process per task, without sending", f"{show(task.main_seconds)} s"),
        ("Dask: a task with the contents of a bucket", f"{show(task.send_seconds * 1e3)} ms"),
        ("Dask: a task without contents", f"{show(task.scheduler_seconds * 1e3)} ms"),
        ("tasks per second of the scheduler", show(1 / task.scheduler_seconds)),
    ]
    return ["## A task", SAMPLE.format(**cluster), markdown_table(["measured", "value"], rows)]


def _bytes(value: float) -> str:
    return f"{show(value / 1e6)} MB" if value >= 1e6 else f"{show(value / 1e3)} kB"


def cluster_section(cluster: Mapping[str, Any], cores: int) -> list[str]:
    """Return the extrapolation."""
    task, assumed = mean_task(cluster), Assumptions()
    return [
        f"## Extrapolation to {max(WORKERS):,} workers over object storage",
        TODAY,
        f"### Assumptions ({DATE})",
        _assumptions_table(assumed),
        "### The main process reads the recordings to plan the tasks (today)",
        _rates_table(task, assumed, True),
        _saturation_sentence(task, assumed, True),
        "### If the main process only listed files",
        "This is not implemented. Only the workers would read the recordings. The time to join the "
        "results at the end is not counted here.",
        _rates_table(task, assumed, False),
        _saturation_sentence(task, assumed, False),
        f"### What {JOB:,} recordings cost",
        *_cost_section(task, assumed),
        "## What is not known",
        CAVEATS.format(cores=cores),
    ]


def _assumptions_table(assumed: Assumptions) -> str:
    rows = [
        ("a core for an hour", f"${assumed.core_hour:g}"),
        ("1,000 requests that write, copy or list", f"${assumed.writes:g}"),
        ("1,000 requests that read", f"${assumed.reads:g}"),
        ("a GB stored for a month", f"${assumed.month:g}"),
        ("a GB between storage and workers, in one region", f"${assumed.transfer:g}"),
        ("requests per second: write, copy or list", show(assumed.write_rate)),
        ("requests per second: read", show(assumed.read_rate)),
        ("latency of a request", f"{show(assumed.latency * 1e3)} ms"),
        ("speed of one connection", f"{show(assumed.bandwidth / 1e6)} MB/s"),
    ]
    return markdown_table(["assumed", "value"], rows)


def _rates_table(task: Task, assumed: Assumptions, main_reads: bool) -> str:
    rows = []
    for workers in WORKERS:
        found = rates(task, workers, assumed, main_reads)
        name = min(found, key=found.__getitem__)
        rate = found[name]
        requests = rate * (task.write_requests() + task.read_requests())
        hours = JOB / task.recordings / rate / 3600
        rows.append([
            f"{workers:,}",
            show(rate),
            f"{rate / found['workers']:.0%}",
            show(rate * task.read_bytes / 1e6),
            show(rate * task.written_bytes / 1e6),
            show(requests),
            show(hours),
            f"${workers * hours * assumed.core_hour:,.2f}",
            name,
        ])  # fmt: skip
    heads = ["workers", "tasks/s", "workers busy", "read MB/s", "written MB/s", "requests/s"]
    return markdown_table([*heads, f"hours for {JOB:,}", "cores", "limited by"], rows)


def _saturation_sentence(task: Task, assumed: Assumptions, main_reads: bool) -> str:
    workers, name = saturation(task, assumed, main_reads)
    return (
        f"A worker needs {show(task.worker_seconds(assumed))} s for a task, with waiting "
        f"for the storage. More than {show(workers, 2)} workers are not faster, because the limit is "
        f"then the **{name}**."
    )


def _cost_section(task: Task, assumed: Assumptions) -> list[str]:
    found = costs(task, JOB, assumed)
    tasks = JOB / task.recordings
    rows = [
        *((name, f"${dollars:,.2f}") for name, dollars in found.items()),
        ("sum", f"${sum(found.values()):,.2f}"),
    ]
    hours = tasks * task.worker_seconds(assumed) / 3600
    gigabytes = [tasks * size / 1e9 for size in (2 * task.read_bytes, task.written_bytes)]
    return [
        f"The job has {show(tasks)} tasks and needs {show(hours)} core-hours. It reads "
        f"{show(gigabytes[0])} GB and writes {show(gigabytes[1])} GB. The costs are those of workers "
        "that never wait for the main process. More workers than the saturation are paid and not used: "
        "the tables above show the dollars for their cores.",
        markdown_table(["for", "dollars"], rows),
    ]


def write_page(found: Mapping[str, Any]) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    found : mapping
        Content of ``scaling.json``.

    Returns
    -------
    str
        The page.
    """
    machine = found["machine"]
    packages = machine["packages"]
    quick = " This was a quick run with few small points." if found["quick"] else ""
    parts = [
        "<!-- Generated by docs/scaling.py; do not edit. -->",
        "# Scaling",
        INTRO,
        f"```sh\n{MEASURE}\n```",
        f"Measured on {machine['date'][:10]} with ctxlab {packages['ctxlab']} and "
        f"{machine['python']} on {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gb']} GB memory; load {machine['load_before']} before and "
        f"{machine['load_after']} after.{quick}",
        *([BUSY] if max(machine["load_before"], machine["load_after"]) > machine["cores"] else []),
        *([HELD] if machine["commit"].startswith(BEFORE_PIECES) else []),
        "## Measured growth",
        HOW,
        "![Time and peak memory by size](scaling.png)",
    ]
    for series in TITLES:
        parts += series_section(found["points"], series)
    if found["cluster"]:
        parts += task_section(found["cluster"])
        parts += cluster_section(found["cluster"], machine["cores"])
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    text = write_page(json.loads(DATA.read_text(encoding="utf-8")))
    if sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
