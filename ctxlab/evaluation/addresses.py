"""Send recordings to other machines by the addresses of their files, not by their contents.

To read a file again takes about fifteen times as long as to send its recordings through a pipe, so
that processes of one machine receive contents. On a cluster, contents pass through one scheduler, and
many workers read at the same time.

An address has the digest of the contents, so that a worker never evaluates other contents than those
that were planned. Files that cannot be read alone, and those of which only a small part is needed, are
not read again: their recordings travel as contents.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ctxlab.errors import CtxlabError
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.formats import FORMATS, load
from ctxlab.formats.table.reader import FORMAT as TABLE_FORMAT
from ctxlab.messages.types import Recording, count_message_chars

_MAX_READ = 8
"maximum number of bytes of a file for each character of its recordings that are needed"


class RecordingAddress(NamedTuple):
    """A recording without its contents, and the file that contains them."""

    path: str
    "absolute path of the file"
    stamp: tuple[int, int]
    "size and time of change of the file when it was planned"
    digest: str
    "digest of the contents"
    facts: Recording
    "everything but the contents"

    @property
    def source(self) -> str | None:
        """Path of the file, as in ``Recording``."""
        return self.facts.source


class AddressError(Exception):
    """The contents of a recording are not in its file.

    Parameters
    ----------
    path : str
        The file.
    format : str
        Format of the file.
    changed : bool
        True if the file was changed or removed since the run was planned; False if it cannot be read
        alone.
    """

    def __init__(self, path: str, format: str, changed: bool) -> None:
        super().__init__(path, format, changed)
        self.path, self.format, self.changed = path, format, changed


def find_addresses(
    recordings: Sequence[Recording | RecordingAddress],
    digests: Sequence[str],
    without: Collection[str] = (),
) -> tuple[Recording | RecordingAddress, ...]:
    """Replace recordings by their addresses, where a worker can read their files.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings of one bucket.
    digests : sequence of str
        Digest of each recording.
    without : collection of str
        Formats of recordings that are kept.

    Returns
    -------
    tuple of Recording or RecordingAddress
        The recording, or its address.
    """
    needed: Counter[str | None] = Counter()
    for each in recordings:
        if isinstance(each, Recording):
            needed[each.source] += sum(map(count_message_chars, each.messages))
    stamps = {source: _stamp(source) for source in needed if source is not None}

    def locate(
        recording: Recording | RecordingAddress, digest: str
    ) -> Recording | RecordingAddress:
        if isinstance(recording, RecordingAddress):
            return recording
        source, format = recording.source, FORMATS.get(recording.format or "")
        stamp = None if source is None else stamps[source]
        if source is None or stamp is None or format is None:
            return recording
        if format.group_key or format.name in (TABLE_FORMAT.name, *without):
            return recording  # it needs other files, or the names of columns
        if stamp[0] > _MAX_READ * needed[source]:
            return recording
        facts = replace(recording, messages=(), tools=(), probes=(), compactions=())
        return RecordingAddress(os.path.abspath(source), stamp, digest, facts)

    return tuple(map(locate, recordings, digests))


def read_addresses(items: Iterable[Recording | RecordingAddress]) -> tuple[Recording, ...]:
    """Read the recordings at addresses, each file once.

    Parameters
    ----------
    items : iterable of Recording or RecordingAddress
        What ``find_addresses`` returned.

    Returns
    -------
    tuple of Recording
        The recordings.

    Raises
    ------
    AddressError
        If a file does not have the planned contents.
    """
    items = list(items)
    wanted: dict[str, dict[str, RecordingAddress]] = {}
    for each in items:
        if isinstance(each, RecordingAddress):
            wanted.setdefault(each.path, {})[each.digest] = each
    contents: dict[str, Recording] = {}
    for path, addresses in wanted.items():
        contents |= _read_file(path, addresses)
    return tuple(
        _combine(each.facts, contents[each.digest]) if isinstance(each, RecordingAddress) else each
        for each in items
    )


def _read_file(path: str, addresses: dict[str, RecordingAddress]) -> dict[str, Recording]:
    first = next(iter(addresses.values()))
    found: dict[str, Recording] = {}
    try:
        for recording in load(path, format=first.facts.format, on_error="skip"):
            digest = recording_digest(recording)
            if digest in addresses:
                found[digest] = recording
                if len(found) == len(addresses):
                    return found
    except (CtxlabError, OSError):
        pass
    raise AddressError(path, first.facts.format or "", _stamp(path) != first.stamp)


def _combine(facts: Recording, contents: Recording) -> Recording:
    return replace(
        facts,
        messages=contents.messages,
        tools=contents.tools,
        probes=contents.probes,
        compactions=contents.compactions,
    )


def _stamp(path: str) -> tuple[int, int] | None:
    """Return the size and the time of change of a local file; None if it is no local file."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    return about.st_size, about.st_mtime_ns
