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

from ctxlab.errors import (
    SpecError,
    UnknownName,
)
from ctxlab.formats.base import Format
from ctxlab.formats.io.files import (
    is_address,
    zstd_file,
)
from ctxlab.formats.registry import FORMATS
from ctxlab.messages.types import Recording

__all__ = ["write", "writer"]

_UNSAFE = re.compile(r"[^\w .,+@=#~-]")
_LONGEST = 120  # bytes of a name, of which file systems take 255
_PACKERS: dict[str, Callable[[BinaryIO], Any]] = {
    # Without a name and a time, so that the same recordings give the same bytes.
    ".gz": lambda raw: gzip.GzipFile("", "wb", fileobj=raw, mtime=0),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".zst": partial(zstd_file, mode="wb"),
}
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows


def write(
    recordings: Iterable[Recording],
    out: str | Path | TextIO,
    to: str | Format = "native",
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
    format = writer(to) if isinstance(to, str) else to
    lost: Counter[str] = Counter()
    if not isinstance(out, (str, Path)):
        for number, recording in enumerate(recordings):
            if number and format.single:
                raise _one_each(format)
            out.write(_text(recording, format, lost))
        return lost
    if out == "":
        raise SpecError("the place to write to is empty; the current folder is written as ./")
    if is_address(out):
        raise SpecError(f"{out}: recordings are written to this machine only")
    path = Path(out).expanduser()
    names = path.is_dir() or str(out).endswith(("/", os.sep))
    home = path if names else path.parent
    if home.exists() and not home.is_dir():
        raise SpecError(f"{home}: is a file and no folder")
    near = next(folder for folder in (home, *home.absolute().parents) if folder.is_dir())
    sources: set[Path] = set()
    staged: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(prefix=".ctxlab-", dir=near) as stage:
        for recording, target in _targets(recordings, path, names, format):
            if format.single and target in staged:
                raise _one_each(format)
            if target not in staged and not force and target.exists():
                raise SpecError(f"{target}: is there already; --force replaces it")
            if recording.source is not None:
                sources.add(Path(recording.source).resolve())
            beside = staged.setdefault(target, Path(stage, str(len(staged))))
            with beside.open("a", encoding="utf-8", newline="\n") as file:
                file.write(_text(recording, format, lost))
        for target in staged:
            if target.resolve() in sources:
                raise SpecError(f"{target}: is read here and not replaced; write to another place")
        for target, beside in staged.items():
            _pack(beside, target.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            beside.replace(target)
    return lost


def _pack(file: Path, suffix: str) -> None:
    """Packs what was written as the suffix of its name says, if it says so."""
    if suffix not in _PACKERS:
        return
    packed = file.with_suffix(suffix)
    with file.open("rb") as plain, packed.open("wb") as raw, _PACKERS[suffix](raw) as into:
        shutil.copyfileobj(plain, into)
    packed.replace(file)


def writer(name: str) -> Format:
    """The format of a name, where it can be written.

    Raises ``SpecError`` that names those which can where it cannot.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    if FORMATS[name].dump is None:
        can = ", ".join(each.name for each in FORMATS.values() if each.dump)
        raise SpecError(f"{name} is read and not written; ctxlab writes {can}")
    return FORMATS[name]


def _text(recording: Recording, format: Format, lost: Counter[str]) -> str:
    if format.dump is None:
        raise SpecError(f"{format.name} is read and not written")
    try:
        return format.dump(recording, lambda what: lost.update((what,)))
    except RecursionError:
        raise SpecError(f"{recording.id}: is nested too deeply to be written") from None


def _one_each(format: Format) -> SpecError:
    return SpecError(
        f"a file of {format.name} holds one recording, and there are several: name a folder, with / "
        "at its end"
    )


def _targets(
    recordings: Iterable[Recording], path: Path, names: bool, format: Format
) -> Iterator[tuple[Recording, Path]]:
    """Each recording with its file: the one that was named, or one in the folder."""
    suffix = ".json" if format.single else ".jsonl"
    taken: dict[str, int] = {}
    for recording in recordings:
        yield recording, path / _name(recording.id, suffix, taken) if names else path


def _name(id: str, suffix: str, taken: dict[str, int]) -> str:
    """A path for an id: below the folder, fit for every file system, and given once.

    ``taken``: path in lower case → the number that its last use got.

    >>> taken = {}
    >>> [_name(id, ".jsonl", taken) for id in ("air/task-3", "../../etc/x y:z", "AIR/task-3", "")]
    ['air/task-3.jsonl', 'etc/x y_z.jsonl', 'AIR/task-3-2.jsonl', 'recording.jsonl']
    """
    *folders, last = [safe for part in id.split("/") if (safe := _safe(part))] or ["recording"]
    # A folder that is called like a file would stand in its way.
    above = "".join(f"{part}_/" if part.endswith(suffix) else f"{part}/" for part in folders)
    plain = name = f"{above}{last}{suffix}"
    again = taken.get(plain.casefold(), 0)
    while name.casefold() in taken:
        again += 1
        name = f"{above}{last}-{again}{suffix}"
    taken[plain.casefold()] = max(again, 1)
    taken.setdefault(name.casefold(), 1)
    return name


def _safe(part: str) -> str:
    clean = _UNSAFE.sub("_", part).strip(" .")
    short = clean.encode()[:_LONGEST].decode("utf-8", "ignore").rstrip(" .")
    return f"{short}_" if _RESERVED.fullmatch(short) else short
