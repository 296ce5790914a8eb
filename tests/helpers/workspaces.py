"""Helpers for tests of the SQLite store of a workspace."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from ctxlab.messages.types import Message
from ctxlab.sessions.sqlite.store import SqliteStore

HI = (Message("user", "Fix the parser"), Message("assistant", "Done."))
TOOLS = ({"type": "function", "function": {"name": "read", "parameters": {}}},)


def begun(store: SqliteStore, id: str = "a") -> str:
    store.create(id=id)
    store.append(id, *HI)
    return id


def sql(store: SqliteStore, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Run an SQL statement over a separate connection, as another program would."""
    with closing(sqlite3.connect(store.path)) as connection, connection:
        return connection.execute(statement, values).fetchall()
