"""Prints the conformance table: every baseline whose package is installed, beside the real package.

``python tests/peers [NAME…] [--write]``; ``--write`` puts the table into ``CONFORMANCE.md`` beside this
file. Real recordings are found through ``CTXLAB_DATA`` or ``../shared/data``; without them the bundled
ones are compared. It ends with 1 where a request differs that is not explained in ``EXPLAINED``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

from compare import Compared, compare, lines, recordings

from ctxlab.llm import ScriptedClient
from ctxlab.strategies.baselines import BASELINES, Baseline

HEADS = ("baseline", "package", "options", "recordings", "requests", "acted", "messages equal",
         "invalid: theirs, ours")  # fmt: skip
EXPLAINED: dict[str, str] = {}
"""Baselines that cannot send the very same, and why."""

SUMMARY = "The agent looked at several files and changed one; the tests have not been run since."


def main() -> int:
    """Compares, prints, and says whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="baselines; all where none is named")
    parser.add_argument("--write", action="store_true", help="write CONFORMANCE.md")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # those of the packages
    logging.disable()
    recorded = recordings()
    chosen = [
        b for b in BASELINES.values() if b.package and (not asked.names or b.name in asked.names)
    ]
    rows, differing = [], []
    compared: set[str | None] = set()
    for baseline in chosen:
        installed = _version(baseline)
        if installed is None:
            print(f"{baseline.name}: {baseline.package} is not installed", file=sys.stderr)
            continue
        for options in baseline.conformance_options or ("",):
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
    if asked.write:
        _write(rows, len(compared))
    return int(any(name not in EXPLAINED for name in differing))


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
            "# Baselines beside the real packages",
            "",
            "`nox -s peers` replays the same recordings through each baseline and through the code of "
            f"the package that it imitates ({packages} packages), and compares every request message "
            "by message. *Acted* counts the requests in which the package sent something else than "
            "the whole conversation; *invalid* those that a provider would refuse, the faults of the "
            "recordings included. Summaries are one constant text on both sides.",
            "",
            *table,
            *(["", "Where they differ:", "", *said] if said else []),
            "",
        ]
    )
    (Path(__file__).parent / "CONFORMANCE.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
