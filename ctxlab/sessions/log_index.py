"""Files of logs are recognised once, read again when they changed, and kept in memory within a bound."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ctxlab.errors import (
    ReadError,
    UnknownFormat,
)
from ctxlab.formats.base import (
    Format,
    Source,
    recordings,
)
from ctxlab.formats.io.files import (
    Found,
    Place,
    find,
    is_address,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.registry import recognise
from ctxlab.messages.types import Recording

__all__ = ["KEPT", "LogFile", "LogFiles", "Stamp"]

KEPT = 1 << 26
"""Bytes of files whose recordings are kept in memory; those of a larger file never are."""

Stamp: TypeAlias = tuple[int, int]
"""When a file was changed, in nanoseconds, and its bytes; zeros for an address."""


@dataclass(frozen=True)
class LogFile:
    """A file that holds recordings, or several that are read together."""

    places: tuple[Place, ...]
    name: str
    "what the ids of its recordings begin with"
    format: Format
    stamps: tuple[Stamp, ...]

    @property
    def key(self) -> str:
        """Which file it is, whatever stands in it."""
        return str(self.places[0])

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(size for _, size in self.stamps)

    @property
    def changed(self) -> float:
        """When, in seconds since 1970; 0 where nobody knows."""
        return max(nanoseconds for nanoseconds, _ in self.stamps) / 1e9

    @property
    def stale(self) -> bool:
        """Whether it has changed or gone since it was looked at."""
        return tuple(map(_stamp, self.places)) != self.stamps


class _Looked(NamedTuple):
    """What was found in the head of a file."""

    stamp: Stamp
    "which the file had before it was looked into"
    format: Format
    together: str | None
    "files of its folder and format that say the same are read with it; None: it stands alone"


class LogFiles:
    """What files hold recordings below some paths."""

    def __init__(self, paths: Sequence[Place]) -> None:
        self.paths = tuple(paths)
        self.left_out: dict[str, str] = {}
        "files that hold no recording that can be read, and why"
        self._known: dict[str, tuple[Stamp, _Looked | None]] = {}
        self._kept: OrderedDict[LogFile, list[Recording]] = OrderedDict()
        self._held = 0  # bytes of them

    def found(self) -> list[LogFile]:
        """The files as they are now, in order; only what is new or changed is looked into.

        Raises ``ReadError`` for a path that is missing or a file, asked for by its name, that is broken;
        ``UnknownFormat`` where no reader recognises that.
        """
        self.left_out = {}
        every = [each for path in self.paths for each in find(path)]
        once = list({str(each.place): each for each in every}.values())
        groups: dict[tuple[str, ...], list[tuple[Found, _Looked]]] = {}
        for each in once:
            looked = self._recognised(each)
            if looked is not None:
                beside = each.folder if looked.together is not None else str(each.place)
                group = (beside, looked.format.name, looked.together or "")
                groups.setdefault(group, []).append((each, looked))
        files = [_file(these) for these in groups.values()]
        self._known = {
            key: self._known[key] for each in once if (key := str(each.place)) in self._known
        }
        return files

    def recordings(self, file: LogFile) -> Iterator[Recording]:
        """The recordings of a file in order; what is broken in it is skipped and counted.

        Raises ``ReadError`` where nothing can be read.
        """
        if file in self._kept:
            self._kept.move_to_end(file)
            yield from self._kept[file]
        elif file.size > KEPT:
            yield from self._read(file)
        else:
            read = self._kept[file] = list(self._read(file))
            self._held += file.size
            while self._held > KEPT:
                self._held -= self._kept.popitem(last=False)[0].size
            yield from read

    def _read(self, file: LogFile) -> Iterator[Recording]:
        first, *others = file.places
        source, nothing = Source(first, file.name, "skip", tuple(others)), True
        for recording in recordings(file.format, source):
            nothing = False
            yield recording
        if nothing:
            why = "; ".join(list(source.take())[:3])
            reason = f"no {file.format.name} conversation in it"
            raise ReadError(first, None, f"{reason} ({why})" if why else reason)

    def _recognised(self, each: Found) -> _Looked | None:
        """What a file is; None, and why in ``left_out``, where it holds no recording."""
        key, stamp = str(each.place), _stamp(each.place)
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            looked = known[1]
        else:
            try:
                head = Head.of(each.place)
            except ReadError as broken:
                self._without(each, broken)
                return None
            if not head.start.strip():
                self._without(each, ReadError(each.place, None, "the file is empty"))
                return None
            format = recognise(head)
            group = format.together(head) if format and format.together else None
            looked = _Looked(stamp, format, group) if format else None
            self._known[key] = stamp, looked
        if looked is None:
            self._without(each, UnknownFormat(each.place, None, "no reader recognises it"))
        return looked

    def _without(self, each: Found, why: ReadError) -> None:
        if each.named:
            raise why
        self.left_out[str(each.place)] = why.reason


def _file(these: Sequence[tuple[Found, _Looked]]) -> LogFile:
    found, looked = these[0]
    name = (found.name.rpartition("/")[0] or found.name) if len(these) > 1 else found.name
    places = tuple(each.place for each, _ in these)
    return LogFile(places, name, looked.format, tuple(each.stamp for _, each in these))


def _stamp(place: Place) -> Stamp:
    if is_address(place):
        return 0, 0
    try:
        status = os.stat(place)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
