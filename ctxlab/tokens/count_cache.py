"""Store token counts on disk, so that a later replay need not tokenize the same texts again.

A count is stored per text, not per message, because the count of a text depends only on the text, the
vocabulary and the version of tiktoken. The key is a hash of exactly these. What a message adds, such as
images, headers and the conversion to billed tokens, is computed from the counts and not stored. The
database contains hashes and integers only.

The cache never changes a result. If the database cannot be used (locked, read-only, full, on a file
system without locks), the process counts all texts itself. Each count is stored with a checksum, so
that a damaged count is counted again.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import secrets
import sqlite3
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ctxlab._utils.private_files import FILE_MODE, create_file, make_folder

FOLDER_VARIABLE = "CTXLAB_CACHE"
"""Environment variable with the folder of the cache; if its value is empty, there is no cache."""
MAX_BYTES = 128_000_000
"""Default maximum size of the database, enough for the counts of about four million texts."""
MIN_CHARS = 200
"""Shorter texts are not stored, because counting them is as fast as looking them up."""

_MAX_UNSAVED = 1000
"number of new counts after which they are written; a killed process loses fewer"
_TIMEOUT_SECONDS = 5.0
"longest wait for other processes"
_FIND = (
    "SELECT value, 0 FROM recent WHERE key = ? UNION ALL SELECT value, 1 FROM earlier WHERE key = ?"
)
_CREATE = "CREATE TABLE {} (key BLOB PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"

_FAILURES = (sqlite3.Error, OSError, UnicodeError)
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"error codes that only a damaged database causes; SQLITE_ERROR, for example, if a table is missing"

_shared: dict[tuple[Path, int], CountCache] = {}
"caches of this process, by folder and maximum size"
_inherited: list[sqlite3.Connection | None] = []
"connections of the parent process. SQLite forbids to use or close them after a fork, so they are kept."


class CountCacheInfo(NamedTuple):
    """Size of a count cache."""

    folder: Path
    "folder of the database"
    entries: int
    "number of stored counts"
    bytes: int
    "size of the files"
    max_bytes: int
    "maximum size of the database"


class CountCache:
    """Token counts of texts in an SQLite database that several processes and threads may share.

    The database is opened with the first text. New counts are written in batches. The counts are in
    two tables, ``recent`` and ``earlier``. If ``recent`` reaches half of the maximum size, it becomes
    ``earlier``, whose former counts are deleted. A count that is found in ``earlier`` is copied to
    ``recent``. The counts that are deleted are therefore those that were not used for longest.

    Parameters
    ----------
    folder : Path
        Folder of the database. It is created if necessary, readable by its owner only.
    max_bytes : int, optional
        Maximum size of the database. The write-ahead log of SQLite adds up to a few megabytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = CountCache(Path(folder))
    ...     counts = [cache.count("words", "a b c", lambda text: len(text.split())) for _ in range(2)]
    ...     cache.close()
    ...     counts, cache.info().entries, cache.clear().entries
    ([3, 3], 1, 1)
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._lock_file = folder / "counts.lock"
        self._start()

    def __reduce__(self) -> tuple[Callable[..., CountCache], tuple[Path, int]]:
        """Pickle the folder and the maximum size; all copies in a process are one object."""
        return _share, (self.folder, self.max_bytes)

    def count(self, vocabulary: str, text: str, count: Callable[[str], int]) -> int:
        """Return the stored count of a text; if there is none, compute and store it.

        Parameters
        ----------
        vocabulary : str
            Name of the vocabulary and of the rules by which ``count`` counts.
        text : str
            Text to count.
        count : callable
            Function that counts the tokens of the text.

        Returns
        -------
        int
            Number of tokens.
        """
        key = _hash_text(vocabulary, text)
        with self._locked():
            known = self._find(key)
        if known is None:
            known = count(text)
            with self._locked():
                self._add(key, known)
        return known

    def save(self) -> None:
        """Write the new counts to the database."""
        with self._locked():
            self._save()

    def close(self) -> None:
        """Write the new counts and close the database; the next text opens it again."""
        with self._locked():
            self._save()
            self._close()

    def info(self) -> CountCacheInfo:
        """Return the number of stored counts and the size of the files.

        Returns
        -------
        CountCacheInfo
            Size of the cache; 0 entries if there is no database or if it cannot be read.
        """
        entries = 0
        with self._locked():
            self._save()
            try:
                if self._database() is not None:
                    every = "SELECT key FROM recent UNION SELECT key FROM earlier"
                    found = self._open().execute(f"SELECT count(*) FROM ({every})")
                    entries = found.fetchone()[0]
            except _FAILURES as error:
                self._recover(error)
        size = 0
        for path in self._files():
            with suppress(FileNotFoundError):  # another process may have closed the database
                size += path.stat().st_size
        return CountCacheInfo(self.folder, entries, size, self.max_bytes)

    def clear(self) -> CountCacheInfo:
        """Delete the stored counts. Processes that use the database keep their open files.

        Returns
        -------
        CountCacheInfo
            Size of what was deleted.

        Raises
        ------
        OSError
            If a file cannot be deleted.
        """
        removed = self.info()
        self.close()
        for path in (*self._files(), self._lock_file):
            path.unlink(missing_ok=True)
        return removed

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._path: Path | None = None  # of the database that was opened last
        self._unsaved: dict[bytes, int] = {}
        self._is_off = False
        self._was_replaced = False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._pid != os.getpid():  # this process is a fork; the parent writes the unsaved counts
            _inherited.append(self._connection)
            self._start()
        with self._lock:
            yield

    def _find(self, key: bytes) -> int | None:
        known = self._unsaved.get(key)
        if known is not None or self._is_off:
            return known
        try:
            rows = self._open().execute(_FIND, (key, key)).fetchall()
        except _FAILURES as error:
            self._recover(error)
            return None
        for value, is_earlier in rows:
            known = _unseal(key, value)
            if known is not None:
                if is_earlier:
                    self._add(key, known)
                return known
        return None

    def _add(self, key: bytes, count: int) -> None:
        if not self._is_off:
            self._unsaved[key] = count
            if len(self._unsaved) >= _MAX_UNSAVED:
                self._save()

    def _save(self) -> None:
        if not self._unsaved:
            return
        rows = [(key, _seal(key, count)) for key, count in self._unsaved.items()]
        self._unsaved = {}
        try:
            database = self._open()
            with database:  # commits, or rolls back after an exception
                database.execute("BEGIN IMMEDIATE")
                self._make_room(database, len(rows))
                database.executemany("INSERT OR REPLACE INTO recent VALUES (?, ?)", rows)
        except _FAILURES as error:
            self._recover(error)

    def _make_room(self, database: sqlite3.Connection, new: int) -> None:
        """Replace ``earlier`` by ``recent`` if ``new`` more rows may not fit into half of the size."""

        def read(name: str) -> int:
            value: int = database.execute(f"PRAGMA {name}").fetchone()[0]
            return value

        half = self.max_bytes // 2 // read("page_size")
        # user_version is a number that SQLite keeps for applications: here, the pages of ``earlier``.
        # It is clamped, because a damaged number must not let the database grow without a bound.
        earlier = min(max(read("user_version"), 0), half)
        recent = read("page_count") - read("freelist_count") - earlier
        # At worst, each row splits a page, and each page is split once. A page holds about 100 rows.
        growth = min(new, recent + new // 50 + 1)
        if recent + growth > half:
            database.execute("DROP TABLE earlier")
            database.execute("ALTER TABLE recent RENAME TO earlier")
            database.execute(_CREATE.format("recent"))
            database.execute(f"PRAGMA user_version = {recent}")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path = path = self._database() or self._create()
            # The lock of this object makes it safe to use the connection in several threads.
            self._connection = sqlite3.connect(
                path, timeout=_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            # With a write-ahead log, this loses the last counts after a power failure, but no others.
            self._connection.execute("PRAGMA synchronous = NORMAL")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _database(self) -> Path | None:
        return min(self._files(r"\.sqlite"), default=None)

    def _files(self, ending: str = r"\..+") -> list[Path]:
        """List the files of the cache. The folder may also contain files of the user."""
        name = re.compile(rf"counts-[0-9a-f]{{8}}{ending}")
        return [path for path in self.folder.glob("counts-*") if name.fullmatch(path.name)]

    def _create(self) -> Path:
        """Create an empty database.

        Each database has a new name. A process that still has a deleted database open deletes the log
        of that name when it closes it, which would damage another database with the same name.
        """
        from filelock import FileLock, Timeout

        make_folder(self.folder)
        lock = FileLock(self._lock_file, timeout=_TIMEOUT_SECONDS, mode=FILE_MODE)
        try:
            with lock:
                if (path := self._database()) is not None:  # another process was faster
                    return path
                path = self.folder / f"counts-{secrets.token_hex(4)}.sqlite"
                draft = path.with_suffix(".new")
                create_file(draft)
                database = sqlite3.connect(draft, isolation_level=None)
                try:
                    database.execute("PRAGMA journal_mode = WAL")
                    for table in ("recent", "earlier"):
                        database.execute(_CREATE.format(table))
                finally:
                    database.close()
                draft.rename(path)
                return path
        except Timeout as error:
            raise OSError(f"another process holds {lock.lock_file}") from error

    def _recover(self, error: Exception) -> None:
        """Replace a damaged database, once per process. After any other failure, stop using it."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        damaged = code in _DAMAGE or isinstance(error, UnicodeError)
        path = self._path if damaged and not self._was_replaced else None
        self._close()
        self._is_off = True
        self._unsaved = {}
        if path is None:
            return
        self._was_replaced = True
        with suppress(OSError):  # another process may have replaced it already
            kept = path.with_suffix(".damaged")
            for old in self._files(r"\.damaged"):
                old.unlink(missing_ok=True)
            path.rename(kept)
            for ending in ("-wal", "-shm"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
            warnings.warn(
                f"the cache of token counts was damaged; it was renamed to {kept} and starts empty",
                stacklevel=2,
            )
        self._is_off = False


def find_count_cache() -> CountCache | None:
    """Return the count cache of this process.

    Its folder is the value of the environment variable ``CTXLAB_CACHE``, else ``counts`` in the user's
    cache folder for ctxlab. The folder is created only if a text is counted.

    Returns
    -------
    CountCache or None
        Cache; None if the variable is set to an empty string.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        from platformdirs import user_cache_path

        path = user_cache_path("ctxlab") / "counts"
    elif folder:
        path = Path(folder).expanduser().absolute()
    else:
        return None
    return _share(path, MAX_BYTES)


@contextmanager
def without_count_cache() -> Iterator[None]:
    """Count all texts anew in replays of the ``with`` block and in their worker processes.

    Examples
    --------
    >>> with without_count_cache():
    ...     print(find_count_cache())
    None
    """
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = (
        ""  # an environment variable reaches all kinds of worker processes
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before


def _share(folder: Path, max_bytes: int) -> CountCache:
    return _shared.setdefault((folder, max_bytes), CountCache(folder, max_bytes))


@atexit.register
def close_count_caches() -> None:
    """Write the new counts of this process to disk, for example before a worker process ends."""
    for cache in _shared.values():
        cache.close()


def _hash_text(vocabulary: str, text: str) -> bytes:
    """Compute the key of a text from all that its count depends on."""
    digest = hashlib.blake2b(_key_prefix(vocabulary), digest_size=16)
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


@functools.cache
def _key_prefix(vocabulary: str) -> bytes:
    import tiktoken

    return f"{tiktoken.__version__}\0{vocabulary}\0".encode()


def _seal(key: bytes, count: int) -> int:
    """Combine a count with a checksum of the key and the count."""
    return count << 32 | zlib.crc32(b"%b%d" % (key, count))


def _unseal(key: bytes, value: object) -> int | None:
    """Return the count of a stored value; None if it is damaged."""
    if isinstance(value, int) and value >= 0 and _seal(key, value >> 32) == value:
        return value >> 32
    return None
