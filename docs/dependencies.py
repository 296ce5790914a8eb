"""Write the page of dependencies, with their installed sizes: ``python docs/dependencies.py``.

Sizes are those of the environment that runs the script, which should contain all extras.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from ctxlab._utils.numbers import format_bytes
from ctxlab._utils.tables import markdown_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = (
    *("serve", "desktop", "dask", "hub", "mlflow", "wandb", "jupyter", "notebooks", "ecosystem"),
    *("test", "dev", "docs", "bench"),
)

PURPOSES = {
    "anywidget": "shows the explorer in notebooks",
    "atif": "checks the ATIF documents that ctxlab writes",
    "backports.zstd": "reads logs compressed with Zstandard, before Python 3.14",
    "diskcache": "stores replies of models",
    "docstring-parser": "reads the parameters of a tool from its docstring",
    "filelock": "locks session files and the cache of token counts",
    "fsspec": "reads logs from URLs (S3, Google Cloud, zip archives)",
    "ipywidgets": "shows progress bars in notebooks",
    "lazy-loader": "lets `import ctxlab` load a module when it is first used",
    "litellm": "calls models; its package also contains prices and the vocabularies of the tokenizer",
    "markdown-it-py": "finds the blocks of an answer in `ctxlab chat` while it is streamed",
    "matplotlib": "draws plots",
    "msgspec": "reads and checks JSON and experiment files",
    "numpy": "computes metrics and intervals",
    "pandas": "holds the tables of results",
    "pillow": "finds the size of images, which determines their tokens",
    "platformdirs": "finds the user's cache folder",
    "prompt-toolkit": "edits the messages that a user types in `ctxlab chat`",
    "psutil": "finds and ends the processes that an agent started",
    "pyarrow": "reads and writes Parquet files",
    "pydantic": "checks the arguments of tools and the requests to servers",
    "regex": "searches files for an agent's pattern, with a time limit",
    "requests": "downloads data sets",
    "rich": "prints tables and progress bars",
    "tenacity": "repeats failed calls of models",
    "tiktoken": "counts tokens",
    "typer": "defines the command line",
    "typing-extensions": "has newer types for older versions of Python",
    "fastapi": "serves sessions over HTTP",
    "mcp": "serves sessions over MCP",
    "uvicorn": "runs the HTTP server",
    "python-xlib": "takes screenshots, types and clicks on X11",
    "mss": "takes screenshots on macOS and Windows",
    "pynput": "types and clicks on macOS and Windows",
    "pyperclip": "reads and sets the clipboard on macOS and Windows",
    "distributed": "computes a run on a Dask cluster",
    "datasets": "reads and writes data sets of Hugging Face",
    "mlflow": "logs results to MLflow",
    "wandb": "logs results to Weights & Biases",
    "jupyterlab": "opens the notebooks",
    "duckdb": "reads the tables of results in tests",
    "polars": "reads the tables of results in tests",
    "ipykernel": "executes the notebooks in tests",
    "nbclient": "executes the notebooks in tests",
    "nbformat": "reads the notebooks in tests",
    "httpx": "sends requests to the servers in tests",
    "hypothesis": "generates cases for property tests",
    "import-linter": "checks that packages import downward only",
    "langchain": "tests the adapter, and compares baselines with the product",
    "langchain-core": "tests the adapter; the benchmarks compare with it",
    "nox": "runs the sessions of tests",
    "openai-agents": "tests the adapter",
    "pydantic-ai-slim": "tests the adapter",
    "pytest": "runs the tests",
    "pytest-mpl": "compares plots with stored pictures in tests",
    "pytest-xdist": "runs the tests in parallel",
    "pyyaml": "checks the workflows in tests",
    "schemathesis": "tests the HTTP server against its schema",
    "scipy": "checks statistics in tests",
    "mypy": "checks types",
    "pandas-stubs": "types of pandas",
    "pre-commit": "runs the checks before a commit",
    "ruff": "checks style, and formats code",
    "mkdocs": "builds the documentation site",
    "mkdocs-material": "is the theme of the site",
    "mkdocstrings": "writes the reference from docstrings",
    "playwright": "opens the site in Chromium in tests",
    "orjson": "is compared with in the benchmarks",
}
"""What ctxlab uses each direct dependency for."""


def requirement_name(requirement: str) -> str:
    """Return the name of the package in a requirement.

    >>> requirement_name("backports.zstd>=1.0; python_version < '3.14'")
    'backports.zstd'
    """
    return re.split(r"[ <>=;\[]", requirement, maxsplit=1)[0]


def list_dependencies() -> dict[str, str]:
    """Return where each direct dependency is needed: ``core`` or the name of an extra, by package."""
    found = {requirement_name(each): "core" for each in PROJECT["dependencies"]}
    for extra in EXTRAS:
        for requirement in PROJECT["optional-dependencies"][extra]:
            if not requirement.startswith("ctxlab["):
                found.setdefault(requirement_name(requirement), extra)
    return found


def find_distribution(name: str) -> Distribution | None:
    """Return an installed package; None if it is not installed."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def with_requirements(names: Iterable[str]) -> dict[str, int]:
    """Return the sizes in bytes of installed packages and of all packages that they require."""
    sizes: dict[str, int] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        found = find_distribution(name)
        if found is None or name in sizes:
            continue
        paths = (Path(str(found.locate_file(file))) for file in found.files or ())
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())
        needed = [each for each in found.requires or () if "extra ==" not in each]
        waiting += map(requirement_name, needed)
    return sizes


def write_page() -> str:
    """Measure the installed sizes, and return the page."""
    known = list_dependencies()
    core = [name for name, where in known.items() if where == "core"]
    total = with_requirements(core)
    rows = []
    for name, where in known.items():
        own = with_requirements([name])
        size = own.get(re.sub(r"[-_.]+", "-", name).lower())
        others = total if where != "core" else with_requirements(set(core) - {name})
        alone = sum(own[each] for each in own.keys() - others.keys())
        cells = [format_bytes(size), format_bytes(alone)] if size is not None else ["–", "–"]
        rows.append([f"`{name}`", PURPOSES[name], *cells, where])
    rows.sort(key=lambda row: ("core", *EXTRAS).index(row[-1]))
    table = markdown_table(["package", "what for", "size", "would save", "where"], rows)
    return f"""<!-- Generated by docs/dependencies.py; do not edit. -->

# Dependencies

This page lists the packages that ctxlab needs directly. *Size* is that of the installed package alone.
*Would save* is the size of everything that would not be installed without it: the package, unless
another one needs it as well, and what only it requires. *Where* is `core`, or the first extra that needs
the package, as in `pip install ctxlab[serve]`; an extra is installed beside the core. The {len(core)}
packages of the core and all that they require take {format_bytes(sum(total.values()))}. The packages of
the extra `peers`, with which `nox -s peers` compares the baselines, are not listed.

A package is imported when it is first needed: `import ctxlab`, `ctxlab.describe` and an evaluation
without model calls import neither litellm, matplotlib nor ipywidgets.

{table}
"""


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
