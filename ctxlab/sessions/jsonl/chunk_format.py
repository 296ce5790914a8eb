"""Read and write chunks, the JSONL files of a session.

A batch is a group of messages that were appended together. Each row of a batch stores how many rows
of the batch follow (``more``); the last row has no such key. A reader can therefore detect and
ignore an unfinished batch, which remains at the end of a chunk if a process was killed while it
wrote the batch. In a chunk that is written as a whole, no row stores ``more``.
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
from ctxlab.sessions.common import encode_json
from ctxlab.sessions.jsonl.files import read_first_row

_T = TypeVar("_T")


class ChunkLine(NamedTuple, Generic[_T]):
    """Parsed line of a chunk, with its location in the file."""

    value: _T
    "parsed content of the line"
    end_offset: int
    "offset of the end of the line in the file, in bytes"
    number: int
    "line number, from 1"
    has_newline: bool
    "True if the line ends with a line break"


class _RowBrief(msgspec.Struct):
    """The fields of a message row that are needed to count messages, turns and steps."""

    role: Role
    more: int = 0


_DECODE_BRIEF = msgspec.json.Decoder(_RowBrief).decode


def read_chunk_header(path: Path) -> ChunkHeader:
    """Read the header of a chunk.

    Parameters
    ----------
    path : Path
        File of the chunk.

    Returns
    -------
    ChunkHeader
        Header, read from the first line of the file.

    Raises
    ------
    ReadError
        If the first line is not a valid chunk header.
    """
    return read_first_row(path, "session", ChunkHeader)


def parse_row(text: bytes) -> Any:
    """Parse a line as JSON.

    Parameters
    ----------
    text : bytes
        Line of a file.

    Returns
    -------
    object
        Parsed JSON value.

    Raises
    ------
    ValueError
        If the line is not valid JSON.
    """
    try:
        return parse_json(text)
    except ValueError:
        raise ValueError("not JSON") from None


def encode_rows(messages: tuple[Message, ...]) -> str:
    """Encode messages as the rows of one batch.

    Parameters
    ----------
    messages : tuple of Message
        Messages of the batch.

    Returns
    -------
    str
        Rows as JSON, one per line.

    Raises
    ------
    SessionError
        If a message cannot be represented in JSON.

    Examples
    --------
    >>> print(encode_rows((Message("user", "hi"), Message("assistant", "hello"))), end="")
    {"more":1,"role":"user","content":"hi"}
    {"role":"assistant","content":"hello"}
    """
    return "".join(
        encode_json(({"more": n} if n else {}) | row_from_message(message), "a message") + "\n"
        for n, message in zip(range(len(messages) - 1, -1, -1), messages, strict=True)
    )


def encode_chunk(
    start: ChunkTail,
    id: str,
    model: str | None = None,
    messages: Sequence[Message] = (),
    batch: int = 0,
) -> bytes:
    """Encode a complete chunk: its header and the rows of its messages.

    The rows do not store ``more``, the number of rows that follow in the same batch. It is used only to
    detect unfinished batches, and a complete chunk contains none.

    Parameters
    ----------
    start : ChunkTail
        Position, turn and step at which the chunk begins.
    id : str
        Session id.
    model : str, optional
        Name of the model.
    messages : sequence of Message, optional
        Messages of the chunk.
    batch : int, default 0
        If the messages were appended together with messages in earlier chunks, the number of the
        first of these chunks. Otherwise 0.

    Returns
    -------
    bytes
        Content of the chunk file.
    """
    said = ChunkHeader(
        type="session",
        format="ctxlab",
        version=CHUNK_VERSION,
        id=id,
        chunk=start.chunk,
        first=start.first_position,
        turn=start.turn,
        step=start.step,
        replied=start.replied,
        batch=batch,
        model=model,
    )
    rows = (msgspec.to_builtins(said), *map(row_from_message, messages))
    return "".join(dump_json(row) + "\n" for row in rows).encode()


@dataclass
class ChunkTail:
    """State at the end of a session's newest chunk. A writer needs it to append messages.

    The messages of an unfinished batch at the end are not counted.
    """

    chunk: int = 1
    "number of the chunk, from 1"
    first_position: int = 0
    "position of the chunk's first message in the session"
    turn: int = 0
    "number of the current turn; 0 before the first turn"
    step: int = 0
    "number of the current step in its turn; 0 before the first turn"
    replied: bool = True
    "True if the assistant has replied in the current step"
    message_count: int = 0
    "number of messages in the chunk"
    end_offset: int = 0
    "offset of the end of the last finished batch, in bytes"
    has_newline: bool = True
    "True if the last line ends with a line break"

    @classmethod
    def read(cls, path: Path, header: ChunkHeader | None = None) -> ChunkTail:
        """Read a chunk and return the state at its end.

        Parameters
        ----------
        path : Path
            File of the chunk.
        header : ChunkHeader, optional
            Header of the chunk. By default, the header is read from the file. In a file of version 1,
            it has no step, and the turns and steps of the returned state are then not valid.

        Returns
        -------
        ChunkTail
            State after the last finished batch of the chunk.

        Raises
        ------
        ReadError
            If the chunk has an invalid header or an invalid line before the last line.
        """
        said = header or read_chunk_header(path)
        with path.open("rb") as file:
            end = len(file.readline())
        tail = cls(said.chunk, said.first, said.turn, said.step or 0, said.replied, end_offset=end)
        line = 1
        for batch in read_batches(path, _parse_role, end, line):
            for each in batch:
                tail.add_roles(each.value)
            tail.end_offset, line, tail.has_newline = batch[-1][1:]
        with path.open("rb") as file:
            file.seek(tail.end_offset)
            if (rest := file.read()) and not rest.strip():  # blank lines only
                tail.end_offset += len(rest)
                tail.has_newline = rest.endswith(b"\n")
        return tail

    @property
    def next_position(self) -> int:
        """Position in the session of the next message to append."""
        return self.first_position + self.message_count

    def next_chunk(self) -> ChunkTail:
        """Return the state of an empty chunk that follows this chunk.

        Returns
        -------
        ChunkTail
            State of the next chunk before its first message.
        """
        return ChunkTail(self.chunk + 1, self.next_position, self.turn, self.step, self.replied)

    def counter(self) -> TurnCounter:
        """Return a counter that continues after the last message.

        Returns
        -------
        TurnCounter
            Counter that has counted all messages of the session up to the end of the chunk.
        """
        return TurnCounter(self.turn, self.step, self.replied)

    def add_roles(self, *roles: Role) -> None:
        """Update the counts of messages, turns and steps for messages that were appended.

        Parameters
        ----------
        *roles : {'system', 'user', 'assistant', 'tool'}
            Role of each appended message, in order.
        """
        counter = self.counter()
        for role in roles:
            counter.add(Message(role))
        self.turn, self.step, self.replied = counter.turn, counter.step, counter.replied
        self.message_count += len(roles)


def read_batches(
    path: Path,
    parse: Callable[[bytes], tuple[_T, int]],
    start: int = 0,
    line: int = 0,
    *,
    sealed: bool = False,
) -> Iterator[list[ChunkLine[_T]]]:
    """Yield the finished batches of a chunk.

    Parameters
    ----------
    path : Path
        File of the chunk.
    parse : callable
        Function that parses a line. It returns the parsed value and the number of rows of the batch
        that follow the line.
    start : int, default 0
        Offset in the file at which to start reading, in bytes.
    line : int, default 0
        Number of lines before ``start``.
    sealed : bool, default False
        If True, the chunk must not end with an unfinished batch, because another chunk follows.

    Yields
    ------
    list of ChunkLine
        Lines of the next batch.

    Raises
    ------
    ReadError
        If a line before the last line is malformed. If ``sealed`` is True, also if the last line is
        malformed or the last batch is unfinished.
    """
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
        raise ReadError(
            path, batch[-1].number, "messages that were appended together with this one are missing"
        )


def parse_message_row(text: bytes) -> tuple[Message, int]:
    """Parse a chunk line that contains a message.

    Parameters
    ----------
    text : bytes
        Line of a chunk.

    Returns
    -------
    message : Message
        Parsed message.
    more : int
        Number of rows that follow in the same batch.

    Raises
    ------
    ValueError
        If the line is not a valid message.
    """
    return parse_chunk_row(parse_row(text))


def _parse_role(text: bytes) -> tuple[Role, int]:
    try:
        brief = _DECODE_BRIEF(text)
    except (msgspec.DecodeError, UnicodeError):
        message, more = parse_message_row(text)
        return message.role, more
    return brief.role, brief.more
