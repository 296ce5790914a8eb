"""Tests of ``SafeRoot``: no path can read or write anything outside the root."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hostile import PARTS, SECRET, hostile, state
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.tools.safe_paths import PathNotAllowed, SafeRoot
from ctxlab.errors import CtxlabError

OUTSIDE = [
    *("..", "../outside/secret.txt", "/etc/passwd", "sub/../../outside/secret.txt", "to_file"),
    *("to_folder/secret.txt", "to_root/etc/passwd", "to_parent", "far_up/passwd", "through"),
    *("by_link", "absolute", "to_parent/work/b.txt", "inside_link/../.."),
]
WRONG = ["loop", "ping", "loop/x", "dangling", "b.txt/x", "x" * 300, "a/" * 3000, "sub", "none"]


def text(root: SafeRoot, path: str) -> bytes:
    with root.open_file(path) as number:
        return os.read(number, 1000)


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    work, outside = hostile(tmp_path)
    before = state(outside)
    for use in (
        lambda: text(SafeRoot(work), path),
        lambda: SafeRoot(work).write_file(path, b"broken in"),
    ):
        with pytest.raises(PathNotAllowed, match=r"leads out of the workspace"):
            use()
    assert state(outside) == before


@pytest.mark.parametrize("path", ["fifo", "socket", "sub/../fifo"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, path: str) -> None:
    root = SafeRoot(hostile(tmp_path)[0])
    for use in (lambda: text(root, path), lambda: root.write_file(path, b"")):
        with pytest.raises(PathNotAllowed, match="not a regular file"):
            use()


@pytest.mark.parametrize("path", WRONG)
def test_what_is_not_there_or_no_file_is_the_systems_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        text(SafeRoot(hostile(tmp_path)[0]), path)
    assert not isinstance(caught.value, PermissionError)


@pytest.mark.parametrize("path", ["", "\0", "b.txt\0.png"])
def test_what_is_no_path_is_a_value_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="null bytes"):
        text(SafeRoot(hostile(tmp_path)[0]), path)


def test_links_and_dots_that_stay_inside_are_followed(tmp_path: Path) -> None:
    work, _ = hostile(tmp_path)
    (work / "abs").symlink_to(work / "sub" / "a.txt")
    inside = ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", "inside_link/a.txt", "inside_file"]
    for path in [*inside, "abs", str(work / "sub" / "a.txt"), f"{work}/sub/../inside_file"]:
        assert text(SafeRoot(work), path) == b"inside\n"


def test_a_root_that_is_itself_reached_by_a_link_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    work, _ = hostile(tmp_path)
    (tmp_path / "alias").symlink_to(work)
    root = SafeRoot(tmp_path / "alias")
    for path in ("b.txt", str(tmp_path / "alias" / "b.txt"), str(work / "b.txt")):
        assert text(root, path) == b"also inside\n"


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    root, file = SafeRoot(tmp_path), tmp_path / "run.sh"
    assert not root.write_file("run.sh", b"old")
    file.chmod(0o751)
    os.link(file, tmp_path / "same")
    assert root.write_file("run.sh", b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o751)
    assert (tmp_path / "same").read_bytes() == b"old"  # what shared the file may lie outside
    assert sorted(os.listdir(tmp_path)) == ["run.sh", "same"]


def test_folders_are_made_and_a_link_to_a_file_inside_is_written_through(tmp_path: Path) -> None:
    work, _ = hostile(tmp_path)
    root = SafeRoot(work)
    root.write_file("new/and/deep.txt", b"1")
    root.write_file("inside_file", b"2")
    root.write_file("dangling", b"3")
    assert (work / "new/and/deep.txt").read_bytes() == b"1"
    assert (work / "sub/a.txt").read_bytes() == b"2"
    assert (work / "nowhere/at/all").read_bytes() == b"3"
    assert (work / "inside_file").is_symlink()


@pytest.mark.parametrize(
    "path", [".git/hooks/x", ".ctxlab/sessions.db", "sub/../.git", ".GIT/x", "to_git/config"]
)
def test_nothing_is_written_where_the_workspace_remembers(tmp_path: Path, path: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "to_git").symlink_to(".git")
    with pytest.raises(PathNotAllowed, match="is not allowed"):
        SafeRoot(tmp_path).write_file(path, b"")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SafeRoot(tmp_path).write_file("a", b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        SafeRoot(tmp_path).write_file("a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_what_is_no_folder_is_no_root(tmp_path: Path) -> None:
    with pytest.raises(CtxlabError, match="Expected an existing folder"):
        SafeRoot(tmp_path / "none")


@pytest.mark.parametrize("write", [False, True])
def test_links_that_are_swapped_in_at_any_moment_lead_nowhere(tmp_path: Path, write: bool) -> None:
    work, outside = hostile(tmp_path)
    real, spare = work / "swap", work / "spare"
    real.mkdir()
    (real / "secret.txt").write_text("inside\n")
    spare.symlink_to("../outside")
    before, over, bad = state(outside), threading.Event(), []

    def move(one: Path, other: Path) -> None:
        while True:
            try:
                return os.rename(one, other)
            except OSError:  # the writer has made a folder of that name meanwhile
                shutil.rmtree(other, ignore_errors=True)

    def swap() -> None:
        while not over.is_set():
            move(real, work / "x")
            move(spare, real)
            os.rename(real, spare)
            move(work / "x", real)

    thread = threading.Thread(target=swap)
    thread.start()
    root, seen, refused, tries = SafeRoot(work), set(), 0, 0
    try:
        # How often each is met is chance: on a busy machine 1,500 tries may all find a link, or none.
        while tries < 1500 or (tries < 200_000 and not (seen and refused)):
            tries += 1
            try:
                if write:
                    root.write_file("swap/secret.txt", b"inside\n")
                seen.add(text(root, "swap/secret.txt"))
            except OSError:
                refused += 1
    except BaseException as error:
        bad.append(error)
    finally:
        over.set()
        thread.join()
    assert bad == []
    assert seen == {b"inside\n"}
    assert state(outside) == before


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6), st.booleans())
def test_no_path_reads_or_writes_anything_outside(parts: list[str], absolute: bool) -> None:
    with TemporaryDirectory() as folder:
        work, outside = hostile(Path(folder).resolve())
        before, root = state(outside), SafeRoot(work)
        path = f"{work}/{'/'.join(parts)}" if absolute else "/".join(parts)
        uses: list[Callable[[], object]] = [
            lambda: text(root, path),
            lambda: root.write_file(path, b"written"),
            lambda: root.open_folder(path).__enter__(),
        ]
        for use in uses:
            with suppress(OSError, ValueError):
                said = use()
                assert not (isinstance(said, bytes) and SECRET.encode() in said)
        assert state(outside) == before
        assert sorted(os.listdir(folder)) == ["outside", "work"]


def test_a_path_holds_open_only_the_folders_it_is_in(tmp_path: Path) -> None:
    """Else a path or a link that goes to and fro takes all files that a process may open."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("hello")
    for number in range(30):
        then = f"l{number + 1}" if number < 29 else "a/x"
        (tmp_path / f"l{number}").symlink_to("a/../" * 800 + then)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    try:
        assert (
            text(SafeRoot(tmp_path), "a/../" * 800 + "a/x")
            == text(SafeRoot(tmp_path), "l0")
            == b"hello"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
