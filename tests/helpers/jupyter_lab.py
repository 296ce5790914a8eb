"""A real JupyterLab on loopback, with notebooks that a test writes and a browser opens."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
TOKEN = "only-on-loopback"


def skip_without_browser() -> None:
    """Skip the test if JupyterLab, playwright or Chromium is missing."""
    for module in ("jupyterlab", "nbformat", "playwright"):
        pytest.importorskip(module, reason=f"{module} is not installed: [browser]")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")


@contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab in a folder and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if "JUPYTER" not in name}
    environment |= {"HOME": str(folder / "home"), "CTXLAB_CALLS": "replay"}
    environment["PYTHONPATH"] = str(ROOT)
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    # All cells are in the page, also those that are not visible. Nothing is fetched.
    for name, text in (
        ("notebook-extension/tracker", '{"windowingMode": "none"}'),
        ("apputils-extension/notification", '{"fetchNews": "false", "checkForUpdates": false}'),
    ):
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    options = ("--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}")
    options += ("--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}")
    options += ("--LabApp.expose_app_in_browser=True", "--LabApp.news_url=")
    command = [sys.executable, "-m", "jupyterlab", *options]
    log = folder / "jupyter.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                assert server.poll() is None, log.read_text()
                try:
                    urllib.request.urlopen(f"{address}/api?token={TOKEN}").close()
                    break
                except OSError:
                    time.sleep(0.5)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def write_notebook(path: Path, sources: Sequence[str]) -> None:
    """Write a notebook with code cells that import this tree and the helpers of the tests."""
    import nbformat

    paths = [str(ROOT / "tests" / "helpers"), str(ROOT)]
    cells = [f"import sys\nsys.path[:0] = {paths!r}\n{sources[0]}", *sources[1:]]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = [nbformat.v4.new_code_cell(source) for source in cells]
    notebook = nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel})
    nbformat.write(notebook, path)


def open_notebook(page: Any, address: str, name: str) -> None:
    page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)


def run_all(page: Any) -> None:
    """Run all cells, wait for the end, and assert that none failed or wrote to stderr."""
    page.wait_for_function("jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel")
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    for kind in ("error", "stderr"):
        wrong = page.locator(f'[data-mime-type="application/vnd.jupyter.{kind}"]')
        assert wrong.all_inner_texts() == []


def set_theme(page: Any, theme: str) -> None:
    """Switch JupyterLab to ``JupyterLab Light`` or ``JupyterLab Dark``."""
    page.evaluate(f"jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})")
    is_light = "true" if "Light" in theme else "false"
    page.wait_for_selector(f"body[data-jp-theme-light={is_light}]", state="attached")
    page.wait_for_timeout(1000)
