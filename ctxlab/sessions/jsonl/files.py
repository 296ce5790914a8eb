"""The files of a chunked session are written whole or to their end, and one writer at a time.

A small file is replaced by a complete one; a chunk grows at its end by one write a batch, and what a
killed process left there is put aside before the next one. Nobody who reads waits for a lock. All files
are readable by their owner only.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock, Timeout

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import FILE_MODE, make_folder, open_for_writing
from ctxlab.errors import ReadError, SessionError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION
from ctxlab.sessions.common import Fsync, check_choice

__all__ = ["CHUNK_PATTERN", "SessionFiles", "encode_first_row", "read_first_row"]

CHUNK_PATTERN = re.compile(r"session-(?P<id>.+)\.(?P<number>[1-9][0-9]*)\.jsonl")

_LOCK_COUNT = 64
_LOCK_TIMEOUT = 60.0  # seconds for a lock, which is held for milliseconds
_LOG = logging.getLogger("ctxlab.sessions")


def read_first_row(path: Path, kind: str) -> dict[str, Any]:
    """The first line of a file of a session; ``ReadError`` where it is not of that kind."""
    try:
        with path.open("rb") as file:
            row = parse_json(file.readline())
    except ValueError:
        row = None
    if not isinstance(row, dict) or (row.get("type"), row.get("format")) != (kind, "ctxlab"):
        known = "ctxlab sessions migrate takes files of other shapes"
        raise ReadError(path, 1, f"does not begin with a line of type {kind!r}; {known}")
    if row.get("version") != CHUNK_VERSION:
        reason = f"version {row.get('version')!r} of a session; this ctxlab reads {CHUNK_VERSION}"
        raise ReadError(path, 1, reason)
    return row


class SessionFiles:
    """The files of all sessions of a folder: how they are called, locked, replaced and cut.

    ``fsync``: whether each write is forced to the disk before it returns.
    """

    def __init__(self, folder: Path, fsync: Fsync = "always") -> None:
        check_choice("fsync", fsync, get_args(Fsync))
        self.folder = folder
        self._fsync = fsync == "always"

    def chunk_path(self, id: str, number: int) -> Path:
        """A chunk."""
        return self.folder / f"session-{id}.{number}.jsonl"

    def sidecar_path(self, id: str, kind: str) -> Path:
        """Another file of a session: ``meta``, ``tools``, ``window``."""
        return self.folder / f"session-{id}.{kind}.json"

    def summaries_path(self, id: str) -> Path:
        """The summaries of its turns; no glob for chunks finds it."""
        return self.folder / f"lines-{id}.jsonl"

    def torn_path(self, id: str, number: int) -> Path:
        """What was cut off the end of a chunk."""
        return self.folder / f"session-{id}.{number}.torn"

    @contextmanager
    def locked(self, id: str) -> Iterator[None]:
        """Nobody else writes to this session meanwhile, in this process or another.

        The file of a lock stays: one that is removed while others wait for it would let two in.
        """
        which = int.from_bytes(blake2b(id.encode(), digest_size=2).digest()) % _LOCK_COUNT
        locks = self.folder / ".locks"
        try:
            make_folder(locks)
        except OSError as error:
            raise SessionError(f"{locks}: {error.strerror or error}") from None
        lock = FileLock(locks / f"{which:02}.lock", timeout=_LOCK_TIMEOUT, mode=FILE_MODE)
        try:
            lock.acquire(poll_interval=0.002)
        except OSError as error:
            if not isinstance(error, Timeout):
                raise SessionError(f"{locks}: {error.strerror or error}") from None
            reason = f"another process has held {lock.lock_file} for {_LOCK_TIMEOUT:.0f} seconds"
            raise SessionError(f"session {id!r} cannot be written: {reason}") from None
        try:
            yield
        except OSError as error:
            where = error.filename or self.folder
            raise SessionError(f"{where}: {error.strerror or error}") from None
        finally:
            lock.release()

    def replace(self, path: Path, content: bytes, *, modified: float | None = None) -> None:
        """Puts a complete file in the place of what is there; a kill leaves the one or the other.

        Whoever calls it holds the lock. ``.new`` is all that a kill can leave behind.
        """
        beside = path.with_name(f"{path.name}.new")
        try:
            with open_for_writing(beside) as file:
                file.write(content)
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            if modified is not None:
                os.utime(beside, (modified, modified))
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        self.sync_folder()

    def sync_folder(self) -> None:
        """Names that were given and taken in the folder are on disk."""
        if self._fsync and os.name == "posix":
            handle = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def append(self, path: Path, text: str) -> int:
        """Adds to the end of a file that is there, in one write; the size of the file after it."""
        data = memoryview(text.encode())
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            while data:  # one write, unless the disk is full or the file system a slow one
                data = data[os.write(handle, data) :]
            if self._fsync:
                os.fsync(handle)
            return os.fstat(handle).st_size
        finally:
            os.close(handle)

    def truncate(self, path: Path, end: int, backup: Path, id: str) -> None:
        """Ends a file at ``end``; what stood behind it is kept in ``backup``, and that is logged.

        The file is replaced by its beginning: whoever reads it meanwhile reads on in the old one.
        """
        whole, times = path.read_bytes(), path.stat()
        self._back_up(whole[end:], path, end, backup, id)
        self.replace(path, whole[:end], modified=times.st_mtime)

    def repair_last_line(self, path: Path, backup: Path, id: str) -> None:
        """Cuts off a last line that was never finished."""
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                self.truncate(path, path.read_bytes().rfind(b"\n") + 1, backup, id)

    def back_up_and_remove(self, path: Path, backup: Path, id: str) -> None:
        """Takes away a chunk of a batch that was never finished; its content is kept in ``backup``."""
        self._back_up(path.read_bytes(), path, 0, backup, id)
        path.unlink()
        self.sync_folder()

    def list_files(self, id: str) -> list[Path]:
        """Every file that a session has, what kills left behind included."""
        start, lines = f"session-{id}.", self.summaries_path(id).name
        own = re.compile(
            re.escape(start) + r"([1-9][0-9]*\.jsonl|[0-9]+\.torn|[a-z]+\.json)(\.new)?"
        )
        with os.scandir(self.folder) as entries:
            names = [
                e.name
                for e in entries
                if own.fullmatch(e.name) or e.name in (lines, f"{lines}.new")
            ]
        return [self.folder / name for name in sorted(names)]

    def _back_up(self, rest: bytes, path: Path, at: int, backup: Path, id: str) -> None:
        before = backup.read_bytes() if backup.exists() else b""
        cut = encode_first_row(
            "session-torn", id, file=path.name, at=at, cut=rest.decode(errors="replace")
        )
        self.replace(backup, before + cut)
        _LOG.warning(
            "%s: %d bytes of an append that was never finished are cut off; %s keeps them",
            path, len(rest), backup.name,
        )  # fmt: skip


def encode_first_row(kind: str, id: str, **fields: Any) -> bytes:
    """The first line of a file of a session, which says what it is; for some, all of it."""
    row = {"type": kind, "format": "ctxlab", "version": CHUNK_VERSION, "id": id, **fields}
    return f"{dump_json(row)}\n".encode()
