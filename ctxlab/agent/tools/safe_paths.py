"""A path that a model wrote leads into one folder or nowhere, whatever links lie on the way.

A path is walked part by part, each opened in the folder before it and never through a link; links are
read and walked in the same way. So nothing that is changed between a look and a use leads outside.
What cannot be kept out is a hard link to a file outside, which is that file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ctxlab.errors import CtxlabError

__all__ = [
    "MAX_DEPTH",
    "PROTECTED_FOLDERS",
    "DirectoryEntry",
    "PathNotAllowed",
    "SafeRoot",
    "list_entries",
    "open_file_at",
    "open_folder_at",
]

PROTECTED_FOLDERS = (".ctxlab", ".git")
"""Folders that hold memory of a workspace, directly in its root: nothing is written there."""

MAX_DEPTH = 200
"""Folders in one path at most, each of which is held open for a moment."""

_MAX_LINKS = 40
"as many links as Linux follows in one path"
_FOLDER_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Without waiting: opening a pipe that nobody writes to would take for ever.
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class PathNotAllowed(PermissionError):
    """A path that leads outside, or to something that is neither a file nor a folder."""


class DirectoryEntry(NamedTuple):
    """What lies in a folder."""

    name: str
    kind: str
    "file, folder, link, or other (pipes, devices, sockets)"


class SafeRoot:
    """A folder out of which no path leads.

    Paths are relative to it, or absolute and inside of it; ``..`` and links may be used as long as they
    stay inside. Errors are ``OSError``: ``PathNotAllowed`` for what leads outside or is no regular
    file, else the system's. ``ValueError`` for what is no path at all.

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
            raise CtxlabError("workspaces are opened to an agent on Linux and macOS only")
        self.original_path = Path(os.path.abspath(folder))
        self.path = Path(os.path.realpath(folder))
        if not self.path.is_dir():
            raise CtxlabError(f"{folder} is no folder: give the root of a workspace")

    @contextmanager
    def open_folder(self, path: str = ".") -> Iterator[int]:
        """An open folder."""
        with self._resolve(path) as (parent, name):
            number = open_folder_at(parent, name or ".", path)
        with _closing_fd(number):
            yield number

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """A regular file, open for reading."""
        with self._resolve(path) as (parent, name):
            if not name:
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            number = open_file_at(parent, name, path)
        with _closing_fd(number):
            yield number

    def write_file(self, path: str, content: bytes) -> bool:
        """Puts a file in place of what was there, all of it or nothing; True where one was there.

        Folders on the way are made. The mode is kept. Nothing is written in ``PROTECTED_FOLDERS``.
        """
        with self._resolve(path, make=True) as (parent, name):
            if not name or path.endswith("/"):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            mode: int | None = None
            with suppress(FileNotFoundError):
                was = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISDIR(was.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "is a folder", path)
                if not stat.S_ISREG(was.st_mode):
                    raise PathNotAllowed(f"{path} is no regular file")
                if not os.access(name, os.W_OK, dir_fd=parent):
                    raise PermissionError(errno.EACCES, "is read-only", path)
                mode = stat.S_IMODE(was.st_mode)
            _replace_file(parent, name, content, mode)
            return mode is not None

    @contextmanager
    def _resolve(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that holds what a path means, and its name; no name: the folder itself."""
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
                    raise PathNotAllowed(f"{path}: nothing is written in {part} of the workspace")
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
        """The parts of a path from the root, or of a link from where it lies."""
        if not path or "\0" in path:
            raise ValueError("a path is not empty and holds no null bytes")
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
    """What lies in an open folder, by name."""
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
    """A regular file of an open folder, open for reading; errors call it ``display_path``."""
    try:
        number = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
            raise PathNotAllowed(f"{display_path} is no regular file") from error  # a socket
        raise OSError(error.errno, os.strerror(error.errno or 0), display_path) from error
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder", display_path)
        if not stat.S_ISREG(mode):
            raise PathNotAllowed(f"{display_path} is no regular file")
    except BaseException:
        os.close(number)
        raise
    return number


def open_folder_at(folder_fd: int, name: str, display_path: str) -> int:
    """A folder of an open folder, open too; a link is none."""
    try:
        return os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=folder_fd)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), display_path) from error


def _read_link(folder: int, name: str) -> str | None:
    """Where a link leads; None for what is none, or is not there."""
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


@contextmanager
def _closing_fd(number: int) -> Iterator[int]:
    try:
        yield number
    finally:
        os.close(number)
