"""Files of logs are recognised once, read again when they changed, and kept in memory within a bound."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ctxlab.errors import ReadError, UnknownFormat
from ctxlab.formats.base import Format, Source, read_recordings
from ctxlab.formats.io.files import FoundFile, PathOrUrl, find_files, is_url
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.registry import match_format
from ctxlab.messages.types import Recording

__all__ = ["MAX_CACHED_BYTES", "FileStamp", "LogFile", "LogIndex"]

MAX_CACHED_BYTES = 1 << 26
"""Bytes of files whose recordings are kept in memory; those of a larger file never are."""

FileStamp: TypeAlias = tuple[int, int]
"""When a file was changed, in nanoseconds, and its bytes; zeros for an address."""


@dataclass(frozen=True)
class LogFile:
    """A file that holds recordings, or several that are read together."""

    places: tuple[PathOrUrl, ...]
    id_prefix: str
    "what the ids of its recordings begin with"
    format: Format
    stamps: tuple[FileStamp, ...]

    @property
    def key(self) -> str:
        """Which file it is, whatever stands in it."""
        return str(self.places[0])

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(size for _, size in self.stamps)

    @property
    def modified(self) -> float:
        """When, in seconds since 1970; 0 where nobody knows."""
        return max(nanoseconds for nanoseconds, _ in self.stamps) / 1e9

    @property
    def is_stale(self) -> bool:
        """Whether it has changed or gone since it was looked at."""
        return tuple(map(_file_stamp, self.places)) != self.stamps


class _RecognizedFile(NamedTuple):
    """What was found in the head of a file."""

    stamp: FileStamp
    "which the file had before it was looked into"
    format: Format
    group: str | None
    "files of its folder and format that say the same are read with it; None: it stands alone"


class LogIndex:
    """What files hold recordings below some paths."""

    def __init__(self, paths: Sequence[PathOrUrl]) -> None:
        self.paths = tuple(paths)
        self.skipped_files: dict[str, str] = {}
        "files that hold no recording that can be read, and why"
        self._recognized: dict[str, tuple[FileStamp, _RecognizedFile | None]] = {}
        self._cache: OrderedDict[LogFile, list[Recording]] = OrderedDict()
        self._cached_bytes = 0  # bytes of them

    def scan(self) -> list[LogFile]:
        """The files as they are now, in order; only what is new or changed is looked into.

        Raises ``ReadError`` for a path that is missing or a file, asked for by its name, that is broken;
        ``UnknownFormat`` where no reader recognises that.
        """
        self.skipped_files = {}
        every = [each for path in self.paths for each in find_files(path)]
        once = list({str(each.path): each for each in every}.values())
        groups: dict[tuple[str, ...], list[tuple[FoundFile, _RecognizedFile]]] = {}
        for each in once:
            looked = self._recognize_file(each)
            if looked is not None:
                beside = each.folder if looked.group is not None else str(each.path)
                group = (beside, looked.format.name, looked.group or "")
                groups.setdefault(group, []).append((each, looked))
        files = [_make_log_file(these) for these in groups.values()]
        self._recognized = {
            key: self._recognized[key]
            for each in once
            if (key := str(each.path)) in self._recognized
        }
        return files

    def recordings(self, file: LogFile) -> Iterator[Recording]:
        """The recordings of a file in order; what is broken in it is skipped and counted.

        Raises ``ReadError`` where nothing can be read.
        """
        if file in self._cache:
            self._cache.move_to_end(file)
            yield from self._cache[file]
        elif file.size > MAX_CACHED_BYTES:
            yield from self._read_recordings(file)
        else:
            read = self._cache[file] = list(self._read_recordings(file))
            self._cached_bytes += file.size
            while self._cached_bytes > MAX_CACHED_BYTES:
                self._cached_bytes -= self._cache.popitem(last=False)[0].size
            yield from read

    def _read_recordings(self, file: LogFile) -> Iterator[Recording]:
        first, *others = file.places
        source, nothing = Source(first, file.id_prefix, "skip", tuple(others)), True
        for recording in read_recordings(file.format, source):
            nothing = False
            yield recording
        if nothing:
            why = "; ".join(list(source.pop_skipped())[:3])
            reason = f"no {file.format.name} conversation in it"
            raise ReadError(first, None, f"{reason} ({why})" if why else reason)

    def _recognize_file(self, each: FoundFile) -> _RecognizedFile | None:
        """What a file is; None, and why in ``skipped_files``, where it holds no recording."""
        key, stamp = str(each.path), _file_stamp(each.path)
        known = self._recognized.get(key)
        if known is not None and known[0] == stamp:
            looked = known[1]
        else:
            try:
                head = FileHead.from_file(each.path)
            except ReadError as broken:
                self._skip_file(each, broken)
                return None
            if not head.first_bytes.strip():
                self._skip_file(each, ReadError(each.path, None, "the file is empty"))
                return None
            format = match_format(head)
            group = format.group_key(head) if format and format.group_key else None
            looked = _RecognizedFile(stamp, format, group) if format else None
            self._recognized[key] = stamp, looked
        if looked is None:
            self._skip_file(each, UnknownFormat(each.path, None, "no reader recognises it"))
        return looked

    def _skip_file(self, each: FoundFile, why: ReadError) -> None:
        if each.explicit:
            raise why
        self.skipped_files[str(each.path)] = why.reason


def _make_log_file(these: Sequence[tuple[FoundFile, _RecognizedFile]]) -> LogFile:
    found, looked = these[0]
    name = (found.name.rpartition("/")[0] or found.name) if len(these) > 1 else found.name
    places = tuple(each.path for each, _ in these)
    return LogFile(places, name, looked.format, tuple(each.stamp for _, each in these))


def _file_stamp(place: PathOrUrl) -> FileStamp:
    if is_url(place):
        return 0, 0
    try:
        status = os.stat(place)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
