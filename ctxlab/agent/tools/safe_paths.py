"""Paths that cannot leave one folder, whatever links they contain.

A path is resolved part by part. Each part is opened relative to the folder before it and never
through a link; links are read and resolved in the same way. So a change between check and use
cannot lead outside. A hard link to a file outside cannot be detected, because it is that file.
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
"""Folders in the root of a workspace in which nothing is written."""

MAX_DEPTH = 200
"""Maximum number of folders in one path, all of which are open while the path is resolved."""

_MAX_LINKS = 40
"maximum number of links in one path, as in Linux"
_FOLDER_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a pipe without a writer would block forever.
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class PathNotAllowed(PermissionError):
    """A path that leads outside of the root, or to something that is neither a file nor a folder."""


class DirectoryEntry(NamedTuple):
    """An entry of a folder."""

    name: str
    "name without the folder"
    kind: str
    "file, folder, link, or other (pipes, devices, sockets)"


class SafeRoot:
    """A folder that no path can leave.

    Paths are relative to it, or absolute and inside of it. ``..`` and links are allowed as long as
    they stay inside. The methods raise ``PathNotAllowed`` for a path that leads outside or is not a
    regular file, other ``OSError`` of the system, and ``ValueError`` for an invalid path.

    Parameters
    ----------
    folder : str or pathlib.Path
        The folder.

    Raises
    ------
    CtxlabError
        If it is not a folder, or if the system is neither Linux nor macOS.

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
    ctxlab.agent.tools.safe_paths.PathNotAllowed: ../b.txt leads out of the workspace
    """

    def __init__(self, folder: str | Path) -> None:
        if os.open not in os.supports_dir_fd:
            raise CtxlabError("agents can open workspaces on Linux and macOS only")
        self.original_path = Path(os.path.abspath(folder))
        self.path = Path(os.path.realpath(folder))
        if not self.path.is_dir():
            raise CtxlabError(f"{folder} is not a folder; pass the root of a workspace")

    def open_folder(self, path: str = ".") -> AbstractContextManager[int]:
        """Open a folder of the workspace, and close it at the end of a ``with`` block.

        Parameters
        ----------
        path : str, optional
            Path of the folder, relative to the workspace.

        Returns
        -------
        context manager of int
            File descriptor, which is closed at the end.
        """
        return self._open(path, open_folder_at)

    def open_file(self, path: str) -> AbstractContextManager[int]:
        """Open a regular file for reading.

        Parameters
        ----------
        path : str
            Path of the file.

        Returns
        -------
        context manager of int
            File descriptor, which is closed at the end.
        """
        return self._open(path, open_file_at)

    def write_file(self, path: str, content: bytes) -> bool:
        """Write a file atomically; missing folders are created and an existing mode is kept.

        Parameters
        ----------
        path : str
            Path of the file; not inside of ``PROTECTED_FOLDERS``.
        content : bytes
            The whole content.

        Returns
        -------
        bool
            True if the file existed before.
        """
        with self._resolve(path, make=True) as (parent, name):
            if not name or path.endswith("/"):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            mode: int | None = None
            with suppress(FileNotFoundError):
                was = os.stat(name, dir_fd=parent, follow_symlinks=False)
                _check_is_file(was.st_mode, path)
                if not os.access(name, os.W_OK, dir_fd=parent):
                    raise PermissionError(errno.EACCES, "is read-only", path)
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
        """Yield the open folder of a path's target and the target's name; "" is the folder itself."""
        todo, links = self._split_path(path, path)[::-1], 0
        at = [os.open(self.path, os.O_RDONLY | _FOLDER_FLAGS)]
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if len(at) == 1:
                        raise PathNotAllowed(f"{path} leads out of the workspace")
                    os.close(at.pop())
                elif (link := _read_link(at[-1], part)) is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, "too many links", path)
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
                    raise OSError(errno.ENAMETOOLONG, "is too deep", path)
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
        """Return the parts of a path relative to the root, or of a link relative to its folder."""
        if not path or "\0" in path:
            raise ValueError("a path cannot be empty or contain null bytes")
        if len(path) > 4096:
            raise OSError(errno.ENAMETOOLONG, "is too long", f"{display_path[:60]}…")
        if path.startswith("/"):
            clean = os.path.normpath(path) if ".." not in path.split("/") else path
            for root in (self.path, self.original_path):
                if clean == str(root) or clean.startswith(f"{str(root).rstrip('/')}/"):
                    path = clean[len(str(root)) :]
                    break
            else:
                raise PathNotAllowed(f"{display_path} leads out of the workspace")
        return [part for part in path.split("/") if part not in ("", ".")]


def list_entries(folder_fd: int) -> list[DirectoryEntry]:
    """Return the entries of an open folder, sorted by name.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the folder.

    Returns
    -------
    list of DirectoryEntry
        The entries.
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
    """Open a regular file of an open folder for reading.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the folder.
    name : str
        Name of the file.
    display_path : str
        Path for error messages.

    Returns
    -------
    int
        File descriptor.

    Raises
    ------
    PathNotAllowed
        If it is not a regular file.
    OSError
        If it cannot be opened.
    """
    number = _open_at(folder_fd, name, _FILE_FLAGS, display_path)
    try:
        _check_is_file(os.fstat(number).st_mode, display_path)
    except BaseException:
        os.close(number)
        raise
    return number


def open_folder_at(folder_fd: int, name: str, display_path: str) -> int:
    """Open a folder in an open folder; a link is not followed.

    Parameters
    ----------
    folder_fd : int
        File descriptor of the outer folder.
    name : str
        Name of the folder to open.
    display_path : str
        Path for error messages.

    Returns
    -------
    int
        File descriptor.

    Raises
    ------
    OSError
        If it cannot be opened.
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
        raise IsADirectoryError(errno.EISDIR, "is a folder", display_path)
    if not stat.S_ISREG(mode):
        raise PathNotAllowed(f"{display_path} is not a regular file")


def _read_link(folder: int, name: str) -> str | None:
    """Return the target of a link; None if it is not a link or does not exist."""
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
