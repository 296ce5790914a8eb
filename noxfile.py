"""Sessions of nox: ``nox -l`` lists them, ``nox`` without arguments runs tests, lint and types.

The default test suite leaves out some parts. Each of these parts has a marker and a session of the
same name: ``properties``, ``simulations``, ``e2e``, ``recordings``, ``notebooks``, ``evals`` and
``datasets``. The session ``full`` runs all tests.
"""

import tomllib
from pathlib import Path

import nox

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lint", "types"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suite on every installed Python."""
    session.install(".[test,notebooks]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, docstrings, and that packages import downward only."""
    session.install("ruff>=0.9", "import-linter>=2.1", "numpydoc>=1.8", ".[test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("python", "docs/validate.py")


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy in strict mode."""
    session.install(".[dev]")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Run all examples in docstrings and in the README."""
    session.install(".[test]")
    session.run("pytest", "ctxlab", "tests/test_readme.py", *session.posargs)


def run_part(session: nox.Session, marker: str, **env: str) -> None:
    """Run one part of the test suite."""
    session.install(".[test,notebooks]")
    session.run("pytest", "-n", "auto", "-m", marker, *session.posargs, env=env)


@nox.session
def properties(session: nox.Session) -> None:
    """Test every rule with every strategy, format and sample, and properties with more examples."""
    run_part(session, "properties or hypothesis", CTXLAB_HYPOTHESIS="many")


@nox.session
def simulations(session: nox.Session) -> None:
    """Check statistics by simulation, and check that memory and time stay within bounds."""
    run_part(session, "simulations")


@nox.session
def e2e(session: nox.Session) -> None:
    """Run tests that start programs, servers and terminals, interrupt them and kill them."""
    run_part(session, "e2e", CTXLAB_KILLS="12")


@nox.session
def recordings(session: nox.Session) -> None:
    """Replay the real recordings in the folder ``CTXLAB_DATA``."""
    run_part(session, "recordings")


@nox.session
def notebooks(session: nox.Session) -> None:
    """Execute the notebooks, offline."""
    run_part(session, "notebooks")


@nox.session
def evals(session: nox.Session) -> None:
    """Run the experiments in evals/, save each under runs/, and check the project's own budgets."""
    session.install(".[test,notebooks]")
    session.run("pytest", "-m", "evals", *session.posargs)
    session.run("python", "evals")
    session.run("ctxlab", "gate")


@nox.session
def full(session: nox.Session) -> None:
    """Run all tests: the default suite and all parts that it leaves out."""
    run_part(session, "", CTXLAB_HYPOTHESIS="many", CTXLAB_KILLS="12")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare speed and memory with other packages in one run, and print the ratios."""
    session.install(".[bench]")
    session.run("python", "tests/bench", *session.posargs)


@nox.session
def datasets(session: nox.Session) -> None:
    """Generate the bundled recordings; ``-- --check`` only compares them byte for byte."""
    session.install(".")
    session.run("python", "-m", "datasets.make", *session.posargs)


@nox.session
def minimums(session: nox.Session) -> None:
    """Run the tests with the oldest versions of the dependencies that pyproject allows."""
    extras = PROJECT["optional-dependencies"]
    oldest = [spec.replace(">=", "==") for spec in (*PROJECT["dependencies"], *extras["serve"])]
    session.install(*oldest, *[spec for spec in extras["test"] if "ctxlab" not in spec])
    session.install("--no-deps", ".")
    # Old versions cause deprecation warnings with newer indirect dependencies; do not fail on them.
    session.run("pytest", "-n", "auto", "-W", "default", *session.posargs)


@nox.session
def thorough(session: nox.Session) -> None:
    """Test each property with 2,000 random examples (or ``CTXLAB_EXAMPLES``), new ones each time."""
    run_part(session, "properties or hypothesis", CTXLAB_HYPOTHESIS="thorough")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Read 10,000 mutated files in each format; readers may only raise errors that name the file."""
    session.install(".[test]")
    session.run("python", "tests/fuzz", *session.posargs)


@nox.session(python="3.12")
def peers(session: nox.Session) -> None:
    """Compare the requests of each baseline with those of its upstream package, by message."""
    # Do not install the extra `test`: it needs another version of mcp than these packages.
    session.install(".[peers]")
    session.run("python", "tests/peers", *session.posargs)
