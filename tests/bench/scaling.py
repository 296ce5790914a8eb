"""Measure how time and memory grow: ``python tests/bench scaling [--quick] [NAME…]``.

Each point is ``ctxlab eval FOLDER --out DIR`` in a new process, with synthetic recordings and without
stored token counts. Names: messages (in one recording), recordings, short and short-parallel (up to
100,000 short recordings, in one and in two processes), configurations, workers, and ``cluster``, which
measures what ``docs/scaling.md`` extrapolates from: the sizes of recordings and parts and the time of a
part, from a sample of the recordings in a folder (``--corpus``), and the time that a Dask scheduler on
this machine needs for a task.

``--json FILE`` stores the figures with facts about the machine, and ``--plot FILE`` plots them. With
``--from FILE``, figures are read from a stored run instead of measured. ``--quick`` measures few small
points.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import report
from children import Measured, measure_command
from floors import dask_seconds_per_task
from machine import count_cores, current_load, describe_machine
from synthetic import write_conversations

from ctxlab.evaluation.grid import DEFAULT_LIMITS
from ctxlab.formats import load
from ctxlab.strategies.registry import DEFAULT_LINEUP

LIMIT = 32_000
STRATEGIES = (
    "full",
    "sliding_window",
    "observation_mask(keep=10) | panic",
    "rolling_summary | panic",
)
SMALL = 24
"""Messages of a small recording."""
SHORT = 6
"""Messages of a short recording, of which 100,000 are evaluated under one configuration."""
SERIES = {
    "messages": "messages of the recording",
    "recordings": f"recordings of {SMALL} messages",
    "short": f"recordings of {SHORT} messages",
    "short-parallel": f"recordings of {SHORT} messages, in two processes",
    "configurations": "configurations of ten recordings of 300 messages",
    "workers": f"processes for 1,000 recordings of {SMALL} messages",
}
"""What grows in each series."""
CLUSTER = "cluster"
_SIZES = {
    "messages": (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    "recordings": (10, 30, 100, 300, 1000, 3000, 10_000),
    "short": (1000, 10_000, 100_000),
    "short-parallel": (1000, 10_000, 100_000),
    "configurations": (1, 2, 5, 10, 20, 50, 100, 200),
    "workers": (1, 2),
}
_QUICK = {
    "messages": (100, 1000),
    "recordings": (10, 100),
    "short": (10, 100),
    "short-parallel": (10, 100),
    "configurations": (1, 10),
    "workers": (1, 2),
}
_FAMILIES = (
    "sliding_window(messages={})",
    "observation_mask(keep={}) | panic",
    "tool_stubs(keep={}) | panic",
    "tool_result_cap(chars={}00) | panic",
)
_SAMPLE = 60
_SHORT = 60.0
"A point that takes fewer seconds is measured three times, others once."


def strategies(count: int) -> list[str]:
    """Return different strategies: registered names with different parameters."""
    return [_FAMILIES[i % len(_FAMILIES)].format(5 + i // len(_FAMILIES)) for i in range(count)]


def measure(series: str, size: int, quick: bool) -> dict[str, Any]:
    """Measure one point of a series."""
    count, length, chosen, cores = 1, SMALL, list(STRATEGIES), 1
    if series == "messages":
        length = size
    elif series == "recordings":
        count = size
    elif series.startswith("short"):
        count, length, chosen = size, SHORT, ["full"]
        cores = 2 if series == "short-parallel" else 1
    elif series == "configurations":
        count, length, chosen = (2, 100, strategies(size)) if quick else (10, 300, strategies(size))
    else:
        count, cores = (100 if quick else 1000), size
    with tempfile.TemporaryDirectory() as place:
        folder, rounds = Path(place, "recordings"), list[Measured]()
        write_conversations(folder, count, length)
        while not rounds or (len(rounds) < 3 and rounds[0].seconds < _SHORT and not quick):
            out = Path(place, f"out{len(rounds)}")
            rounds.append(measure_command(_eval([str(folder)], out, chosen, [LIMIT]), cores))
        stored, files = _size_of(out)
    return {
        "series": series,
        "size": size,
        "rounds": [each._asdict() for each in rounds],
        "stored_bytes": stored,
        "stored_files": files,
    }


def _eval(
    paths: Sequence[str], out: Path, strategies: Sequence[str], limits: Sequence[float]
) -> list[str]:
    chosen = [word for text in strategies for word in ("-s", text)]
    at = [word for limit in limits for word in ("-l", str(limit))]
    return ["eval", *paths, *chosen, *at, "--out", str(out), "--no-progress"]


def _size_of(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of the files in a folder."""
    sizes = [each.stat().st_size for each in folder.rglob("*") if each.is_file()]
    return sum(sizes), len(sizes)


