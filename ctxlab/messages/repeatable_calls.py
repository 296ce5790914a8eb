"""Decide which recorded tool calls only read, so that an agent can make them again without effects.

The tables are in ``repeatable_calls.toml``: the tools of common agents and benchmarks by name, the verbs
with which the names of lookups begin, and the shell commands that only read. No command is executed.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import SpecError
from ctxlab.messages.code_mode import find_program_calls
from ctxlab.messages.file_access import COMMAND_KEYS, normalize_tool_name, parse_file_access
from ctxlab.messages.shell_scripts import split_shell_script
from ctxlab.messages.tool_lookups import LOOKUP_VERBS, SEARCH_TOOLS, SHELL_TOOLS
from ctxlab.messages.types import ToolCall

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_RESERVED_WORDS = frozenset(
    ("!", "{", "}", "do", "done", "elif", "else", "fi", "if", "then", "until", "while")
)
_PROGRAM_FOLDER = re.compile(r"^(?:/usr(?:/local)?|/opt/homebrew)?/s?bin/(?=[^/]+$)")
_SCRIPT_OPTION = re.compile(r"-[a-z]*c[a-z]*")
_SUBCOMMAND = re.compile(r"[a-z][\w-]*")
_HARMLESS_OUTPUTS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_SED_EFFECT = re.compile(r"(?:^|[;{}\n/|#,!@:%=0-9$~+])\s*[gpimI0-9]*[wWe](?:\s|$)")
_AWK_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|((?:^|[(,!~&|{};\n])\s*)/(?:[^/\\\n]|\\.)+/')
_AWK_EFFECT = re.compile(r"\bsystem\s*\(|(?<!\|)\|(?!\|)|\bprintf?\b[^;}\n]*>")
_WRITING_QUERY = re.compile(
    r"\b(?:insert\s+(?:or\s+\w+\s+)?into|update\s+\S+\s+set|delete\s+from|replace\s+into"
    r"|(?:drop|create|alter|truncate)\s+(?:table|index|view|database|schema|trigger)"
    r"|mutation\b\s*\w*\s*[({])",
    re.IGNORECASE,
)
_READING_QUERY = re.compile(
    r"\s*(?:select|with|show|explain|describe|pragma|values)\b", re.IGNORECASE
)
_QUERY_KEYS = ("query", "sql", "statement")
_WRITING_METHODS = ("POST", "PUT", "PATCH", "DELETE")


class RepeatableCalls(msgspec.Struct, frozen=True):
    """Rules that decide whether a tool call only reads, so that it can be made again.

    A repeatable call reads, lists, searches, looks up or gets something, and changes nothing. If an
    agent makes it again, the result is of the same kind, although it may differ if the content has
    changed. When in doubt, a call is not repeatable. Tests and builds are not: they are slow and may
    write files. Commands that wait are not either, and PowerShell and Python are not analysed.

    The last entry of ``extra`` that matches decides. If none matches, the built-in tables do.

    Examples
    --------
    >>> rules = RepeatableCalls.default(["my_lookup", "mcp__docs__*", "$ go test", "!WebFetch"])
    >>> rules.is_repeatable(ToolCall("c1", "bash", '{"command": "cd src && go test ./... | tail"}'))
    True
    >>> rules.is_repeatable(ToolCall("c2", "bash", '{"command": "go test ./... > log.txt"}'))
    False
    >>> rules.is_repeatable(ToolCall("c3", "WebFetch", '{"url": "https://example.org"}'))
    False
    """

    extra: tuple[str, ...] = ()
    """entries in addition to the tables: the name of a tool, a pattern of names such as
    ``mcp__docs__*``, or ``$`` and the first words of shell commands, such as ``$ kubectl get``. An entry
    that begins with ``!`` makes calls not repeatable"""

    @classmethod
    def default(cls, extra: Sequence[str] = ()) -> RepeatableCalls:
        """Return the built-in rules, extended by further entries.

        Parameters
        ----------
        extra : sequence of str, optional
            Names or patterns of tools, such as ``my_lookup`` or ``mcp__docs__*``, and first words of
            shell commands after a ``$``, such as ``$ kubectl get``. A leading ``!`` makes the calls not
            repeatable: ``!WebFetch``, ``!$ curl``. Upper and lower case of tool names do not matter.
            The last matching entry decides, also against the built-in tables: ``$ git`` makes
            ``git commit`` repeatable. A command that redirects output to a file never is.

        Returns
        -------
        RepeatableCalls
            The rules.

        Raises
        ------
        SpecError
            If ``extra`` is a single string, or if an entry is empty.
        """
        if isinstance(extra, str):
            raise SpecError(
                f"Expected a list of tools and commands, got {extra!r}; pass [{extra!r}]."
            )
        for entry in extra:
            if not isinstance(entry, str) or not entry.strip("!$ \t\n"):
                raise SpecError(
                    f"Expected the name of a tool or '$ ' and a command, got {entry!r}; "
                    "examples: 'my_lookup', 'mcp__docs__*', '$ kubectl get', '!WebFetch'."
                )
        return cls(tuple(extra))

    def is_repeatable(self, call: ToolCall) -> bool:
        """Return whether a tool call only reads, so that it can be made again.

        Parameters
        ----------
        call : ToolCall
            Tool call of any agent.

        Returns
        -------
        bool
            True if the call has no effects. A shell command is repeatable if each of its commands only
            reads and no output is redirected to a file. False if the arguments cannot be parsed.

        Examples
        --------
        >>> rules = RepeatableCalls.default()
        >>> rules.is_repeatable(ToolCall("c1", "Grep", '{"pattern": "def read", "path": "src"}'))
        True
        >>> rules.is_repeatable(ToolCall("c2", "bash", '{"command": "git log -5 | grep fix"}'))
        True
        >>> rules.is_repeatable(ToolCall("c3", "bash", '{"command": "git log -5 | tee log.txt"}'))
        False
        """
        return _is_repeatable(self.extra, call.name, call.arguments)


@functools.lru_cache(maxsize=1 << 14)
def _is_repeatable(extra: tuple[str, ...], name: str, arguments: str) -> bool:
    return _rules(extra).allows_call(ToolCall("", name, arguments))


@functools.lru_cache(maxsize=64)
def _rules(extra: tuple[str, ...]) -> _Rules:
    return _Rules(extra)


class _Options(NamedTuple):
    """Options of a command: whole words, and the letters of short options such as ``-o``."""

    words: frozenset[str]
    letters: frozenset[str]


class _Node:
    """A word of a command in a tree of commands, with what is known of the command up to this word."""

    __slots__ = ("children", "decision", "forbidden", "max_arguments")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.decision: tuple[int, bool] | None = (
            None  # number of the entry, whether it is repeatable
        )
        self.forbidden: _Options | None = None
        self.max_arguments: int | None = None

    def add(self, command: str) -> _Node:
        node = self
        for word in command.split():
            node = node.children.setdefault(word, _Node())
        return node


class _Wrapper(NamedTuple):
    """A command that runs the command in its arguments."""

    options: frozenset[str]
    arguments: int
    alone: bool


class _Tables(NamedTuple):
    """The tables of ``repeatable_calls.toml``."""

    read_tools: frozenset[str]
    never: frozenset[str]
    shell_tools: frozenset[str]
    code_mode: frozenset[str]
    sql: frozenset[str]
    lookup_verbs: frozenset[str]
    acting_verbs: frozenset[str]
    acting_endings: frozenset[str]
    servers: frozenset[str]
    commands: _Node
    neutral: frozenset[str]
    shells: frozenset[str]
    aliases: Mapping[str, str]
    allowed_values: Mapping[str, frozenset[str]]
    value_options: Mapping[str, frozenset[str]]
    wrappers: Mapping[str, _Wrapper]


@functools.cache
def _tables() -> _Tables:
    text = (files("ctxlab.messages") / "repeatable_calls.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    tools, shell = table["tools"], table["shell"]
    commands = _Node()
    for name in shell["read"].split():
        commands.add(name).decision = 0, True
    for name, subcommands in shell["subcommands"].items():
        for subcommand in subcommands:
            commands.add(f"{name} {subcommand}").decision = 0, True
    for command, options in shell["forbidden_options"].items():
        words = options.split()
        letters = frozenset(word[1] for word in words if len(word) == 2)
        commands.add(command).forbidden = _Options(frozenset(words), letters)
    for command, number in shell["max_arguments"].items():
        commands.add(command).max_arguments = number
    wrappers = {
        name: _Wrapper(_split(row.get("options", "")), row.get("arguments", 0), "alone" in row)
        for name, row in shell["wrappers"].items()
    }
    return _Tables(
        read_tools=_split(" ".join(tools["read"].values())),
        never=_split(tools["never"]),
        shell_tools=(SHELL_TOOLS | _split(tools["shell"])) - _split(tools["python"]),
        code_mode=_split(tools["code_mode"]),
        sql=_split(tools["sql"]),
        lookup_verbs=LOOKUP_VERBS | _split(tools["lookup_verbs"]),
        acting_verbs=_split(tools["acting_verbs"]),
        acting_endings=_split(tools["acting_endings"]),
        servers=_split(tools["servers"]),
        commands=commands,
        neutral=_split(shell["neutral"]),
        shells=_split(shell["shells"]),
        aliases=shell["aliases"],
        allowed_values={name: _split(values) for name, values in shell["allowed_values"].items()},
        value_options={name: _split(options) for name, options in shell["value_options"].items()},
        wrappers=wrappers,
    )


def _split(words: str) -> frozenset[str]:
    return frozenset(words.split())


class _Rules:
    """The tables and the entries of ``extra``, prepared for fast decisions.

    The checks of scripts and commands return True if they only read, None if they neither read nor have
    effects, such as ``cd src``, and False otherwise.
    """

    def __init__(self, extra: Sequence[str]) -> None:
        self.tables = _tables()
        self.extra_tools: list[tuple[str, bool]] = []  # the last entry first
        self.extra_commands = _Node()
        for number, entry in enumerate(map(str.strip, extra)):
            allowed, pattern = not entry.startswith("!"), entry.removeprefix("!").strip()
            if pattern.startswith("$"):
                name, *others = pattern[1:].split()
                command = " ".join([self.command_name(name), *others])
                self.extra_commands.add(command).decision = number, allowed
            else:
                self.extra_tools.insert(0, (pattern.lower(), allowed))

    def allows_call(self, call: ToolCall) -> bool:
        """Return whether a tool call only reads."""
        tables, arguments = self.tables, call.parse_arguments()
        if not isinstance(arguments, dict):
            return False
        name = normalize_tool_name(call.name)
        names = (call.name.lower(), name)
        for pattern, allowed in self.extra_tools:
            if any(fnmatch.fnmatchcase(each, pattern) for each in names):
                return allowed
        if name in tables.code_mode and isinstance(program := arguments.get("input"), str):
            return self.allows_program(program)
        if name in tables.shell_tools:
            script = next((c for key in COMMAND_KEYS if (c := arguments.get(key))), None)
            if isinstance(script, list) and all(isinstance(word, str) for word in script):
                return self.check_command(script) is True
            return isinstance(script, str) and self.check_script(script) is True
        method = arguments.get("method")
        if name in tables.never or (isinstance(method, str) and method.upper() in _WRITING_METHODS):
            return False
        queries = [query for key in _QUERY_KEYS if isinstance(query := arguments.get(key), str)]
        if name in tables.sql:
            return bool(queries) and all(map(_is_reading_query, queries))
        if name in SEARCH_TOOLS or any(each in tables.read_tools for each in names):
            return True
        access = parse_file_access(call)
        if access is not None:
            return access.operation in ("read", "list")
        return self.is_lookup(name) and not any(map(_WRITING_QUERY.search, queries))

    def is_lookup(self, name: str) -> bool:
        """Return whether the name of a tool says that it looks something up, and nothing else."""
        tables, words = self.tables, name.split("_")
        if words[0] in tables.servers:
            del words[0]
        if not words or words[0] not in tables.lookup_verbs or words[-1] in tables.acting_endings:
            return False
        return not any(
            word in ("and", "or", "then") and after in tables.acting_verbs
            for word, after in itertools.pairwise(words)
        )

    def allows_program(self, program: str) -> bool:
        """Return whether a program of the code mode only makes repeatable calls."""
        calls = find_program_calls(program)
        if not calls:  # the program may still list the tools
            return calls is not None and "ALL_TOOLS" in program
        return all(self.allows_call(ToolCall("", name, dump_json(value))) for name, value in calls)

    def check_script(self, script: str) -> bool | None:
        """Check all commands of a shell script, and the files to which it redirects output."""
        commands = split_shell_script(script)
        if commands is None:
            return False
        result: bool | None = None
        for command in commands:
            if not _HARMLESS_OUTPUTS.issuperset(command.output_files):
                return False
            decision = self.check_command(command.words)
            if decision is False:
                return False
            result = result or decision
        return result

    def check_command(self, words: Sequence[str]) -> bool | None:
        """Check a simple command, without redirections."""
        tables, start = self.tables, 0
        while start < len(words) and (
            words[start] in _RESERVED_WORDS or _ASSIGNMENT.match(words[start])
        ):
            start += 1
        if start == len(words) or words[start] == "for":
            return None
        name = self.command_name(words[start])
        words = [name, *words[start + 1 :]]
        if (decision := self.decide_by_extra(words)) is not None:
            return decision
        if name in tables.neutral:
            return None
        if name in tables.shells:
            return self.check_shell(words)
        if _asks_for_help(words):
            return True
        if self.is_listed(words):
            return self.has_harmless_program(words)
        if wrapper := tables.wrappers.get(name):
            return self.check_wrapped(words, wrapper)
        return False

    def command_name(self, word: str) -> str:
        """Return the name of a command by which the tables list it."""
        name = _PROGRAM_FOLDER.sub("", word).removesuffix(".exe")
        return self.tables.aliases.get(name, name)

    def decide_by_extra(self, words: Sequence[str]) -> bool | None:
        """Return the decision of the last entry of ``extra`` that matches; None if there is none."""
        found = [
            node.decision for node, _ in self.walk(self.extra_commands, words) if node.decision
        ]
        return max(found)[1] if found else None

    def walk(self, root: _Node, words: Sequence[str]) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes of the first words, and how many words they are. Options are skipped."""
        options = self.tables.value_options.get(words[0], frozenset())
        node, index = root.children.get(words[0]), 1
        while node is not None:
            yield node, index
            if not node.children:
                return
            while index < len(words) and words[index] not in node.children:
                if not words[index].startswith("-"):
                    return
                index += 2 if words[index] in options else 1
            node = node.children.get(words[index]) if index < len(words) else None
            index += 1

    def is_listed(self, words: Sequence[str]) -> bool:
        """Return whether a command is in the table, with arguments that the table permits."""
        listed: tuple[_Node, int] | None = None
        for node, index in self.walk(self.tables.commands, words):
            if node.decision:
                listed = node, index
            if (
                node.forbidden
                and self.has_option(words[index:], node.forbidden)
                and not _is_graphql_query(words)
            ):
                return False
        if listed is None:
            return False
        node, index = listed
        if node.max_arguments is None:
            return True
        return sum(not word.startswith("-") for word in words[index:]) <= node.max_arguments

    def has_option(self, words: Sequence[str], options: _Options) -> bool:
        """Return whether a command has one of the options, with a value that is not harmless."""
        for index, word in enumerate(words):
            if not word.startswith("-") or word == "-":
                continue
            option, _, value = word.partition("=")
            if option not in options.words:
                letter = next((each for each in word[1:] if each in options.letters), None)
                if word.startswith("--") or letter is None:
                    continue
                option, value = f"-{letter}", word.partition(letter)[2]
            if not value and index + 1 < len(words):
                value = words[index + 1]
            if value not in self.tables.allowed_values.get(option, ()):
                return True
        return False

    def has_harmless_program(self, words: Sequence[str]) -> bool:
        """Return whether the arguments of sed, awk or find contain no program with effects."""
        match words[0]:
            case "sed":
                return not any(map(_SED_EFFECT.search, words[1:]))
            case "awk":
                programs = (_AWK_LITERAL.sub(r"\1", word) for word in words[1:])
                return not any(map(_AWK_EFFECT.search, programs))
            case "find":
                return all(self.check_command(each) is True for each in _executed_by_find(words))
        return True

    def check_shell(self, words: Sequence[str]) -> bool | None:
        """Check the script that a shell runs: ``bash -lc "cat a.py"``."""
        for index, word in enumerate(words[1:], 1):
            if not word.startswith("-"):
                return False
            if word == "-n":  # only checks the syntax
                return True
            if _SCRIPT_OPTION.fullmatch(word):
                return self.check_script(words[index + 1]) if index + 1 < len(words) else False
        return False

    def check_wrapped(self, words: Sequence[str], wrapper: _Wrapper) -> bool | None:
        """Check the command that follows a wrapper such as ``xargs`` or ``timeout 9``."""
        index = 1
        while index < len(words) and words[index].startswith("-"):
            index += 2 if words[index] in wrapper.options else 1
        index += wrapper.arguments
        return self.check_command(words[index:]) if index < len(words) else wrapper.alone


