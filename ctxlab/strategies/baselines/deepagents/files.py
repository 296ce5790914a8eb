"""What deepagents shows of a tool result that it has saved to a file, as its last resort."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from ctxlab.messages.types import (
    Message,
    ToolCall,
)
from ctxlab.strategies.helpers.text import with_text

__all__ = ["find_call", "saved"]

_LINE, _ENDS, _ID, _READ = 1000, 5, 32, 4000

_STUB = """\
Tool result too large, the result of this tool call {call} was saved in the filesystem at this path: \
{path}

You can read the result from the filesystem by using the read_file tool, but make sure to only read \
part of the result at a time.

You can do this by specifying an offset and limit in the read_file tool call. For example, to read the \
first 100 lines, you can use the read_file tool with offset=0 and limit=100.

{note}:

{shown}
"""
_WHOLE = "Here is a preview of the result"
_BOTH_ENDS = "Here is a preview showing the head and tail of the result"
_GAP = "... [{} lines truncated] ..."
_CUT = (
    "\n\n[Output was truncated due to context window size limits. The full content is at {path}. \
Use read_file with offset and limit parameters to retrieve specific portions. For example, to read the \
first 100 lines, call read_file with file_path='{path}', offset=0, limit=100.]"
)


def saved(message: Message, call: ToolCall | None) -> Message:
    """The result with the lines of its ends; of a file that was read, with its beginning.

    >>> result = Message("tool", "\\n".join(map(str, range(40))), tool_call_id="c1")
    >>> for line in saved(result, None).text.splitlines()[-8:]:
    ...     print(line)
    4  3
    5  4
    ... [30 lines truncated] ...
    36  35
    37  36
    38  37
    39  38
    40  39
    """
    text = message.text
    if call is not None and call.name == "read_file" and (path := _path(call)):
        return with_text(message, text[:_READ] + _CUT.format(path=path))
    name = message.tool_call_id or ""
    path = f"/large_tool_results/{_safe(name)}"
    visible = f"{name[:_ID]}..." if len(name) > _ID else name
    note, shown = _preview(text.splitlines())
    stub = _STUB.format(call=visible, path=path, note=note, shown=shown)
    parts = message.content if isinstance(message.content, tuple) else ()
    if others := [part for part in parts if part.get("type") != "text"]:
        return message.replace(content=({"type": "text", "text": stub}, *others))
    return with_text(message, stub)


def find_call(messages: Sequence[Message], name: str | None) -> ToolCall | None:
    """The newest call of that id."""
    for message in reversed(messages):
        for call in reversed(message.tool_calls):
            if name and call.id == name:
                return call
    return None


def _path(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return ""
    path = arguments.get("file_path") if isinstance(arguments, dict) else None
    return path if isinstance(path, str) else ""


def _safe(name: str) -> str:
    safe = name.replace(".", "_").replace("/", "_").replace("\\", "_")
    if len(safe.encode("utf-8")) > 128:
        return f"call-{sha256(name.encode('utf-8')).hexdigest()}"
    return safe


def _preview(lines: list[str]) -> tuple[str, str]:
    """The sentence that introduces it, and the numbered lines."""
    gap = len(lines) - 2 * _ENDS
    head, tail = (lines, []) if gap <= 0 else (lines[:_ENDS], lines[-_ENDS:])
    shown = _numbered(head, 1)
    caveats = []
    if tail:
        marker = _GAP.format(gap)
        shown = f"{shown}\n{marker}\n{_numbered(tail, len(lines) - _ENDS + 1)}"
        form = _GAP.format("N")
        caveats.append(
            f"lines of the form `{form}` indicate omitted lines in the middle of the content"
        )
    if any(len(line) > _LINE for line in (*head, *tail)):
        caveats.append(
            f"the output contains lines longer than {_LINE} characters; this preview shows only their "
            f"first {_LINE} characters"
        )
    note = _BOTH_ENDS if tail else _WHOLE
    return f"{note} ({'; '.join(caveats)})" if caveats else note, shown


def _numbered(lines: Sequence[str], first: int) -> str:
    width = len(str(first + len(lines) - 1))
    return "\n".join(f"{n:>{width}}  {line[:_LINE]}" for n, line in enumerate(lines, first))
