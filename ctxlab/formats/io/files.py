"""Find and open local files, and files at URLs that fsspec supports.

A path is a file, a folder, a glob pattern or a URL, such as ``s3://bucket/logs``. In the URL of a
file in an archive, ``::`` separates the path in the archive from the URL of the archive. Compressed
files (gzip, bzip2, xz, zstd) are recognised by their first bytes and decompressed. If a file cannot
be opened, ``ReadError`` is raised.

Only files in the requested folder or archive are found. Links that lead out of the folder, and members
of archives whose names lead elsewhere, are left out and reported.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

from ctxlab.errors import ReadError, SpecError
from ctxlab.formats.io.datasets import resolve_dataset_path
from ctxlab.formats.io.limits import ExpansionError, ExpansionGuard

PathOrUrl: TypeAlias = Path | str
"""Path of a local file or folder, or a URL."""

BOM = b"\xef\xbb\xbf"
"""Byte order mark, which some programs write at the beginning of UTF-8 text."""

_COMPRESSION_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_BUFFER_BYTES = 1 << 18
_LOCAL_SCHEMES = ("file://", "local://")
_WEB_SCHEMES = ("http", "https")
_HIDDEN_PARTS = ("://***@", "?***", "#***")


class FoundFile(NamedTuple):
    """A file that was found at the path that the user requested."""

    path: PathOrUrl
    "path or URL of the file"
    name: str
    "prefix of the recording ids: the path relative to the requested folder, without file suffixes"
    explicit: bool
    "True if the user requested this file, False if the user requested a folder or a glob pattern"
    root: Path | None = None
    "folder that the user requested, or that contains the requested file; None for a file at a URL"

    @property
    def folder(self) -> str:
        """Path or URL of the folder that contains the file."""
        if is_url(self.path):
            inner, chained, outer = str(self.path).partition("::")
            return inner.rpartition("/")[0] + chained + outer
        return str(Path(self.path).parent)


def is_url(path: PathOrUrl) -> bool:
    """Check whether a path is a URL.

    Parameters
    ----------
    path : str or Path
        A local path, or a URL that fsspec supports.

    Returns
    -------
    bool
        True if ``path`` is a URL, False if it is a local path.

    Examples
    --------
    >>> is_url("s3://bucket/logs"), is_url("zip://*.json::logs.zip"), is_url("logs")
    (True, True, False)
    """
    return isinstance(path, str) and "://" in path


_OUTSIDE = "a link to a file outside of the folder, which is not followed"
_ELSEWHERE = "a name that leads out of the archive or folder"


def is_inside(path: Path, root: str | Path) -> bool:
    """Check whether a file is in a folder after all links are followed.

    Parameters
    ----------
    path : Path
        Path of the file.
    root : str or Path
        Path of the folder.

    Returns
    -------
    bool
        True if the file is in the folder or in one of its subfolders.

    Examples
    --------
    >>> is_inside(Path("/logs/2/a.jsonl"), "/logs"), is_inside(Path("/logs/../a.jsonl"), "/logs")
    (True, False)
    """
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


OnUnreadable: TypeAlias = Callable[[ReadError], None]
"""Called with the error of each local folder that cannot be listed. It may raise the error."""


OnSpecial: TypeAlias = Callable[[PathOrUrl, str], None]
"""Called with the path and kind of each entry of a folder or archive that is left out, because it is
neither a file nor a folder, or because it leads out of the folder or archive."""


def _raise_error(error: ReadError) -> None:
    raise error


def _ignore(path: PathOrUrl, kind: str) -> None:
    pass


def find_files(
    path: PathOrUrl,
    on_unreadable: OnUnreadable = _raise_error,
    on_special: OnSpecial = _ignore,
) -> list[FoundFile]:
    """Find all files at a path.

    Parameters
    ----------
    path : str or Path
        A file, folder, glob pattern or URL, or a data set: ``bundled:NAME`` or ``dataset:NAME``.
    on_unreadable : Callable
        Called with the error of each local folder that cannot be listed. By default, the error is
        raised. If the function returns, the files of the folder are left out.
    on_special : Callable
        Called for each entry of a folder that is left out because it is neither a file nor a folder: a
        pipe, a socket, a device, a broken link, a link to a folder, or a link to a file outside of the
        requested folder. Also called for members of archives whose names lead elsewhere. By default,
        such entries are ignored.

    Returns
    -------
    list of FoundFile
        The files, sorted by folder and name.

    Raises
    ------
    SpecError
        If the path is an empty string, or a URL from a manifest whose credentials are hidden.
    ReadError
        If no file is found, or if a folder cannot be listed and ``on_unreadable`` raises the error.
    UnknownName
        If there is no data set with this name.
    DataMissing
        If the data set has not been downloaded.
    """
    if path == "":
        raise SpecError("Expected a path, got an empty string; use . for the current folder")
    path = resolve_dataset_path(str(path)) or path
    if is_url(path):
        if any(each in str(path) for each in _HIDDEN_PARTS):
            fix = "name the URL again, with its credentials"
            raise SpecError(f"{path}: expected a URL, got one whose credentials are hidden; {fix}")
        local = _local_of_url(str(path))
        if local is None:
            return _find_remote(str(path), on_special)
        path = local
    return _find_local(Path(path).expanduser(), on_unreadable, on_special)


@contextmanager
def open_file(path: PathOrUrl) -> Iterator[BinaryIO]:
    """Open a file for reading in binary mode. A compressed file is decompressed.

    Parameters
    ----------
    path : str or Path
        Path or URL of the file.

    Yields
    ------
    BinaryIO
        The open file, with decompressed content.

    Raises
    ------
    ReadError
        If the file cannot be opened, read or decompressed.
    """
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(_open_raw(path))
            content = _decompress(raw)
            if content is raw:
                yield raw
            else:
                guard = ExpansionGuard(content, raw)
                yield stack.enter_context(io.BufferedReader(guard, _BUFFER_BYTES))
        except ExpansionError as error:
            raise ReadError(path, None, str(error)) from None
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ReadError(path, None, reason) from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # compared by name to avoid importing zstd
                raise
            raise ReadError(path, None, str(error)) from None


def _local_of_url(address: str) -> str | None:
    """Return the path of a ``file://`` URL, so that it is searched like a path; None for other URLs."""
    if not address.startswith(_LOCAL_SCHEMES) or "::" in address:
        return None
    return _resolve_url(address)[1]


