"""Files of a chunked session: names, locks, atomic replacement and appends.

Small files are replaced as a whole. A chunk grows at its end, by one write per batch. Before the
next write, an unfinished batch of a killed process is moved to a backup file. Writers take a lock;
readers do not. All files are readable by their owner only.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from filelock import FileLock, Timeout

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import FILE_MODE, make_folder, open_for_writing
from ctxlab.errors import ReadError, SessionError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION
from ctxlab.sessions.common import Fsync, check_choice, file_errors

CHUNK_PATTERN = re.compile(r"session-(?P<id>.+)\.(?P<number>[1-9][0-9]*)\.jsonl")

_LOCK_COUNT = 64
_LOCK_TIMEOUT = 60.0  # seconds; a lock is normally held for milliseconds
_LOG = logging.getLogger("ctxlab.sessions")
_T = TypeVar("_T")


def read_first_row(path: Path, kind: str, shape: type[_T]) -> _T:
    """Read the first line of a session file and check its type, version and fields.

    Parameters
    ----------
    path : Path
        File to read.
    kind : str
        Expected ``type`` of the row.
    shape : type
        Struct with the fields that are needed.

    Returns
    -------
    object
        The row, as an instance of ``shape``.

    Raises
    ------
    ReadError
        If the line has another type, version or fields.
    """
    try:
        with path.open("rb") as file:
            row = parse_json(file.readline())
    except ValueError:
        row = None
    if not isinstance(row, dict) or (row.get("type"), row.get("format")) != (kind, "ctxlab"):
        hint = "convert files of older formats with ctxlab sessions migrate"
        raise ReadError(path, 1, f"expected a first line of type {kind!r}; {hint}")
    if row.get("version") != CHUNK_VERSION:
        reason = f"expected session version {CHUNK_VERSION}, got {row.get('version')!r}"
        raise ReadError(path, 1, reason)
    try:
        return msgspec.convert(row, shape)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"invalid {kind}: {error}") from None


class SessionFiles:
    """Names, locks and writes of the session files of a folder.

    Parameters
    ----------
    folder : Path
        Folder of the store.
    fsync : {'always', 'never'}, default 'always'
        ``always`` forces each write to the disk before it returns.
    """

    def __init__(self, folder: Path, fsync: Fsync = "always") -> None:
        check_choice("fsync", fsync, Fsync)
        self.folder = folder
        self._fsync = fsync == "always"

    def chunk_path(self, id: str, number: int) -> Path:
        """Return the path of a chunk.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Chunk number, from 1.

        Returns
        -------
        Path
            Path of the chunk.
        """
        return self.folder / f"session-{id}.{number}.jsonl"

    def sidecar_path(self, id: str, kind: str) -> Path:
        """Return the path of a JSON file beside the chunks.

        Parameters
        ----------
        id : str
            Session id.
        kind : {'meta', 'tools', 'window'}
            Kind of the file.

        Returns
        -------
        Path
            Path of the file.
        """
        return self.folder / f"session-{id}.{kind}.json"

    def summaries_path(self, id: str) -> Path:
        """Return the path of the turn summaries, which a glob for chunks does not match.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Path
            Path of the file.
        """
        return self.folder / f"lines-{id}.jsonl"

    def torn_path(self, id: str, number: int) -> Path:
        """Return the path of the backup of data that was cut off a chunk.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Chunk number; 0 for other files.

        Returns
        -------
        Path
            Path of the backup.
        """
        return self.folder / f"session-{id}.{number}.torn"

    @contextmanager
    def locked(self, id: str) -> Iterator[None]:
        """Hold the write lock of a session, against threads and other processes.

        Lock files are never removed: removing one while others wait for it would let two writers
        in.

        Parameters
        ----------
        id : str
            Session id.

        Yields
        ------
        None
            The lock is held inside the ``with`` block.

        Raises
        ------
        SessionError
            If the lock cannot be taken, or if a file operation in the block fails.
        """
        which = int.from_bytes(blake2b(id.encode(), digest_size=2).digest()) % _LOCK_COUNT
        folder = self.folder / ".locks"
        lock = FileLock(folder / f"{which:02}.lock", timeout=_LOCK_TIMEOUT, mode=FILE_MODE)
        with file_errors(self.folder):
            make_folder(folder)
            try:
                lock.acquire(poll_interval=0.002)
            except Timeout:
                raise SessionError(
                    f"session {id!r} cannot be written: another process has held {lock.lock_file} "
                    f"for {_LOCK_TIMEOUT:.0f} seconds"
                ) from None
            try:
                yield
            finally:
                lock.release()

    def replace(self, path: Path, content: bytes, *, modified: float | None = None) -> None:
        """Replace a file atomically: after a kill, either the old or the new content is there.

        The caller must hold the lock. A kill can leave only a ``.new`` file behind.

        Parameters
        ----------
        path : Path
            File to replace.
        content : bytes
            New content.
        modified : float, optional
            Modification time to set, in seconds since 1970.
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
        """Force changed file names of the folder to the disk."""
        if self._fsync and os.name == "posix":
            handle = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def append(self, path: Path, text: str) -> int:
        """Append text to an existing file in one write.

        Parameters
        ----------
        path : Path
            File to extend.
        text : str
            Text to append.

        Returns
        -------
        int
            New size of the file in bytes.
        """
        data = memoryview(text.encode())
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        try:
            while data:  # usually one write; a full disk or network file system may need more
                data = data[os.write(handle, data) :]
            if self._fsync:
                os.fsync(handle)
            return os.fstat(handle).st_size
        finally:
            os.close(handle)

    def truncate(self, path: Path, end: int, id: str, number: int = 0) -> None:
        """Cut a file at ``end``, keep the rest in a backup and log a warning.

        The file is replaced rather than truncated, so that concurrent readers can finish the old
        one.

        Parameters
        ----------
        path : Path
            File to cut.
        end : int
            New size in bytes.
        id : str
            Session id.
        number : int, default 0
            Chunk number; 0 for other files.
        """
        whole, modified = path.read_bytes(), path.stat().st_mtime
        self._back_up(whole[end:], path, end, id, number)
        self.replace(path, whole[:end], modified=modified)

    def repair_last_line(self, path: Path, id: str) -> None:
        """Cut off an unfinished last line of a file that is not a chunk.

        Parameters
        ----------
        path : Path
            File to repair.
        id : str
            Session id.
        """
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                self.truncate(path, path.read_bytes().rfind(b"\n") + 1, id)

    def remove_chunk(self, id: str, number: int) -> None:
        """Remove a chunk of an unfinished batch, if there is one, and keep its content in a backup.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Chunk number.
        """
        if (path := self.chunk_path(id, number)).exists():
            self._back_up(path.read_bytes(), path, 0, id, number)
            path.unlink()
            self.sync_folder()

    def list_files(self, id: str) -> list[Path]:
        """Return all files of a session, including remains of killed processes.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        list of Path
            The files, sorted by name.
        """
        own = re.compile(
            rf"(session-{re.escape(id)}\.([1-9][0-9]*\.jsonl|[0-9]+\.torn|[a-z]+\.json)"
            rf"|{re.escape(self.summaries_path(id).name)})(\.new)?"
        )
        return sorted(self.folder / name for name in os.listdir(self.folder) if own.fullmatch(name))

    def _back_up(self, rest: bytes, path: Path, at: int, id: str, number: int) -> None:
        backup = self.torn_path(id, number)
        before = backup.read_bytes() if backup.exists() else b""
        text = rest.decode(errors="replace")
        cut = encode_first_row("session-torn", id, file=path.name, at=at, cut=text)
        self.replace(backup, before + cut)
        lost = f"{len(rest)} bytes of an unfinished append"
        _LOG.warning("%s: cut off %s; they are kept in %s", path, lost, backup.name)


def encode_first_row(kind: str, id: str, **fields: Any) -> bytes:
    """Encode the first line of a session file, which states its type; some files have only this line.

    Parameters
    ----------
    kind : str
        Type of the file.
    id : str
        Session id.
    **fields : object
        Further JSON values of the row.

    Returns
    -------
    bytes
        The line.
    """
    row = {"type": kind, "format": "ctxlab", "version": CHUNK_VERSION, "id": id, **fields}
    return f"{dump_json(row)}\n".encode()
