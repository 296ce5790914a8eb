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

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, ChunkHeader, parse_chunk_row
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message, Role
from ctxlab.sessions.jsonl.files import read_first_row

__all__ = [
    "ChunkLine",
    "ChunkTail",
    "encode_chunk",
    "encode_rows",
    "parse_row",
    "read_batches",
    "read_chunk_header",
]

_T = TypeVar("_T")


class ChunkLine(NamedTuple, Generic[_T]):
    """A line of a chunk, and what stands there."""

    value: _T
    end_offset: int
    "bytes of the file up to its end"
    number: int
    has_newline: bool
    "whether it is ended"


class _RowBrief(msgspec.Struct):
    """What a writer wants to know of a row."""

    role: Role
    more: int = 0


_DECODE_BRIEF = msgspec.json.Decoder(_RowBrief).decode


def read_chunk_header(path: Path) -> ChunkHeader:
    """The header of a chunk; ``ReadError`` where its first line is none."""
    row = read_first_row(path, "session")
    try:
        return msgspec.convert(row, ChunkHeader)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"no header of a chunk: {error}") from None


def parse_row(text: bytes) -> Any:
    """A line as JSON; ``ValueError`` says in two words that it is none."""
    try:
        return parse_json(text)
    except ValueError:
        raise ValueError("not JSON") from None


def encode_rows(messages: tuple[Message, ...]) -> str:
    """Messages as the rows of one batch.

    >>> print(encode_rows((Message("user", "hi"), Message("assistant", "hello"))), end="")
    {"more":1,"role":"user","content":"hi"}
    {"role":"assistant","content":"hello"}
    """
    last = len(messages) - 1
    return "".join(
        dump_json(({"more": last - n} if n < last else {}) | row_from_message(message)) + "\n"
        for n, message in enumerate(messages)
    )


def encode_chunk(
    start: ChunkTail,
    id: str,
    model: str | None = None,
    messages: Sequence[Message] = (),
    batch: int = 0,
) -> bytes:
    """A complete chunk, which begins with ``start``; each of its messages is finished by itself."""
    said = ChunkHeader(
        type="session",
        format="ctxlab",
        version=CHUNK_VERSION,
        id=id,
        chunk=start.chunk,
        first=start.first_position,
        turn=start.turn,
        replied=start.replied,
        batch=batch,
        model=model,
    )
    rows = (msgspec.to_builtins(said), *map(row_from_message, messages))
    return "".join(dump_json(row) + "\n" for row in rows).encode()


def read_batches(path: Path, *, sealed: bool = False) -> Iterator[list[ChunkLine[Message]]]:
    """The finished batches of a chunk, one after the other.

    ``sealed``: another chunk follows, so that this one is finished. Raises ``ReadError`` for a line that
    is broken, unless it is the last one of a chunk that is not sealed.
    """
    return _iter_batches(path, 0, 0, _parse_message_row, sealed)


@dataclass
class ChunkTail:
    """What a writer knows of the newest chunk: what has been finished there, up to which byte."""

    chunk: int
    first_position: int
    turn: int
    replied: bool
    message_count: int = 0
    end_offset: int = 0
    has_newline: bool = True
    "whether the last line is ended"

    @classmethod
    def read(cls, path: Path) -> ChunkTail:
        """As it is now."""
        said = read_chunk_header(path)
        with path.open("rb") as file:
            end = len(file.readline())
        tail = cls(said.chunk, said.first, said.turn, said.replied, end_offset=end)
        line = 1
        for batch in _iter_batches(path, end, line, _parse_role, False):
            for each in batch:
                tail.add_roles(each.value)
            tail.end_offset, line, tail.has_newline = batch[-1][1:]
        with path.open("rb") as file:
            file.seek(tail.end_offset)
            if (rest := file.read()) and not rest.strip():  # blank lines, and no message begun
                tail.end_offset, tail.has_newline = (
                    tail.end_offset + len(rest),
                    rest.endswith(b"\n"),
                )
        return tail

    @property
    def next_position(self) -> int:
        """Of the message that comes next."""
        return self.first_position + self.message_count

    def add_roles(self, *roles: Role) -> None:
        """Messages more."""
        turns = TurnCounter(self.turn, self.replied)
        for role in roles:
            turns.add(Message(role))
        self.turn, self.replied = turns.number, turns.replied
        self.message_count += len(roles)


def _iter_batches(
    path: Path, start: int, line: int, parse: Callable[[bytes], tuple[_T, int]], sealed: bool
) -> Iterator[list[ChunkLine[_T]]]:
    """The finished batches behind the first ``line`` lines, which are ``start`` bytes."""
    batch: list[ChunkLine[_T]] = []
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
            batch.append(ChunkLine(value, start, number, text.endswith(b"\n")))
            if not more:
                yield batch
                batch = []
    if sealed and broken is not None:
        raise ReadError(path, *broken)
    if sealed and batch:
        raise ReadError(path, batch[-1].number, "rows of its batch are missing")


def _parse_message_row(text: bytes) -> tuple[Message, int]:
    return parse_chunk_row(parse_row(text))


def _parse_role(text: bytes) -> tuple[Role, int]:
    try:
        brief = _DECODE_BRIEF(text)
    except (msgspec.DecodeError, UnicodeError):
        message, more = _parse_message_row(text)
        return message.role, more
    return brief.role, brief.more
