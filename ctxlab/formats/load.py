"""Load files, folders, globs and URLs as one stream of recordings with unique ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec

from ctxlab.errors import ReadError, SpecError, UnknownFormat, UnknownName
from ctxlab.formats.base import Format, OnError, Source, read_recordings
from ctxlab.formats.filters import Condition, parse_condition, sample_recordings
from ctxlab.formats.io.files import FoundFile, PathOrUrl, find_files
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.registry import FORMATS, match_format
from ctxlab.messages.types import Recording

OnSkip: TypeAlias = Callable[[PathOrUrl, str], None]
"""Called with each file that gave no recording, and the reason."""


def load(
    path: PathOrUrl | Iterable[PathOrUrl],
    *,
    format: str | Format | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
    where: str | Condition | Iterable[str | Condition] = (),
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[Recording]:
    """Load the recordings of files, folders (with subfolders), globs or URLs.

    Files are read lazily, folder by folder in the order of their paths. Files that are compressed
    with gzip, bzip2, xz or zstd are decompressed. The format is recognised by content.

    The id of a recording is the path relative to the requested folder, without its suffix, followed
    by an identifier if the file holds several recordings. If an id occurs again, it gets the suffix
    ``#2``.

    Parameters
    ----------
    path : str, Path, or iterable of them
        What to load. A text may be any URL that fsspec supports, such as ``s3://bucket/logs`` or
        ``zip://*.json::logs.zip``, ``bundled:NAME`` for a data set that ships with ctxlab, or
        ``dataset:NAME`` for one that ``ctxlab datasets fetch`` downloaded.
    format : str or Format, optional
        Read files in this format. Files found in a folder or by a glob are left out if they do not
        look like it. By default the format of each file is recognised by its content.
    on_error : {"raise", "skip"}
        ``"raise"`` stops at the first broken line. ``"skip"`` continues, and ``Recording.skipped``
        says what was left out.
    on_skip : Callable, optional
        Called with the path and the reason for each file in a folder or glob that gave no
        recording.
    where : str, Callable, or iterable of them
        Conditions that a recording must meet: functions of a recording, or texts such as
        ``messages>=50``, ``tokens>=20k`` or ``model=claude*``.
    sample : int, optional
        Draw a random sample of this many recordings.
    seed : int
        Seed of the sample. The same seed gives the same sample.

    Returns
    -------
    Iterator of Recording
        The recordings.

    Raises
    ------
    ReadError
        If a path is missing, empty or broken, or holds no conversation.
    UnknownFormat
        If no reader recognises a file.
    UnknownName
        If ``format`` is not a known format, or a data set is unknown.
    DataMissing
        If a data set has not been downloaded.
    SpecError
        If ``on_error``, ``where`` or ``sample`` is not valid.
    """
    if on_error not in get_args(OnError):
        raise SpecError(f"on_error must be one of {', '.join(get_args(OnError))}, got {on_error!r}")
    if isinstance(format, str):
        if format not in FORMATS:
            raise UnknownName("format", format, FORMATS)
        format = FORMATS[format]
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    files_by_path = [(each, find_files(each)) for each in paths]
    raw_conditions = [where] if isinstance(where, str) or callable(where) else list(where)
    conditions = [
        parse_condition(each) if isinstance(each, str) else each for each in raw_conditions
    ]
    stream = _make_ids_unique(
        _stream(files_by_path, format, on_error, on_skip or (lambda path, reason: None))
    )
    chosen = (each for each in stream if all(holds(each) for holds in conditions))
    return chosen if sample is None else sample_recordings(chosen, sample, seed)


def _stream(
    files_by_path: list[tuple[PathOrUrl, list[FoundFile]]],
    format: Format | None,
    on_error: OnError,
    on_skip: OnSkip,
) -> Iterator[Recording]:
    for path, files in files_by_path:
        nothing = True
        for chosen, found in _group_files(files, format, on_error, on_skip):
            for recording in _read_group(found, chosen, on_error, on_skip):
                nothing = False
                yield recording
        if nothing:
            reason = f"none of its {len(files)} files contains a recording that ctxlab can read"
            raise ReadError(path, None, reason)


def _group_files(
    files: list[FoundFile], format: Format | None, on_error: OnError, on_skip: OnSkip
) -> Iterator[tuple[Format, list[FoundFile]]]:
    """Yield each file with its format; the grouped files of a folder come after its other files."""
    for _, here in groupby(files, key=lambda found: found.folder):
        groups: dict[tuple[str, str], tuple[Format, list[FoundFile]]] = {}
        for found in here:
            known = _detect_format(found, format, on_error, on_skip)
            if known is None:
                continue
            chosen, head = known
            if chosen.group_key is None:
                yield chosen, [found]
            else:
                key = chosen.name, chosen.group_key(head)
                groups.setdefault(key, (chosen, []))[1].append(found)
        yield from groups.values()


def _detect_format(
    found: FoundFile, format: Format | None, on_error: OnError, on_skip: OnSkip
) -> tuple[Format, FileHead] | None:
    try:
        head = FileHead.from_file(found.path)
    except ReadError as unreadable:
        if found.explicit or on_error == "raise":
            raise
        on_skip(found.path, unreadable.reason)
        return None
    # A file that is not a recording does not make its folder fail.
    if not head.first_bytes and str(found.path).endswith(".lock") and not found.explicit:
        return None  # the lock file of a session store; always empty
    if not head.first_bytes.strip():
        problem: ReadError = ReadError(found.path, None, "the file is empty")
    elif (chosen := _select_format(head, format, found.explicit)) is None:
        problem = UnknownFormat(found.path, None, _unknown_format_message(found, format))
    else:
        return chosen, head
    if found.explicit:
        raise problem
    on_skip(found.path, problem.reason)
    return None


def _read_group(
    files: list[FoundFile], format: Format, on_error: OnError, on_skip: OnSkip
) -> Iterator[Recording]:
    first, *others = files
    name = first.name.rpartition("/")[0] or first.name if others else first.name
    source = Source(first.path, name, on_error, tuple(found.path for found in others))
    count = 0
    try:
        for recording in read_recordings(format, source):
            count += 1
            yield recording
        error = ReadError(
            first.path, None, f"no {format.name} conversation in it{_skipped_summary(source)}"
        )
    except ReadError as broken:
        if first.explicit or on_error == "raise":
            raise
        error, count = broken, 0
    if count:
        return
    if first.explicit:
        raise error
    for found in files:
        on_skip(found.path, error.reason)


def _select_format(head: FileHead, format: Format | None, explicit: bool) -> Format | None:
    if format is None:
        return match_format(head)
    return format if explicit or format.sniff(head) else None


def _unknown_format_message(found: FoundFile, format: Format | None) -> str:
    if format is not None:
        return f"does not look like {format.name}"
    known = (
        f"; known formats: {', '.join(FORMATS)}. Name one with --format" if found.explicit else ""
    )
    return f"no reader recognises it{known}"


def _skipped_summary(source: Source) -> str:
    left_out = [f"{count}x {reason}" for reason, count in source.pop_skipped().items()]
    return f" ({'; '.join(left_out[:3])})" if left_out else ""


def _make_ids_unique(stream: Iterator[Recording]) -> Iterator[Recording]:
    used: dict[str, int] = {}  # id → number given to its last use
    for recording in stream:
        id, again = recording.id, used.get(recording.id, 0)
        while id in used:
            again += 1
            id = f"{recording.id}#{again}"
        used[recording.id] = max(again, 1)
        used.setdefault(id, 1)
        yield recording if id == recording.id else msgspec.structs.replace(recording, id=id)