def _asks_for_help(words: Sequence[str]) -> bool:
    """Return whether a command only prints its help or version: ``cargo add --help``."""
    if words[-1] not in ("--help", "--version") or len(words) > 4:
        return False
    return all(map(_SUBCOMMAND.fullmatch, words[:-1]))


def _executed_by_find(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the commands that find executes; an empty command if one has no end."""
    start: int | None = None
    for index, word in enumerate(words):
        if start is not None and word in (";", "+"):
            yield words[start:index]
            start = None
        elif start is None and word in ("-exec", "-execdir", "-ok", "-okdir"):
            start = index + 1
    if start is not None:
        yield ()


def _is_reading_query(query: str) -> bool:
    """Return whether a database query only reads."""
    return bool(_READING_QUERY.match(query)) and not _WRITING_QUERY.search(query)


def _is_graphql_query(words: Sequence[str]) -> bool:
    """Return whether a command is ``gh api graphql`` with a query that changes nothing."""
    queries = [word.partition("=")[2].lstrip() for word in words if word.startswith("query=")]
    return (
        list(words[:3]) == ["gh", "api", "graphql"]
        and "--input" not in words
        and bool(queries)
        and all(q.startswith(("query", "{")) and not _WRITING_QUERY.search(q) for q in queries)
    )
