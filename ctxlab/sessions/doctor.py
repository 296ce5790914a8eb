"""Check a session store, and repair it: back it up, salvage what can be read, and swap the result in."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ctxlab._utils.signals import defer_signals
from ctxlab.errors import SessionError
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.common import LOCKS_FOLDER, file_errors
from ctxlab.sessions.damage import Damage, is_lost
from ctxlab.sessions.jsonl import doctor as jsonl
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite import doctor as sqlite
from ctxlab.sessions.sqlite.store import SqliteStore

# Closing a copied file of shared memory would drop the lock on it.
_UNCOPIED = shutil.ignore_patterns("*-shm")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Checkup:
    """Result of checking a store."""

    sessions: int
    "number of sessions"
    messages: int
    "number of messages that can be read"
    lost: int
    "number of messages that are lost"
    found: tuple[Damage, ...]
    "damage of the store"


@dataclass(frozen=True)
class Repair:
    """Result of a repair."""

    before: Checkup
    "state before the repair"
    backup: Path
    "folder with a copy of the damaged store"


def check_store(store: SessionStore) -> Checkup:
    """Read all of a store, and return its damage. The store is not changed.

    Parameters
    ----------
    store : SessionStore
        A ``JsonlStore`` or a ``SqliteStore``.

    Returns
    -------
    Checkup
        Numbers of sessions and messages, and all damage.

    Raises
    ------
    SessionError
        If nothing of the store can be read.

    Examples
    --------
    >>> import tempfile
    >>> store = JsonlStore(tempfile.mkdtemp(), fsync="never")
    >>> _ = store.create(id="a")
    >>> check_store(store)
    Checkup(sessions=1, messages=0, lost=0, found=())
    """
    fresh = _reopened(store)
    sessions = [*fresh.sessions(), *fresh.sessions(status="archived")]
    messages = lost = 0
    for session in sessions:
        for message in fresh.read_messages(session.id):
            lost += is_lost(message)
            messages += not is_lost(message)
        fresh.turn_summaries(session.id)
        if isinstance(fresh, JsonlStore):
            jsonl.check_session(fresh, session.id)
    if isinstance(fresh, SqliteStore):
        sqlite.check_database(fresh)
    found = fresh.damage.found
    fresh.close()
    return Checkup(len(sessions), messages, lost, tuple(found))


def repair_store(store: SessionStore, backup: Path | None = None) -> Repair | None:
    """Repair a store, and keep a backup of its folder.

    Whatever can be read is copied to a new folder. It is verified, and then takes the place of the
    damaged one in one step. Lost messages are replaced by placeholders, so that other messages keep
    their numbers.

    Parameters
    ----------
    store : SessionStore
        A ``JsonlStore`` or a ``SqliteStore``.
    backup : Path, optional
        Folder for the backup, which must not exist. By default, a new folder beside the store.

    Returns
    -------
    Repair or None
        State before the repair, and the backup. None if the store has no damage.

    Raises
    ------
    SessionError
        If another process uses the store, if the backup exists, or if the repair fails. The store is
        then unchanged.
    """
    folder = store.folder if isinstance(store, JsonlStore) else _database_folder(store)
    work = folder.with_name(f"{folder.name}.repair-{os.getpid()}")
    before = check_store(store)
    if not before.found:
        return None
    with file_errors(folder), ExitStack() as stack:
        locks = stack.enter_context(ExitStack())
        locks.enter_context(_locked(store))
        kept = _backup_path(folder) if backup is None else backup.expanduser()
        if kept.exists():
            raise SessionError(f"{kept}: the backup exists already; name another folder")
        try:
            shutil.copytree(folder, kept, ignore=_UNCOPIED)
        except BaseException:
            shutil.rmtree(kept, ignore_errors=True)
            raise
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder, work, ignore=_UNCOPIED)
        fresh = _reopened(store)
        if isinstance(fresh, JsonlStore):
            jsonl.rebuild(fresh, work, {each.session for each in before.found if each.session})
            for lock in (
                folder / LOCKS_FOLDER
            ).iterdir():  # processes that wait for one keep waiting
                (work / LOCKS_FOLDER / lock.name).unlink(missing_ok=True)
                os.link(lock, work / LOCKS_FOLDER / lock.name)
            made: SessionStore = JsonlStore(work)
        else:
            assert isinstance(fresh, SqliteStore)
            made = sqlite.rebuild(fresh, work)
        _verify(fresh, made)
        fresh.close()
        made.close()
        store.close()
        if isinstance(store, SqliteStore):
            # A connection that is closed later would remove the log of the new database.
            locks.close()
        _exchange(work, folder)
    return Repair(before, kept)


def _verify(old: SessionStore, new: SessionStore) -> None:
    """Raise ``SessionError`` unless ``new`` has all that can be read of ``old``, and no damage."""
    ids = {session.id for session in [*old.sessions(), *old.sessions(status="archived")]}
    same = ids == {session.id for session in [*new.sessions(), *new.sessions(status="archived")]}
    for id in ids if same else ():
        same = same and list(old.read_messages(id)) == list(new.read_messages(id))
        same = same and old.turn_summaries(id) == new.turn_summaries(id)
    found = check_store(new).found
    if not same or found:
        reason = str(found[0]) if found else "the copy differs from what can be read"
        raise SessionError(f"the repair failed, and nothing was changed: {reason}")


def _reopened(store: SessionStore) -> JsonlStore | SqliteStore:
    """Return the store with empty caches, so that all damage is noticed again."""
    if isinstance(store, JsonlStore):
        return JsonlStore(store.folder, max_history=store.max_history)
    if isinstance(store, SqliteStore):
        return sqlite.reopened(store)
    raise SessionError(f"Expected a JsonlStore or a SqliteStore, got {store!r}")


def _database_folder(store: SessionStore) -> Path:
    if not isinstance(store, SqliteStore):
        raise SessionError(f"Expected a JsonlStore or a SqliteStore, got {store!r}")
    return store.path.parent


@contextmanager
def _locked(store: SessionStore) -> Iterator[None]:
    """Prevent other processes from writing. Raise ``SessionError`` if one of them uses the store."""
    if isinstance(store, JsonlStore):
        with store._files.all_locked():
            yield
    else:
        assert isinstance(store, SqliteStore)
        with sqlite.locked(store):
            yield


def _backup_path(folder: Path) -> Path:
    number = 1
    while True:
        path = folder.with_name(f"{folder.name}.backup" + (f"-{number}" if number > 1 else ""))
        if not path.exists():
            return path
        number += 1


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders, in one step where the operating system can do this."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        rename = getattr(libc, "renameat2", None)
        if rename and not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
            return
    aside = other.with_name(f"{other.name}.replaced-{os.getpid()}")
    with defer_signals():
        other.rename(aside)
        one.rename(other)
        aside.rename(one)
