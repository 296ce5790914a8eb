"""Reading a file in every way in which it can be asked for, and telling at a glance what was read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ctxlab.errors import ReadError
from ctxlab.formats import OnError, load
from ctxlab.messages.types import Recording

POLICIES: tuple[OnError, ...] = ("raise", "skip")


def try_to_read(content: bytes, name: str) -> int:
    """Reads it as what it looks like and as ``name``, under both policies; how many gave recordings.

    Raises whatever is no ``ReadError`` that names the file.
    """
    read = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.jsonl")
        path.write_bytes(content)
        for format in (None, name):
            for on_error in POLICIES:
                try:
                    recordings = list(load(path, format=format, on_error=on_error))
                except ReadError as error:
                    if str(path) not in str(error):
                        raise
                else:
                    read += 1
                    assert all(recording.id for recording in recordings)
    return read


def shape(recording: Recording, letters: int | None = 1) -> Iterator[str]:
    """A word a message: so many letters of its role, its text, its calls, the call that it answers."""
    for message in recording.messages:
        calls = "".join(f"+{call.id}" for call in message.tool_calls)
        answers = f"={message.tool_call_id}" if message.tool_call_id else ""
        yield f"{message.role[:letters]}:{message.text}{calls}{answers}"