def _find_local(path: Path, on_unreadable: OnUnreadable, on_special: OnSpecial) -> list[FoundFile]:
    if path.is_file():
        return [FoundFile(path, strip_suffixes(path.name), explicit=True, root=path.parent)]
    if path.is_dir():
        return _collect_files([path], path, on_unreadable, on_special)
    if path.exists():
        raise ReadError(path, None, "expected a file or folder, got a device, socket or pipe")
    if not glob.has_magic(str(path)):
        raise ReadError(path, None, "no such file or folder")
    root = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    if not matches:
        raise ReadError(path, None, "no file matches this pattern")
    return _collect_files(matches, root, on_unreadable, on_special)


def _collect_files(
    paths: list[Path], root: Path, on_unreadable: OnUnreadable, on_special: OnSpecial
) -> list[FoundFile]:
    # A pattern such as ** also matches files behind links to folders, and again through their links.
    starts = {next(filter(os.path.islink, _ancestors(path, root)), path) for path in paths}
    entries = {
        entry
        for path in starts
        for entry in (
            _walk(path, on_unreadable)
            if os.path.isdir(path) and (path == root or not path.is_symlink())
            else [path]
        )
    }
    ordered = sorted(entries, key=lambda entry: (entry.parent, entry.name))
    home = os.path.realpath(root)
    found = []
    for entry in ordered:
        if (kind := _describe_special(entry, home)) is None:
            name = strip_suffixes(entry.relative_to(root).as_posix())
            found.append(FoundFile(entry, name, explicit=False, root=root))
        else:
            on_special(entry, kind)
    return found


def _ancestors(path: Path, root: Path) -> list[Path]:
    """Return the folders between ``root`` and a path, outermost first."""
    return [each for each in reversed(path.parents) if root in each.parents]


def _walk(folder: Path, on_unreadable: OnUnreadable) -> Iterator[Path]:
    """Yield the entries of a folder and its subfolders that are not folders. Links are not followed."""

    def report(error: OSError) -> None:
        on_unreadable(ReadError(error.filename, None, error.strerror or str(error)))

    for here, folders, names in os.walk(
        folder, onerror=report
    ):  # without onerror, errors are ignored
        yield from (Path(here, name) for name in names)
        yield from (path for name in folders if (path := Path(here, name)).is_symlink())


