"""Split a shell script into the simple commands that it runs, without running it.

The parser knows the syntax that coding agents use in Bash and similar shells: quotes, pipes, lists,
subshells, substitutions, redirections and here-documents. It does not evaluate variables. A script that
uses other syntax, such as ``case`` or arrays, is not split, so that no command is overlooked.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class SimpleCommand(NamedTuple):
    """A simple command of a shell script: words without quotes, and the files that get its output.

    Reserved words such as ``do`` and assignments such as ``A=1`` are words like others. A substitution
    is ``$()`` in the word that contains it; the commands of the substitution are listed separately.
    """

    words: tuple[str, ...]
    """command name and arguments, without quotes and backslashes; strings such as ``$'a\\n'`` keep their
    escapes"""
    output_files: tuple[str, ...] = ()
    "files to which the output is redirected; ``2>&1`` does not count"


class _UnknownSyntax(Exception):
    """The script is not valid, or it uses syntax that the parser does not know."""


_SUBSTITUTION = "$()"
_MAX_DEPTH = 20
_PIECE = re.compile(
    r"""
      (?P<space>(?:[ \t\r]|\\\r?\n)+)
    | (?P<redirect>&>>?|\d*(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\()))
    | (?P<operator>&&|\|\|?|;;?|&|\n|\))
    | (?P<open>[<>]?\()
    | (?P<quoted>'[^']*')
    | (?P<escaped>\$'(?:[^'\\]|\\.)*')
    | (?P<double>\$?")
    | (?P<substitution>\$\(|\$\{|`)
    | (?P<plain>(?:[^\s'"\\$`<>|&;()]|\\.|\$(?![({'"]))+)
    """,
    re.VERBOSE | re.DOTALL,
)
_DOUBLE_QUOTED = re.compile(r'(?:[^"\\$`]|\\.|\$(?![({]))*', re.DOTALL)
_ARITHMETIC = re.compile(r"\$\(\((?:[^()`$]|\$\w+|\$\{\w+\}|\([^()`$]*\))*\)\)")
_PARAMETER = re.compile(r"\$\{[^{}`()'\"\\]*\}")
_BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_HAS_SUBSTITUTION = re.compile(r"(?<!\\)(?:\$\(|\$\{|`)")


def split_shell_script(script: str) -> list[SimpleCommand] | None:
    """Split a shell script into its simple commands, including those of substitutions.

    Parameters
    ----------
    script : str
        Script in the syntax of Bash.

    Returns
    -------
    list of SimpleCommand or None
        All simple commands, in the order in which they end. None if the script is not valid, or if it
        uses syntax that the parser does not know.

    Examples
    --------
    >>> for command in split_shell_script("cd src && grep -n 'a b' $(git ls-files) 2>&1 | sort > out"):
    ...     print(command)
    SimpleCommand(words=('cd', 'src'), output_files=())
    SimpleCommand(words=('git', 'ls-files'), output_files=())
    SimpleCommand(words=('grep', '-n', 'a b', '$()'), output_files=())
    SimpleCommand(words=('sort',), output_files=('out',))
    """
    commands: list[SimpleCommand] = []
    try:
        _Parser(script, 0, commands, 0).parse_list("")
    except _UnknownSyntax:
        return None
    return commands


class _Parser:
    """Recursive parser of one list of commands; nested lists have parsers of their own."""

    def __init__(self, text: str, start: int, commands: list[SimpleCommand], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _UnknownSyntax("the shell script is nested too deeply")
        self.text, self.position, self.commands, self.depth = text, start, commands, depth
        self.words: list[str] = []
        self.files: list[str] = []
        self.word: str | None = None
        self.has_quotes = False
        self.redirect = ""  # the operator whose target is the next word
        self.heredocs: list[tuple[str, bool, bool]] = []  # delimiter, tabs are removed, is literal

    def parse_list(self, closing: str) -> int:
        """Parse commands up to the closing character; return the position after it."""
        text, match = self.text, _PIECE.match
        while self.position < len(text):
            if self.word is None and text[self.position] == "#":
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
                continue
            found = match(text, self.position)
            if found is None:
                raise _UnknownSyntax("a quote or an escape is not closed")
            kind, piece = found.lastgroup, found[0]
            start, self.position = self.position, found.end()
            if kind == "plain":
                if "\\" in piece:
                    self.has_quotes = True
                    piece = re.sub(r"\\(.)", _unescape, piece, flags=re.DOTALL)
                self.add(piece)
            elif kind == "space":
                self.end_word()
            elif kind == "quoted":
                self.add(piece[1:-1], has_quotes=True)
            elif kind == "double":
                self.add_double_quoted()
            elif kind == "escaped":
                self.add(piece[2:-1], has_quotes=True)
            elif kind == "operator":
                self.end_command()
                if piece == ")":
                    if closing != ")":
                        raise _UnknownSyntax("unexpected )")
                    return self.position
                if piece == "\n":
                    self.skip_heredocs()
            elif kind == "redirect":
                self.end_word()
                if self.redirect:
                    raise _UnknownSyntax(f"{self.redirect} has no target")
                self.redirect = piece.lstrip("0123456789")
            elif kind == "substitution":
                self.position = start
                self.add_substitution()
            else:
                self.parse_parenthesis(piece)
        if closing:
            raise _UnknownSyntax(f"{closing} is missing")
        self.end_command()
        if self.heredocs:
            raise _UnknownSyntax("the text of a here-document is missing")
        return self.position

    def add(self, piece: str, *, has_quotes: bool = False) -> None:
        self.word = (self.word or "") + piece
        self.has_quotes = self.has_quotes or has_quotes

    def add_double_quoted(self) -> None:
        """Add the text of a string in double quotes, which may contain substitutions."""
        self.add("", has_quotes=True)
        while found := _DOUBLE_QUOTED.match(self.text, self.position):
            text = found[0]
            self.add(re.sub(r"\\([\\\"$`\n])", _unescape, text) if "\\" in text else text)
            self.position = found.end()
            if self.position >= len(self.text):
                raise _UnknownSyntax("a double quote is not closed")
            if self.text[self.position] == '"':
                self.position += 1
                return
            self.add_substitution()

    def add_substitution(self) -> None:
        """Add a placeholder for a substitution, and parse the commands in it."""
        text, start = self.text, self.position
        if found := _ARITHMETIC.match(text, start) or _PARAMETER.match(text, start):
            self.add(found[0])
            self.position = found.end()
        elif text.startswith("$(", start):
            self.add(_SUBSTITUTION)
            self.position = self.parse_nested(start + 2)
        elif found := _BACKQUOTED.match(text, start):
            self.add(_SUBSTITUTION)
            inner = re.sub(r"\\([\\`$])", r"\1", found[1])
            _Parser(inner, 0, self.commands, self.depth + 1).parse_list("")
            self.position = found.end()
        else:
            raise _UnknownSyntax("unknown or unclosed substitution")

    def parse_parenthesis(self, opening: str) -> None:
        """Parse a subshell or a process substitution."""
        if opening == ">(" or (opening == "(" and (self.word is not None or self.words)):
            raise _UnknownSyntax("unexpected (")
        if opening == "<(":
            self.add(_SUBSTITUTION)
        self.position = self.parse_nested(self.position)

    def parse_nested(self, start: int) -> int:
        return _Parser(self.text, start, self.commands, self.depth + 1).parse_list(")")

    def end_word(self) -> None:
        word, self.word = self.word, None
        if word is None:
            return
        redirect, self.redirect = self.redirect, ""
        if redirect in ("<<", "<<-"):
            self.heredocs.append((word, redirect == "<<-", self.has_quotes))
        elif ">" in redirect and not (redirect == ">&" and (word.isdigit() or word == "-")):
            self.files.append(word)
        elif not redirect:
            self.words.append(word)
        self.has_quotes = False

    def end_command(self) -> None:
        self.end_word()
        if self.redirect:
            raise _UnknownSyntax(f"{self.redirect} has no target")
        if self.words or self.files:
            self.commands.append(SimpleCommand(tuple(self.words), tuple(self.files)))
        self.words, self.files = [], []

    def skip_heredocs(self) -> None:
        """Skip the texts of the here-documents that begin on the next line."""
        for delimiter, removes_tabs, is_literal in self.heredocs:
            start = self.position
            tabs = r"\t*" if removes_tabs else ""
            end = re.compile(rf"^{tabs}{re.escape(delimiter)}$", re.MULTILINE).search(
                self.text, start
            )
            if end is None:
                raise _UnknownSyntax(f"the here-document has no line {delimiter}")
            if not is_literal and _HAS_SUBSTITUTION.search(self.text, start, end.start()):
                raise _UnknownSyntax("a here-document contains a substitution")
            self.position = end.end()
        self.heredocs.clear()


def _unescape(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]
