"""Compare baselines with their upstream packages: ``python tests/peers [NAME…] [--write]``.

A table shows how many requests and messages are equal for each baseline whose upstream package is
installed, and arguments of packages that the settings of baselines name, but that do not exist.
``--write`` writes the table to ``tests/peers/CONFORMANCE.md``. Real recordings are read from
``CTXLAB_DATA`` or ``../shared/data``. If neither folder exists, the bundled recordings are used. The
exit status is 1 if an argument is missing, or if a request differs and the baseline is not listed in
``EXPLAINED``.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

from compare import Compared, compare, lines, recordings

from ctxlab.llm import ScriptedClient
from ctxlab.strategies.baselines import BASELINES, Baseline

HEADS = ("baseline", "package", "options", "recordings", "requests", "acted", "messages equal",
         "invalid: package, baseline")  # fmt: skip
EXPLAINED: dict[str, str] = {}
"""Baselines that cannot send exactly the requests of their package, with the reason."""

SUMMARY = "The agent looked at several files and changed one; the tests have not been run since."


def main() -> int:
    """Compare the baselines, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="names of baselines; default: all baselines")
    parser.add_argument("--write", action="store_true", help="write CONFORMANCE.md")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # the packages cause many warnings
    logging.disable()
    recorded = recordings()
    chosen = [
        b for b in BASELINES.values() if b.package and (not asked.names or b.name in asked.names)
    ]
    rows, differing, missing = [], [], []
    compared: set[str | None] = set()
    for baseline in chosen:
        installed = _version(baseline)
        if installed is None:
            print(f"{baseline.name}: {baseline.package} is not installed", file=sys.stderr)
            continue
        missing += _missing_arguments(baseline)
        for options in baseline.conformance_options:
            begun = perf_counter()
            found = compare(
                baseline.name, options, recorded, client=ScriptedClient(lambda _: SUMMARY)
            )
            row = _row(baseline, installed, options, len(recorded), found)
            print(" | ".join(row), f"({perf_counter() - begun:.0f} s)", flush=True)
            rows.append(row)
            compared.add(baseline.package)
            if found.same_requests < found.requests:
                differing.append(baseline.name)
                print(*(f"    {line}" for line in lines(found)), sep="\n", flush=True)
    print(f"\n{len(rows)} comparisons with {len(compared)} packages")
    print(*missing, sep="\n", end="")
    if asked.write:
        _write(rows, len(compared))
    return int(bool(missing) or any(name not in EXPLAINED for name in differing))


def _missing_arguments(baseline: Baseline) -> Iterator[str]:
    """Yield a line for each setting whose argument the package does not have."""
    for setting in baseline.settings:
        if setting.kind == "python":
            function, _, argument = setting.name.rpartition(".")
            name = function.partition(".")[0]
            try:
                called = eval(function, {name: getattr(import_module(setting.place), name)})
                known = argument in inspect.signature(called).parameters
            except (AttributeError, ImportError):
                known = False
            if not known:
                yield f"{baseline.name}: {setting.place} has no {setting.name}"


def _row(
    baseline: Baseline, installed: str, options: str, recorded: int, found: Compared
) -> tuple[str, ...]:
    share = 100 * found.same_messages / max(found.messages, 1)
    return (
        baseline.name,
        f"{baseline.package} {installed}",
        options or "defaults",
        str(recorded),
        f"{found.requests:,}",
        f"{found.acted:,}",
        f"{found.same_messages:,} of {found.messages:,} ({share:.4g} %)",
        f"{found.invalid:,}, {found.invalid_ours:,}",
    )


def _version(baseline: Baseline) -> str | None:
    try:
        return version(str(baseline.package))
    except PackageNotFoundError:
        return None


def _write(rows: list[tuple[str, ...]], packages: int) -> None:
    said = [f"- `{name}`: {why}" for name, why in EXPLAINED.items()]
    table = ["| " + " | ".join(row) + " |" for row in (HEADS, ["---"] * len(HEADS), *rows)]
    text = "\n".join(
        [
            "# Baselines compared with their upstream packages",
            "",
            "A baseline is ctxlab's reimplementation of the context strategy of a product. The upstream "
            "package is the product's own code. `nox -s peers` replays the same recordings through each "
            f"baseline and through its upstream package ({packages} packages), and compares every "
            "request message by message. If a strategy asks a model for a summary, both sides get the "
            "same fixed text, and no model is called.",
            "",
            "Each row is one comparison with the settings in *options*. *Recordings* and *requests* are "
            "the numbers of replayed recordings and of compared requests. *Acted* is the number of "
            "requests in which the package did not send the whole conversation unchanged. *Messages "
            "equal* is the number of messages that are the same on both sides, of all messages in the "
            "requests. *Invalid* is the number of requests that a provider would reject, first those of "
            "the package, then those of the baseline. It includes requests that are invalid because of "
            "an error in the recording.",
            "",
            *table,
            *(["", "Reasons for the differences:", "", *said] if said else []),
            "",
        ]
    )
    (Path(__file__).parent / "CONFORMANCE.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
