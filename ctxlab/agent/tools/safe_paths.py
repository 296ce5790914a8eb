"""Open and write files inside one folder, so that paths and symbolic links cannot lead out of it.

A path is resolved part by part. Each part is opened relative to its parent folder, without
following links. If a part is a symbolic link, the target of the link is resolved in the same way.
Therefore a link that another process creates meanwhile cannot lead out of the folder. A hard link to
an outside file cannot be detected, because both names refer to the same file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ctxlab.errors import CtxlabError

PROTECTED_FOLDERS = (".ctxlab", ".git")
"""Names of folders in the root of a workspace to which files must not be written."""

MAX_DEPTH = 200
"""Maximum number of folders in a path; all of them are kept open while the path is resolved."""

_MAX_LINKS = 40
"maximum number of symbolic links that are followed in one path, as on Linux"
_FOLDER_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a pipe without a writer would block forever.
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class PathNotAllowed(PermissionError):
    """Error for a path that leads out of the workspace, is protected, or is a device or pipe."""


class DirectoryEntry(NamedTuple):
    """Name and kind of a file, folder, link or other object in a folder."""

    name: str
    "name without the path of the folder"
    kind: str
    "``file``, ``folder``, ``link`` (symbolic), or ``other`` (pipe, device, socket)"


class SafeRoot:
    """Root folder of a workspace. The methods open and write only files inside the folder.

    Paths are relative to the folder, or absolute paths inside it. ``..`` and symbolic links are
    allowed if they do not lead out of the folder. The methods raise ``PathNotAllowed`` for a path
    that leads out of the folder, is protected, or is a device or pipe. They raise ``ValueError``
    for an empty path or a path with null bytes, and ``OSError`` for other errors, such as a missing
    file.

    Parameters
    ----------
    folder : str or pathlib.Path
        Path of the folder.

    Raises
    ------
    CtxlabError
        If ``folder`` is not a folder, or if the system is neither Linux nor macOS.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     root = SafeRoot(folder)
    ...     print(root.write_file("notes/a.txt", b"hello"))
    ...     with root.open_file("notes/../notes/a.txt") as number:
    ...         print(os.read(number, 99))
    ...     root.write_file("../b.txt", b"")
    Traceback (most recent call last):
    ctxlab.agent.tools.safe_paths.PathNotAllowed: '../b.txt' leads out of the workspace; pass a \
