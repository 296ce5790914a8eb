"""Start writer processes, kill each at a random moment, and read what it acknowledged before."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIVES = """
for line in sys.stdin:
    folder, acks, number = json.loads(line)
    pid = os.fork()
    if not pid:
        try:
            live(folder, acks, number)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(7)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@contextmanager
def nursery(writer: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that forks a writer for each line on its standard input.

    ``writer`` is code that imports json, os and sys and defines ``live(folder, acks, number)``.
    """
    with subprocess.Popen(
        [sys.executable, "-c", writer + LIVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def one_life(process: subprocess.Popen[str], folder: Path, number: int) -> list[Any]:
    """Start a writer, kill it at a random moment, and return what it acknowledged before."""
    acks = folder.parent / f"acks-{number}"
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([str(folder), str(acks), number]), file=process.stdin, flush=True)
    pid = int(process.stdout.readline())
    # Wait for a number of acknowledgements: after a fixed time, a slow machine may have written nothing.
    dice = random.Random(-number)
    lines = dice.randint(1, 60)
    while not acks.exists() or acks.read_bytes().count(b"\n") < lines:
        os.kill(pid, 0)  # raises if the writer has ended by itself
        time.sleep(0.001)
    time.sleep(dice.uniform(0, 0.02))
    os.kill(pid, signal.SIGKILL)
    assert int(process.stdout.readline()) == -signal.SIGKILL, "the writer ended by itself"
    return [json.loads(line) for line in acks.read_text().splitlines()]
