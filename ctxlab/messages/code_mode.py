"""Find the tool calls in a JavaScript program that an agent runs to call its tools.

In the code mode of Codex, the tool ``exec`` has one argument, a program such as
``text(await tools.exec_command({cmd: "ls"}))``. The program is not executed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class ProgramCall(NamedTuple):
    """A tool call in a program."""

    name: str
    "name of the tool"
    argument: Any
    "its argument as a JSON value; the values of variables are None"


_TOOLS = re.compile(r"\btools\b")
_CALL = re.compile(r"tools\s*\.\s*(\w+)\s*\(\s*")
_TOKEN = re.compile(
    r"""
      (?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.|\$(?!\{))*`)
    | (?P<number>-?\d[\d_]*(?:\.\d+)?(?![\w.]))
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<mark>[][{}:,)])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_CONSTANTS = {"true": True, "false": False}
_MAX_DEPTH = 20


def find_program_calls(program: str) -> list[ProgramCall] | None:
    """Return the tool calls of a JavaScript program.

    Parameters
    ----------
    program : str
        Program that calls tools as ``tools.name(argument)``.

    Returns
    -------
    list of ProgramCall or None
        The calls in the order of the program; the values of variables are None. None if the program
        uses ``tools`` in another way, or if an argument contains another expression.

    Examples
    --------
    >>> find_program_calls('const r = await tools.exec_command({cmd: "ls", wait: 9}); text(r)')
    [ProgramCall(name='exec_command', argument={'cmd': 'ls', 'wait': 9})]
    >>> find_program_calls("await tools.exec_command({cmd, wait: 9})")
    [ProgramCall(name='exec_command', argument={'cmd': None, 'wait': 9})]
    >>> find_program_calls("await tools.exec_command({cmd: 'ls ' + folder})")
    """
    calls: list[ProgramCall] = []
    position = 0
    while found := _TOOLS.search(program, position):
        call = _CALL.match(program, found.start())
        if call is None:
            return None
        try:
            argument, position = _parse_literal(program, call.end(), 0)
            if _next_token(program, position)[:2] != ("mark", ")"):
                return None
        except ValueError:
            return None
        calls.append(ProgramCall(call[1], argument))
    return calls


def _next_token(text: str, position: int) -> tuple[str, str, int]:
    """Return the kind and text of the next token, and the position after it."""
    while found := _TOKEN.match(text, position):
        if found.lastgroup != "space":
            return str(found.lastgroup), found[0], found.end()
        position = found.end()
    raise ValueError("no token of a literal")


def _parse_literal(text: str, position: int, depth: int) -> tuple[Any, int]:
    """Parse a literal value; return it and the position after it."""
    if depth > _MAX_DEPTH:
        raise ValueError("the literal is nested too deeply")
    kind, token, position = _next_token(text, position)
    if kind == "string":
        return _unescape(token), position
    if kind == "number":
        return float(token) if "." in token else int(token), position
    if kind == "name":  # a variable is unknown
        return _CONSTANTS.get(token), position
    if token == "[":
        values: list[Any] = []
        while True:
            kind, token, after = _next_token(text, position)
            if token == "]" and kind == "mark":
                return values, after
            value, position = _parse_literal(text, position, depth + 1)
            values.append(value)
            position = _skip_comma(text, position, "]")
    if token == "{":
        members: dict[str, Any] = {}
        while True:
            kind, token, after = _next_token(text, position)
            if token == "}" and kind == "mark":
                return members, after
            key = _unescape(token) if kind == "string" else token
            if kind == "mark":
                raise ValueError("no key")
            _, token, after_colon = _next_token(text, after)
            if token == ":":
                members[key], position = _parse_literal(text, after_colon, depth + 1)
            else:  # {cmd} is short for {cmd: cmd}
                members[key], position = None, after
            position = _skip_comma(text, position, "}")
    raise ValueError("not a literal")


def _skip_comma(text: str, position: int, closing: str) -> int:
    """Return the position after a comma, or the position of the closing bracket."""
    _, token, after = _next_token(text, position)
    if token not in (",", closing):
        raise ValueError("a comma is missing")
    return after if token == "," else position


def _unescape(literal: str) -> str:
    text = literal[1:-1]
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_read_escape, text)  # may contain pairs of surrogates
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _read_escape(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        return chr(int(escape.strip("ux{}"), 16))
    return _ESCAPED.get(escape, escape)
