"""Sessions: one verb each. ``nox -l`` lists them; ``nox`` alone runs tests, lint and types."""

import tomllib
from pathlib import Path

import nox

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lint", "types"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Runs the test suite on every Python that is there."""
    session.install(".[test,notebooks]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style, formatting, and that rooms import downward only."""
    session.install("ruff>=0.9", "import-linter>=2.1", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Checks the types strictly, documented usage included."""
    session.install(".[dev]")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Runs every example in docstrings and in the README."""
    session.install(".[test]")
    session.run("pytest", "ctxlab", "tests/test_readme.py", *session.posargs)


@nox.session
def notebooks(session: nox.Session) -> None:
    """Executes the notebooks, offline."""
    session.install(".[test,notebooks]")
    session.run("pytest", "tests/test_notebooks.py", *session.posargs)


@nox.session
def evals(session: nox.Session) -> None:
    """Runs the experiments in evals/, saves each under runs/, and checks the project's own budgets."""
    session.install(".")
    session.run("python", "evals", *session.posargs)
    session.run("ctxlab", "gate")


@nox.session
def bench(session: nox.Session) -> None:
    """Measures speed and memory against peers in one run, and prints the ratios."""
    session.install(".[bench]")
    session.run("python", "tests/bench", *session.posargs)


@nox.session
def datasets(session: nox.Session) -> None:
    """Rebuilds the bundled recordings; ``-- --check`` only compares them, byte for byte."""
    session.install(".")
    session.run("python", "-m", "datasets.make", *session.posargs)


@nox.session
def minimums(session: nox.Session) -> None:
    """Runs the tests with the oldest versions of the dependencies that pyproject allows."""
    extras = PROJECT["optional-dependencies"]
    oldest = [spec.replace(">=", "==") for spec in (*PROJECT["dependencies"], *extras["serve"])]
    session.install(*oldest, *[spec for spec in extras["test"] if "ctxlab" not in spec])
    session.install("--no-deps", ".")
    # Old versions beside new ones of what they need themselves: their deprecations are not ours.
    session.run("pytest", "-n", "auto", "-W", "default", *session.posargs)


@nox.session
def thorough(session: nox.Session) -> None:
    """Runs the property tests with many more examples."""
    session.install(".[test,notebooks]")
    session.run("pytest", "-n", "auto", *session.posargs, env={"CTXLAB_HYPOTHESIS": "thorough"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Gives every reader ten thousand mutated files: only errors that name the file may come out."""
    session.install(".[test]")
    session.run("python", "tests/fuzz", *session.posargs)


@nox.session(python="3.12")
def peers(session: nox.Session) -> None:
    """Compares every baseline with the real package that it imitates, message by message."""
    session.install(".[test,peers]")
    session.run("python", "tests/peers", *session.posargs)
