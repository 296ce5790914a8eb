"""Read a file with all error policies, and describe recordings in short strings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ctxlab.errors import ReadError
from ctxlab.formats import OnError, load
from ctxlab.messages.types import Recording

POLICIES: tuple[OnError, ...] = ("raise", "skip")


def try_to_read(content: bytes, name: str) -> int:
    """Read content with the detected format and with format ``name``, under both error policies.

    Returns the number of reads without an error. A ``ReadError`` that names the file is caught; all
    other exceptions are raised.
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
    """Yield a short string for each message, such as ``a:text+c1`` or ``t:text=c1``.

    The string contains the first ``letters`` letters of the role, the text, the ids of tool calls after
    ``+``, and the id of the answered call after ``=``.
    """
    for message in recording.messages:
        calls = "".join(f"+{call.id}" for call in message.tool_calls)
        answers = f"={message.tool_call_id}" if message.tool_call_id else ""
        yield f"{message.role[:letters]}:{message.text}{calls}{answers}"
