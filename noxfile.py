"""Sessions of nox: ``nox -l`` lists them, ``nox`` without arguments runs tests, lint and types.

The default test suite leaves out some parts. Each of these parts has a marker and a session of the
same name: ``properties``, ``simulations``, ``e2e``, ``recordings``, ``notebooks``, ``browser``,
``docs``, ``evals`` and ``datasets``. The session ``full`` runs all tests.
"""

import os
import shutil
import tomllib
import urllib.request
from pathlib import Path

import nox

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
# The supported versions, of which nox skips those that are not installed, and newer ones if they are.
SUPPORTED = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]
NEWER = (f"3.{minor}" for minor in range(int(SUPPORTED[-1].partition(".")[2]) + 1, 40))
PYTHONS = [*SUPPORTED, *(version for version in NEWER if shutil.which(f"python{version}"))]
# Coding agents, which pin all of their many dependencies. The parts that ctxlab runs need few of them.
AGENTS = ["aider-chat==0.86.2", "hermes-agent==0.19.0", "letta==0.16.8", "mini-swe-agent==2.4.6"]
AGENTS += ["openhands-ai==1.6.0"]  # the last version with the condensers of V0
AGENTS += ["json5", "mslex", "oslex"]  # for aider
AGENTS += ["asyncpg", "demjson3", "pathvalidate", "pyhumps", "pytz"]  # for letta
AGENTS += ["opentelemetry-instrumentation-requests", "opentelemetry-util-http"]  # for letta
VULNERABILITIES = "https://pypi.org/pypi/pip/24.0/json"  # of a release, as pip-audit asks for it

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lint", "types"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suite on every installed Python, with the newest dependencies."""
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
    """Build the site in site/, check it, and run all examples of docstrings and pages."""
    session.install(".[docs,test]")
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    session.run("pytest", "ctxlab", "tests/test_readme.py", "tests/test_site.py", *session.posargs)
    built = {"CTXLAB_SITE": "site"}
    session.run("pytest", "-m", "docs", "tests/test_site.py", *session.posargs, env=built)


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
def ecosystem(session: nox.Session) -> None:
    """Exchange results and recordings with MLflow, Weights & Biases, polars, DuckDB and datasets."""
    session.install(".[test,ecosystem]")
    tests = ("evaluation/test_tracking.py", "evaluation/test_other_frames.py")
    paths = [f"tests/{each}" for each in (*tests, "formats/table/test_dataset.py")]
    session.run("pytest", *paths, *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Show every object in a real JupyterLab, light and dark; skipped if Chromium is missing."""
    if not any(map(shutil.which, ("chromium", "chromium-browser"))):
        session.skip("chromium is not installed; on Debian, apt-get install chromium")
    session.install(".[test,browser]")
    pictures = Path(session.create_tmp(), "screenshots").resolve()
    session.run(
        "pytest", "-m", "browser", *session.posargs, env={"CTXLAB_SCREENSHOTS": str(pictures)}
    )
    session.log(f"screenshots of all objects: {pictures}")


@nox.session
def desktop(session: nox.Session) -> None:
    """Use virtual desktops: Xvfb, and Sway without a screen; as root on Debian, install them first."""
    packages = ("xvfb", "xdotool", "xclip", "xterm", "x11-xserver-utils")
    wayland = ("sway", "grim", "wtype", "wl-clipboard", "foot")
    if shutil.which("Xvfb") is None and shutil.which("apt-get") and os.geteuid() == 0:
        session.run("apt-get", "update", external=True)
        install = ("apt-get", "install", "-y", "--no-install-recommends")
        session.run(*install, *packages, *wayland, external=True)
    session.install(".[test]")
    session.run("pytest", "-m", "desktop", *session.posargs)


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
    """Compare speed and memory with other packages in one run; ``--json FILE`` stores the figures."""
    session.install(".[bench]")
    session.run("python", "tests/bench", *session.posargs)


@nox.session
def scaling(session: nox.Session) -> None:
    """Measure how time and memory grow with recordings and configurations, in about an hour."""
    session.install(".[bench]")
    session.run("python", "tests/bench", "scaling", *session.posargs)


@nox.session
def datasets(session: nox.Session) -> None:
    """Generate the bundled recordings; ``-- --check`` only compares them byte for byte."""
    session.install(".")
    session.run("python", "-m", "datasets.make", *session.posargs)


@nox.session(python=PYTHONS)
def minimums(session: nox.Session) -> None:
    """Run the tests on every installed Python, with the oldest dependencies that pyproject allows.

    A dependency whose oldest version has no wheel for a newer Python is installed in the oldest
    version that has one.
    """
    session.install("uv>=0.5")
    # Not in session.create_tmp(): temporary folders of the tests would lie within the project too.
    oldest = Path(session.virtualenv.location, "oldest.txt").resolve()
    choose = ("--resolution", "lowest-direct", "--no-build", "--extra", "serve")
    session.run_install("uv", "pip", "compile", "-q", *choose, "pyproject.toml", "-o", str(oldest))
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["serve"]]
    direct = {spec.split(">=")[0].replace(".", "-") for spec in wanted}  # as uv writes them
    pins = [line.split(" #")[0] for line in oldest.read_text(encoding="utf-8").splitlines()]
    test = [s for s in PROJECT["optional-dependencies"]["test"] if "ctxlab" not in s]
    session.install(*(pin for pin in pins if pin.partition("==")[0] in direct), *test)
    session.install("--no-deps", ".")
    # Old versions cause deprecation warnings with newer indirect dependencies; do not fail on them.
    session.run("pytest", "-n", "auto", "-W", "default", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Look up known vulnerabilities of all dependencies; skipped if there is no connection."""
    try:
        urllib.request.urlopen(VULNERABILITIES, timeout=15).close()
    except OSError as error:
        session.skip(f"nothing was audited, because {VULNERABILITIES} cannot be reached: {error}")
    session.install(".[serve,hub]")
    found = session.run("python", "-m", "pip", "freeze", "--exclude", "ctxlab", silent=True)
    installed = Path(session.create_tmp(), "installed.txt")
    installed.write_text(str(found), encoding="utf-8")
    # Installed afterwards, so that its own dependencies are not audited.
    session.install("pip-audit>=2.7")
    # With --strict, a package that the service does not know fails the audit.
    options = ("--strict", "--no-deps", "--disable-pip", "--progress-spinner", "off")
    session.run("pip-audit", "-r", str(installed), *options, *session.posargs)


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
    # openhands-sdk wants a litellm older than ctxlab's, and that one an openai older than that of
    # openai-agents. It works with the newer ones, which uv can be told to install.
    pins = [s for s in PROJECT["optional-dependencies"]["peers"] if s.startswith("litellm")]
    newer = Path(session.create_tmp(), "newer.txt").resolve()
    newer.write_text("\n".join([*pins, "openai>=3"]), encoding="utf-8")
    session.install("uv>=0.5")
    # Do not install the extra `test`: it needs another version of mcp than these packages.
    chosen = ("--override", str(newer), ".[peers]", "openhands-sdk==1.58.2")
    session.run_install("uv", "pip", "install", *chosen)
    session.run_install("uv", "pip", "install", "--no-deps", *AGENTS)
    session.run("python", "tests/peers", *session.posargs)
