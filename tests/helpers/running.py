"""What the tests of the command line share: small recordings, and what a command said."""

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
"""The command line as a process of its own."""


NAMELESS = (
    "ctxlab: counted and priced as gpt-5, since 6 recordings name no model; "
    "--model NAME uses one model for all\n"
)
"""What is said of the six recordings of the fixture ``logs`` where no model is named."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Said]


def a_recording(number: int, turns: int = 14) -> Recording:
    """An agent that reads files, each about 500 tokens, and comes back to the first ones."""
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
    """The lines that the command line shows on a terminal of so many columns."""
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
        with suppress(OSError):  # how Linux says that nobody writes any more
            while part := os.read(master, 4096):
                said += part
    os.close(master)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()
