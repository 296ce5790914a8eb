"""Determine what a tool call fetches: a file, search results, or the output of a command or lookup.

A table lists the tools of common agents by name. A tool that is not in the table counts as a lookup if
its name begins with a verb such as ``get`` or ``find``. No command is executed and no file is opened.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.file_access import COMMAND_KEYS, normalize_tool_name, parse_file_access
from ctxlab.messages.types import ToolCall

_Kind: TypeAlias = Literal["file", "search", "command", "lookup"]


class FetchTarget(NamedTuple):
    """Identifier of what a tool call fetches. It is equal for calls that fetch the same thing."""

    kind: _Kind
    """``file``, ``search`` (also for listing a folder), ``command``, or ``lookup`` for any other
    tool"""
    key: str
    """identifies the content: for a file its path, regardless of the lines that are read; for a search
    the tool name, query and scope; for a command its text with normalized white space; for a lookup the
    tool name and all arguments"""


_QUERY_KEYS = ("pattern", "query", "regex", "glob_pattern", "search_query", "url", "q")
_SCOPE_KEYS = ("path", "include", "dir_path", "directory")
_SEARCH_TOOLS = (
    "grep glob search find rg web_search web_fetch search_files search_file_content find_files "
    "file_search grep_search codebase_search google_web_search search_dir search_file find_file fetch"
)
_SHELL_TOOLS = (
    "bash shell sh exec local_shell run_command run_shell_command execute_command exec_command "
    "run_terminal_cmd terminal execute_bash execute_ipython_cell python ipython"
)
_LOOKUP_VERBS = "read get list show find search fetch look lookup query view grep check"
SEARCH_TOOLS = frozenset(_SEARCH_TOOLS.split())
"Names of tools that search or fetch, as ``normalize_tool_name`` returns them."
SHELL_TOOLS = frozenset(_SHELL_TOOLS.split())
"Names of tools that run a shell command or Python, as ``normalize_tool_name`` returns them."
LOOKUP_VERBS = frozenset(_LOOKUP_VERBS.split())
"First words of the names of lookups."


def parse_fetch_target(call: ToolCall) -> FetchTarget | None:
    """Identify the content that a tool call fetches, for example the file that it reads.

    A simple shell command that reads one file, such as ``cat F``, fetches that file. A simple command
    that writes a file fetches nothing. Any other command fetches its output, which is identified by
    the text of the command.

    Parameters
    ----------
    call : ToolCall
        Tool call of any agent.

    Returns
    -------
    FetchTarget or None
        Kind and key of the content. None if the call does not fetch content, or if its arguments do
        not identify the content.

    Examples
    --------
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
    arguments = call.parse_arguments()
    if not isinstance(arguments, dict):
        arguments = {}
    if name in SHELL_TOOLS:
        command = next((c for key in COMMAND_KEYS if (c := arguments.get(key))), None)
        return None if command is None else FetchTarget("command", _join_whitespace(command))
    if access is not None:
        return FetchTarget("search", f"list: {access.path}")
    if name in SEARCH_TOOLS:
        said = filter(None, map(arguments.get, (*_QUERY_KEYS, *_SCOPE_KEYS)))
        return FetchTarget("search", ": ".join([name, *map(_join_whitespace, said)]))
    if name.partition("_")[0] in LOOKUP_VERBS:
        return FetchTarget("lookup", f"{name}: {dump_json(arguments)}")
    return None


def _join_whitespace(value: Any) -> str:
    return " ".join((value if isinstance(value, str) else dump_json(value)).split())
