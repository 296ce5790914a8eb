"""Run the experiments of this folder and save their results: ``python evals [NAME…] [OPTIONS]``.

The results of an experiment are saved in ``runs/NAME``. The options are those of ``ctxlab eval``.
Unknown names and options are reported before the first experiment runs. An experiment whose data set is
not downloaded is skipped, and a note says how to download it. If an experiment fails, the others are
still run. The exit status is 0 if none failed, otherwise that of the first one that failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ctxlab.cli import app
from ctxlab.errors import CtxlabError, DataMissing, SpecError, UnknownName
from ctxlab.evaluation.spec import read_spec

HERE = Path(__file__).parent
BUDGETS = "budgets"
"name of the file with the bounds for `ctxlab gate`, which is not an experiment"

COMMAND = (sys.executable, "-c", "import sys; from ctxlab.cli import main; sys.exit(main())")

HELP = """Usage: python evals [NAME…] [OPTIONS]

Run all experiments of this folder, or the named ones, and save their results in runs/NAME. Experiments
whose data set is not downloaded are skipped. Options: see ctxlab eval --help.

  python evals                     run all experiments
  python evals stress long-chat    run two experiments
  python evals stress -l 3k        run one experiment with another limit

Names: {names}
"""


def experiments() -> list[Path]:
    """Return the paths of the experiment files, sorted by name."""
    return sorted(path for path in HERE.glob("*.toml") if path.stem != BUDGETS)


def split_arguments(arguments: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the experiments and the options in the arguments; raise ``SpecError`` for anything else."""
    known: Any = typer.main.get_command(app)
    options = {text: each for each in known.commands["eval"].params for text in each.opts}
    chosen, given, left = list[str](), list[str](), list(arguments)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            if word not in names:
                raise SpecError(f"unknown experiment {word!r}; choose from {', '.join(names)}")
            chosen.append(word)
            continue
        option, joined, _ = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            option, joined = word[:2], word[2:]  # as in -l3k
        if option not in options or not option.startswith("-"):
            raise UnknownName("option of ctxlab eval", option, [o for o in options if o[0] == "-"])
        given.append(word)
        if not joined and not options[option].is_flag:
            given += left[:1]
            left = left[1:]
    return chosen, given


def main(arguments: Sequence[str]) -> int:
    """Run the experiments that the arguments name, or all of them, and return the exit status."""
    files = {path.stem: path for path in experiments()}
    if {"-h", "--help"} & set(arguments):
        print(HELP.format(names=", ".join(files)), end="")
        return 0
    try:
        chosen, options = split_arguments(arguments, list(files))
    except CtxlabError as error:
        print(f"evals: {error}", file=sys.stderr)
        return 2
    failed = 0
    for name, path in files.items():
        if chosen and name not in chosen:
            continue
        print(f"\n{name}\n", flush=True)
        try:
            _ = read_spec(path).paths
        except DataMissing as error:
            print(f"skipped: {error}", flush=True)
            continue
        run = [*COMMAND, "eval", str(path), "--out", f"runs/{name}", *options]
        code = subprocess.run(run, check=False).returncode
        failed = failed or code
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
