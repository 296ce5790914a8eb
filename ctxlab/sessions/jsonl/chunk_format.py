"""Read and write chunks, the JSONL files of a session.

A batch is a group of messages that were appended together. Each row of a batch stores how many rows
of the batch follow (``more``); the last row has no such key. A reader can therefore detect and
ignore an unfinished batch, which remains at the end of a chunk if a process was killed while it
wrote the batch. In a chunk that is written as a whole, no row stores ``more``.

A damaged line costs the message in it only. It keeps its position, so that the positions, turns and
steps of all other messages stay valid. A last line without a line break is not damaged but unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, ChunkHeader, parse_chunk_row
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message, Role
from ctxlab.sessions.common import encode_json
from ctxlab.sessions.damage import find_role, lost_message
from ctxlab.sessions.jsonl.files import parse_first_row, read_first_row

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
_ROW_START = re.compile(rb'\{"(?:role|more)":')
_JOINT = re.compile(rb'\}[\s\S]?(?=\{"(?:role|more)":)')
_MORE = re.compile(rb'\{"more":([0-9]{1,9}),')

OnDamage: TypeAlias = Callable[[int, str], None]
"""Function that is called with the number of a damaged line and the reason."""


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
    try:
        return read_first_row(path, "session", ChunkHeader)
    except ReadError:
        with path.open("rb") as file:
            joint = _JOINT.search(line := file.readline())
        # The line break after the header was overwritten.
        if joint is None or not is_header(line[: joint.start() + 1]):
            raise
        return parse_first_row(line[: joint.start() + 1], path, "session", ChunkHeader)


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
    is_damaged: bool = False
    "True if a line of the chunk is damaged; nothing is appended to such a chunk"

    @classmethod
    def read(
        cls,
        path: Path,
        header: ChunkHeader | None = None,
        *,
        sealed: bool = False,
        on_damage: OnDamage | None = None,
    ) -> ChunkTail:
        """Read a chunk and return the state at its end.

        Parameters
        ----------
        path : Path
            File of the chunk.
        header : ChunkHeader, optional
            Header of the chunk. By default, the header is read from the file. In a file of version 1,
            it has no step, and the turns and steps of the returned state are then not valid.
        sealed : bool, default False
            True if another chunk follows.
        on_damage : callable, optional
            Function that is called for each damaged line.

        Returns
        -------
        ChunkTail
            State after the last finished batch of the chunk.

        Raises
        ------
        ReadError
            If no header is given and that of the chunk is invalid.
        """
        said = header or read_chunk_header(path)
        tail = cls(said.chunk, said.first, said.turn, said.step or 0, said.replied)

        def note(line: int, reason: str) -> None:
            tail.is_damaged = True
            if on_damage is not None:
                on_damage(line, reason)

        with path.open("rb") as file:
            tail.end_offset = len(first) if is_header(first := file.readline()) else 0
            tail.is_damaged = not tail.end_offset or not first.endswith(b"\n")
        for batch in read_batches(path, _parse_role, _lost_role, sealed=sealed, on_damage=note):
            for each in batch:
                tail.add_roles(each.value)
            tail.end_offset, _, tail.has_newline = batch[-1][1:]
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


def is_header(text: bytes) -> bool:
    """Return True if a line is the header of a chunk.

    Parameters
    ----------
    text : bytes
        First line of a file.

    Returns
    -------
    bool
        True if the line is a JSON object with the type of a chunk header.
    """
    try:
        row = parse_json(text)
    except ValueError:
        return False
    return isinstance(row, dict) and (row.get("type"), row.get("format")) == ("session", "ctxlab")


def read_batches(
    path: Path,
    parse: Callable[[bytes], tuple[_T, int]],
    lost: Callable[[bytes, str], _T],
    *,
    sealed: bool = False,
    on_damage: OnDamage | None = None,
) -> Iterator[list[ChunkLine[_T]]]:
    """Yield the finished batches of a chunk.

    Parameters
    ----------
    path : Path
        File of the chunk.
    parse : callable
        Function that parses a line. It returns the parsed value and the number of rows of the batch
        that follow the line.
    lost : callable
        Function that gets a damaged line and the reason, and returns the value that replaces it.
    sealed : bool, default False
        If True, another chunk follows. The last line and the last batch are then finished, so that an
        incomplete one is damaged.
    on_damage : callable, optional
        Function that is called for each damaged line, with its number and the reason.

    Yields
    ------
    list of ChunkLine
        Lines of the next batch.
    """
    tell = on_damage or (lambda line, reason: None)
    batch: list[ChunkLine[_T]] = []
    more = offset = 0
    before = b""
    is_broken = False  # the line before cannot be parsed
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            offset += len(text)
            newline = text.endswith(b"\n")
            if not text.strip() or (number == 1 and is_header(text)):
                is_broken = number == 1 and not text.strip()
                continue
            rows: list[tuple[bytes, _T, int]] = []
            try:
                rows = [(text, *parse(text))]
            except ValueError as error:
                if rows := _split_joined(text, parse):
                    tell(number, "a line break is missing; the messages of this line could be read")
                elif not newline and not sealed:
                    break  # an unfinished write
                elif number == 1 and not _ROW_START.search(text):
                    is_broken = True
                    continue  # a damaged header, which its reader reports
                elif is_broken and not _ROW_START.match(text):  # the rest of the line before
                    if batch:
                        before += text
                        value = lost(before, f"{path.name}:{batch[-1].number} cannot be read")
                        batch[-1] = ChunkLine(value, offset, batch[-1].number, newline)
                    continue
                else:
                    tell(number, f"{error}; the message in this line is lost")
            is_broken = not rows
            if is_broken:
                match = _MORE.match(text)
                following = more - 1 if batch and more else int(match[1]) if match else 0
                rows = [(text, lost(text, f"{path.name}:{number} cannot be read"), following)]
            for row, value, following in rows:
                if batch and not more:
                    yield batch
                    batch = []
                if batch and following == more and row == before:
                    tell(number, "the line before is repeated; its message is read once")
                    batch[-1] = batch[-1]._replace(end_offset=offset, has_newline=newline)
                    continue
                if batch and following != more - 1:
                    tell(number, "messages that were appended together with this one are missing")
                batch.append(ChunkLine(value, offset, number, newline))
                more, before = following, row
    if sealed and batch and more:
        reason = "messages that were appended together with this one are missing"
        tell(batch[-1].number, reason)
    if batch and (sealed or not more):
        yield batch


def _split_joined(
    text: bytes, parse: Callable[[bytes], tuple[_T, int]]
) -> list[tuple[bytes, _T, int]]:
    """Parse a line in which the line break after a row was overwritten. Return [] if it is none."""
    if not text.endswith(b"\n"):
        with suppress(ValueError):
            return [(text, *parse(text[:-1]))]
    for joint in _JOINT.finditer(text):
        parts = [text[: joint.start() + 1], text[joint.end() :]]
        if is_header(parts[0]):
            parts = parts[1:]
        with suppress(ValueError):
            return [(part, *parse(part)) for part in parts]
    return []


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


def lost_row(text: bytes, reason: str) -> Message:
    """Return the placeholder of the message in a damaged line.

    Parameters
    ----------
    text : bytes
        Damaged line.
    reason : str
        File and line.

    Returns
    -------
    Message
        Placeholder with the role of the lost message, as far as it is legible.
    """
    return lost_message(find_role(text), reason)


def _lost_role(text: bytes, reason: str) -> Role:
    return lost_row(text, reason).role


def _parse_role(text: bytes) -> tuple[Role, int]:
    try:
        brief = _DECODE_BRIEF(text)
    except (msgspec.DecodeError, UnicodeError):
        message, more = parse_message_row(text)
        return message.role, more
    return brief.role, brief.more