path inside it
    """

    def __init__(self, folder: str | Path) -> None:
        if os.open not in os.supports_dir_fd:
            raise CtxlabError(f"Expected Linux or macOS to open a workspace, got {os.name!r}")
        self.original_path = Path(os.path.abspath(folder))
        self.path = Path(os.path.realpath(folder))
        if not self.path.is_dir():
            raise CtxlabError(f"Expected an existing folder as workspace, got {str(folder)!r}")

    def open_folder(self, path: str = ".") -> AbstractContextManager[int]:
        """Open a folder of the workspace for the duration of a ``with`` block.

        Parameters
        ----------
        path : str, optional
            Path of the folder, relative to the workspace.

        Returns
        -------
        context manager of int
            Context manager that returns the folder's file descriptor and closes it at the end.
        """
        return self._open(path, open_folder_at)

    def open_file(self, path: str) -> AbstractContextManager[int]:
        """Open a regular file for reading, for the duration of a ``with`` block.

        Parameters
        ----------
        path : str
            Path of the file, relative to the workspace.

        Returns
        -------
        context manager of int
            Context manager that returns the file's descriptor and closes it at the end.
        """
        return self._open(path, open_file_at)

    def write_file(self, path: str, content: bytes) -> bool:
        """Write a file atomically, and create missing folders.

        If the file exists, it is replaced, and its permissions are kept.

        Parameters
        ----------
        path : str
            Path of the file, relative to the workspace. It must not be in ``PROTECTED_FOLDERS``.
        content : bytes
            New content of the whole file.

        Returns
        -------
        bool
            True if the file existed before.
        """
        with self._resolve(path, make=True) as (parent, name):
            if not name or path.endswith("/"):
                raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", path)
            mode: int | None = None
            with suppress(FileNotFoundError):
                was = os.stat(name, dir_fd=parent, follow_symlinks=False)
                _check_is_file(was.st_mode, path)
                if not os.access(name, os.W_OK, dir_fd=parent):
                    raise PermissionError(errno.EACCES, "the file is read-only", path)
                mode = stat.S_IMODE(was.st_mode)
            _replace_file(parent, name, content, mode)
            return mode is not None

    @contextmanager
    def _open(self, path: str, open_at: Callable[[int, str, str], int]) -> Iterator[int]:
        with self._resolve(path) as (parent, name):
            number = open_at(parent, name or ".", path)
        try:
            yield number
        finally:
            os.close(number)

    @contextmanager
    def _resolve(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """Resolve a path. Yield the parent folder's file descriptor and the path's last part.

        If the path refers to a folder that is already open, such as the root, that folder's
        descriptor and an empty string are yielded. If ``make`` is True, missing folders are
        created, and paths in ``PROTECTED_FOLDERS`` raise ``PathNotAllowed``.
        """
        todo, links = self._split_path(path, path)[::-1], 0
        at = [os.open(self.path, os.O_RDONLY | _FOLDER_FLAGS)]
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if len(at) == 1:
                        raise PathNotAllowed(
                            f"{path!r} leads out of the workspace; pass a path inside it"
                        )
                    os.close(at.pop())
                elif (link := _read_link(at[-1], part)) is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(
                            errno.ELOOP, f"leads through more than {_MAX_LINKS} links", path
                        )
                    if link.startswith("/"):
                        while len(at) > 1:
                            os.close(at.pop())
                    todo += self._split_path(link, path)[::-1]
                elif make and len(at) == 1 and part.lower() in PROTECTED_FOLDERS:
                    raise PathNotAllowed(f"{path}: writing to {part} is not allowed")
                elif not todo:
                    yield at[-1], part
                    return
                elif len(at) > MAX_DEPTH:
                    raise OSError(
                        errno.ENAMETOOLONG, f"is more than {MAX_DEPTH} folders deep", path
                    )
                else:
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=at[-1])
                    at.append(open_folder_at(at[-1], part, path))
            yield at[-1], ""
        finally:
            for number in at:
                os.close(number)

    def _split_path(self, path: str, display_path: str) -> list[str]:
        """Split a path into its parts, relative to the root folder.

        ``display_path`` is the path as shown in error messages.
        """
        if not path or "\0" in path:
            raise ValueError(f"Expected a non-empty path without null bytes, got {path!r}")
        if len(path) > 4096:
            raise OSError(errno.ENAMETOOLONG, "exceeds 4,096 characters", f"{display_path[:60]}…")
        if path.startswith("/"):
            clean = os.path.normpath(path) if ".." not in path.split("/") else path
            for root in (self.path, self.original_path):
                if clean == str(root) or clean.startswith(f"{str(root).rstrip('/')}/"):
                    path = clean[len(str(root)) :]
                    break
            else:
                raise PathNotAllowed(
                    f"{display_path!r} leads out of the workspace; pass a path inside it"
                )
        return [part for part in path.split("/") if part not in ("", ".")]


def list_entries(folder_fd: int) -> list[DirectoryEntry]:
    """List the files, folders and links in an open folder, sorted by name.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the folder.

    Returns
    -------
    list of DirectoryEntry
        Name and kind of each file, folder or link.
    """
    found = []
    with os.scandir(folder_fd) as listed:
        for each in listed:
            if each.is_symlink():
                kind = "link"
            elif each.is_dir(follow_symlinks=False):
                kind = "folder"
            else:
                kind = "file" if each.is_file(follow_symlinks=False) else "other"
            found.append(DirectoryEntry(each.name, kind))
    return sorted(found)


def open_file_at(folder_fd: int, name: str, display_path: str) -> int:
    """Open a regular file in an open folder for reading; a symbolic link is not followed.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the folder that contains the file.
    name : str
        Name of the file.
    display_path : str
        Path of the file as shown in error messages.

    Returns
    -------
    int
        File descriptor of the file, which the caller must close.

    Raises
    ------
    PathNotAllowed
        If ``name`` is a device, pipe or socket.
    OSError
        If the file cannot be opened or is a folder.
    """
    number = _open_at(folder_fd, name, _FILE_FLAGS, display_path)
    try:
        _check_is_file(os.fstat(number).st_mode, display_path)
    except BaseException:
        os.close(number)
        raise
    return number


def open_folder_at(folder_fd: int, name: str, display_path: str) -> int:
    """Open a folder inside an open folder; a symbolic link is not followed.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the parent folder.
    name : str
        Name of the folder to open.
    display_path : str
        Path of the folder as shown in error messages.

    Returns
    -------
    int
        File descriptor of the folder, which the caller must close.

    Raises
    ------
    OSError
        If the folder cannot be opened.
    """
    return _open_at(folder_fd, name, _FOLDER_FLAGS, display_path)


def _open_at(folder_fd: int, name: str, flags: int, display_path: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | flags, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):  # a socket
            raise PathNotAllowed(f"{display_path} is not a regular file") from error
        raise OSError(error.errno, os.strerror(error.errno or 0), display_path) from error


def _check_is_file(mode: int, display_path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", display_path)
    if not stat.S_ISREG(mode):
        raise PathNotAllowed(f"{display_path} is not a regular file")


def _read_link(folder: int, name: str) -> str | None:
    """Return the target of a symbolic link; None if ``name`` is not a link or does not exist."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def _replace_file(folder: int, name: str, content: bytes, mode: int | None) -> None:
    beside = f".ctxlab-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS
    number = os.open(beside, flags, 0o666, dir_fd=folder)
    try:
        with open(number, "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
