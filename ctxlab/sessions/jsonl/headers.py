"""Headers of the chunks of sessions: found, checked, and rebuilt where they are damaged.

The header of a chunk stores the position, the turn and the step at which the chunk begins, so that a
message, a turn or a step is found by binary search over the headers. A header that is damaged, or that
does not continue the chunk before it, is rebuilt: the messages of all earlier chunks are counted. The
same is done for headers of version 1, which number each step as a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ctxlab._utils.humanize import pluralize
from ctxlab.context.turns import TurnCounter
from ctxlab.errors import ReadError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, ChunkHeader
from ctxlab.messages.types import Message
from ctxlab.sessions.damage import DamageLog, fill_gap, lost_message
from ctxlab.sessions.jsonl.chunk_format import ChunkTail, read_chunk_header
from ctxlab.sessions.jsonl.files import SessionFiles, file_mark


class ChunkHeaders:
    """Headers of the chunks in a folder. Checked and counted headers are kept in memory.

    Parameters
    ----------
    files : SessionFiles
        Files of the sessions.
    damage : DamageLog
        Log of the damage that is noticed.
    """

    def __init__(self, files: SessionFiles, damage: DamageLog) -> None:
        self._files, self._damage = files, damage
        self._consistent: dict[Path, tuple[object, bool]] = {}
        self._counted: dict[str, dict[int, ChunkHeader]] = {}

    def forget(self, id: str | None = None) -> None:
        """Drop the headers that are kept in memory.

        Parameters
        ----------
        id : str, optional
            Session id. None drops the headers of all sessions.
        """
        if id is None:
            self._counted.clear()
            self._consistent.clear()
        else:
            self._counted.pop(id, None)

    def newest_chunk(self, id: str, known: int) -> int:
        """Return the number of the newest chunk.

        Parameters
        ----------
        id : str
            Session id.
        known : int
            Number of a chunk that was written, at which the search starts.

        Returns
        -------
        int
            Number of the chunk; 0 if all chunks are missing.
        """
        number = known
        while self._files.chunk_path(id, number + 1).exists():
            number += 1
        if number == known and not self._files.chunk_path(id, number).exists():
            number = max((n for n in self._files.list_chunks(id) if n < known), default=0)
            for lost in range(number + 1, known + 1):
                path = self._files.chunk_path(id, lost)
                self._damage.tell(path, "this chunk is missing; its messages are lost", id)
        return number

    def following_chunk(self, id: str, number: int, last: int) -> int | None:
        """Return the number of the next chunk that exists.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of a chunk.
        last : int
            Chunks up to this number may be missing; later ones do not exist if one is missing.

        Returns
        -------
        int or None
            Number of the next chunk; None if there is none.
        """
        if self._files.chunk_path(id, number + 1).exists():
            return number + 1
        later = self._files.list_chunks(id) if number < last else ()
        return next((each for each in later if number < each <= last), None)

    def parse(self, id: str, number: int) -> ChunkHeader | None:
        """Return the header of a chunk as it is stored.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk.

        Returns
        -------
        ChunkHeader or None
            Stored header; None if it is damaged.
        """
        path = self._files.chunk_path(id, number)
        try:
            header = read_chunk_header(path)
        except ReadError as error:
            self._damage.tell(f"{path}:1", f"damaged header ({error.reason}); it was rebuilt", id)
            return None
        return header if header.chunk == number else replace(header, chunk=number)

    def read(self, id: str, number: int) -> ChunkHeader:
        """Return the header of a chunk with valid turns and steps.

        The header of a file of version 1 stores other numbers, and a damaged header may store wrong
        ones. In these cases all earlier chunks are counted; the result is cached.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk.

        Returns
        -------
        ChunkHeader
            Stored or rebuilt header.
        """
        header = self.parse(id, number)
        if header is None or header.step is None or not self._is_consistent(id, header):
            return self.count(id, number)
        return header

    def _is_consistent(self, id: str, header: ChunkHeader) -> bool:
        """Return True if a header continues the chunk before it. The answer is cached."""
        if header.chunk == 1:
            return _state(header) == (0, 0, 0, True)
        before = self._files.chunk_path(id, header.chunk - 1)
        mark = (file_mark(before), header)
        known = self._consistent.get(before)
        if known is None or known[0] != mark:
            try:
                tail = ChunkTail.read(before, sealed=True)
                earlier = read_chunk_header(before)
            except (FileNotFoundError, ReadError):
                return False
            state = _state(header)
            same = _state(tail) == state if earlier.step is not None else True
            same = same and tail.next_position == header.first
            known = self._consistent[before] = mark, same
        return known[1]

    def count(self, id: str, number: int) -> ChunkHeader:
        """Return the header of a chunk, from the messages of all chunks before it.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk.

        Returns
        -------
        ChunkHeader
            Rebuilt header, or the stored one if the messages agree with it.
        """
        known = self._counted.setdefault(id, {})
        for each in self._files.list_chunks(id):
            if each <= number and each not in known:
                known[each] = self._resolve(id, each, known)
        return known[number]

    def _resolve(self, id: str, number: int, known: dict[int, ChunkHeader]) -> ChunkHeader:
        """Return the header of a chunk, of which the headers of all earlier chunks are ``known``."""
        stored, start = self.parse(id, number), ChunkTail()
        previous = max(known, default=0)
        if previous:
            path = self._files.chunk_path(id, previous)
            start = ChunkTail.read(path, known[previous], sealed=True)
        counted = make_header(id, number, start)
        if stored is None:
            return counted
        if stored.step is None:  # version 1
            counted = _with_numbers(stored, counted)
            return counted if previous == number - 1 else replace(counted, first=stored.first)
        if _state(stored) == _state(counted):
            return stored
        if previous < number - 1:  # chunks are missing
            return stored if stored.first >= counted.first else counted
        lost = stored.first - counted.first
        can_be = (
            fill_gap(lost, counter_at(counted), counter_at(stored)) is not None if lost else True
        )
        following = self._files.chunk_path(id, number + 1)
        if following.exists() and (later := self.parse(id, number + 1)) is not None:
            path = self._files.chunk_path(id, number)
            own = ChunkTail.read(path, _with_numbers(stored, counted, counted.first), sealed=True)
            can_be = can_be and _state(own) != _state(later)
        same_turn = _state(stored)[1:] == _state(counted)[1:]
        if lost < 0 or not can_be or (not start.is_damaged and same_turn):
            said = "the header has wrong numbers; they were counted"
            self._damage.tell(f"{self._files.chunk_path(id, number)}:1", said, id)
            return _with_numbers(stored, counted, counted.first)
        return stored

    def read_tail(self, id: str, number: int) -> ChunkTail:
        """Return the state at the end of the newest chunk.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk; 0 if there is none.

        Returns
        -------
        ChunkTail
            State at the end of the chunk.
        """
        if not number:
            return ChunkTail(0, is_damaged=True)
        path, header = self._files.chunk_path(id, number), self.read(id, number)
        return ChunkTail.read(path, header, on_damage=self.damage_of(id, path))

    def damage_of(self, id: str, path: Path) -> Callable[[int, str], None]:
        """Return a function that records damage of a chunk.

        Parameters
        ----------
        id : str
            Session id.
        path : Path
            Path of the chunk.

        Returns
        -------
        callable
            Function of a line number and a reason.
        """
        return lambda line, reason: self._damage.tell(f"{path}:{line}", reason, id)

    def find(
        self, id: str, last: int, holds: Callable[[ChunkHeader], bool], *, numbered: bool = False
    ) -> ChunkHeader:
        """Find the last chunk whose header meets a condition, by binary search.

        Parameters
        ----------
        id : str
            Session id.
        last : int
            Number of the newest chunk.
        holds : callable
            Condition. It is met by all chunks up to the one that is looked for.
        numbered : bool, default False
            Pass only headers with valid turns and steps to the condition.

        Returns
        -------
        ChunkHeader
            Header of the chunk, or of the first chunk if none meets the condition. If the first chunk
            is missing, it can be the header of an empty chunk 0.
        """

        def read(number: int) -> ChunkHeader:
            header = self.parse(id, number)
            if header is not None and (header.step is None and numbered):
                return self.count(id, number)
            if header is None:
                raise _DamagedChunk
            return header

        low, high = 1, last
        try:
            while low < high:
                middle = (low + high + 1) // 2
                if holds(read(middle)):
                    low = middle
                else:
                    high = middle - 1
            found = read(low)
            if found.step is None or self._is_consistent(id, found):
                return found
        except (_DamagedChunk, FileNotFoundError):
            pass
        numbers = [number for number in self._files.list_chunks(id) if number <= last]
        headers = [self.count(id, number) for number in numbers]
        fits = [header for header in headers if header.chunk == 1 or holds(header)]
        return fits[-1] if fits else make_header(id, 0, ChunkTail(0))

    def read_after(self, id: str, number: int, before: ChunkTail, is_old: bool) -> ChunkHeader:
        """Return the header of a chunk whose predecessor was just read.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk.
        before : ChunkTail
            State at the end of the chunk before it.
        is_old : bool
            True if the turns and steps of ``before`` are not valid, in files of version 1.

        Returns
        -------
        ChunkHeader
            Stored header if it continues ``before``, otherwise a rebuilt one.
        """
        header = self.parse(id, number)
        if header is not None and (is_old or header.step is None):
            same = header.first == before.next_position
        else:
            same = header is not None and _state(header) == _state(before)
        return header if header is not None and same else self.read(id, number)

    def lost_messages(self, id: str, before: ChunkTail, header: ChunkHeader) -> list[Message]:
        """Return placeholders for messages that are missing between two chunks.

        Parameters
        ----------
        id : str
            Session id.
        before : ChunkTail
            State at the end of a chunk.
        header : ChunkHeader
            Header of the next chunk that exists.

        Returns
        -------
        list of Message
            Placeholders, with the roles that the numbers of turns and steps allow.
        """
        count = header.first - before.next_position
        if count <= 0:
            return []
        name = self._files.chunk_path(id, before.chunk).name
        reason = f"{name} is incomplete"
        for number in range(before.chunk + 1, header.chunk):
            path = self._files.chunk_path(id, number)
            reason = f"{path.name} is missing"
            self._damage.tell(path, "this chunk is missing; its messages are lost", id)
        if header.chunk == before.chunk + 1:
            said = (
                f"lines are missing; {pluralize(count, 'message')} before chunk {header.chunk} lost"
            )
            self._damage.tell(self._files.chunk_path(id, before.chunk), said, id)
        roles = fill_gap(count, counter_at(before), counter_at(header)) or ["system"] * count
        return [lost_message(role, reason) for role in roles]


class _DamagedChunk(Exception):
    """A chunk is missing or has a damaged header, so that it cannot be found by binary search."""


def _with_numbers(header: ChunkHeader, start: ChunkHeader, first: int | None = None) -> ChunkHeader:
    first = header.first if first is None else first
    numbers = {"turn": start.turn, "step": start.step, "replied": start.replied}
    return replace(header, first=first, version=CHUNK_VERSION, **numbers)


def make_header(id: str, number: int, end: ChunkTail) -> ChunkHeader:
    """Return the header of a chunk.

    Parameters
    ----------
    id : str
        Session id.
    number : int
        Number of the chunk.
    end : ChunkTail
        State at the end of the chunk before it.

    Returns
    -------
    ChunkHeader
        Header of the present version.
    """
    return ChunkHeader(
        type="session",
        format="ctxlab",
        version=CHUNK_VERSION,
        id=id,
        chunk=number,
        first=end.next_position,
        turn=end.turn,
        step=end.step,
        replied=end.replied,
    )


def counter_at(start: ChunkHeader | ChunkTail) -> TurnCounter:
    """Return a counter of turns and steps that continues at the beginning or the end of a chunk.

    Parameters
    ----------
    start : ChunkHeader or ChunkTail
        Header of a chunk, or the state at the end of one.

    Returns
    -------
    TurnCounter
        New counter.
    """
    return TurnCounter(start.turn, start.step or 0, start.replied)


def _state(start: ChunkHeader | ChunkTail) -> tuple[int, int, int, bool]:
    """Return the next position, the turn and the step, and whether the step has a reply."""
    first = start.next_position if isinstance(start, ChunkTail) else start.first
    return first, start.turn, start.step or 0, start.replied
