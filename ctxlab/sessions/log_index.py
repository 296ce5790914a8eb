"""Find log files, detect their formats, and cache their recordings up to a size limit."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ctxlab.errors import ReadError, UnknownFormat
from ctxlab.formats.base import Format, Source, read_recordings
from ctxlab.formats.io.files import FoundFile, PathOrUrl, find_files, is_url
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.registry import match_format
from ctxlab.messages.types import Recording

MAX_CACHED_BYTES = 1 << 26
"""Maximum total size in bytes of the files whose recordings are kept in memory."""

FileStamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds and size in bytes; both are 0 for a URL or a missing file."""


@dataclass(frozen=True)
class LogFile:
    """Log file with recordings, or a group of files that together form recordings."""

    places: tuple[PathOrUrl, ...]
    "paths or URLs of the files"
    id_prefix: str
    "prefix of the ids of the recordings in these files"
    format: Format
    "format that reads the files"
    stamps: tuple[FileStamp, ...]
    "modification time and size of each file"
    root: Path | None = None
    "folder outside of which no related file is read; None for files at URLs"

    @property
    def key(self) -> str:
        """Path or URL of the first file, which identifies the group."""
        return str(self.places[0])

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(size for _, size in self.stamps)

    @property
    def modified(self) -> float:
        """Latest modification time of the files, in seconds since 1970, or 0 if it is unknown."""
        return max(nanoseconds for nanoseconds, _ in self.stamps) / 1e9

    @property
    def is_stale(self) -> bool:
        """True if one of the files has changed or disappeared since the last scan."""
        return tuple(map(_file_stamp, self.places)) != self.stamps


class _RecognizedFile(NamedTuple):
    """Format of a file, detected from its first bytes."""

    stamp: FileStamp
    "modification time and size of the file before it was read"
    format: Format
    group: str | None
    """files with the same folder, format and group are read together, or from all folders if the format
    spans folders; None: the file is read alone"""


class LogIndex:
    """Index of the log files at the given paths, with a cache of their recordings.

    Parameters
    ----------
    paths : sequence of str or Path
        Files, folders, globs or URLs.
    """

    def __init__(self, paths: Sequence[PathOrUrl]) -> None:
        self.paths = tuple(paths)
        self.skipped_files: dict[str, str] = {}
        "path of each file that ``scan`` could not use → reason"
        self._recognized: dict[str, tuple[FileStamp, _RecognizedFile | None]] = {}
        self._cache: OrderedDict[LogFile, list[Recording]] = OrderedDict()
        self._cached_bytes = 0

    def scan(self) -> list[LogFile]:
        """Find all log files. Only files that are new or changed since the last scan are opened.

        A file that cannot be read or has an unknown format, and a folder that cannot be listed, is added
        to ``skipped_files``, unless ``paths`` names it directly.

        Returns
        -------
        list of LogFile
            Files in a known format, in the order of ``paths``.

        Raises
        ------
        ReadError
            If a path is missing, or if a file that ``paths`` names directly cannot be read.
        UnknownFormat
            If no format recognizes a file that ``paths`` names directly.
        """
        self.skipped_files = {}
        files = (each for path in self.paths for each in find_files(path, self._skip_folder))
        found = {str(each.path): each for each in files}
        self._recognized = {key: it for key, it in self._recognized.items() if key in found}
        groups: dict[tuple[str, ...], list[tuple[FoundFile, _RecognizedFile]]] = {}
        for key, each in found.items():
            looked = self._recognize_file(each)
            if looked is not None:
                folder = "" if looked.format.spans_folders else each.folder
                beside = key if looked.group is None else folder
                group = (beside, looked.format.name, looked.group or "")
                groups.setdefault(group, []).append((each, looked))
        return [_make_log_file(these) for these in groups.values()]

    def _skip_folder(self, error: ReadError) -> None:
        """Note a folder that cannot be listed, or raise the error if the user named this folder."""
        if any(str(error.path) == str(Path(path).expanduser()) for path in self.paths):
            raise error
        self.skipped_files[str(error.path)] = error.reason

    def recordings(self, file: LogFile) -> Iterator[Recording]:
        """Yield the recordings of a file in order. ``Recording.skipped`` counts malformed lines.

        Parameters
        ----------
        file : LogFile
            File to read.

        Yields
        ------
        Recording
            Next recording of the file.

        Raises
        ------
        ReadError
            If the file contains no readable recording.
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
        source, nothing = Source(first, file.id_prefix, "skip", tuple(others), file.root), True
        for recording in read_recordings(file.format, source):
            nothing = False
            yield recording
        if nothing:
            why = "; ".join(list(source.pop_skipped())[:3])
            reason = f"expected a conversation in the format {file.format.name}, found none"
            raise ReadError(first, None, f"{reason} ({why})" if why else reason)

    def _recognize_file(self, each: FoundFile) -> _RecognizedFile | None:
        """Detect the format of a file.

        If the file cannot be read or has an unknown format, add it to ``skipped_files`` and return
        None. If a path of the index names this file directly, raise the error instead.
        """
        key, stamp = str(each.path), _file_stamp(each.path)
        known = self._recognized.get(key)
        if known is None or known[0] != stamp:
            try:
                head = FileHead.from_file(each.path)
                if not head.first_bytes.strip():
                    raise ReadError(each.path, None, "the file is empty")
            except ReadError as broken:
                self._skip_file(each, broken)
                return None
            format = match_format(head)
            group = format.group_key(head) if format and format.group_key else None
            looked = _RecognizedFile(stamp, format, group) if format else None
            known = self._recognized[key] = stamp, looked
        if known[1] is None:
            self._skip_file(each, UnknownFormat(each.path, None, "unknown format"))
        return known[1]

    def _skip_file(self, each: FoundFile, why: ReadError) -> None:
        if each.explicit:
            raise why
        self.skipped_files[str(each.path)] = why.reason


def _make_log_file(these: Sequence[tuple[FoundFile, _RecognizedFile]]) -> LogFile:
    found, looked = these[0]
    name = (found.name.rpartition("/")[0] or found.name) if len(these) > 1 else found.name
    places = tuple(each.path for each, _ in these)
    stamps = tuple(each.stamp for _, each in these)
    return LogFile(places, name, looked.format, stamps, found.root)


def _file_stamp(place: PathOrUrl) -> FileStamp:
    if is_url(place):
        return 0, 0
    try:
        status = os.stat(place)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
