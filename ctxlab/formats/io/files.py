"""Recordings are found and opened alike on this machine and at every address that fsspec knows.

What is asked for is a file, a folder, a glob, or an address (``s3://``, ``gs://``, ``zip://``, with
``::`` between an inner and an outer one). A file that is compressed (gzip, bzip2, xz, zstd) is known
by its first bytes and read as what it holds. Whatever cannot be opened is a ``ReadError``.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

from ctxlab.errors import (
    ReadError,
    SpecError,
)
from ctxlab.formats.io.datasets import named

__all__ = ["BOM", "Found", "Place", "find", "is_address", "opened", "zstd_file"]

Place: TypeAlias = Path | str
"""A file on this machine, or the address of one anywhere."""

BOM = b"\xef\xbb\xbf"
"""What some programs write before the first character of UTF-8 text."""

_PACKED = (".gz", ".bz2", ".xz", ".zst")


class Found(NamedTuple):
    """A file to read."""

    place: Place
    name: str
    "what the ids of its recordings begin with: the path below what was asked for, less suffixes"
    named: bool
    "asked for by its own name, and not found by looking into a folder"

    @property
    def folder(self) -> str:
        """Where it lies; files in one folder share it."""
        if is_address(self.place):
            inner, chained, outer = str(self.place).partition("::")
            return inner.rpartition("/")[0] + chained + outer
        return str(Path(self.place).parent)


def is_address(place: Place) -> bool:
    """Whether a text is an address for fsspec and no path.

    >>> is_address("s3://bucket/logs"), is_address("zip://*.json::logs.zip"), is_address("logs")
    (True, True, False)
    """
    return isinstance(place, str) and "://" in place


def find(asked: Place) -> list[Found]:
    """The files of what is asked for; those of a folder stand together.

    ``bundled:NAME`` and ``dataset:NAME`` are data sets. Raises ``ReadError`` where there is no file,
    ``UnknownName`` for an unknown data set, ``DataMissing`` for one that was not fetched.
    """
    if asked == "":
        raise SpecError("a path is empty; the current folder is written as .")
    asked = named(str(asked)) or asked
    return _find_far(str(asked)) if is_address(asked) else _find_here(Path(asked).expanduser())


@contextmanager
def opened(place: Place) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where it is packed; what fails inside is a ``ReadError``."""
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(_open(place))
            file = _unpacked(raw)
            yield file if file is raw else stack.enter_context(file)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ReadError(place, None, said) from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # loaded only where a file needs it
                raise
            raise ReadError(place, None, str(error)) from None


def _find_here(path: Path) -> list[Found]:
    if path.is_file():
        return [Found(path, _plain(path.name), named=True)]
    if path.is_dir():
        return _below([path], path)
    if path.exists():
        raise ReadError(path, None, "is neither a file nor a folder")
    if not glob.has_magic(str(path)):
        raise ReadError(path, None, "no such file or folder")
    root = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    if not matches:
        raise ReadError(path, None, "no file matches")
    return _below(matches, root)


def _below(paths: list[Path], root: Path) -> list[Found]:
    every = {file for path in paths for file in ([path] if path.is_file() else _walk(path))}
    ordered = sorted(every, key=lambda file: (file.parent, file.name))
    return [Found(file, _plain(file.relative_to(root).as_posix()), False) for file in ordered]


def _walk(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder, onerror=_refuse):
        yield from (path for name in names if (path := Path(here, name)).is_file())


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed is not left out in silence."""
    raise ReadError(error.filename, None, error.strerror or str(error)) from None


def _find_far(address: str) -> list[Found]:
    first, *outer = address.split("::")
    fs, path = _far(address)
    try:
        if glob.has_magic(path):
            above = PurePosixPath(path)
            root = next(str(p) for p in above.parents if not glob.has_magic(str(p)))
            matches = [file for match in fs.glob(path) for file in fs.find(match)]
        elif path and fs.isfile(path):
            return [Found(address, _plain(PurePosixPath(path).name), named=True)]
        else:
            root, matches = path, fs.find(path)
    except Exception as error:  # each file system raises errors of its own
        raise ReadError(address, None, _said(error)) from None
    if not matches:
        raise ReadError(address, None, "no file is there")
    scheme = first.partition("://")[0]
    found = []
    for match in sorted(set(matches), key=lambda match: match.rpartition("/")[::2]):
        name = match.removeprefix(root.rstrip("/")).lstrip("/") if root != "." else match
        inner = f"{scheme}://{match}" if outer else fs.unstrip_protocol(match)
        found.append(Found("::".join([inner, *outer]), _plain(name), named=False))
    return found


def _far(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    from fsspec.core import url_to_fs  # only who asks for an address pays for it

    try:
        fs, path = url_to_fs(address)
    except ImportError as error:
        scheme = address.partition("://")[0]
        reason = f"{scheme}:// needs a package that is not installed: {error}"
        raise ReadError(address, None, reason) from None
    except Exception as error:
        raise ReadError(address, None, _said(error)) from None
    return fs, str(path)


def _open(place: Place) -> AbstractContextManager[Any]:
    if not is_address(place):
        return Path(place).open("rb")
    import fsspec

    try:
        # Held open as a whole: an archive closes when nobody holds its file system any more.
        return cast(AbstractContextManager[Any], fsspec.open(str(place), "rb"))
    except OSError:
        raise
    except Exception as error:
        raise ReadError(place, None, _said(error)) from None


def _unpacked(raw: BinaryIO) -> BinaryIO:
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if start.startswith(b"BZh"):
        return cast(BinaryIO, bz2.BZ2File(raw))
    if start.startswith(b"\xfd7zXZ"):
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd_file(raw)
    return raw


def zstd_file(packed: BinaryIO, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    """What a file that is packed with Zstandard holds, all of its frames; or is to hold."""
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile
    else:
        from backports.zstd import ZstdFile
    return cast(BinaryIO, ZstdFile(packed, mode))


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


def _plain(name: str) -> str:
    """A name without its suffix, and without the one that says how it is packed.

    >>> _plain("runs/a.traj.json.gz")
    'runs/a.traj'
    """
    path = PurePosixPath(name)
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return path.with_suffix("").as_posix()
