"""Runs the tests and prints what a person needs: one line a module, and each failure with its path.

``python runner.py`` runs all, ``python runner.py tests/test_tax.py`` one module and
``python runner.py tests/test_tax.py::test_export`` one test. ``-v`` names each test. The output
holds no times and no absolute paths, so two runs over the same code print the same.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HIDDEN = ("runner.py", "tests/check.py")


def modules(target: str) -> list[Path]:
    """The test modules that a target names; all where it names none."""
    name = target.split("::")[0]
    return [ROOT / name] if name else sorted((ROOT / "tests").glob("test_*.py"))


def tests_in(path: Path, only: str) -> list[tuple[str, Callable[[], None]]]:
    """The test functions of a module in the order of the file."""
    module = importlib.import_module(f"tests.{path.stem}")
    found = [(name, thing) for name, thing in vars(module).items() if name.startswith("test_")]
    return [(name, thing) for name, thing in found if not only or name == only]


def frames(error: BaseException) -> list[str]:
    """Where a failure went through this code base, outermost first."""
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if shown and shown not in HIDDEN:
            lines.append(f"    at {shown}:{frame.lineno} in {frame.name}")
            lines.append(f"        {frame.line}")
    return lines


def main(arguments: list[str]) -> int:
    """Run what is asked for; 0 when all passed, 1 when not, 4 when nothing was found."""
    verbose = "-v" in arguments
    target = next((a for a in arguments if not a.startswith("-")), "")
    only = target.partition("::")[2]
    passed = 0
    failures: list[str] = []
    for path in modules(target):
        if not path.is_file():
            print(f"no such test module: {target}")
            return 4
        marks = ""
        for name, function in tests_in(path, only):
            where = f"tests/{path.name}::{name}"
            try:
                function()
                passed += 1
                marks += "."
                outcome = "ok"
            except Exception as error:
                marks += "F"
                outcome = "FAILED"
                shown = [f"FAILED {where}", f"    {type(error).__name__}: {error}"]
                failures.append("\n".join(shown + frames(error)))
            if verbose:
                print(f"{where} ... {outcome}")
        if not verbose:
            print(f"tests/{path.name:<24} {marks}")
    if not passed and not failures:
        print(f"no test matches: {target}")
        return 4
    print()
    for failure in failures:
        print(failure + "\n")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
