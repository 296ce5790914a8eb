"""Determine from a tool call which file it reads, writes or edits, or which folder it lists.

No command is executed and no file is opened. The tables list the tools of common agents: Claude Code,
pi, OpenHands, SWE-agent, Codex, mini-swe-agent, Gemini CLI, Cline, Cursor, and MCP servers. If the file
cannot be determined, as for most shell scripts, the result is None.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from ctxlab.messages.types import Message, ToolCall

FileOperation: TypeAlias = Literal["read", "write", "edit", "list"]


class FileAccess(NamedTuple):
    """A file that a tool call accesses, or a folder if the operation is ``list``."""

    path: str
    "path as written in the call, normalized: without ``./`` and with single forward slashes"
    operation: FileOperation
    "kind of access; ``write`` replaces the whole file, ``edit`` changes a part of the file"
    line_range: tuple[int, int | None] | None = None
    """first and last line that is read; the last line is None if the call reads to the end of the file;
    a negative first line counts from the end. None if the call reads the whole file"""


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
    *("file", "file_name", "abs_path", "relative_path", "relative_workspace_path"),
    "target_notebook",
)
_FIRST_LINE_KEYS = ("offset", "start_line", "line_start", "line_number", "start_line_one_indexed")
_LAST_LINE_KEYS = ("end_line", "line_end", "end_line_one_indexed_inclusive")
_FOLDER_KEYS = ("dir_path", "directory", "cwd", "workdir")
COMMAND_KEYS = ("command", "cmd", "script")
"Names of arguments that contain a shell command."

_PRINT_COMMANDS = frozenset({"cat", "nl", "less", "more", "bat"})
_FILE_PROGRAMS = _PRINT_COMMANDS | {"echo", "printf", "head", "tail", "sed", "ls", "open", "create"}
"programs of the shell commands that ``_parse_one_line_command`` understands"
_PLAIN_PROGRAM = re.compile(r"([\w./-]+)(?:\s|$)")  # without quotes and shell syntax
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
    """Return whether a tool result reports that its tool call failed.

    Parameters
    ----------
    message : Message
        Message with the tool result.

    Returns
    -------
    bool
        True if the recording marks the result as an error (``extra["is_error"]``), or if its text
        begins like an error message.
    """
    return bool(message.extra.get("is_error") or _ERROR_START.match(message.text[:80]))


@lru_cache(maxsize=1 << 14)
def parse_file_access(call: ToolCall) -> FileAccess | None:
    """Return the file or folder that a tool call accesses.

    For a patch of several files, only the first file is returned. Simple shell commands that access
    one file or folder are supported, such as ``cat F``, ``sed -n 1,9p F``, ``sed -i … F``,
    ``cat > F <<EOF`` or ``ls F``.

    Parameters
    ----------
    call : ToolCall
        Tool call of any agent.

    Returns
    -------
    FileAccess or None
        The path and the operation. None if the call does not access a file, or if the file cannot be
        determined.

    Examples
    --------
    >>> parse_file_access(ToolCall("c1", "Edit", '{"file_path": "./src/io.py", "old_string": "a"}'))
    FileAccess(path='src/io.py', operation='edit', line_range=None)
    >>> parse_file_access(ToolCall("c2", "bash", '{"command": "cd /repo && head -n 20 io.py"}'))
    FileAccess(path='/repo/io.py', operation='read', line_range=(1, 20))
    >>> parse_file_access(ToolCall("c3", "bash", '{"command": "make test"}'))
    """
    arguments, name = call.parse_arguments(), normalize_tool_name(call.name)
    if name == "apply_patch":
        texts = arguments.values() if isinstance(arguments, dict) else [arguments]
        patches = (_parse_patch(text) for text in texts if isinstance(text, str))
        return next(filter(None, patches), None)
    if not isinstance(arguments, dict):
        return None
    path, folder = _find_path(arguments, _PATH_KEYS), _find_path(arguments, _FOLDER_KEYS)
    if _OPERATION_BY_TOOL.get(name) == "list":
        path = path or folder
    command = next((c for key in COMMAND_KEYS if (c := arguments.get(key))), None)
    operation = _OPERATION_BY_TOOL.get(command if isinstance(command, str) and path else name)
    if path and operation:
        if operation == "read" and path.endswith("/"):
            operation = "list"
        lines = _parse_line_range(arguments) if operation == "read" else None
        return FileAccess(_normalize_path(path), operation, lines)
    if not command or path:
        return None
    access = _parse_shell_command(command)
    return _in_folder(folder, access) if folder else access


def _find_path(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the value of the first key that contains a path. URLs do not count as paths."""
    found = (p for key in keys if isinstance(p := arguments.get(key), str) and p.strip())
    return next((path for path in found if "://" not in path), None)


def normalize_tool_name(name: str) -> str:
    """Convert a tool name to snake case and remove the prefixes of servers and namespaces.

    Parameters
    ----------
    name : str
        Name of the tool, as recorded.

    Returns
    -------
    str
        The name in lower-case snake case.

    Examples
    --------
    >>> normalize_tool_name("mcp__files__readFile")
    'read_file'
    """
    last = re.split(r"__|[./:]", name)[-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).replace("-", "_").lower()


