"""Convert the attachment rows of Claude Code to the text that the model received.

Claude Code adds context to a request that the user did not type, such as a list of skills, files that
changed on disk or the instructions of a folder. It stores each such text as a row of type
``attachment``.

- From about version 2.1.230, the row has a list ``rendered`` with the text as it was sent. This text
  is used unchanged.
- Older rows contain only the data. The text is then built from this data: one line that says what the
  attachment is, followed by the recorded texts or values, between ``<system-reminder>`` tags. The
  product adds fixed instructions to some types, such as ``plan_mode``. They are not recorded, so they
  are missing, and such a message is shorter than the text that was sent.
- Empty attachments, attachments that only the user saw (such as ``hook_system_message``) and
  attachments of the client itself (such as ``command_permissions``) are skipped. The output of a
  successful hook was sent only for the events in ``_SENT_HOOK_EVENTS``, and only if ``content`` is not
  empty. Attachments of unknown types are skipped, unless they have ``rendered``.
- The pages of a PDF document are not read. The message names the file.
- ``queued_command`` is described in ``queued_input``, ``prompt_snapshot`` in ``conversation``.

References
----------
Attachment rows that Claude Code 2.1.39 to 2.1.219 wrote. Which types are sent, and the keys of
``rendered`` and of types that do not occur in these files, are taken from other open-source programs
that read sessions, such as polylogue and OrchDash, and from their test files. In these sessions, the
bill of a request grows by the tokens of each type that is read as sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, text_part
from ctxlab.formats.fields import get_in, get_list, get_objects, get_text, texts_in
from ctxlab.messages.types import ContentPart

_Attachment: TypeAlias = dict[str, Any]

_SENT_HOOK_EVENTS = ("SessionStart", "UserPromptSubmit")
_FLAG_TYPES = (
    "agent_mention",
    "auto_mode",
    "auto_mode_exit",
    "budget_usd",
    "compact_file_reference",
    "compaction_reminder",
    "critical_system_reminder",
    "date",
    "date_change",
    "edited_image_file",
    "opened_file_in_ide",
    "output_style",
    "output_token_usage",
    "pdf_reference",
    "plan_file_reference",
    "plan_mode",
    "plan_mode_exit",
    "plan_mode_reentry",
    "selected_lines_in_ide",
    "silent_turn_reminder",
    "task_status",
    "team_context",
    "teammate_mailbox",
    "token_usage",
    "total_tokens_reminder",
    "ultra_effort_enter",
    "ultra_effort_exit",
    "ultramemory",
    "ultrathink_effort",
)
"""Types that were sent, and whose recorded values are listed as they are."""
_HIDDEN_KEYS = ("type", "displayPath", "isSubAgent", "autoModeConsentFlow")
"""Keys that are never listed."""


def attachment_content(row: dict[str, Any], skip: SkipCallback) -> Content | None:
    r"""Return the content of the message that an attachment row added to the request.

    Parameters
    ----------
    row : dict
        A row of type ``attachment``.
    skip : Callable
        Called with a description of each part of the attachment that is left out.

    Returns
    -------
    str, tuple of dict, or None
        The content. None if nothing was sent, or if it is not known that something was sent.

    Raises
    ------
    ValueError
        If the attachment contains a malformed content block.

    Examples
    --------
    >>> row = {"attachment": {"type": "date_change", "newDate": "2026-05-08"}}
    >>> attachment_content(row, print)
    '<system-reminder>\ndate_change\nnewDate: 2026-05-08\n</system-reminder>'
    >>> row = {"attachment": {"type": "date"}, "rendered": [{"content": "Friday"}]}
    >>> attachment_content(row, print)
    'Friday'
    """
    if sent := rendered_blocks(row):
        return blocks.parse_content(sent, skip)
    attachment = row.get("attachment")
    kind = get_text(attachment, "type")
    if not isinstance(attachment, dict) or kind is None:
        return None
    if kind == "file":
        return _render_file(attachment, skip)
    if kind in _FLAG_TYPES:
        values = {key: value for key, value in attachment.items() if key not in _HIDDEN_KEYS}
        return _remind(kind, *_list_values(values))
    build = _BUILDERS.get(kind)
    lines = [line for line in build(attachment) if line] if build else []
    return _remind(*lines) if lines else None


def rendered_blocks(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of an attachment row as they were sent.

    Parameters
    ----------
    row : dict
        A row of any type.

    Returns
    -------
    list of dict
        The blocks. Empty if the row does not contain them.

    Raises
    ------
    ValueError
        If the content is neither a string nor a list of objects.

    Examples
    --------
    >>> rendered_blocks({"rendered": [{"content": "Friday"}]})
    [{'type': 'text', 'text': 'Friday'}]
    """
    contents = (each.get("content") for each in get_objects(row, "rendered"))
    return [block for content in contents if content for block in blocks.to_blocks(content)]