def _describe_special(path: Path, root: str) -> str | None:
    """Return what an entry of the folder ``root`` is; None for a file in this folder."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # If the folder forbids access to its files, the error is reported when the file is opened.
        return "a link to a file that does not exist" if os.path.islink(path) else None
    if stat.S_ISREG(mode):
        return None if is_inside(path, root) else _OUTSIDE
    if stat.S_ISDIR(mode):
        return "a link to a folder, which is not followed"
    return "a pipe, a socket or a device"


def _find_remote(address: str, on_special: OnSpecial) -> list[FoundFile]:
    first, *outer = address.split("::")
    scheme = first.partition("://")[0]
    fs, path = _resolve_url(address)
    # In the URL of a web server, a question mark begins the query.
    plain = path.partition("?")[0] if scheme in _WEB_SCHEMES else path
    try:
        if glob.has_magic(plain):
            start = next(each for each in range(len(plain)) if glob.has_magic(plain[: each + 1]))
            root = plain[:start].rpartition("/")[0]
            matches = [file for match in fs.glob(path) for file in fs.find(match)]
        elif path and fs.isfile(path):
            return [FoundFile(address, strip_suffixes(PurePosixPath(plain).name), explicit=True)]
        else:
            root, matches = plain, fs.find(path)
    except Exception as error:  # each file system raises exceptions of its own types
        raise ReadError(address, None, _error_text(error)) from None
    if not matches:
        raise ReadError(address, None, "no file found at this URL")
    found = []
    for match in sorted(set(matches), key=lambda match: match.rpartition("/")[::2]):
        name = match.removeprefix(root.rstrip("/")).lstrip("/")
        name = name.partition("?")[0] if scheme in _WEB_SCHEMES else name
        inner = f"{scheme}://{match}" if outer else fs.unstrip_protocol(match)
        if _leads_elsewhere(match, root):
            on_special("::".join([inner, *outer]), _ELSEWHERE)
        else:
            found.append(
                FoundFile("::".join([inner, *outer]), strip_suffixes(name), explicit=False)
            )
    return found


def _leads_elsewhere(match: str, root: str) -> bool:
    """Check whether the name of a remote file or a member leads out of the folder or archive.

    The name comes from the archive or the server. ``::`` would join it with another URL.
    """
    inside = not root or match.startswith(root.rstrip("/") + "/")
    return not inside or "::" in match or ".." in match.split("/")


def _resolve_url(address: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path within this file system."""
    from fsspec.core import url_to_fs  # imported here because the import is slow

    try:
        fs, path = url_to_fs(address)
    except ImportError as error:
        scheme = address.partition("://")[0]
        reason = f"{scheme}:// requires a package that is not installed: {error}"
        raise ReadError(address, None, reason) from None
    except Exception as error:
        raise ReadError(address, None, _error_text(error)) from None
    return fs, str(path)


def _open_raw(path: PathOrUrl) -> AbstractContextManager[Any]:
    if not is_url(path):
        return Path(path).open("rb")
    import fsspec

    try:
        # Return the OpenFile, because it keeps a reference to the file system. Without a reference,
        # the file system of an archive closes the archive.
        return cast(AbstractContextManager[Any], fsspec.open(str(path), "rb"))
    except OSError:
        raise
    except Exception as error:
        raise ReadError(path, None, _error_text(error)) from None


def _decompress(raw: BinaryIO) -> Any:
    start = raw.read(6)
    raw.seek(0)
    openers = (open_ for magic, open_ in _DECOMPRESSORS.items() if start.startswith(magic))
    return next(openers, lambda file: file)(raw)


def open_zstd(file: BinaryIO, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    """Open a file that is compressed with Zstandard.

    If the file consists of several frames, all of them are read.

    Parameters
    ----------
    file : BinaryIO
        The compressed file.
    mode : {"rb", "wb"}
        ``"rb"`` to read and decompress the file, ``"wb"`` to compress and write it.

    Returns
    -------
    BinaryIO
        A file object that reads or writes the uncompressed content.
    """
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile
    else:
        from backports.zstd import ZstdFile
    return cast(BinaryIO, ZstdFile(file, mode))


_DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": open_zstd,
}


def _error_text(error: Exception) -> str:
    if type(error) is FileNotFoundError:  # its text is often only the URL
        return "no file found at this URL"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


def strip_suffixes(name: str) -> str:
    """Remove the file extension from a path, and also an extension such as ``.gz`` after it.

    Parameters
    ----------
    name : str
        A path with ``/`` between its parts.

    Returns
    -------
    str
        The path without the extensions.

    Examples
    --------
    >>> strip_suffixes("runs/a.traj.json.gz")
    'runs/a.traj'
    """
    path = PurePosixPath(name)
    if path.suffix in _COMPRESSION_SUFFIXES:
        path = path.with_suffix("")
    return path.with_suffix("").as_posix()
