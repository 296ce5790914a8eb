"""The audit log is a chain: each entry carries a checksum over itself and the entry before it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

GENESIS = "00000000"


@dataclass(frozen=True)
class Entry:
    """Who did what to which thing."""

    who: str
    what: str
    subject: str
    seal: str


def seal(previous: str, who: str, what: str, subject: str) -> str:
    """The checksum of an entry that follows another: eight hexadecimal digits."""
    text = "|".join((previous, who, what, subject))
    return f"{zlib.crc32(text.encode()):08x}"


def append(log: tuple[Entry, ...], who: str, what: str, subject: str) -> tuple[Entry, ...]:
    """The log with one more entry."""
    previous = log[-1].seal if log else GENESIS
    return (*log, Entry(who, what, subject, seal(previous, who, what, subject)))


def first_broken(log: Iterable[Entry]) -> int | None:
    """The position of the first entry that does not fit the one before it, if there is one."""
    previous = GENESIS
    for position, entry in enumerate(log):
        if entry.seal != seal(previous, entry.who, entry.what, entry.subject):
            return position
        previous = entry.seal
    return None


def about(log: Iterable[Entry], subject: str) -> list[Entry]:
    """The entries about one thing, oldest first."""
    return [entry for entry in log if entry.subject == subject]