def _remind(*lines: str) -> str:
    said = "\n".join(lines)
    return f"<system-reminder>\n{said}\n</system-reminder>"


def _list_values(values: dict[str, Any]) -> Iterable[str]:
    """Yield a line for each value that is not empty. Lists and objects are written as JSON."""
    for key, value in values.items():
        if value not in (None, "", [], {}):
            yield f"{key}: {value if isinstance(value, str) else dump_json(value)}"


def _render_file(attachment: _Attachment, skip: SkipCallback) -> Content | None:
    content, name = attachment.get("content"), _path(attachment)
    kind, file = get_text(content, "type"), get_in(content, "file")
    parts: list[ContentPart] = []
    if kind == "text" and (text := get_text(file, "content")):
        number = get_in(file, "startLine")
        first = number if isinstance(number, int) else 1
        lines = (f"{place}\t{line}" for place, line in enumerate(text.split("\n"), first))
        return _remind(f"file {name}", *lines)
    if kind == "image" and (data := get_text(file, "base64")):
        parts = [image_part(f"data:{get_text(file, 'type') or 'image/png'};base64,{data}")]
    elif kind == "notebook" and (cells := get_list(file, "cells")):
        return _remind(f"file {name}", *map(dump_json, cells))
    elif kind is not None:
        skip(f"content of a file of type {kind}")
    return join_parts([text_part(_remind(f"file {name}")), *parts]) if name else None


def _path(attachment: _Attachment) -> str:
    keys = ("filename", "path", "filePath", "displayPath")
    return next((path for key in keys if (path := get_text(attachment, key))), "")


def _edited_text_file(attachment: _Attachment) -> Iterable[str]:
    snippet = get_text(attachment, "snippet")
    return [f"file {_path(attachment)} was changed", snippet] if snippet else []


def _directory(attachment: _Attachment) -> Iterable[str]:
    content = get_text(attachment, "content")
    return [f"directory {_path(attachment)}", content] if content else []


def _nested_memory(attachment: _Attachment) -> Iterable[str]:
    content = attachment.get("content")
    text = get_text(content, "content") or get_text(content)
    return [f"instructions in {_path(attachment)}", text] if text else []


def _relevant_memories(attachment: _Attachment) -> Iterable[str]:
    for memory in get_objects(attachment, "memories"):
        if text := get_text(memory, "content"):
            yield from (f"memory {_path(memory)}", text)


def _invoked_skills(attachment: _Attachment) -> Iterable[str]:
    for skill in get_objects(attachment, "skills"):
        if text := get_text(skill, "content"):
            yield from (f"skill {get_text(skill, 'name') or _path(skill)}", text)


def _instructions(attachment: _Attachment) -> Iterable[str]:
    for file in get_objects(attachment, "files"):
        yield from _nested_memory(file)


def _skill_listing(attachment: _Attachment) -> Iterable[str]:
    content = get_text(attachment, "content")
    return ["skills", content] if content else []


def _tasks(attachment: _Attachment) -> Iterable[str]:
    """List the tasks. The reminder is also sent if there are none."""
    yield get_text(attachment, "type") or ""
    for task in get_objects(attachment, "content"):
        name = get_text(task, "subject") or get_text(task, "content") or ""
        number = f"#{task['id']}. " if "id" in task else ""
        yield f"{number}[{get_text(task, 'status') or 'pending'}] {name}"


