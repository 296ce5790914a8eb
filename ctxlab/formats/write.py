"""Write recordings to files, and count the values that the format cannot store.

Files are first written to a temporary folder. They are moved to their final paths at the end, so
that an error leaves no partial output. Existing files are replaced only if ``force`` is True. A
file from which one of the recordings was read is never replaced.
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
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ctxlab.errors import SpecError, UnknownName
from ctxlab.formats.base import Format
from ctxlab.formats.io.files import is_url, open_zstd
from ctxlab.formats.registry import FORMATS
from ctxlab.messages.types import Recording

_UNSAFE_CHARACTERS = re.compile(r"[^\w .,+@=#~-]")
_MAX_NAME_BYTES = 120  # file systems allow 255 bytes; the rest is for suffixes
_COMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    # The header contains neither name nor time, so that the output is reproducible.
    ".gz": lambda raw: gzip.GzipFile("", "wb", fileobj=raw, mtime=0),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".zst": partial(open_zstd, mode="wb"),
}
_RESERVED_NAMES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # by Windows


def write(
    recordings: Iterable[Recording],
    out: str | Path | TextIO,
    format: str | Format = "native",
    *,
    force: bool = False,
) -> Counter[str]:
    """Write recordings to a file or folder.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings to write.
    out : str, Path or text file
        A path, or a file object opened for text. If the path is an existing folder or ends with
        ``/``, each recording is written to a file in this folder that is named after its id.
        Otherwise, all recordings are written to one file. The file is compressed if its name ends
        with ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
    format : str or Format
        The format to write, such as ``"openai"``. ``ctxlab formats`` lists the names.
    force : bool
        Replace existing files. By default, an existing file is an error.

    Returns
    -------
    Counter of str
        Number of values that the format could not store, by name.

    Raises
    ------
    SpecError
        If the format cannot be written, if a file would contain more recordings than the format
        allows, if a file exists and ``force`` is False, or if a recording was read from a file that
        would be replaced.
    UnknownName
        If ``format`` is not the name of a known format.

    Examples
    --------
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
        raise SpecError("expected an output path, got an empty string; use ./ for this folder")
    if is_url(out):
        raise SpecError(f"{out}: expected a local path, got a URL")
    path = Path(out).expanduser()
    is_folder = path.is_dir() or str(out).endswith(("/", os.sep))
    home = path if is_folder else path.parent
    if home.exists() and not home.is_dir():
        raise SpecError(f"{home}: expected a folder, got a file")
    staging_parent = next(folder for folder in (home, *home.absolute().parents) if folder.is_dir())
    suffix = ".json" if target_format.single_recording else ".jsonl"
    used: dict[str, int] = {}
    sources: set[Path] = set()
    staged: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(prefix=".ctxlab-", dir=staging_parent) as stage:
        for recording in recordings:
            target = path / _file_name(recording.id, suffix, used) if is_folder else path
            if target_format.single_recording and target in staged:
                raise _single_recording_error(target_format)
            if target not in staged and not force and target.exists():
                raise SpecError(f"{target}: already exists; --force replaces it")
            if recording.source is not None:
                sources.add(Path(recording.source).resolve())
            staged_file = staged.setdefault(target, Path(stage, str(len(staged))))
            with staged_file.open("a", encoding="utf-8", newline="\n") as file:
                file.write(_dump_text(recording, target_format, unsupported))
        for target in staged:
            if target.resolve() in sources:
                reason = "cannot replace a file that is being read; write to another path"
                raise SpecError(f"{target}: {reason}")
        for target, staged_file in staged.items():
            _compress(staged_file, target.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged_file.replace(target)
    return unsupported


def describe_loss(name: str, count: int) -> str:
    """Combine a number and the name of a value into a phrase such as "3 compactions".

    The phrase is used in the warning about values that a format could not store.

    Parameters
    ----------
    name : str
        Name of one value in the singular, as in the counter that ``write`` returns.
    count : int
        Number of values.

    Returns
    -------
    str
        The number and the name, in the plural if ``count`` is not 1.

    Examples
    --------
    >>> describe_loss("time of a message", 40)
    'time of 40 messages'
    >>> describe_loss("compaction", 3), describe_loss("compaction", 1)
    ('3 compactions', '1 compaction')
    """
    if re.search(r"\bof an? ", name):
        return name if count == 1 else re.sub(r"\bof an? (.*)", rf"of {count:,} \1s", name)
    noun, *rest = name.split(" ", 1)
    return " ".join([f"{count:,}", noun if count == 1 else f"{noun}s", *rest])


def _compress(file: Path, suffix: str) -> None:
    """Compress a file in place if ``suffix`` is that of a compressed file, such as ``.gz``.

    ``suffix`` is the suffix of the final file name.
    """
    if suffix not in _COMPRESSORS:
        return
    packed = file.with_suffix(suffix)
    with file.open("rb") as plain, packed.open("wb") as raw, _COMPRESSORS[suffix](raw) as target:
        shutil.copyfileobj(plain, target)
    packed.replace(file)


def writable_format(name: str) -> Format:
    """Return a format by name, and raise an error if ctxlab cannot write it.

    Parameters
    ----------
    name : str
        Name of the format.

    Returns
    -------
    Format
        The format, which has a ``dump`` function.

    Raises
    ------
    UnknownName
        If no format has this name.
    SpecError
        If ctxlab can read but not write the format.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    if FORMATS[name].dump is None:
        can = ", ".join(each.name for each in FORMATS.values() if each.dump)
        raise SpecError(f"ctxlab can read but not write the format {name}; choose from {can}")
    return FORMATS[name]


def _dump_text(recording: Recording, format: Format, unsupported: Counter[str]) -> str:
    if format.dump is None:
        raise SpecError(f"the format {format.name} has no writer; choose another format")
    try:
        return format.dump(recording, lambda name: unsupported.update((name,)))
    except RecursionError:
        raise SpecError(f"{recording.id}: nested too deeply to be written as JSON") from None


def _single_recording_error(format: Format) -> SpecError:
    fix = "write to a folder, with a path that ends with /"
    return SpecError(f"expected one recording per {format.name} file, got several; {fix}")


def _file_name(id: str, suffix: str, used: dict[str, int]) -> str:
    """Return an unused relative path for a recording, which is valid on every file system.

    ``used`` maps each used path, in lower case, to the number that was last appended to it.

    >>> used = {}
    >>> [_file_name(id, ".jsonl", used) for id in ("air/task-3", "../../etc/x y:z", "AIR/task-3", "")]
    ['air/task-3.jsonl', 'etc/x y_z.jsonl', 'AIR/task-3-2.jsonl', 'recording.jsonl']
    """
    parts = [safe for part in id.split("/") if (safe := _sanitize_part(part))]
    *folders, last = parts or ["recording"]
    # A folder must not have the same name as a file in the same folder.
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
