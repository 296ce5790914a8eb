"""Stubs of tool results that deepagents saves to files when nothing else makes a request fit."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.helpers.text import with_text

_MAX_LINE_CHARS, _PREVIEW_LINES, _MAX_ID_CHARS, _MAX_READ_CHARS = 1000, 5, 32, 4000

_STUB_TEMPLATE = """\
Tool result too large, the result of this tool call {call} was saved in the filesystem at this path: \
{path}

You can read the result from the filesystem by using the read_file tool, but make sure to only read \
part of the result at a time.

You can do this by specifying an offset and limit in the read_file tool call. For example, to read the \
first 100 lines, you can use the read_file tool with offset=0 and limit=100.

{note}:

{shown}
"""
_WHOLE_NOTE = "Here is a preview of the result"
_HEAD_AND_TAIL_NOTE = "Here is a preview showing the head and tail of the result"
_GAP_TEMPLATE = "... [{} lines truncated] ..."
_CUT_TEMPLATE = (
    "\n\n[Output was truncated due to context window size limits. The full content is at {path}. \
Use read_file with offset and limit parameters to retrieve specific portions. For example, to read the \
first 100 lines, call read_file with file_path='{path}', offset=0, limit=100.]"
)


def stub_saved_result(message: Message, call: ToolCall | None) -> Message:
    r"""Return a result as a stub: its first and last lines, or the beginning of a file that was read.

    Parameters
    ----------
    message : Message
        A tool result.
    call : ToolCall or None
        The call that it answers.

    Returns
    -------
    Message
        The stub.

    Examples
    --------
    >>> result = Message("tool", "\n".join(map(str, range(40))), tool_call_id="c1")
    >>> for line in stub_saved_result(result, None).text.splitlines()[-8:]:
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
    path = (object_arguments(call) or {}).get("file_path") if call is not None else None
    if call is not None and call.name == "read_file" and isinstance(path, str) and path:
        return with_text(message, text[:_MAX_READ_CHARS] + _CUT_TEMPLATE.format(path=path))
    name = message.tool_call_id or ""
    path = f"/large_tool_results/{_safe_file_name(name)}"
    visible = f"{name[:_MAX_ID_CHARS]}..." if len(name) > _MAX_ID_CHARS else name
    note, shown = _preview_lines(text.splitlines())
    stub = _STUB_TEMPLATE.format(call=visible, path=path, note=note, shown=shown)
    parts = message.content if isinstance(message.content, tuple) else ()
    if others := [part for part in parts if part.get("type") != "text"]:
        return message.replace(content=({"type": "text", "text": stub}, *others))
    return with_text(message, stub)


def find_call(messages: Sequence[Message], call_id: str | None) -> ToolCall | None:
    """Return the newest call with an id.

    Parameters
    ----------
    messages : sequence of Message
        Messages to search.
    call_id : str or None
        The id.

    Returns
    -------
    ToolCall or None
        The call; None if there is none.
    """
    calls = (call for message in reversed(messages) for call in reversed(message.tool_calls))
    return next((call for call in calls if call_id and call.id == call_id), None)


def _safe_file_name(call_id: str) -> str:
    safe = call_id.replace(".", "_").replace("/", "_").replace("\\", "_")
    if len(safe.encode("utf-8")) > 128:
        return f"call-{sha256(call_id.encode('utf-8')).hexdigest()}"
    return safe


def _preview_lines(lines: list[str]) -> tuple[str, str]:
    """Return the sentence that introduces the preview, and the numbered lines."""
    gap = len(lines) - 2 * _PREVIEW_LINES
    head, tail = (lines, []) if gap <= 0 else (lines[:_PREVIEW_LINES], lines[-_PREVIEW_LINES:])
    shown = _number_lines(head, 1)
    caveats = []
    if tail:
        marker = _GAP_TEMPLATE.format(gap)
        shown = f"{shown}\n{marker}\n{_number_lines(tail, len(lines) - _PREVIEW_LINES + 1)}"
        form = _GAP_TEMPLATE.format("N")
        caveats.append(
            f"lines of the form `{form}` indicate omitted lines in the middle of the content"
        )
    if any(len(line) > _MAX_LINE_CHARS for line in (*head, *tail)):
        caveats.append(
            f"the output contains lines longer than {_MAX_LINE_CHARS} characters; this preview "
            f"shows only their first {_MAX_LINE_CHARS} characters"
        )
    note = _HEAD_AND_TAIL_NOTE if tail else _WHOLE_NOTE
    return f"{note} ({'; '.join(caveats)})" if caveats else note, shown


def _number_lines(lines: Sequence[str], first: int) -> str:
    width = len(str(first + len(lines) - 1))
    return "\n".join(
        f"{n:>{width}}  {line[:_MAX_LINE_CHARS]}" for n, line in enumerate(lines, first)
    )