def measure_cluster(corpus: Path, quick: bool) -> dict[str, Any]:
    """Measure recordings, parts and tasks of the default grid, and the scheduler of Dask.

    The command runs twice. The second run finds all parts, so its time is that of the main process: it
    reads and hashes recordings, and reads and joins parts. The same for one small recording is the
    time to start and to print.
    """
    every = sorted(each for each in corpus.rglob("*") if _is_log(each))
    if not every:
        raise SystemExit(f"{corpus}: expected a folder of recordings; name one with --corpus")
    wanted = 3 if quick else _SAMPLE
    sample = [str(every[i * len(every) // wanted]) for i in range(wanted)]
    recordings = messages = pickled = 0
    for recording in load(sample, on_error="skip"):
        recordings += 1
        messages += len(recording.messages)
        pickled += len(pickle.dumps(recording))
    with tempfile.TemporaryDirectory() as place:
        out, small = Path(place, "out"), Path(place, "small")
        grid = (out, DEFAULT_LINEUP, DEFAULT_LIMITS)
        words = [*_eval(sample, *grid), "--on-error", "skip"]
        # 3: some recordings cannot be evaluated
        first, again = (measure_command(words, status=(0, 3)) for _ in range(2))
        write_conversations(small, 1, SMALL)
        words = _eval([str(small)], Path(place, "start"), DEFAULT_LINEUP, DEFAULT_LIMITS)
        _, start = (measure_command(words) for _ in range(2))
        parts = out / "parts"
        part_bytes, part_files = _size_of(parts)
        buckets = len(list(parts.glob("*/[!.]*")))
    tasks, rounds = (100, 1) if quick else (500, 3)
    payload = os.urandom(pickled // buckets)  # a text is not sent compressed, and neither is this
    nothing, full = (
        median(dask_seconds_per_task(tasks, each) for _ in range(rounds))
        for each in (None, payload)
    )
    return {
        "configurations": len(DEFAULT_LINEUP) * len(DEFAULT_LIMITS),
        "read_files": len(sample),
        "read_bytes": sum(Path(each).stat().st_size for each in sample),
        "recordings": recordings,
        "messages": messages,
        "pickled_bytes": pickled,
        "parts": buckets,
        "part_files": part_files,
        "part_bytes": part_bytes,
        "first": first._asdict(),
        "again": again._asdict(),
        "start": start._asdict(),
        "dask_tasks": tasks,
        "dask_seconds": nothing,
        "dask_payload_bytes": len(payload),
        "dask_payload_seconds": full,
    }


def _is_log(file: Path) -> bool:
    return file.is_file() and file.suffix not in (".md", ".tsv")


def run(found: dict[str, Any], names: Sequence[str], corpus: Path, quick: bool) -> None:
    """Measure the named series, and add the figures to ``found`` one by one."""
    machine = {**describe_machine(), "load_before": current_load()}
    found |= {"quick": quick, "machine": machine, "points": [], CLUSTER: None}
    for series in SERIES:
        if series not in names:
            continue
        print(f"\n{SERIES[series]}", flush=True)
        sizes = (_QUICK if quick else _SIZES)[series]
        if series == "short-parallel" and count_cores() < 2:
            continue
        for size in sizes if series != "workers" else sizes[: count_cores()]:
            point = measure(series, size, quick)
            found["points"].append(point)
            print(_show(point), flush=True)
        for name, exponent in exponents(found["points"], series).items():
            print(f"  {name} grows with the power {exponent:.2f} of the size at the end")
    if CLUSTER in names:
        found[CLUSTER] = measure_cluster(corpus, quick)
        print(f"\n{CLUSTER}\n{json.dumps(found[CLUSTER], indent=1)}", flush=True)
    machine["load_after"] = current_load()


def _show(point: dict[str, Any]) -> str:
    seconds, cpu, _, main, worker = (of(point, name) for name in Measured._fields)
    text = f"  {point['size']:>8,}  {seconds:8.2f} s  {cpu:8.2f} s processor  {main:6.0f} MB"
    text += f" and {worker:4.0f} MB in a worker" if worker else ""
    return f"{text}  {point['stored_bytes'] / 1e6:8.2f} MB in {point['stored_files']:,} files"


def of(point: dict[str, Any], name: str) -> float:
    """Return the median over the rounds of a point."""
    return float(median(each[name] for each in point["rounds"]))


def exponents(points: Sequence[dict[str, Any]], series: str) -> dict[str, float]:
    """Return the power of the size with which time and memory grow between the last two sizes."""
    last = [point for point in points if point["series"] == series][-2:]
    if len(last) < 2 or last[0]["size"] == last[1]["size"]:
        return {}
    growth = math.log(last[1]["size"] / last[0]["size"])
    names = {"time": "cpu_seconds", "memory": "peak_mb"}
    return {
        what: math.log(of(last[1], name) / of(last[0], name)) / growth
        for what, name in names.items()
    }


def plot(found: dict[str, Any], file: Path) -> None:
    """Plot time and peak memory of each series, on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from ctxlab.evaluation.plots.colors import COLOR_CYCLE, GRAY

    series = [name for name in SERIES if any(p["series"] == name for p in found["points"])]
    rows = (("seconds", "seconds"), ("peak_mb", "peak memory, MB"))
    figure, axes = plt.subplots(
        *(len(rows), len(series)),
        figsize=(3.3 * len(series), 5.6),
        squeeze=False,
        layout="constrained",
    )
    for column, name in enumerate(series):
        points = [point for point in found["points"] if point["series"] == name]
        sizes = [point["size"] for point in points]
        for row, (key, label) in enumerate(rows):
            axis, values = axes[row, column], [of(point, key) for point in points]
            ranges = [_range(point, key) for point in points]
            axis.plot(sizes, values, "o-", color=COLOR_CYCLE[row], label="measured")
            axis.vlines(sizes, *zip(*ranges, strict=True), color=COLOR_CYCLE[row])
            if name != "workers" or key == "seconds":
                if name == "workers":
                    line = [values[0] * sizes[0] / size for size in sizes]
                    what = "inverse, through the first point"
                else:
                    line = [values[-1] * size / sizes[-1] for size in sizes]
                    what = "linear, through the last point"
                axis.plot(sizes, line, "--", color=GRAY, label=what)
            axis.legend(frameon=False, fontsize=7, loc="upper left")
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel(SERIES[name], fontsize=8)
            axis.set_ylabel(label, fontsize=8)
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
            # Whole decades, so that each axis has at least two labels, and room for the legend.
            axis.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(2 * high)))
            for each in (axis.xaxis, axis.yaxis):
                each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                each.set_minor_formatter(NullFormatter())
            axis.tick_params(labelsize=8)
            if name == "workers":
                axis.set_xticks(sizes)
                axis.minorticks_off()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _range(point: dict[str, Any], key: str) -> tuple[float, float]:
    values = [each[key] for each in point["rounds"]]
    return min(values), max(values)


def default_corpus() -> Path:
    """Return the folder of real recordings: ``corpus`` beside the folder ``CTXLAB_DATA``."""
    data = Path(os.environ.get("CTXLAB_DATA") or Path(__file__).parents[3] / "shared" / "data")
    return data.parent / "corpus"


def main(arguments: Sequence[str]) -> int:
    """Measure or read the figures, and store and plot them."""
    names = (*SERIES, CLUSTER)
    parser = argparse.ArgumentParser(
        prog="python tests/bench scaling",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="few small points")
    parser.add_argument("--corpus", type=Path, metavar="FOLDER", default=default_corpus())
    parser.add_argument("--from", type=Path, dest="stored", metavar="FILE", help="read figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot them, as PNG, SVG or PDF")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(names):
        parser.error(f"unknown names: {', '.join(unknown)}; choose from {', '.join(names)}")
    report.check_new((given.json, given.plot), given.overwrite, parser.error)
    os.environ["CTXLAB_CACHE"] = ""  # all commands count tokens themselves
    found: dict[str, Any] = report.loads(given.stored) if given.stored else {}
    try:
        if not found:
            run(found, given.names or names, given.corpus, given.quick)
    finally:  # also keep the figures up to a failure or Ctrl+C
        if given.json:
            report.write_new(given.json, report.dumps(found), given.overwrite)
    if given.plot:
        plot(found, given.plot)
    return 0
