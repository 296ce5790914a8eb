"""Tests that a damaged store is found, and repaired without losing what can be read."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ctxlab.cli.app import app
from ctxlab.errors import CtxlabError, SessionError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.damage import is_lost
from ctxlab.sessions.doctor import check_store, repair_store
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.open import open_store
from ctxlab.sessions.sqlite.store import SqliteStore

KINDS = ("jsonl", "sqlite")


def fill(store: SessionStore) -> None:
    call = ToolCall("c1", "read", "{}")
    for id in ("a", "b"):
        store.create(id=id, title=f"Title {id}")
        for n in range(12):
            store.append(
                id,
                Message("user", f"question {n} of {id} {'lorem ' * 30}"),
                Message("assistant", None, (call,)),
                Message("tool", f"result {n}", tool_call_id="c1"),
                Message("assistant", f"answer {n} of {id}"),
            )
        store.save_turn_summary(id, 1, "a line")
        store.save(id)
    store.close()


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as above:
        fill(JsonlStore(Path(above, "jsonl"), max_history=8, fsync="never"))
        Path(above, "sqlite").mkdir()
        fill(SqliteStore(Path(above, "sqlite"), fsync="never"))
        yield Path(above)


def damage(folder: Path, kind: str, seed: int) -> None:
    """Overwrite some bytes of a few files, or zero a page of the database."""
    chance = random.Random(seed)
    if kind == "sqlite":
        path = folder / ".ctxlab" / "sessions.db"
        content = bytearray(path.read_bytes())
        if chance.random() < 0.5:
            at = chance.randrange(1, len(content) // 4096) * 4096
            content[at : at + 4096] = bytes(4096)
        else:
            at = content.index(f'"question {chance.randrange(12)} of a'.encode())
            content[at - 5 : at + 9] = bytes(14)
        path.write_bytes(content)
        return
    for path in chance.sample(sorted(folder.glob("*-a.*")), 3):
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)


def readable(folder: Path) -> dict[str, list[Message]]:
    with closing(open_store(folder)) as store:
        every = [*store.sessions(), *store.sessions(status="archived")]
        return {session.id: list(store.read_messages(session.id)) for session in every}


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 9999))
@pytest.mark.properties
def test_after_a_repair_nothing_is_found_and_every_readable_message_is_there_once(
    whole: Path, kind: str, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as above:
        folder = Path(shutil.copytree(whole / kind, Path(above, "store")))
        damage(folder, kind, seed)
        try:
            before = readable(folder)
        except CtxlabError:
            return  # a version that is not known is refused, and told
        with closing(open_store(folder)) as store:
            done = repair_store(store)
        after = readable(folder)
        assert {id: [m for m in each if not is_lost(m)] for id, each in after.items()} == {
            id: [m for m in each if not is_lost(m)] for id, each in before.items()
        }
        with closing(open_store(folder)) as store:
            assert check_store(store).found == ()
            assert store.append("b", Message("user", "on")) == 48
        if done is not None:
            assert done.backup.is_dir()
            assert not list(folder.rglob("*.repair-*"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_in_order_is_left_alone(whole: Path, tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(whole / kind, tmp_path / "store"))
    with closing(open_store(folder)) as store:
        assert check_store(store).found == ()
        assert repair_store(store) is None
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_finds_repairs_and_never_overwrites_a_backup(
    whole: Path, tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(whole / kind, tmp_path / "store"))
    args = ["sessions", "doctor", str(folder)]
    run = CliRunner().invoke
    assert run(app, args).exit_code == 0
    for count in (1, 2):
        if kind == "jsonl":
            (folder / "session-a.meta.json").unlink()
        else:
            damage(folder, kind, 7)
        assert run(app, args).exit_code == 1
        shown = json.loads(run(app, [*args, "--json"]).stdout)
        assert shown
        assert {"place", "reason", "session"} <= shown[0].keys()
        assert run(app, [*args, "--repair"]).exit_code == 0
        assert run(app, args).exit_code == 0
        where = tmp_path if kind == "jsonl" else folder
        assert len(list(where.glob("*.backup*"))) == count


def test_a_store_that_another_process_uses_is_not_repaired(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole / "jsonl", tmp_path / "store"))
    (folder / "session-a.meta.json").unlink()
    store = JsonlStore(folder)
    with store._files.locked("a"), pytest.raises(SessionError, match="another process is writing"):
        repair_store(JsonlStore(folder))
    folder = Path(shutil.copytree(whole / "sqlite", tmp_path / "workspace"))
    code = (
        "import sys; from ctxlab.sessions.sqlite.store import SqliteStore\n"
        "s = SqliteStore(sys.argv[1]); s.open('a'); print('open', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with closing(SqliteStore(folder)) as database:
            with database._database.write_transaction() as connection:
                connection.execute("UPDATE messages SET row = '{' WHERE position = 3")
            with pytest.raises(SessionError, match="another process has session 'a' open"):
                repair_store(database)
        other.communicate()


REPAIR = """
import sys
from ctxlab.sessions.doctor import repair_store
from ctxlab.sessions.open import open_store
print("begin", flush=True)
repair_store(open_store(sys.argv[1]))
"""


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_repair_that_is_interrupted_leaves_a_whole_store(
    whole: Path, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    for turn in range(12):
        folder = Path(shutil.copytree(whole / kind, tmp_path / f"store-{turn}"))
        damage(folder, kind, 5)
        before = readable(folder)
        argv = [sys.executable, "-c", REPAIR, str(folder)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            assert run.stdout is not None
            run.stdout.readline()
            try:
                run.wait(turn * 0.02)
            except subprocess.TimeoutExpired:
                run.send_signal(number)
        after = readable(folder)
        assert {id: [m for m in each if not is_lost(m)] for id, each in after.items()} == {
            id: [m for m in each if not is_lost(m)] for id, each in before.items()
        }
