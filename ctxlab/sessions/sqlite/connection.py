"""A database is opened when it is used, by one thread at a time, and what is committed is on disk.

It is SQLite with a write-ahead log: who reads waits for nobody, who writes waits for one other. Its
files are readable by their owner only.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from ctxlab._utils.private_files import create_file, make_folder, open_for_writing
from ctxlab.errors import SessionError
from ctxlab.formats.ctxlab_sessions.sqlite import read_only_uri

if sys.platform == "linux":
    from fcntl import F_OFD_SETLK, F_RDLCK, fcntl

__all__ = ["Database", "OnConnect"]

OnConnect: TypeAlias = Callable[[sqlite3.Connection], None]

_BUSY_TIMEOUT = 60.0  # seconds that a writer waits for another one
_SHARED_LOCK_RANGE = (
    0x4000_0002,
    510,
)  # where SQLite locks a file that it reads: first byte, how many
_LOCK_ERRORS = ("SQLITE_BUSY", "SQLITE_LOCKED")


class Database:
    """One file of SQLite, shared by the threads of a process; each process opens its own.

    ``on_connect`` is called with each new connection. ``durable``: a commit survives a power
    failure and not only a kill. Whatever SQLite refuses is a ``SessionError`` that names the file.
    """

    def __init__(self, path: Path, on_connect: OnConnect, *, durable: bool = True) -> None:
        self.path = path
        self.is_read_only = False
        "whether the open connection can only read, for nobody lets it write"
        self._on_connect, self._durable = on_connect, durable
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._open_identities = self._file_identities()
        self._release_claim: Callable[[], object] = int
        _DATABASES.add(self)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that sees one state of the database; None where there is no file yet."""
        with self._lock, self._wrap_errors():
            if not self.path.exists():
                self.close()
                yield None
                return
            with self._transaction("BEGIN") as connection:
                yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else writes beside; all is kept at its end, or nothing."""
        with self._lock, self._wrap_errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def truncate_log(self) -> None:
        """Takes out of the log what was deleted, if nobody reads it just now."""
        with self._lock, self._wrap_errors():
            if self._connection is not None:
                # A reader that goes on for long is not waited for: its pages go with the next one.
                self._connection.execute("PRAGMA busy_timeout = 500")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT * 1000:.0f}")

    def close(self) -> None:
        """Lets go of the file; it is opened again when it is used."""
        with self._lock:
            self._release_claim()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def before_fork(self) -> None:
        """No connection goes into another process, which would forget that it has the file open."""
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self.close()

    def after_fork(self) -> None:
        """Both processes open the file again when they use it."""
        self._lock.release()

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, OSError) as error:
            raise SessionError(f"{self.path}: {_error_reason(error)}") from error

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if self._connection is not None and self._file_identities() != self._open_identities:
            self.close()  # somebody removed a file: what is written to it now would be lost
        if self._connection is None:
            self._connection = self._open()
            self._release_claim = weakref.finalize(self, os.close, _claim_file(self.path))
            self._open_identities = self._file_identities()
        connection = self._connection
        if connection.in_transaction:
            raise SessionError(f"{self.path}: used again by the thread that is using it")
        try:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise

    def _file_identities(self) -> list[tuple[int, int]]:
        return [
            _file_identity(self.path),
            _file_identity(self.path.with_name(f"{self.path.name}-wal")),
        ]

    def _open(self) -> sqlite3.Connection:
        folder = self.path.parent
        writable = all(os.access(path, os.W_OK) for path in (folder, self.path))
        sealed = self.is_read_only = self.path.exists() and not writable
        if not sealed:
            self._make_files()
        connection = sqlite3.connect(
            read_only_uri(self.path) if sealed else self.path,
            uri=sealed,
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            # Before there is a log: what the file is can then be seen by its first bytes.
            self._on_connect(connection)
            if not sealed:
                _enable_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_files(self) -> None:
        """Make the folder and an empty database; SQLite gives its log the mode of the database."""
        try:
            make_folder(self.path.parent)
            ignored = self.path.parent / ".gitignore"
            if not ignored.exists():
                with open_for_writing(ignored) as file:
                    file.write(b"*\n")
            create_file(self.path)
        except OSError as error:
            raise SessionError(
                f"{self.path.parent}: cannot be made: {error.strerror or error}"
            ) from None


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _file_identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _claim_file(path: Path) -> int:
    """A handle that says that the database is open, until it is closed.

    SQLite says it too, by a lock that a process loses when anything in it closes the file, a search
    through the workspace or a copy. Then another process that closes the database removes the log, and
    what this one goes on writing to it is lost. The lock on the same bytes that is taken here stays.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    if sys.platform == "linux":  # others have no such locks
        lock = struct.pack("hhqqi", F_RDLCK, os.SEEK_SET, *_SHARED_LOCK_RANGE, 0)
        with suppress(OSError):  # a file system without: SQLite's own lock is all there is
            fcntl(handle, F_OFD_SETLK, lock)
    return handle


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Two processes that make a database at once are told that it is locked, without being let wait."""
    until = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA schema_version").fetchone()  # the log is there now
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_LOCK_ERRORS) or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _error_reason(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(_LOCK_ERRORS):
        return f"another process has been writing to it for {_BUSY_TIMEOUT:.0f} seconds; try again"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"cannot be read ({error}); move it away to begin a new one, or restore a copy of it"
    return str(error)


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_FORKING: list[Database] = []


def _before_fork() -> None:
    _FORKING[:] = _DATABASES
    for each in _FORKING:
        each.before_fork()


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop().after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
