"""Clients of a desktop server process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult
from navigating import TOKEN, asked, heard, run
from running import PROGRAM

from ctxlab.serve.desktop.tools import TOOL_NAMES

COMMAND = (*PROGRAM, "serve", "desktop")
EVERYTHING = ("--allow", "type,click,clipboard")


def over_stdio(display: str, folder: Path, *options: str) -> Client:
    """Return a client that starts a server for a display and uses its standard streams."""
    command, *arguments = COMMAND
    arguments += ["--display", display, "--folder", str(folder), *options]
    return Client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))


def calls(
    display: str,
    folder: Path,
    *wanted: tuple[str, dict[str, Any]],
    options: tuple[str, ...] = EVERYTHING,
) -> list[CallToolResult]:
    """Make calls over standard input and output, one after the other."""
    return run(asked(over_stdio(display, folder, *options), *wanted))


def call(
    display: str, folder: Path, name: str, options: tuple[str, ...] = EVERYTHING, **arguments: Any
) -> CallToolResult:
    """Make one call over standard input and output."""
    (answer,) = calls(display, folder, (name, arguments), options=options)
    return answer


def refusal(answer: CallToolResult) -> str:
    """Return the error message of a call, which must have failed."""
    assert answer.is_error, answer
    (part,) = answer.content
    assert part.type == "text"
    assert part.text.startswith(TOOL_NAMES)
    assert "Traceback" not in part.text
    return part.text


@contextmanager
def listening(display: str, folder: Path, *options: str) -> Iterator[str]:
    """Start an HTTP server with the token ``TOKEN`` for a display, yield its address, and stop it."""
    env = {**os.environ, "CTXLAB_TOKEN": TOKEN}
    command = [*COMMAND, "--http", "--port", "0", "--display", display, "--folder", str(folder)]
    command += options
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield heard(process)
        finally:
            process.terminate()
            process.wait(60)
