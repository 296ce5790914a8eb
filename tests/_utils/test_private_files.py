"""Tests that stored files are readable by their owner only, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ctxlab._utils.private_files import create_file, make_folder, open_for_writing

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")

MAKE = """
import json, sys, threading
from pathlib import Path
from ctxlab.llm.base import Request
from ctxlab.cli.chat.input_history import InputHistory
from ctxlab.messages.types import Message
from ctxlab.llm import CachedClient, ScriptedClient
from ctxlab.sessions.jsonl.migrate import migrate_folder
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

folder = Path(sys.argv[1])
tools = ({"type": "function", "function": {"name": "look"}},)
said = [Message("user", "a secret"), Message("assistant", "kept")]
stores = SqliteStore(folder), JsonlStore(folder / "kept/chunks", max_history=3)
for store in stores:  # held, since a database that nobody holds is closed and has no log
    id = store.create(tools=tools).id
    for _ in range(4):
        store.append(id, *said)
    store.save_turn_summary(id, 1, "a line")
    store.save(id)
    store.retitle(id, "a title")
    store.open(id)
chunk = sorted((folder / "kept/chunks").glob("session-*.jsonl"))[-1]
with chunk.open("a") as torn:
    torn.write('{"half')
store.append(id, *said)  # cuts it off and keeps it aside
old = folder / "kept/chunks/session-old.jsonl"
old.write_text('{"role": "user", "content": "a secret"}\\n')
assert migrate_folder(folder / "kept/chunks").migrated
client = CachedClient(ScriptedClient("short", "long " * 20_000), folder / ".ctxlab/calls")
for text in ("a secret", "another"):
    client.complete(Request("gpt-4o", (Message("user", text),)))
assert client.complete(Request("gpt-4o", (Message("user", "another"),))).cached
history = InputHistory(folder / ".ctxlab/chat_history")
history.store_string("a secret")
print("made", flush=True)
sys.stdin.read()  # logs of databases are there as long as they are open
"""


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("umask", [0, 0o022, 0o077], ids=oct)
def test_every_file_and_folder_that_is_made_belongs_to_its_owner_alone(
    umask: int, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        umask=umask,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        modes = {
            path.relative_to(tmp_path): (path.is_dir(), stat.S_IMODE(path.stat().st_mode))
            for path in tmp_path.rglob("*")
        }
        process.kill()
    names = {path.name for path in modes}
    assert {"sessions.db", "sessions.db-wal", "cache.db", ".locks", ".gitignore"} <= names
    assert "chat_history" in names
    for kind in (".meta.json", ".window.json", ".tools.json", ".1.jsonl", ".torn", ".lock"):
        assert any(name.endswith(kind) for name in names), kind
    for path, (folder, mode) in modes.items():
        assert mode == (0o700 if folder else 0o600), path


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    for mode in (0o755, 0o770):
        tmp_path.chmod(mode)
        make_folder(tmp_path)
        make_folder(tmp_path / oct(mode) / "below")
        assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file" / "below")


def test_a_file_that_is_written_anew_is_private_and_one_that_is_there_is_not_touched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    create_file(path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("before", 0o644)
    with open_for_writing(path) as file:
        file.write(b"after")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("after", 0o600)
