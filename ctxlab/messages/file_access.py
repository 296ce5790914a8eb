"""Find out which file a tool call reads, writes, edits or lists, from its name and arguments.

Nothing is executed or opened. The tables cover common agents: Claude Code, pi, OpenHands,
SWE-agent, Codex, mini-swe-agent, Gemini CLI, Cline, Cursor, and MCP servers. Ambiguous calls yield
None.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import Message, ToolCall

FileOperation: TypeAlias = Literal["read", "write", "edit", "list"]


class FileAccess(NamedTuple):
    """Access of a tool call to one file, or to one folder if the operation is ``list``."""

    path: str
    "path as written in the call, without ``./``, and with single forward slashes"
    operation: FileOperation
    "``write`` replaces the whole content, ``edit`` changes a part of it"
    line_range: tuple[int, int | None] | None = None
    "first and last line of a read; last is None for an open end; None for the whole file"


_TOOLS_BY_OPERATION: dict[FileOperation, str] = {
    "read": "read read_file read_text_file view view_file open open_file cat notebook_read",
    "write": "write write_file write_to_file create create_file new_file save_file",
    "edit": "edit edit_file multi_edit multiedit notebook_edit edit_notebook replace replace_in_file "
    "str_replace search_replace search_and_replace insert insert_content append append_to_file "
    "apply_diff undo_edit update_file edit_block patch_file",
    "list": "ls list list_dir list_directory list_files tree",
}
_OPERATION_BY_TOOL: dict[str, FileOperation] = {
    name: verb for verb, names in _TOOLS_BY_OPERATION.items() for name in names.split()
}
_PATH_KEYS = (
    *("file_path", "absolute_path", "notebook_path", "target_file", "filepath", "path", "filename"),
    *(
        "file",
        "file_name",
        "abs_path",
        "relative_path",
        "relative_workspace_path",
        "target_notebook",
    ),
)
_FIRST_LINE_KEYS = ("offset", "start_line", "line_start", "line_number", "start_line_one_indexed")
_LAST_LINE_KEYS = ("end_line", "line_end", "end_line_one_indexed_inclusive")
_FOLDER_KEYS = ("dir_path", "directory", "cwd", "workdir")
_COMMAND_KEYS = ("command", "cmd", "script")
_PRINT_COMMANDS = frozenset({"cat", "nl", "less", "more", "bat"})
_PATCH_HEADER = re.compile(r"^\*\*\* (Add|Update) File: (.+)$", re.MULTILINE)
_HEREDOC = re.compile(r"^(?:cat|tee)\b[^|;&`$]*<<-?\s*['\"]?\w+['\"]?[^|;&`$]*$")
_REDIRECT_TARGET = re.compile(r"(>>?|^tee(?: -a)?)\s*([^\s<>|;&]+)")
_CD = re.compile(r"cd ([^\s;&|`$]+) *&& *")
_STDERR_REDIRECT = re.compile(r"\s*2>\s*(/dev/null|&1)\s*$")
_SED_LINES = re.compile(r"(\d+)(?:,(\d+))?p")
_SHELL_SYNTAX = re.compile(r"[*?$`{}()<>|;&\n]")
_ERROR_START = re.compile(
    r"\s*(<tool_use_error>|error\b|traceback\b|exception\b|fatal:|command failed|invalid `path`"
    r"|no replacement was performed|no such file|file not found|file does not exist"
    r"|(cat|sed|head|tail|nl|ls|bash|sh)(: line \d+)?: )",
    re.IGNORECASE,
)


def is_tool_error(message: Message) -> bool:
    """Return whether a tool result reports that the tool call failed.

    Parameters
    ----------
    message : Message
        The tool result.

    Returns
    -------
    bool
        True if it is marked as an error or begins like one.
    """
    return bool(message.extra.get("is_error") or _ERROR_START.match(message.text[:80]))


@lru_cache(maxsize=1 << 14)
def parse_file_access(call: ToolCall) -> FileAccess | None:
    """Return the file access of a tool call.

    A patch of several files yields its first file. A shell command counts if it clearly reads one
    file, lists a folder or writes one file: ``cat F``, ``sed -n 1,9p F``, ``sed -i … F``, ``cat > F
    <<EOF``.

    Parameters
    ----------
    call : ToolCall
        The tool call.

    Returns
    -------
    FileAccess or None
        The access; None if the call accesses no file, or if that is not clear.

    Examples
    --------
    >>> parse_file_access(ToolCall("c1", "Edit", '{"file_path": "./src/io.py", "old_string": "a"}'))
    FileAccess(path='src/io.py', operation='edit', line_range=None)
    >>> parse_file_access(ToolCall("c2", "bash", '{"command": "cd /repo && head -n 20 io.py"}'))
    FileAccess(path='/repo/io.py', operation='read', line_range=(1, 20))
    >>> parse_file_access(ToolCall("c3", "bash", '{"command": "make test"}'))
    """
    try:
        arguments = parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        arguments = call.arguments
    name = normalize_tool_name(call.name)
    if not isinstance(arguments, dict):
        return (
            _parse_patch(arguments)
            if isinstance(arguments, str) and name == "apply_patch"
            else None
        )
    if name == "apply_patch":
        return next(
            (t for v in arguments.values() if isinstance(v, str) and (t := _parse_patch(v))), None
        )
    path, folder = _find_path(arguments, _PATH_KEYS), _find_path(arguments, _FOLDER_KEYS)
    if _OPERATION_BY_TOOL.get(name) == "list":
        path = path or folder
    command = next((c for key in _COMMAND_KEYS if (c := arguments.get(key))), None)
    operation = _OPERATION_BY_TOOL.get(command if isinstance(command, str) and path else name)
    if path and operation:
        if operation == "read" and path.endswith("/"):
            operation = "list"
        return FileAccess(
            _normalize_path(path),
            operation,
            _parse_line_range(arguments) if operation == "read" else None,
        )
    if not command or path:
        return None
    access = _parse_shell_command(command)
    if access and folder:
        access = access._replace(path=_normalize_path(posixpath.join(folder, access.path)))
    return access


def _find_path(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the path under the first key that has one; URLs are not paths."""
    found = (p for key in keys if isinstance(p := arguments.get(key), str) and p.strip())
    return next((path for path in found if "://" not in path), None)


