"""Stubs that deepagents sends instead of long messages, whose full text it saves in files."""

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
_USER_STUB_TEMPLATE = """\
Message content too large and was saved to the filesystem at: {path}

You can read the full content using the read_file tool with pagination (offset and limit parameters).

{note}:

{shown}
"""
USER_MESSAGE_PATH = "/conversation_history/message.md"
"File of a user message. deepagents gives each file a random name."

_WHOLE_NOTE = "Here is a preview of the {}"
_HEAD_AND_TAIL_NOTE = "Here is a preview showing the head and tail of the {}"
_GAP_TEMPLATE = "... [{} lines truncated] ..."
_OMITTED_CAVEAT = "lines of the form `{}` indicate omitted lines in the middle of the content"
_LONG_LINES_CAVEAT = (
    f"the output contains lines longer than {_MAX_LINE_CHARS} characters; this preview shows only "
    f"their first {_MAX_LINE_CHARS} characters"
)
_CUT_TEMPLATE = (
    "\n\n[Output was truncated due to context window size limits. The full content is at {path}. \
Use read_file with offset and limit parameters to retrieve specific portions. For example, to read the \
first 100 lines, call read_file with file_path='{path}', offset=0, limit=100.]"
)


def stub_saved_result(message: Message, call: ToolCall | None) -> Message:
    r"""Replace a tool result by a stub that names a file with the full result.

    The stub contains the first and last five lines of the result. If the result is that of a
    ``read_file`` call, the stub contains its first 4,000 characters and names the file that was read.

    Parameters
    ----------
    message : Message
        Tool result to replace.
    call : ToolCall or None
        Tool call that the result answers; None if it is unknown.

    Returns
    -------
    Message
        Tool result with the stub as its text.

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
    return stub_result(message)


def stub_result(message: Message) -> Message:
    """Replace a tool result by a stub with its first and last five lines and the name of a file.

    Parameters
    ----------
    message : Message
        Tool result to replace.

    Returns
    -------
    Message
        Tool result with the stub as its text. Images are kept.
    """
    name = message.tool_call_id or ""
    path = f"/large_tool_results/{_safe_file_name(name)}"
    visible = f"{name[:_MAX_ID_CHARS]}..." if len(name) > _MAX_ID_CHARS else name
    note, shown = _preview_lines(message.text.splitlines(), "result")
    return _with_stub(
        message, _STUB_TEMPLATE.format(call=visible, path=path, note=note, shown=shown)
    )


def stub_user_message(message: Message) -> Message:
    """Replace a user message by a stub with its first and last five lines and the name of a file.

    Parameters
    ----------
    message : Message
        User message to replace.

    Returns
    -------
    Message
        User message with the stub as its text. Images are kept.
    """
    note, shown = _preview_lines(message.text.splitlines(), "content")
    path = USER_MESSAGE_PATH
    return _with_stub(message, _USER_STUB_TEMPLATE.format(path=path, note=note, shown=shown))


def _with_stub(message: Message, stub: str) -> Message:
    parts = message.content if isinstance(message.content, tuple) else ()
    if others := [part for part in parts if part.get("type") != "text"]:
        return message.replace(content=({"type": "text", "text": stub}, *others))
    return with_text(message, stub)


def find_call(messages: Sequence[Message], call_id: str | None) -> ToolCall | None:
    """Return the newest tool call with a given id.

    Parameters
    ----------
    messages : sequence of Message
        Messages to search, in order.
    call_id : str or None
        Id of the call. None and the empty string match no call.

    Returns
    -------
    ToolCall or None
        Newest call with this id; None if there is none.
    """
    calls = (call for message in reversed(messages) for call in reversed(message.tool_calls))
    return next((call for call in calls if call_id and call.id == call_id), None)


def _safe_file_name(call_id: str) -> str:
    safe = call_id.replace(".", "_").replace("/", "_").replace("\\", "_")
    if len(safe.encode("utf-8")) > 128:
        return f"call-{sha256(call_id.encode('utf-8')).hexdigest()}"
    return safe


def _preview_lines(lines: list[str], subject: str) -> tuple[str, str]:
    """Return a note that introduces a preview, and the preview as numbered lines."""
    gap = len(lines) - 2 * _PREVIEW_LINES
    head, tail = (lines, []) if gap <= 0 else (lines[:_PREVIEW_LINES], lines[-_PREVIEW_LINES:])
    shown = _number_lines(head, 1)
    caveats = []
    if tail:
        marker = _GAP_TEMPLATE.format(gap)
        shown = f"{shown}\n{marker}\n{_number_lines(tail, len(lines) - _PREVIEW_LINES + 1)}"
        caveats.append(_OMITTED_CAVEAT.format(_GAP_TEMPLATE.format("N")))
    if any(len(line) > _MAX_LINE_CHARS for line in (*head, *tail)):
        caveats.append(_LONG_LINES_CAVEAT)
    note = (_HEAD_AND_TAIL_NOTE if tail else _WHOLE_NOTE).format(subject)
    return f"{note} ({'; '.join(caveats)})" if caveats else note, shown


def _number_lines(lines: Sequence[str], first: int) -> str:
    width, clipped = len(str(first + len(lines) - 1)), (line[:_MAX_LINE_CHARS] for line in lines)
    return "\n".join(f"{number:>{width}}  {line}" for number, line in enumerate(clipped, first))
