"""Files of the JSONL session store: names, locks, atomic replacement and appends.

Small files are replaced as a whole. Messages are appended to a chunk in batches, with one write per
batch. If a process was killed during such a write, the next writer moves the unfinished batch to a
backup file. Writers take a lock; readers do not. Only the owner of the files can read them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from filelock import FileLock, Timeout

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import FILE_MODE, make_folder, open_for_writing
from ctxlab.errors import ReadError, SessionError
from ctxlab.formats.ctxlab_sessions.chunks import CHUNK_VERSION, READABLE_VERSIONS
from ctxlab.sessions.common import LOCKS_FOLDER, Fsync, check_choice, file_errors

CHUNK_PATTERN = re.compile(r"session-(?P<id>.+)\.(?P<number>[1-9][0-9]*)\.jsonl")

_LOCK_COUNT = 64
_LOCK_TIMEOUT = 60.0  # seconds; a lock is normally held for milliseconds
_LOG = logging.getLogger("ctxlab.sessions")
_T = TypeVar("_T")


class NewerVersion(ReadError):
    """A newer version of ctxlab wrote the file.

    Parameters
    ----------
    path : str or Path
        File.
    line : int or None
        Number of the line.
    reason : str
        Description of the error.
    """


def read_first_row(path: Path, kind: str, shape: type[_T]) -> _T:
    """Read the first line of a session file and check its type, version and fields.

    Parameters
    ----------
    path : Path
        File to read.
    kind : str
        Expected value of the key ``type`` in the line's JSON object.
    shape : type
        Struct class with the required fields.

    Returns
    -------
    object
        The line's JSON object, as an instance of ``shape``.

    Raises
    ------
    ReadError
        If the line has another type or version, or if a field is missing or invalid.
    """
    with path.open("rb") as file:
        return parse_first_row(file.readline(), path, kind, shape)


def parse_first_row(text: bytes, path: Path, kind: str, shape: type[_T]) -> _T:
    """Parse the first line of a session file and check its type, version and fields.

    Parameters
    ----------
    text : bytes
        First line of the file.
    path : Path
        File, for error messages.
    kind : str
        Expected value of the key ``type`` in the line's JSON object.
    shape : type
        Struct class with the required fields.

    Returns
    -------
    object
        The line's JSON object, as an instance of ``shape``.

    Raises
    ------
    ReadError
        If the line has another type or version, or if a field is missing or invalid.
    """
    try:
        row = parse_json(text)
    except ValueError:
        row = None
    if not isinstance(row, dict) or (row.get("type"), row.get("format")) != (kind, "ctxlab"):
        hint = "convert older formats with ctxlab sessions migrate"
        raise ReadError(path, 1, f"expected a ctxlab header of type {kind!r}; {hint}")
    if (version := row.get("version")) not in READABLE_VERSIONS:
        known = f"expected a version of at most {CHUNK_VERSION}"
        kind_of_error = NewerVersion if isinstance(version, int) else ReadError
        raise kind_of_error(path, 1, f"{known}, got {version!r}; upgrade ctxlab")
    try:
        return msgspec.convert(row, shape)
    except (msgspec.ValidationError, ValueError) as error:
        raise ReadError(path, 1, f"invalid header of type {kind!r}: {error}") from None


def file_mark(path: Path) -> tuple[int, int, int]:
    """Return values of a file that differ after each change.

    Parameters
    ----------
    path : Path
        File.

    Returns
    -------
    tuple of (int, int, int)
        Number of the file in the file system, size in bytes and time of the last change in
        nanoseconds; zeros if there is no file.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class SessionFiles:
    """Paths, locks and write operations for the session files in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the session store.
    fsync : {'always', 'never'}, default 'always'
        With ``always``, each write is forced to the disk before the method returns.
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
            Path ``session-ID.NUMBER.jsonl`` in the folder.
        """
        return self.folder / f"session-{id}.{number}.jsonl"

    def sidecar_path(self, id: str, kind: str) -> Path:
        """Return the path of a session's file for metadata, tool definitions or the resume window.

        Parameters
        ----------
        id : str
            Session id.
        kind : {'meta', 'tools', 'window'}
            Kind of the file; it is part of the file name.

        Returns
        -------
        Path
            Path ``session-ID.KIND.json`` in the folder.
        """
        return self.folder / f"session-{id}.{kind}.json"

    def summaries_path(self, id: str) -> Path:
        """Return the path of the file of turn summaries.

        The name does not begin with ``session-``, so that the pattern of chunk names does not match.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Path
            Path ``lines-ID.jsonl`` in the folder.
        """
        return self.folder / f"lines-{id}.jsonl"

    def partial_path(self, id: str) -> Path:
        """Return the path of the file with the text of an answer that is being received.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        Path
            Path ``partial-ID.jsonl`` in the folder.
        """
        return self.folder / f"partial-{id}.jsonl"

    def torn_path(self, id: str, number: int) -> Path:
        """Return the path of the backup file for data that was cut off a session file.

        Parameters
        ----------
        id : str
            Session id.
        number : int
            Number of the chunk that was cut; 0 if the file is not a chunk.

        Returns
        -------
        Path
            Path ``session-ID.NUMBER.torn`` in the folder.
        """
        return self.folder / f"session-{id}.{number}.torn"

    @contextmanager
    def locked(self, id: str) -> Iterator[None]:
        """Hold the write lock of a session, which excludes other threads and processes.

        Lock files are never removed. If one were removed while a writer waits for it, two writers
        could hold the lock at the same time.

        Parameters
        ----------
        id : str
            Session id.

        Yields
        ------
        None
            No value; the lock is held inside the ``with`` block.

        Raises
        ------
        SessionError
            If the lock cannot be taken, or if a file operation in the block fails.
        """
        which = int.from_bytes(blake2b(id.encode(), digest_size=2).digest()) % _LOCK_COUNT
        folder = self.folder / LOCKS_FOLDER
        lock = FileLock(folder / f"{which:02}.lock", timeout=_LOCK_TIMEOUT, mode=FILE_MODE)
        with file_errors(self.folder):
            make_folder(folder)
            try:
                lock.acquire(poll_interval=0.002)
            except Timeout:
                raise SessionError(
                    f"session {id!r}: another process has locked {lock.lock_file} for "
                    f"{_LOCK_TIMEOUT:.0f} seconds; end that process or try again"
                ) from None
            try:
                yield
            finally:
                lock.release()

    @contextmanager
    def all_locked(self) -> Iterator[None]:
        """Hold the write locks of all sessions, without waiting for other processes.

        Yields
        ------
        None
            No value; the locks are held inside the ``with`` block.

        Raises
        ------
        SessionError
            If another process holds one of the locks.
        """
        folder = self.folder / LOCKS_FOLDER
        with file_errors(self.folder), ExitStack() as stack:
            make_folder(folder)
            for which in range(_LOCK_COUNT):
                lock = FileLock(folder / f"{which:02}.lock", timeout=0, mode=FILE_MODE)
                try:
                    stack.enter_context(lock)
                except Timeout:
                    said = "another process is writing to the store; end it first"
                    raise SessionError(f"{self.folder}: {said}") from None
            yield

    def replace(self, path: Path, content: bytes, *, modified: float | None = None) -> None:
        """Replace a file atomically.

        If the process is killed, the file has either its old or its new content; a temporary file
        with the suffix ``.new`` may remain. The caller must hold the lock of the session.

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
        """Write the directory entries of the folder to the disk.

        This makes the creation, renaming and removal of files survive a power failure.
        """
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
            while data:  # one write is usually enough; some file systems write only a part
                data = data[os.write(handle, data) :]
            if self._fsync:
                os.fsync(handle)
            return os.fstat(handle).st_size
        finally:
            os.close(handle)

    def truncate(self, path: Path, end: int, id: str, number: int = 0) -> None:
        """Cut a file off at ``end``, save the rest to a backup file and log a warning.

        The file is replaced by a shorter copy instead of being truncated, so that concurrent
        readers can finish reading the old file.

        Parameters
        ----------
        path : Path
            File to cut.
        end : int
            New size of the file in bytes.
        id : str
            Session id.
        number : int, default 0
            Chunk number; 0 if the file is not a chunk.
        """
        whole, modified = path.read_bytes(), path.stat().st_mtime
        self._back_up(whole[end:], path, end, id, number)
        self.replace(path, whole[:end], modified=modified)

    def repair_last_line(self, path: Path, id: str) -> None:
        """Cut off the last line of a file if it is unfinished, that is, without a line break.

        Parameters
        ----------
        path : Path
            File to repair; not a chunk.
        id : str
            Session id.
        """
        with path.open("rb") as file:
            file.seek(0 if not path.stat().st_size else -1, os.SEEK_END)
            if file.read() not in (b"\n", b""):
                self.truncate(path, path.read_bytes().rfind(b"\n") + 1, id)

    def remove_chunk(self, id: str, number: int) -> None:
        """Remove a chunk left behind by an interrupted write, and save its content to a backup file.

        If the chunk does not exist, nothing is done.

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

    def keep_damaged(self, path: Path, id: str) -> None:
        """Save the content of a damaged file to a backup file, before the file is replaced.

        Parameters
        ----------
        path : Path
            Damaged file; not a chunk. If it does not exist, nothing is done.
        id : str
            Session id.
        """
        if path.exists():
            self._back_up(path.read_bytes(), path, 0, id, 0, "of a damaged file")

    def list_chunks(self, id: str) -> list[int]:
        """Return the numbers of the chunks of a session that exist, in order.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        list of int
            Chunk numbers.
        """
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        found = (match for name in names if (match := CHUNK_PATTERN.fullmatch(name)))
        return sorted(int(match["number"]) for match in found if match["id"] == id)

    def list_files(self, id: str) -> list[Path]:
        """Return all files of a session, including temporary files left behind by killed processes.

        Parameters
        ----------
        id : str
            Session id.

        Returns
        -------
        list of Path
            Paths of the files, sorted by name.
        """
        own = re.compile(
            rf"(session-{re.escape(id)}\.([1-9][0-9]*\.jsonl|[0-9]+\.torn|[a-z]+\.json)"
            rf"|{re.escape(self.summaries_path(id).name)}|{re.escape(self.partial_path(id).name)})(\.new)?"
        )
        return sorted(self.folder / name for name in os.listdir(self.folder) if own.fullmatch(name))

    def _back_up(
        self,
        rest: bytes,
        path: Path,
        at: int,
        id: str,
        number: int,
        what: str = "of an unfinished append",
    ) -> None:
        backup = self.torn_path(id, number)
        before = backup.read_bytes() if backup.exists() else b""
        text = rest.decode(errors="replace")
        cut = encode_first_row("session-torn", id, file=path.name, at=at, cut=text)
        self.replace(backup, before + cut)
        _LOG.warning(
            "%s: cut off %d bytes %s and saved them to %s", path, len(rest), what, backup.name
        )


def encode_first_row(kind: str, id: str, **fields: Any) -> bytes:
    """Encode the first line of a session file, which contains the type and version of the file.

    Files that are replaced as a whole, such as the metadata, consist of this line only.

    Parameters
    ----------
    kind : str
        Type of the file.
    id : str
        Session id.
    **fields : object
        Additional JSON values of the line.

    Returns
    -------
    bytes
        JSON object with a line break at the end.
    """
    row = {"type": kind, "format": "ctxlab", "version": CHUNK_VERSION, "id": id, **fields}
    return f"{dump_json(row)}\n".encode()
