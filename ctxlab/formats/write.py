"""Recordings are written whole or not at all, and what a format has no place for is counted.

Everything is written beside its place first and moved there at the end, so that an error leaves no half
file. A file that is there already stays unless it may be replaced, and one that was read stays in any
case.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ctxlab.errors import SpecError, UnknownName
from ctxlab.formats.base import Format
from ctxlab.formats.io.files import is_url, open_zstd
from ctxlab.formats.registry import FORMATS
from ctxlab.messages.types import Recording

__all__ = ["writable_format", "write"]

_UNSAFE_CHARACTERS = re.compile(r"[^\w .,+@=#~-]")
_MAX_NAME_BYTES = 120  # bytes of a name, of which file systems take 255
_COMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    # Without a name and a time, so that the same recordings give the same bytes.
    ".gz": lambda raw: gzip.GzipFile("", "wb", fileobj=raw, mtime=0),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".zst": partial(open_zstd, mode="wb"),
}
_RESERVED_NAMES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows


def write(
    recordings: Iterable[Recording],
    out: str | Path | TextIO,
    format: str | Format = "native",
    *,
    force: bool = False,
) -> Counter[str]:
    """Writes recordings in a format; returns what it has no place for, and how often.

    ``out`` is a file, which takes them one after the other; or a folder, one that is there or a text
    that ends with ``/``, which takes a file for each, called like its id; or something open for text.
    A file whose name ends with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` is packed so.
    ``force`` lets files be replaced. Raises ``SpecError`` for a format that is not written, for a
    second recording in one file of a format that holds one, for a file that is there and for one
    that is read.

    >>> from ctxlab.messages.types import Message
    >>> import sys
    >>> write([Recording("a", (Message("user", "hi", time=0.0),))], sys.stdout, "openai")
    {"messages":[{"role":"user","content":"hi"}]}
    Counter({'time of a message': 1})
    """
    target_format = writable_format(format) if isinstance(format, str) else format
    unsupported: Counter[str] = Counter()
    if not isinstance(out, (str, Path)):
        for number, recording in enumerate(recordings):
            if number and target_format.single_recording:
                raise _single_recording_error(target_format)
            out.write(_dump_text(recording, target_format, unsupported))
        return unsupported
    if out == "":
        raise SpecError("the place to write to is empty; the current folder is written as ./")
    if is_url(out):
        raise SpecError(f"{out}: recordings are written to this machine only")
    path = Path(out).expanduser()
    is_folder = path.is_dir() or str(out).endswith(("/", os.sep))
    home = path if is_folder else path.parent
    if home.exists() and not home.is_dir():
        raise SpecError(f"{home}: is a file and no folder")
    staging_parent = next(folder for folder in (home, *home.absolute().parents) if folder.is_dir())
    sources: set[Path] = set()
    staged: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(prefix=".ctxlab-", dir=staging_parent) as stage:
        for recording, target in _target_paths(recordings, path, is_folder, target_format):
            if target_format.single_recording and target in staged:
                raise _single_recording_error(target_format)
            if target not in staged and not force and target.exists():
                raise SpecError(f"{target}: is there already; --force replaces it")
            if recording.source is not None:
                sources.add(Path(recording.source).resolve())
            staged_file = staged.setdefault(target, Path(stage, str(len(staged))))
            with staged_file.open("a", encoding="utf-8", newline="\n") as file:
                file.write(_dump_text(recording, target_format, unsupported))
        for target in staged:
            if target.resolve() in sources:
                raise SpecError(f"{target}: is read here and not replaced; write to another place")
        for target, staged_file in staged.items():
            _compress(staged_file, target.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged_file.replace(target)
    return unsupported


def _compress(file: Path, suffix: str) -> None:
    """Packs what was written as the suffix of its name says, if it says so."""
    if suffix not in _COMPRESSORS:
        return
    packed = file.with_suffix(suffix)
    with (
        file.open("rb") as plain,
        packed.open("wb") as raw,
        _COMPRESSORS[suffix](raw) as compressed,
    ):
        shutil.copyfileobj(plain, compressed)
    packed.replace(file)


def writable_format(name: str) -> Format:
    """The format of a name, where it can be written.

    Raises ``SpecError`` that names those which can where it cannot.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    if FORMATS[name].dump is None:
        can = ", ".join(each.name for each in FORMATS.values() if each.dump)
        raise SpecError(f"{name} is read and not written; ctxlab writes {can}")
    return FORMATS[name]


def _dump_text(recording: Recording, format: Format, unsupported: Counter[str]) -> str:
    if format.dump is None:
        raise SpecError(f"{format.name} is read and not written")
    try:
        return format.dump(recording, lambda name: unsupported.update((name,)))
    except RecursionError:
        raise SpecError(f"{recording.id}: is nested too deeply to be written") from None


def _single_recording_error(format: Format) -> SpecError:
    return SpecError(
        f"a file of {format.name} holds one recording, and there are several: name a folder, with / "
        "at its end"
    )


def _target_paths(
    recordings: Iterable[Recording], path: Path, is_folder: bool, format: Format
) -> Iterator[tuple[Recording, Path]]:
    """Each recording with its file: the one that was named, or one in the folder."""
    suffix = ".json" if format.single_recording else ".jsonl"
    used: dict[str, int] = {}
    for recording in recordings:
        yield recording, path / _file_name(recording.id, suffix, used) if is_folder else path


def _file_name(id: str, suffix: str, used: dict[str, int]) -> str:
    """A path for an id: below the folder, fit for every file system, and given once.

    ``used``: path in lower case → the number that its last use got.

    >>> used = {}
    >>> [_file_name(id, ".jsonl", used) for id in ("air/task-3", "../../etc/x y:z", "AIR/task-3", "")]
    ['air/task-3.jsonl', 'etc/x y_z.jsonl', 'AIR/task-3-2.jsonl', 'recording.jsonl']
    """
    *folders, last = [safe for part in id.split("/") if (safe := _sanitize_part(part))] or [
        "recording"
    ]
    # A folder that is called like a file would stand in its way.
    above = "".join(f"{part}_/" if part.endswith(suffix) else f"{part}/" for part in folders)
    plain = name = f"{above}{last}{suffix}"
    again = used.get(plain.casefold(), 0)
    while name.casefold() in used:
        again += 1
        name = f"{above}{last}-{again}{suffix}"
    used[plain.casefold()] = max(again, 1)
    used.setdefault(name.casefold(), 1)
    return name


def _sanitize_part(part: str) -> str:
    clean = _UNSAFE_CHARACTERS.sub("_", part).strip(" .")
    short = clean.encode()[:_MAX_NAME_BYTES].decode("utf-8", "ignore").rstrip(" .")
    return f"{short}_" if _RESERVED_NAMES.fullmatch(short) else short
