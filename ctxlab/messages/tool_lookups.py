"""A tool call says what it fetches: a file, a folder, what a search finds, what a command prints.

Which call fetches what is data by name, for the agents that people run; behind it stands one rule for
tools of one's own: a name that begins with a word of looking, such as ``get_order``, fetches what its
arguments name. Nothing is executed or opened.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
)
from ctxlab.messages.file_access import (
    plain_name,
    touches,
)
from ctxlab.messages.types import ToolCall

__all__ = ["Fetch", "fetch_of"]

_Kind: TypeAlias = Literal["file", "search", "command", "lookup"]


class Fetch(NamedTuple):
    """What a call fetches; two calls that fetch the same thing are equal here.

    A file is its path, whichever part of it is read; a folder that is listed is a search. Of a search
    it is what is looked for and where, of a command the command, white space apart. A lookup is a call
    of any other tool that looks, with all of its arguments.
    """

    kind: _Kind
    key: str


_WANTED = ("pattern", "query", "regex", "glob_pattern", "search_query", "url", "q")
_WHERE = ("path", "include", "dir_path", "directory")
_SEARCHES = (
    "grep glob search find rg web_search web_fetch search_files search_file_content find_files "
    "file_search grep_search codebase_search google_web_search search_dir search_file find_file fetch"
)
_COMMANDS = ("command", "cmd", "script")
_SHELLS = (
    "bash shell sh exec local_shell run_command run_shell_command execute_command exec_command "
    "run_terminal_cmd terminal execute_bash execute_ipython_cell python ipython"
)
_TOOLS = dict.fromkeys(_SEARCHES.split(), "search") | dict.fromkeys(_SHELLS.split(), "command")
_LOOKS = re.compile(
    r"(read|get|list|show|find|search|fetch|look|lookup|query|view|grep|check)(_|$)"
)
_SPACE = re.compile(r"\s+")


def fetch_of(call: ToolCall) -> Fetch | None:
    """What a tool call fetches; None where it fetches nothing, or that is not clear.

    A command that plainly reads one file (``cat F``) fetches the file; one that plainly writes one
    fetches nothing.

    >>> fetch_of(ToolCall("c1", "Read", '{"file_path": "src/io.py", "offset": 9}'))
    Fetch(kind='file', key='src/io.py')
    >>> fetch_of(ToolCall("c2", "bash", '{"command": "make  test"}'))
    Fetch(kind='command', key='make test')
    >>> fetch_of(ToolCall("c3", "Grep", '{"pattern": "def read", "path": "src", "-n": true}'))
    Fetch(kind='search', key='grep: def read: src')
    >>> fetch_of(ToolCall("c4", "get_order", '{"id": 7}'))
    Fetch(kind='lookup', key='get_order: {"id":7}')
    >>> fetch_of(ToolCall("c5", "Edit", '{"file_path": "src/io.py"}'))
    """
    touch, name = touches(call), plain_name(call.name)
    if touch is not None and touch.verb == "read":
        return Fetch("file", touch.path)
    if touch is not None and touch.verb in ("write", "edit"):
        return None
    given = _arguments(call)
    if _TOOLS.get(name) == "command":
        command = next((c for key in _COMMANDS if (c := given.get(key))), None)
        return None if command is None else Fetch("command", _one_line(command))
    if touch is not None:
        return Fetch("search", f"list: {touch.path}")
    if name in _TOOLS:
        said = (given.get(key) for key in (*_WANTED, *_WHERE))
        return Fetch("search", ": ".join([name, *(_one_line(each) for each in said if each)]))
    if _LOOKS.match(name):
        return Fetch("lookup", f"{name}: {dump_json(given)}")
    return None


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        given = parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _one_line(value: Any) -> str:
    text = value if isinstance(value, str) else dump_json(value)
    return _SPACE.sub(" ", text).strip()