def normalize_tool_name(name: str) -> str:
    """Return a tool name in snake case, without the prefixes of servers and namespaces.

    Parameters
    ----------
    name : str
        The name as recorded.

    Returns
    -------
    str
        The normalized name.

    Examples
    --------
    >>> normalize_tool_name("mcp__files__readFile")
    'read_file'
    """
    last = re.split(r"__|[./:]", name)[-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).replace("-", "_").lower()


def _normalize_path(path: str) -> str:
    return posixpath.normpath(path.strip().strip("\"'").replace("\\", "/"))


def _parse_line_range(arguments: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """Return the lines that a read requests."""
    view = arguments.get("view_range")
    if isinstance(view, list) and len(view) == 2:
        first, last = _parse_int(view[0]), _parse_int(view[1])
        return (first or 1, last if last and last > 0 else None)
    start = next(
        (n for key in _FIRST_LINE_KEYS if (n := _parse_int(arguments.get(key))) is not None), None
    )
    last = next(
        (n for key in _LAST_LINE_KEYS if (n := _parse_int(arguments.get(key))) is not None), None
    )
    limit = _parse_int(arguments.get("limit"))
    if last is None and limit is not None:
        last = (1 if start is None else start) + limit - 1
    if last is None and start in (None, 0, 1):
        return None
    return (1 if start is None else start, last)


def _parse_int(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_patch(text: str) -> FileAccess | None:
    """Return the first file of a patch in Codex's format."""
    found = _PATCH_HEADER.search(text)
    if found is None:
        return None
    return FileAccess(_normalize_path(found[2]), "write" if found[1] == "Add" else "edit")


def _parse_shell_command(command: Any) -> FileAccess | None:
    """Return the file access of a shell command, if it is clear."""
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        is_script = len(command) == 3 and command[1] in ("-c", "-lc")
        command = command[2] if is_script else shlex.join(command)
    if not isinstance(command, str):
        return None
    text, folder = command.strip(), ""
    while moved := _CD.match(text):
        folder, text = posixpath.join(folder, moved[1].strip("\"'")), text[moved.end() :]
    if text.startswith("apply_patch"):
        access = _parse_patch(text)
    else:
        access = _parse_heredoc(text) or _parse_one_line_command(_STDERR_REDIRECT.sub("", text))
    return access and access._replace(path=_normalize_path(posixpath.join(folder, access.path)))


def _parse_heredoc(text: str) -> FileAccess | None:
    """Return the file that a command writes from a here-document."""
    first = text.partition("\n")[0]
    if _HEREDOC.match(first) and (found := _REDIRECT_TARGET.search(first)):
        return FileAccess(
            _normalize_path(found[2]), "edit" if found[1] in (">>", "tee -a") else "write"
        )
    return None


def _parse_one_line_command(text: str) -> FileAccess | None:
    """Return the file that a one-line command reads, writes, edits or lists."""
    if "\n" in text or len(text) > 2000:
        return None
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return None
    if words[:1] in (["echo"], ["printf"]) and len(words) > 2 and words[-2] in (">", ">>"):
        redirected = sum(set(word) <= set("<>|;&") for word in words) == 1
        operation: FileOperation = "write" if words[-2] == ">" else "edit"
        return (
            FileAccess(words[-1], operation)
            if redirected and not _SHELL_SYNTAX.search(words[-1])
            else None
        )
    if "|" in words:  # nl -ba F | sed -n 1,80p
        cut = words.index("|")
        access, shown = _parse_simple_command(words[:cut]), _parse_simple_command(words[cut + 1 :])
        if not (access and shown) or access[2] or shown[0] or {access[1], shown[1]} != {"read"}:
            return None
        access = (access[0], access[1], shown[2])
    else:
        access = _parse_simple_command(words)
    if access is None or not access[0] or _SHELL_SYNTAX.search(access[0]):
        return None
    return FileAccess(*access)


def _parse_simple_command(
    words: Sequence[str],
) -> tuple[str, FileOperation, tuple[int, int | None] | None] | None:
    """Return path (empty for standard input), operation and lines of a command without pipes."""
    if not words or any(word and set(word) <= set("();<>|&") for word in words):
        return None
    name, rest = words[0], [word for word in words[1:] if word]
    options = [word for word in rest if word.startswith("-") and word != "-"]
    others = [word for word in rest if word not in options]
    if name in _PRINT_COMMANDS and len(others) <= 1:
        return (others[0] if others else "", "read", None)
    if name in ("head", "tail"):
        count = 10
        if options == ["-n"] and others and others[0].isdigit():
            count, others = int(others.pop(0)), others
        elif len(options) == 1 and (found := re.fullmatch(r"(?:-n?|--lines=)(\d+)", options[0])):
            count = int(found[1])
        elif options:
            return None
        if len(others) > 1:
            return None
        return (
            others[0] if others else "",
            "read",
            (1, count) if name == "head" else (-count, None),
        )
    if (
        name == "sed"
        and options == ["-n"]
        and others
        and (found := _SED_LINES.fullmatch(others[0]))
    ):
        if len(others) > 2:
            return None
        return (
            others[1] if len(others) > 1 else "",
            "read",
            (int(found[1]), int(found[2] or found[1])),
        )
    if name == "sed" and any(re.match(r"-i|--in-place", word) for word in options):
        return (others[-1], "edit", None) if len(others) == 2 else None
    if name == "ls" and len(others) <= 1:
        return (others[0] if others else ".", "list", None)
    if name == "open" and 1 <= len(others) <= 2:
        line = _parse_int(others[1]) if len(others) == 2 else None
        return (others[0], "read", (line, None) if line else None)
    if name == "create" and len(others) == 1:
        return (others[0], "write", None)
    return None
