"""Helpers for tests of the command line: small recordings, and runs in a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ctxlab.messages.types import Message, Recording, ToolCall

PROGRAM = (sys.executable, "-c", "import sys; from ctxlab.cli import main; sys.exit(main())")
"""Command that runs ctxlab in a new process."""


NAMELESS = (
    "ctxlab: counted and priced as gpt-5, since 6 recordings name no model; "
    "to use one model for all, set --model NAME\n"
)
"""Note that ctxlab prints for the six recordings of the fixture ``logs``, which name no model."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Said]


def a_recording(number: int, turns: int = 14) -> Recording:
    """Return a recording of an agent that reads files of about 500 tokens, and later the first again."""
    messages = [Message("system", "You are careful."), Message("user", f"Repair order {number}.")]
    for turn in range(turns):
        again = turn - 11 if turn >= 11 else turn
        path = f"src/part_{number}_{again}.py"
        call = ToolCall(f"c{turn}", "read_file", f'{{"path": "{path}"}}')
        known = f"see src/part_{number}_{turn + 1}.py and ticket AB-{number}{turn:03d}\n"
        text = known + "\n".join(f"value_{turn}_{line} = {line * 7}" for line in range(60))
        messages += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    messages.append(Message("assistant", "Done."))
    return Recording(f"order-{number}", tuple(messages), cluster=f"group-{number % 3}")


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """Run ctxlab in a terminal with the given number of columns and return the printed lines."""
    import pty

    master, slave = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": str(columns)},
    ):
        os.close(slave)
        said = b""
        with suppress(OSError):  # on Linux, raised when the other end is closed
            while part := os.read(master, 4096):
                said += part
    os.close(master)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()
