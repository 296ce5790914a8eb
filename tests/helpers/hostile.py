"""A workspace with links that lead out of it, and an outside folder that tools must not access."""

from __future__ import annotations

import os
import socket
from pathlib import Path

SECRET = "the secret of outside"

TRAPS = {
    "to_file": "../outside/secret.txt",
    "to_folder": "../outside",
    "to_root": "/",
    "to_parent": "..",
    "far_up": "../../../../../../../../etc",
    "through": "sub/../../outside",
    "by_link": "inside_link/../../outside/secret.txt",
    "new_outside": "../outside/new.txt",
    "dangling": "nowhere/at/all",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
    "inside_link": "sub",
    "inside_file": "sub/a.txt",
}
"""Targets of symbolic links by name; only the last two targets are inside the workspace."""

PARTS = [
    *TRAPS,
    *("..", ".", "", "sub", "a.txt", "secret.txt", "outside", "work", "new", "etc", "passwd"),
    *("fifo", "socket", "null", ".git", ".ctxlab", "~", "x" * 300, "\0", "*", "é\ud800"),
]


def hostile(folder: Path) -> tuple[Path, Path]:
    """Create the workspace and the outside folder, and return both paths."""
    work, outside = folder / "work", folder / "outside"
    (work / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text(f"{SECRET}\n")
    (work / "sub" / "a.txt").write_text("inside\n")
    (work / "b.txt").write_text("also inside\n")
    for name, target in TRAPS.items():
        (work / name).symlink_to(target)
    (work / "absolute").symlink_to(outside / "secret.txt")
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(work)  # socket addresses have a maximum length
        try:
            made.bind("socket")
        finally:
            os.chdir(here)
    return work, outside


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each path in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (mode, content)
    return found
