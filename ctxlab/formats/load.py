"""Loading turns files, folders and globs into one stream of recordings with ids of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec

from ctxlab.errors import (
    ReadError,
    SpecError,
    UnknownFormat,
    UnknownName,
)
from ctxlab.formats.base import (
    Format,
    OnError,
    Source,
    recordings,
)
from ctxlab.formats.filters import (
    Condition,
    condition,
    sampled,
)
from ctxlab.formats.io.files import (
    Found,
    Place,
    find,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.registry import (
    FORMATS,
    recognise,
)
from ctxlab.messages.types import Recording

__all__ = ["OnSkip", "load"]

OnSkip: TypeAlias = Callable[[Place, str], None]
"""Told of a file that gave no recording, and why."""


def load(
    path: Place | Iterable[Place],
    *,
    format: str | Format | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
    where: str | Condition | Iterable[str | Condition] = (),
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[Recording]:
    """Every recording of a file, a folder (with its subfolders), a glob, an address, or several.

    An address is one that fsspec knows: ``s3://bucket/logs``, ``zip://*.json::logs.zip``;
    ``bundled:NAME`` is a data set that comes with ctxlab, ``dataset:NAME`` one that
    ``ctxlab datasets`` fetched. What is packed with gzip, bzip2,
    xz or zstd is unpacked on the way. Files are read one after the other, folder by folder in the
    order of their paths, as the iterator is asked. The format is recognised by content. ``format``
    names it instead; files that were found in a folder or by a glob and do not look like it are
    then left out.

    ``on_error="raise"`` stops at the first broken line; ``"skip"`` reads on, and the recordings say
    in ``skipped`` what was left out. ``on_skip`` is told of each file in a folder or glob that gave
    nothing, and why. ``where`` lets through what meets all of its conditions, each a function of a
    recording or a text such as ``messages>=50``, ``tokens>=20k`` or ``model=claude*``; ``sample``
    draws so many of them, the same for the same ``seed``. An id is the path below the folder that
    was asked for, without its suffix, and what tells the recordings of one file apart; a second use
    of an id gets ``#2`` behind it.

    Raises ``ReadError`` for a path that is missing, empty, broken or without any conversation,
    ``UnknownFormat`` for a file that no reader recognises, ``UnknownName`` for an unknown format.
    """
    if on_error not in get_args(OnError):
        raise SpecError(f"on_error is {on_error!r}; it is one of {', '.join(get_args(OnError))}")
    if isinstance(format, str):
        if format not in FORMATS:
            raise UnknownName("format", format, FORMATS)
        format = FORMATS[format]
    given = [path] if isinstance(path, (str, Path)) else list(path)
    asked = [(each, find(each)) for each in given]
    some = [where] if isinstance(where, str) or callable(where) else list(where)
    conditions = [condition(each) if isinstance(each, str) else each for each in some]
    stream = _unique(_stream(asked, format, on_error, on_skip or (lambda path, reason: None)))
    chosen = (each for each in stream if all(holds(each) for holds in conditions))
    return chosen if sample is None else sampled(chosen, sample, seed)


def _stream(
    asked: list[tuple[Place, list[Found]]],
    format: Format | None,
    on_error: OnError,
    on_skip: OnSkip,
) -> Iterator[Recording]:
    for path, files in asked:
        nothing = True
        for chosen, found in _grouped(files, format, on_error, on_skip):
            for recording in _read(found, chosen, on_error, on_skip):
                nothing = False
                yield recording
        if nothing:
            reason = f"none of its {len(files)} files holds a recording that ctxlab can read"
            raise ReadError(path, None, reason)


def _grouped(
    files: list[Found], format: Format | None, on_error: OnError, on_skip: OnSkip
) -> Iterator[tuple[Format, list[Found]]]:
    """Each file with its format; those of a folder that are read together, behind its others."""
    for _, here in groupby(files, key=lambda found: found.folder):
        waiting: dict[tuple[str, str], tuple[Format, list[Found]]] = {}
        for found in here:
            known = _recognised(found, format, on_error, on_skip)
            if known is None:
                continue
            chosen, head = known
            if chosen.together is None:
                yield chosen, [found]
            else:
                key = chosen.name, chosen.together(head)
                waiting.setdefault(key, (chosen, []))[1].append(found)
        yield from waiting.values()


def _recognised(
    found: Found, format: Format | None, on_error: OnError, on_skip: OnSkip
) -> tuple[Format, Head] | None:
    try:
        head = Head.of(found.place)
    except ReadError as unreadable:
        if found.named or on_error == "raise":
            raise
        on_skip(found.place, unreadable.reason)
        return None
    # That a file is no recording is no failure of the folder that it lies in.
    if not head.start and str(found.place).endswith(".lock") and not found.named:
        return None  # it lies beside what a store writes, and never holds anything
    if not head.start.strip():
        nothing: ReadError = ReadError(found.place, None, "the file is empty")
    elif (chosen := _choose(head, format, found.named)) is None:
        nothing = UnknownFormat(found.place, None, _unknown(found, format))
    else:
        return chosen, head
    if found.named:
        raise nothing
    on_skip(found.place, nothing.reason)
    return None


def _read(
    files: list[Found], format: Format, on_error: OnError, on_skip: OnSkip
) -> Iterator[Recording]:
    first, *others = files
    name = first.name.rpartition("/")[0] or first.name if others else first.name
    source = Source(first.place, name, on_error, tuple(found.place for found in others))
    count = 0
    try:
        for recording in recordings(format, source):
            count += 1
            yield recording
        error = ReadError(first.place, None, f"no {format.name} conversation in it{_why(source)}")
    except ReadError as broken:
        if first.named or on_error == "raise":
            raise
        error, count = broken, 0
    if count:
        return
    if first.named:
        raise error
    for found in files:
        on_skip(found.place, error.reason)


def _choose(head: Head, format: Format | None, named: bool) -> Format | None:
    if format is None:
        return recognise(head)
    return format if named or format.sniff(head) else None


def _unknown(found: Found, format: Format | None) -> str:
    if format is not None:
        return f"does not look like {format.name}"
    known = f"; known formats: {', '.join(FORMATS)}. Name one with --format" if found.named else ""
    return f"no reader recognises it{known}"


def _why(source: Source) -> str:
    left_out = [f"{count}x {reason}" for reason, count in source.take().items()]
    return f" ({'; '.join(left_out[:3])})" if left_out else ""


def _unique(stream: Iterator[Recording]) -> Iterator[Recording]:
    used: dict[str, int] = {}  # id → the number that its last use got
    for recording in stream:
        id, again = recording.id, used.get(recording.id, 0)
        while id in used:
            again += 1
            id = f"{recording.id}#{again}"
        used[recording.id] = max(again, 1)
        used.setdefault(id, 1)
        yield recording if id == recording.id else msgspec.structs.replace(recording, id=id)