def _delta(title: str, *keys: str) -> Callable[[_Attachment], Iterable[str]]:
    """Return a builder that lists what was added and removed.

    ``keys`` are the keys of the added texts, by preference, and the key of the removed names.
    """
    *added_keys, removed_key = keys

    def build(attachment: _Attachment) -> Iterable[str]:
        added = next((t for key in added_keys if (t := texts_in(get_list(attachment, key)))), ())
        removed = texts_in(get_list(attachment, removed_key))
        if added:
            yield from (f"{title} added:", *added)
        if removed:
            yield from (f"{title} removed:", *removed)

    return build


def _mcp_resource(attachment: _Attachment) -> Iterable[str]:
    held = get_objects(attachment, "content", "contents")
    texts = [text for each in held if (text := get_text(each, "text"))]
    return [f"resource {get_text(attachment, 'uri') or ''}", *texts] if texts else []


def _diagnostics(attachment: _Attachment) -> Iterable[str]:
    for file in get_objects(attachment, "files"):
        yield f"diagnostics of {get_text(file, 'uri') or ''}"
        for each in get_objects(file, "diagnostics"):
            place = get_in(each, "range", "start")
            line, column = get_in(place, "line"), get_in(place, "character")
            where = f"{line}:{column} " if isinstance(line, int) else ""
            severity = get_text(each, "severity") or ""
            yield f"{where}{severity}: {get_text(each, 'message') or ''}"


def _hook_success(attachment: _Attachment) -> Iterable[str]:
    sent = get_text(attachment, "hookEvent") in _SENT_HOOK_EVENTS
    content = get_text(attachment, "content")
    return [f"{_hook(attachment)} hook: {content}"] if sent and content else []


def _hook_context(attachment: _Attachment) -> Iterable[str]:
    said = texts_in(attachment.get("content"))
    return [f"{_hook(attachment)} hook:", *said] if any(said) else []


def _hook_blocking_error(attachment: _Attachment) -> Iterable[str]:
    error = attachment.get("blockingError")
    said = get_text(error, "blockingError") or get_text(error)
    return [f"{_hook(attachment)} hook blocked: {said}"] if said else []


def _hook_stopped(attachment: _Attachment) -> Iterable[str]:
    said = get_text(attachment, "message")
    return [f"{_hook(attachment)} hook stopped: {said}"] if said else []


def _async_hook(attachment: _Attachment) -> Iterable[str]:
    response = attachment.get("response")
    context = get_text(response, "hookSpecificOutput", "additionalContext")
    return filter(None, (get_text(response, "systemMessage"), context))


def _hook(attachment: _Attachment) -> str:
    return get_text(attachment, "hookName") or get_text(attachment, "hookEvent") or ""


def _text_of(key: str) -> Callable[[_Attachment], Iterable[str]]:
    return lambda attachment: filter(None, (get_text(attachment, key),))


def _json_of(key: str) -> Callable[[_Attachment], Iterable[str]]:
    def build(attachment: _Attachment) -> Iterable[str]:
        values = attachment.get(key)
        return _list_values(values) if isinstance(values, dict) else ()

    return build


_BUILDERS: dict[str, Callable[[_Attachment], Iterable[str]]] = {
    "agent_listing_delta": _delta("agents", "addedLines", "addedTypes", "removedTypes"),
    "async_hook_response": _async_hook,
    "deferred_tools_delta": _delta("tools", "addedLines", "addedNames", "removedNames"),
    "diagnostics": _diagnostics,
    "directory": _directory,
    "edited_text_file": _edited_text_file,
    "environment": _json_of("snapshot"),
    "hook_additional_context": _hook_context,
    "hook_blocking_error": _hook_blocking_error,
    "hook_stopped_continuation": _hook_stopped,
    "hook_success": _hook_success,
    "instructions": _instructions,
    "invoked_skills": _invoked_skills,
    "mcp_instructions_delta": _delta("MCP servers", "addedBlocks", "addedNames", "removedNames"),
    "mcp_resource": _mcp_resource,
    "memory": _nested_memory,
    "model": _text_of("text"),
    "nested_memory": _nested_memory,
    "new_directory": _directory,
    "relevant_memories": _relevant_memories,
    "session_context": _json_of("context"),
    "skill_listing": _skill_listing,
    "task_reminder": _tasks,
    "todo_reminder": _tasks,
    "todo": _tasks,
}
"""Type of an attachment → function that returns the lines of its text. No lines: nothing was sent."""
