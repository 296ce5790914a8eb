"""Store a run of the benchmarks as JSON or Markdown, and compare two stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from table import Line, show_number, show_spread, spread

from ctxlab._utils.tables import markdown_table

_FACTS = ("cpu", "cores", "memory_gb", "os", "python", "packages")
"""Facts of a machine that should be equal in runs that are compared."""
_HEADS = ("measurement", "figures", "median", "spread", "unit", "bar", "met")
_VERDICTS = {None: "", True: "yes", False: "**no**"}


def to_dict(
    groups: Mapping[str, tuple[str, Sequence[Line]]], machine: Mapping[str, Any], quick: bool
) -> dict[str, Any]:
    """Return a run as JSON data; ``groups`` has the title and the lines of each group by its name."""
    return {
        "quick": quick,
        "machine": dict(machine),
        "groups": [
            {"name": name, "title": title, "lines": [_line_to_dict(line) for line in lines]}
            for name, (title, lines) in groups.items()
        ],
    }


def _line_to_dict(line: Line) -> dict[str, Any]:
    return {
        "what": line.what.strip(),
        "figures": line.figures,
        "values": list(line.values),
        "median": line.median,
        "spread": line.spread and list(line.spread),
        "unit": line.unit,
        "at_most": line.at_most,
        "at_least": line.at_least,
        "met": line.met,
    }


def to_markdown(run: Mapping[str, Any]) -> str:
    """Return a run as Markdown: the facts of the machine, and one table per group."""
    machine = run["machine"]
    facts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB memory",
        f"{machine['os']}, {machine['python']}",
        ", ".join(f"{name} {found}" for name, found in machine["packages"].items() if found),
        f"commit {machine['commit'] or 'unknown'}, {machine['date']}",
        f"load {machine['load_before']} before the run and {machine['load_after']} after it",
    ]
    if run["quick"]:
        facts.append("quick run: fewer rounds and smaller data")
    parts = ["# Benchmarks", "\n".join(f"- {fact}" for fact in facts)]
    parts.append(
        "The spread is the interquartile range of the rounds, or the range of fewer than five."
    )
    for group in run["groups"]:
        rows = [
            [
                *(each["what"], each["figures"], show_number(each["median"])),
                *(show_spread(each["spread"]), each["unit"] if each["values"] else ""),
                *(_bar(each), _VERDICTS[each["met"]]),
            ]
            for each in group["lines"]
        ]
        parts += [f"## {group['title']}", markdown_table(_HEADS, rows)]
    return "\n\n".join(parts) + "\n"


def _bar(line: Mapping[str, Any]) -> str:
    return Line("", "", (), line["at_most"], line["at_least"]).bar


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, bool]:
    """Compare two runs line by line.

    A change exceeds the spread if the spreads of the two runs do not overlap. This is unknown if a
    run has only one round.

    Returns
    -------
    str
        Table of the values, and notes.
    bool
        False if a bar that the old run met is missed in the new run.
    """
    notes = [
        f"The {fact} differ: {old['machine'][fact]} and {new['machine'][fact]}."
        for fact in _FACTS
        if old["machine"].get(fact) != new["machine"].get(fact)
    ]
    if old["quick"] != new["quick"]:
        notes.append("Only one of the two runs is a quick run.")
    before, after = dict(_values(old)), dict(_values(new))
    rows, fine = [], True
    for key, line in after.items():
        if key not in before:
            continue
        past = before[key]
        change = line["median"] / past["median"] - 1 if past["median"] else None
        lost = past["met"] is True and line["met"] is False
        fine = fine and not lost
        rows.append([
            f"{key[0]}: {key[1]}",
            *(show_number(past["median"]), show_number(line["median"])),
            "" if change is None else f"{change:+.1%}",
            _exceeds(past["values"], line["values"]),
            "bar missed" if lost else "bar met again" if _regained(past, line) else "",
        ])  # fmt: skip
    for which, lines, others in (("old", before, after), ("new", after, before)):
        notes += [
            f"Only in the {which} run: {key[0]}: {key[1]}" for key in lines if key not in others
        ]
    heads = ["measurement", "old", "new", "change", "exceeds spread", ""]
    return "\n".join([*_align([heads, *rows]), *notes]), fine


def _values(run: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for group in run["groups"]:
        for line in group["lines"]:
            if line["values"]:
                yield (group["name"], line["what"]), line


def _regained(past: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    return past["met"] is False and line["met"] is True


def _exceeds(old: Sequence[float], new: Sequence[float]) -> str:
    before, after = spread(old), spread(new)
    if before is None or after is None:
        return "unknown"
    return "yes" if before[1] < after[0] or after[1] < before[0] else "no"


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = row
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        yield "  ".join(cells).rstrip()


def check_new(files: Iterable[Path | None], overwrite: bool, fail: Callable[[str], object]) -> None:
    """Call ``fail`` with a message if a file exists that must not be overwritten.

    This is checked before a run, which takes long.
    """
    for file in files:
        if file is not None and file.exists() and not overwrite:
            fail(f"{file}: expected a new file; remove it, name another, or add --overwrite")


def write_new(file: Path, text: str, overwrite: bool) -> None:
    """Write a file; a file that exists is only replaced if ``overwrite`` is True."""
    with file.open("w" if overwrite else "x", encoding="utf-8") as out:
        out.write(text)


def dumps(run: Mapping[str, Any]) -> str:
    """Return a run as the text of a JSON file."""
    return json.dumps(run, indent=1, ensure_ascii=False) + "\n"


def loads(file: Path) -> dict[str, Any]:
    """Read a run from a JSON file."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
