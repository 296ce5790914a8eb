"""Loading turns files, folders and globs into one stream of recordings with ids of their own."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias, get_args

import msgspec

from ctxlab.conversation import Recording
from ctxlab.errors import ReadError, SpecError, UnknownFormat, UnknownName
from ctxlab.formats.base import Format, OnError, Source, recordings
from ctxlab.formats.head import Head
from ctxlab.formats.table import FORMATS, recognise

__all__ = ["OnSkip", "load"]

OnSkip: TypeAlias = Callable[[Path, str], None]
"""Told of a file that gave no recording, and why."""


class _Found(NamedTuple):
    path: Path
    root: Path
    "the ids of its recordings begin with the path below this"
    named: bool
    "asked for by its own name, and not found by looking into a folder"


def load(
    path: str | Path | Iterable[str | Path],
    *,
    format: str | Format | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
) -> Iterator[Recording]:
    """Every recording of a file, a folder (with its subfolders), a glob, or several of these.

    Files are read one after the other in the order of their paths, as the iterator is asked. The
    format is recognised by content. ``format`` names it instead; files that were found in a folder
    or by a glob and do not look like it are then left out.

    ``on_error="raise"`` stops at the first broken line; ``"skip"`` reads on, and the recordings say
    in ``skipped`` what was left out. ``on_skip`` is told of each file in a folder or glob that gave
    nothing, and why. An id is the path below the folder that was asked for, without its suffix, and
    what tells the recordings of one file apart; a second use of an id gets ``#2`` behind it.

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
    asked = [(each, list(_find(Path(each).expanduser()))) for each in given]
    return _unique(_stream(asked, format, on_error, on_skip or (lambda path, reason: None)))


def _find(path: Path) -> Iterator[_Found]:
    if path.is_file():
        yield _Found(path, path.parent, named=True)
    elif path.is_dir():
        yield from _below(path, path)
    elif path.exists():
        raise ReadError(path, None, "is neither a file nor a folder")
    elif not glob.has_magic(str(path)):
        raise ReadError(path, None, "no such file or folder")
    else:
        plain = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        if not matches:
            raise ReadError(path, None, "no file matches")
        files = {found for match in matches for found in _below(match, plain)}
        yield from sorted(files)


def _below(path: Path, root: Path) -> Iterator[_Found]:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return (_Found(file, root, named=False) for file in files)


def _stream(
    asked: list[tuple[str | Path, list[_Found]]],
    format: Format | None,
    on_error: OnError,
    on_skip: OnSkip,
) -> Iterator[Recording]:
    for path, files in asked:
        nothing = True
        for found in files:
            for recording in _read(found, format, on_error, on_skip):
                nothing = False
                yield recording
        if nothing:
            reason = f"none of its {len(files)} files holds a recording that ctxlab can read"
            raise ReadError(path, None, reason)


def _read(
    found: _Found, format: Format | None, on_error: OnError, on_skip: OnSkip
) -> Iterator[Recording]:
    path = found.path
    count = 0
    try:
        head = Head.of(path)
        if not head.start.strip():
            error = ReadError(path, None, "the file is empty")
        elif (chosen := _choose(head, format, found.named)) is None:
            error = UnknownFormat(path, None, _unknown(found, format))
        else:
            name = path.relative_to(found.root).with_suffix("").as_posix()
            source = Source(path, name, on_error)
            for recording in recordings(chosen, source):
                count += 1
                yield recording
            error = ReadError(path, None, f"no {chosen.name} conversation in it{_why(source)}")
    except ReadError as broken:
        if found.named or on_error == "raise":
            raise
        error, count = broken, 0
    if count:
        return
    if found.named:
        raise error
    on_skip(path, error.reason)


def _choose(head: Head, format: Format | None, named: bool) -> Format | None:
    if format is None:
        return recognise(head)
    return format if named or format.sniff(head) else None


def _unknown(found: _Found, format: Format | None) -> str:
    if format is not None:
        return f"does not look like {format.name}"
    known = f"; known formats: {', '.join(FORMATS)}. Name one with --format" if found.named else ""
    return f"no reader recognises it{known}"


def _why(source: Source) -> str:
    left_out = [f"{count}x {reason}" for reason, count in source.take().items()]
    return f" ({'; '.join(left_out[:3])})" if left_out else ""


def _unique(stream: Iterator[Recording]) -> Iterator[Recording]:
    used: set[str] = set()
    for recording in stream:
        id, again = recording.id, 1
        while id in used:
            again += 1
            id = f"{recording.id}#{again}"
        used.add(id)
        yield recording if again == 1 else msgspec.structs.replace(recording, id=id)
