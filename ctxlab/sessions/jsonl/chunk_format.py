"""A chunk is read batch by batch, and what stands behind its last finished batch is no part of it.

A batch is what was appended together. Its rows say how many follow (``more``), so that one of which a
killed process wrote only a part is known; so is a line that ends before its line break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
)
from ctxlab.context.turns import Turns
from ctxlab.errors import ReadError
from ctxlab.formats.ctxlab_sessions.chunks import (
    VERSION,
    Header,
    a_row,
)
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import (
    Message,
    Role,
)
from ctxlab.sessions.jsonl.files import first_line

__all__ = ["Line", "Tail", "batches", "chunk_text", "header", "json_row", "rows_text"]

_T = TypeVar("_T")


class Line(NamedTuple, Generic[_T]):
    """A line of a chunk, and what stands there."""

    value: _T
    end: int
    "bytes of the file up to its end"
    number: int
    newline: bool
    "whether it is ended"


class _Brief(msgspec.Struct):
    """What a writer wants to know of a row."""

    role: Role
    more: int = 0


_BRIEF = msgspec.json.Decoder(_Brief).decode


def header(path: Path) -> Header:
    """The header of a chunk; ``ReadError`` where its first line is none."""
    row = first_line(path, "session")
    try:
        return msgspec.convert(row, Header)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"no header of a chunk: {error}") from None


def json_row(text: bytes) -> Any:
    """A line as JSON; ``ValueError`` says in two words that it is none."""
    try:
        return parse_json(text)
    except ValueError:
        raise ValueError("not JSON") from None


def rows_text(messages: tuple[Message, ...]) -> str:
    """Messages as the rows of one batch.

    >>> print(rows_text((Message("user", "hi"), Message("assistant", "hello"))), end="")
    {"more":1,"role":"user","content":"hi"}
    {"role":"assistant","content":"hello"}
    """
    last = len(messages) - 1
    return "".join(
        dump_json(({"more": last - n} if n < last else {}) | row_from_message(message)) + "\n"
        for n, message in enumerate(messages)
    )


def chunk_text(
    begin: Tail,
    id: str,
    model: str | None = None,
    messages: Sequence[Message] = (),
    batch: int = 0,
) -> bytes:
    """A complete chunk, which begins with ``begin``; each of its messages is finished by itself."""
    said = Header(
        type="session",
        format="ctxlab",
        version=VERSION,
        id=id,
        chunk=begin.chunk,
        first=begin.first,
        turn=begin.turn,
        replied=begin.replied,
        batch=batch,
        model=model,
    )
    rows = (msgspec.to_builtins(said), *map(row_from_message, messages))
    return "".join(dump_json(row) + "\n" for row in rows).encode()


def batches(path: Path, *, sealed: bool = False) -> Iterator[list[Line[Message]]]:
    """The finished batches of a chunk, one after the other.

    ``sealed``: another chunk follows, so that this one is finished. Raises ``ReadError`` for a line that
    is broken, unless it is the last one of a chunk that is not sealed.
    """
    return _batches(path, 0, 0, _message, sealed)


@dataclass
class Tail:
    """What a writer knows of the newest chunk: what has been finished there, up to which byte."""

    chunk: int
    first: int
    turn: int
    replied: bool
    count: int = 0
    end: int = 0
    newline: bool = True
    "whether the last line is ended"

    @classmethod
    def of(cls, path: Path) -> Tail:
        """As it is now."""
        said = header(path)
        with path.open("rb") as file:
            end = len(file.readline())
        tail = cls(said.chunk, said.first, said.turn, said.replied, end=end)
        line = 1
        for batch in _batches(path, end, line, _role, False):
            for each in batch:
                tail.take(each.value)
            tail.end, line, tail.newline = batch[-1][1:]
        with path.open("rb") as file:
            file.seek(tail.end)
            if (rest := file.read()) and not rest.strip():  # blank lines, and no message begun
                tail.end, tail.newline = tail.end + len(rest), rest.endswith(b"\n")
        return tail

    @property
    def position(self) -> int:
        """Of the message that comes next."""
        return self.first + self.count

    def take(self, *roles: Role) -> None:
        """Messages more."""
        turns = Turns(self.turn, self.replied)
        for role in roles:
            turns.add(Message(role))
        self.turn, self.replied = turns.number, turns.replied
        self.count += len(roles)


def _batches(
    path: Path, start: int, line: int, parse: Callable[[bytes], tuple[_T, int]], sealed: bool
) -> Iterator[list[Line[_T]]]:
    """The finished batches behind the first ``line`` lines, which are ``start`` bytes."""
    batch: list[Line[_T]] = []
    broken: tuple[int, str] | None = None
    with path.open("rb") as file:
        file.seek(start)
        for number, text in enumerate(file, start=line + 1):
            start += len(text)
            if number == 1 or not text.strip():  # the header
                continue
            if broken is not None:
                raise ReadError(path, *broken)
            try:
                value, more = parse(text)
            except ValueError as error:
                broken = number, str(error)
                continue
            batch.append(Line(value, start, number, text.endswith(b"\n")))
            if not more:
                yield batch
                batch = []
    if sealed and broken is not None:
        raise ReadError(path, *broken)
    if sealed and batch:
        raise ReadError(path, batch[-1].number, "rows of its batch are missing")


def _message(text: bytes) -> tuple[Message, int]:
    return a_row(json_row(text))


def _role(text: bytes) -> tuple[Role, int]:
    try:
        brief = _BRIEF(text)
    except (msgspec.DecodeError, UnicodeError):
        message, more = _message(text)
        return message.role, more
    return brief.role, brief.more
