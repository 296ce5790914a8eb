"""A tool call says what it fetches: a file, a folder, what a search finds, what a command prints.

Which call fetches what is data by name, for the agents that people run; behind it stands one rule for
tools of one's own: a name that begins with a word of looking, such as ``get_order``, fetches what its
arguments name. Nothing is executed or opened.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.messages.file_access import normalize_tool_name, parse_file_access
from ctxlab.messages.types import ToolCall

__all__ = ["FetchTarget", "parse_fetch_target"]

_Kind: TypeAlias = Literal["file", "search", "command", "lookup"]


class FetchTarget(NamedTuple):
    """What a call fetches; two calls that fetch the same thing are equal here.

    A file is its path, whichever part of it is read; a folder that is listed is a search. Of a search
    it is what is looked for and where, of a command the command, white space apart. A lookup is a call
    of any other tool that looks, with all of its arguments.
    """

    kind: _Kind
    key: str


_QUERY_KEYS = ("pattern", "query", "regex", "glob_pattern", "search_query", "url", "q")
_SCOPE_KEYS = ("path", "include", "dir_path", "directory")
_SEARCH_TOOLS = (
    "grep glob search find rg web_search web_fetch search_files search_file_content find_files "
    "file_search grep_search codebase_search google_web_search search_dir search_file find_file fetch"
)
_COMMAND_KEYS = ("command", "cmd", "script")
_SHELL_TOOLS = (
    "bash shell sh exec local_shell run_command run_shell_command execute_command exec_command "
    "run_terminal_cmd terminal execute_bash execute_ipython_cell python ipython"
)
_KIND_BY_TOOL = dict.fromkeys(_SEARCH_TOOLS.split(), "search") | dict.fromkeys(
    _SHELL_TOOLS.split(), "command"
)
_LOOKUP_TOOL = re.compile(
    r"(read|get|list|show|find|search|fetch|look|lookup|query|view|grep|check)(_|$)"
)
_WHITESPACE = re.compile(r"\s+")


def parse_fetch_target(call: ToolCall) -> FetchTarget | None:
    """What a tool call fetches; None where it fetches nothing, or that is not clear.

    A command that plainly reads one file (``cat F``) fetches the file; one that plainly writes one
    fetches nothing.

    >>> parse_fetch_target(ToolCall("c1", "Read", '{"file_path": "src/io.py", "offset": 9}'))
    FetchTarget(kind='file', key='src/io.py')
    >>> parse_fetch_target(ToolCall("c2", "bash", '{"command": "make  test"}'))
    FetchTarget(kind='command', key='make test')
    >>> parse_fetch_target(ToolCall("c3", "Grep", '{"pattern": "def read", "path": "src", "-n": true}'))
    FetchTarget(kind='search', key='grep: def read: src')
    >>> parse_fetch_target(ToolCall("c4", "get_order", '{"id": 7}'))
    FetchTarget(kind='lookup', key='get_order: {"id":7}')
    >>> parse_fetch_target(ToolCall("c5", "Edit", '{"file_path": "src/io.py"}'))
    """
    access, name = parse_file_access(call), normalize_tool_name(call.name)
    if access is not None and access.operation == "read":
        return FetchTarget("file", access.path)
    if access is not None and access.operation in ("write", "edit"):
        return None
    arguments = _parse_arguments(call)
    if _KIND_BY_TOOL.get(name) == "command":
        command = next((c for key in _COMMAND_KEYS if (c := arguments.get(key))), None)
        return None if command is None else FetchTarget("command", _join_whitespace(command))
    if access is not None:
        return FetchTarget("search", f"list: {access.path}")
    if name in _KIND_BY_TOOL:
        said = (arguments.get(key) for key in (*_QUERY_KEYS, *_SCOPE_KEYS))
        return FetchTarget(
            "search", ": ".join([name, *(_join_whitespace(each) for each in said if each)])
        )
    if _LOOKUP_TOOL.match(name):
        return FetchTarget("lookup", f"{name}: {dump_json(arguments)}")
    return None


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _join_whitespace(value: Any) -> str:
    text = value if isinstance(value, str) else dump_json(value)
    return _WHITESPACE.sub(" ", text).strip()
