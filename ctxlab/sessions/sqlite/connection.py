"""SQLite database that is opened on first use and shared by the threads of a process.

The database uses a write-ahead log (WAL): readers never wait, and a writer waits only for other
writers. Only the owner of the files can read them.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from ctxlab._utils.private_files import create_file, make_folder, open_for_writing
from ctxlab.errors import SessionError, StoreNotWritable
from ctxlab.formats.io.sqlite_file import read_only_uri
from ctxlab.sessions.sqlite.salvage import count_committed

if sys.platform == "linux":
    from fcntl import F_OFD_SETLK, F_RDLCK, fcntl

OnConnect: TypeAlias = Callable[[sqlite3.Connection], None]
"Function that is called with each new connection."

_BUSY_TIMEOUT = 60.0  # seconds that a writer waits for another writer
# First byte and number of bytes that SQLite locks in a database file while it reads.
_SHARED_LOCK_RANGE = (0x4000_0002, 510)
_LOCK_ERRORS = ("SQLITE_BUSY", "SQLITE_LOCKED")


class DamagedDatabase(SessionError):
    """SQLite cannot read a page of the database."""


class DamagedText(str):
    """Text of which some bytes were not UTF-8 and are replaced by U+FFFD."""


class Database:
    """SQLite database with one connection per process, which the threads of the process share.

    The connection is closed by ``close``, or with the last reference to this object.
    Errors of SQLite are raised as ``SessionError`` with the name of the file.

    Parameters
    ----------
    path : Path
        Database file. If it does not exist, the first write creates it.
    on_connect : callable
        Function that is called with each new connection.
    durable : bool, default True
        If True, commits survive a power failure. If False, they survive a kill of the process, but
        not a power failure.
    """

    def __init__(self, path: Path, on_connect: OnConnect, *, durable: bool = True) -> None:
        self.path = path
        self.is_read_only = False
        "True if the connection is read-only, because the file or its folder is not writable"
        self._on_connect, self._durable = on_connect, durable
        self.damaged_log = path.with_name(f"{path.name}-wal.damaged")
        "copy of a write-ahead log that SQLite could apply only in part"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._open_identities = self._file_identities()
        self._close_files: Callable[[], object] = int
        _DATABASES.add(self)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection | None]:
        """Open a read transaction, in which all queries see the same state of the database.

        Yields
        ------
        sqlite3.Connection or None
            Connection with an open transaction; None if the database file does not exist yet.

        Raises
        ------
        SessionError
            If SQLite reports an error.
        """
        with self._lock, self._wrap_errors():
            if not self.path.exists():
                self.close()
                yield None
                return
            with self._transaction("BEGIN") as connection:
                yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction, which excludes other writers.

        At the end of the ``with`` block all changes are committed. After an error, all of them are
        rolled back.

        Yields
        ------
        sqlite3.Connection
            Connection with an open transaction.

        Raises
        ------
        SessionError
            If SQLite reports an error.
        """
        with self._lock, self._wrap_errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def truncate_log(self) -> None:
        """Empty the write-ahead log, because it may still contain deleted data.

        If a reader is using the log, it is emptied by a later call.
        """
        with self._lock, self._wrap_errors():
            if self._connection is not None:
                # Do not wait for a long read: the next call empties the log.
                self._connection.execute("PRAGMA busy_timeout = 500")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT * 1000:.0f}")

    def close(self) -> None:
        """Close the connection. It is opened again when the database is used again."""
        with self._lock:
            self._close_files()
            self._connection = None

    def before_fork(self) -> None:
        """Close the connection before ``os.fork``, because a child process must not inherit it.

        The lock is held until ``after_fork``, so that no other thread opens the database again.
        """
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Release the lock after ``os.fork``.

        Both processes open the database again when they use it.
        """
        self._lock.release()

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, OSError) as error:
            kind = DamagedDatabase if _is_damage(error) else SessionError
            kind = StoreNotWritable if _is_not_writable(error) else kind
            raise kind(f"{self.path}: {_error_reason(error, self.path)}") from error

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if self._connection is not None and self._file_identities() != self._open_identities:
            self.close()  # a file was removed or replaced: writes to the old file would be lost
        if self._connection is None:
            self._connection = self._open()
            self._open_identities = self._file_identities()
        connection = self._connection
        if connection.in_transaction:
            raise SessionError(f"{self.path}: this thread has an open transaction; end it first")
        with connection:  # commits, or rolls back after an error
            connection.execute(begin)
            yield connection

    def _file_identities(self) -> list[tuple[int, int]]:
        log = self.path.with_name(f"{self.path.name}-wal")
        return [_file_identity(self.path), _file_identity(log)]

    def _open(self) -> sqlite3.Connection:
        folder = self.path.parent
        writable = all(os.access(path, os.W_OK) for path in (folder, self.path))
        sealed = self.is_read_only = self.path.exists() and not writable
        log = self.path.with_name(f"{self.path.name}-wal")
        pending = b""
        if not sealed:
            self._make_files()
            with suppress(FileNotFoundError):
                pending = log.read_bytes()
        connection = sqlite3.connect(
            read_only_uri(self.path) if sealed else self.path,
            uri=sealed,
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.text_factory = decode_text
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            # Call this before the log is enabled, so that the first bytes of the file identify it.
            self._on_connect(connection)
            if not sealed:
                _enable_wal(connection)
                self._keep_damaged_log(connection, log, pending)
            claim = _claim_file(self.path)
            self._close_files = weakref.finalize(self, _close_files, claim, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep_damaged_log(self, connection: sqlite3.Connection, log: Path, pending: bytes) -> None:
        """Copy a write-ahead log of which SQLite ignores a part, before SQLite overwrites the log.

        SQLite stops at the first frame with a wrong checksum, and says nothing.
        """
        expected = count_committed(pending)
        if not expected or self.damaged_log.exists() or _known_frames(connection) >= expected:
            return
        # Another process may be writing or emptying the log, so compare again while nobody can.
        connection.execute("BEGIN IMMEDIATE")
        try:
            with closing(sqlite3.connect(self.path)) as reader:
                known, content = _known_frames(reader), log.read_bytes()
        finally:
            connection.execute("ROLLBACK")
        if content[16:24] == pending[16:24] and known < count_committed(content):
            with open_for_writing(self.damaged_log) as copy:
                copy.write(pending)

    def _make_files(self) -> None:
        """Create the folder and an empty database file that only its owner can read.

        SQLite creates the write-ahead log with the same file mode.
        """
        folder = self.path.parent
        try:
            make_folder(folder)
            ignored = folder / ".gitignore"
            if not ignored.exists():
                with open_for_writing(ignored) as file:
                    file.write(b"*\n")
            create_file(self.path)
        except OSError as error:
            raise StoreNotWritable(
                f"{folder}: cannot create the database folder: {error.strerror or error}"
            ) from None


def _known_frames(connection: sqlite3.Connection) -> int:
    """Return the number of frames in the write-ahead log that SQLite knows.

    Return ``sys.maxsize`` while another process copies frames into the database. That process has read
    the log already.
    """
    busy, known, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return sys.maxsize if busy else int(known)


def _file_identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _close_files(claim: int, connection: sqlite3.Connection) -> None:
    # SQLite cannot remove the write-ahead log while the claim exists.
    os.close(claim)
    connection.close()


def _claim_file(path: Path) -> int:
    """Take a shared lock on the database file and return the file descriptor that holds the lock.

    SQLite takes the same lock. The operating system drops SQLite's lock as soon as any code of this
    process closes the file, for example code that copied the workspace. If another process then
    closes the database, that process removes the write-ahead log, and later writes of this process
    are lost. On Linux, this function therefore takes an open file description lock, which is dropped
    only when the returned file descriptor is closed.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    if sys.platform == "linux":  # other systems lack open file description locks
        lock = struct.pack("hhqqi", F_RDLCK, os.SEEK_SET, *_SHARED_LOCK_RANGE, 0)
        with suppress(OSError):  # the file system has no such locks: rely on SQLite's own lock
            fcntl(handle, F_OFD_SETLK, lock)
    return handle


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Enable the write-ahead log, retrying while another process has locked the database.

    The retry is needed because SQLite ignores its busy timeout when it changes the journal mode.
    """
    until = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA schema_version").fetchone()  # creates the log
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_LOCK_ERRORS) or time.monotonic() > until:
                raise
        time.sleep(0.01)


def decode_text(data: bytes) -> str:
    """Decode a text of the database. Bytes that are not UTF-8 are replaced.

    Parameters
    ----------
    data : bytes
        Stored text.

    Returns
    -------
    str
        The text; a ``DamagedText`` if bytes were replaced.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return DamagedText(data.decode(errors="replace"))


def _is_not_writable(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN"))


def _is_damage(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _error_reason(error: Exception, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(_LOCK_ERRORS):
        return f"another process has locked the database for {_BUSY_TIMEOUT:.0f} seconds; try again"
    if _is_damage(error):
        workspace = path.parent.parent
        return (
            f"damaged database ({error}); mend it with: ctxlab sessions doctor --repair {workspace}"
        )
    if name.startswith("SQLITE_FULL"):
        return "the disk is full; free some space and try again"
    return str(error)


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_FORKING: list[Database] = []


def _pre_fork() -> None:
    _FORKING[:] = _DATABASES
    for each in _FORKING:
        each.before_fork()


def _post_fork() -> None:
    while _FORKING:
        _FORKING.pop().after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pre_fork, after_in_parent=_post_fork, after_in_child=_post_fork)