def normalize_path(path: str, folder: str | None = None) -> str:
    """Return the form of a path in which different spellings of the same path are equal.

    Links are not resolved, because the files of a recording may be on another computer.

    Parameters
    ----------
    path : str
        Path of a file.
    folder : str, optional
        Absolute path of the workspace. A path inside it becomes relative to it.

    Returns
    -------
    str
        Path without ``.``, ``..`` and repeated slashes, as far as possible.

    Examples
    --------
    >>> normalize_path("./a.txt"), normalize_path("sub/../a.txt"), normalize_path("/w/a.txt", "/w")
    ('a.txt', 'a.txt', 'a.txt')
    """
    if path.startswith("//"):  # which normpath keeps
        path = "/" + path.lstrip("/")
    if folder is not None:
        path = posixpath.normpath(posixpath.join(folder, path))
        inside = path == folder or path.startswith(folder.rstrip("/") + "/")
        return posixpath.relpath(path, folder) if inside else path
    return posixpath.normpath(path)


def _normalize_path(path: str) -> str:
    """Return the form of a path that a model wrote as an argument."""
    return normalize_path(path.strip().strip("\"'").replace("\\", "/"))


def _parse_line_range(arguments: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """Return the first and last line that a read call requests, or None if it requests all lines.

    The last line is None if the call reads to the end of the file.
    """
    view = arguments.get("view_range")
    if isinstance(view, list) and len(view) == 2:
        first, last = _parse_int(view[0]), _parse_int(view[1])
        return (first or 1, last if last and last > 0 else None)
    start, last = _find_int(arguments, _FIRST_LINE_KEYS), _find_int(arguments, _LAST_LINE_KEYS)
    limit, first = _parse_int(arguments.get("limit")), 1 if start is None else start
    if last is None and limit is not None:
        last = first + limit - 1
    return None if last is None and first in (0, 1) else (first, last)


def _find_int(arguments: Mapping[str, Any], keys: Sequence[str]) -> int | None:
    numbers = (_parse_int(arguments.get(key)) for key in keys)
    return next((number for number in numbers if number is not None), None)


def _parse_int(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_patch(text: str) -> FileAccess | None:
    """Return the first file that a patch in Codex's format adds or updates."""
    found = _PATCH_HEADER.search(text)
    if found is None:
        return None
    return FileAccess(_normalize_path(found[2]), "write" if found[1] == "Add" else "edit")


def _parse_shell_command(command: Any) -> FileAccess | None:
    """Return the file or folder that a shell command accesses; None if it cannot be determined."""
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
    return _in_folder(folder, access)


def _in_folder(folder: str, access: FileAccess | None) -> FileAccess | None:
    return access and access._replace(path=_normalize_path(posixpath.join(folder, access.path)))


def _parse_heredoc(text: str) -> FileAccess | None:
    """Return the file that a shell command writes from a here-document."""
    first = text.partition("\n")[0]
    if not _HEREDOC.match(first) or not (found := _REDIRECT_TARGET.search(first)):
        return None
    appends = found[1] in (">>", "tee -a")
    return FileAccess(_normalize_path(found[2]), "edit" if appends else "write")


def _parse_one_line_command(text: str) -> FileAccess | None:
    """Return the file or folder that a command on one line accesses; None if it cannot be determined."""
    if "\n" in text or len(text) > 2000:
        return None
    program = _PLAIN_PROGRAM.match(text)
    if program and program[1] not in _FILE_PROGRAMS:
        return None  # most commands; shlex is slow
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return None
    if words[:1] in (["echo"], ["printf"]) and len(words) > 2 and words[-2] in (">", ">>"):
        redirects = sum(set(word) <= set("<>|;&") for word in words)
        written = FileAccess(words[-1], "write" if words[-2] == ">" else "edit")
        return None if redirects != 1 or _SHELL_SYNTAX.search(written.path) else written
    cut = words.index("|") if "|" in words else len(words)
    access = _parse_simple_command(words[:cut])
    if cut < len(words):  # nl -ba F | sed -n 1,80p
        shown = _parse_simple_command(words[cut + 1 :])
        if not (access and shown) or access.line_range or shown.path:
            return None
        if {access.operation, shown.operation} != {"read"}:
            return None
        access = access._replace(line_range=shown.line_range)
    return None if not access or not access.path or _SHELL_SYNTAX.search(access.path) else access


def _parse_simple_command(words: Sequence[str]) -> FileAccess | None:
    """Return the file or folder that a shell command without pipes accesses.

    The path is empty if the command reads standard input. None if the file cannot be determined.
    """
    if not words or any(word and set(word) <= set("();<>|&") for word in words):
        return None
    rest = [word for word in words[1:] if word]
    options = [word for word in rest if word.startswith("-") and word != "-"]
    others = [word for word in rest if word not in options]
    line_range: tuple[int, int | None] | None = None
    match words[0]:
        case "head" | "tail":
            count = 10
            if options == ["-n"] and others and others[0].isdigit():
                count = int(others.pop(0))
            elif found := re.fullmatch(r"(?:-n?|--lines=)(\d+)", " ".join(options)):
                count = int(found[1])
            elif options:
                return None
            line_range = (1, count) if words[0] == "head" else (-count, None)
        case "sed" if any(re.match(r"-i|--in-place", word) for word in options):
            return FileAccess(others[-1], "edit") if len(others) == 2 else None
        case "sed":
            found = _SED_LINES.fullmatch(others.pop(0)) if options == ["-n"] and others else None
            if found is None:
                return None
            line_range = int(found[1]), int(found[2] or found[1])
        case "ls":
            return FileAccess((*others, ".")[0], "list") if len(others) <= 1 else None
        case "open" if len(others) in (1, 2):
            line = _parse_int(others[1]) if len(others) == 2 else None
            return FileAccess(others[0], "read", (line, None) if line else None)
        case "create":
            return FileAccess(others[0], "write") if len(others) == 1 else None
        case name if name not in _PRINT_COMMANDS:
            return None
    return FileAccess((*others, "")[0], "read", line_range) if len(others) <= 1 else None
