"""Build rows of Claude Code's logs, and describe the recordings read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import reading

from ctxlab.messages.types import Recording

Row = dict[str, Any]
Read = Callable[..., list[Recording]]
TIME = "1970-01-01T00:00:09Z"
ids = (f"u{number}" for number in count())


def user(content: Any, **row: Any) -> Row:
    message = {"role": "user", "content": content}
    base = {"type": "user", "uuid": next(ids), "sessionId": "s", "message": message}
    return base | {"timestamp": TIME} | row


def said(id: str, *blocks: Row, output: int = 1, model: str = "m", **row: Any) -> Row:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 100}
    message: Row = {"id": id, "role": "assistant", "model": model, "content": list(blocks)}
    message["usage"] = usage | {"output_tokens": output}
    return {"type": "assistant", "uuid": next(ids), "sessionId": "s", "message": message} | row


def text(value: str) -> Row:
    return {"type": "text", "text": value}


def call(id: str, **input: Any) -> Row:
    return {"type": "tool_use", "id": id, "name": "Read", "input": input}


def result(id: str, content: Any = "ok", **block: Any) -> Row:
    return {"type": "tool_result", "tool_use_id": id, "content": content} | block


def boundary(micro: str = "", **metadata: Any) -> Row:
    row = {"type": "system", "subtype": f"{micro}compact_boundary", "uuid": next(ids)}
    return row | {f"{micro}compactMetadata": metadata}


def shape(recording: Recording) -> Iterator[str]:
    """Return ``reading.shape`` with full role names."""
    return reading.shape(recording, None)
