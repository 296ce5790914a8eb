"""Tests that acknowledged writes to the SQLite store survive when the process is killed.

The environment variable ``CTXLAB_KILLS`` sets the number of kills (default: 5).
"""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from killing import nursery, one_life

from ctxlab.formats import load
from ctxlab.messages.types import Message, message_text
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.resume_messages import build_resumed_messages, pair_tool_results
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.sqlite.store import SqliteStore

KILLS = int(os.environ.get("CTXLAB_KILLS", "5"))
CAPS = ResumeCaps(messages=8, message_chars=500, summary_chars=600)

# Imports once, then forks a writer for each line that it is given, and says when that has died.
WRITER = """
import json, os, random, sys
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan
from ctxlab.sessions.resume_window import ResumeCaps
from ctxlab.sessions.sqlite.store import SqliteStore

def live(folder, acks, life):
    dice = random.Random(life)
    store = SqliteStore(folder, fsync=dice.choice(("always", "never")),
                           caps=ResumeCaps(messages=8, message_chars=500, summary_chars=600))
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def told(kind, *what):
        os.write(out, (json.dumps([kind, *what]) + "\\n").encode())
    told("begun")
    if not any(session.id == "s" for session in store.sessions()):
        store.create(id="s")
    store.open("s")
    for step in range(10**9):
        name = f"{life}x{step}"
        size = dice.choice((5, 50, 5000, 400_000)) if step % 7 == 0 else 20
        call = ToolCall(f"call-{name}", "read", "{}")
        kind = dice.random()
        if kind < 0.3:
            # As an agent does it: one by one, so that a kill parts a call from its result.
            for number, said in enumerate((
                Message("user", f"{name}y0 " + "x " * size),
                Message("assistant", f"{name}y1", (call,)),
                Message("tool", f"{name}y2 " + "z " * size, tool_call_id=call.id),
            )):
                told("append", f"{name}y{number}")
                told("appended", store.append("s", said), f"{name}y{number}")
        elif kind < 0.6:
            names = [f"{name}y{n}" for n in range(dice.randint(1, 20))]
            told("append", *names)
            told("appended", store.append("s", *(Message("user", n) for n in names)), *names)
        elif kind < 0.7:
            told("title", name)
            store.retitle("s", name, step)
            told("titled", name)
        elif kind < 0.8:
            store.save_turn_summary("s", life * 100_000 + step, name)
            told("kept", life * 100_000 + step, name)
        elif kind < 0.9:
            told("save", name)
            store.save("s", plan=AgentPlan((name,), 0))
            told("saved", name)
        else:
            # Another session comes and goes; then this one is the active one again.
            for session in store.sessions():
                if session.id != "s":
                    store.delete(session.id)
            store.append(store.create().id, Message("user", f"other {name}"))
            store.open("s")
            store.close()
"""


class Known:
    """The acknowledged writes of all writers, and the unfinished write of the last one."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.lines: dict[int, str] = {}
        self.title = self.plan = ""

    def agree(self, folder: Path, said: list[list[Any]]) -> None:
        """Assert that the store has all acknowledged writes, and all or none of the unfinished one."""
        in_flight: list[str] = []
        titles, plans = {self.title}, {self.plan}
        for kind, *what in said:
            if kind == "append":
                in_flight = what
            elif kind == "appended":
                assert what[0] == len(self.names)
                self.names += in_flight
                in_flight = []
            elif kind == "title":
                titles.add(what[0])
            elif kind == "titled":
                titles = {what[0]}
            elif kind == "save":
                plans.add(what[0])
            elif kind == "saved":
                plans = {what[0]}
            elif kind == "kept":
                self.lines[what[0]] = what[1]
        store = SqliteStore(folder, caps=CAPS)
        messages = list(store.read_messages("s"))
        stored = [m.text.split(" ")[0] for m in messages]
        assert stored in (self.names, [*self.names, *in_flight])
        self.names = stored
        session, resume = store.get("s"), store.open("s")
        self.title = session.title
        assert self.title in titles or not titles - {""}  # it has that of its first message
        self.plan = resume.plan.steps[0] if resume.plan else ""
        assert self.plan in plans
        lines = store.turn_summaries("s")
        assert self.lines.items() <= lines.items()
        self.lines = lines
        assert session.messages == len(stored)
        self._resumes(messages, resume.recent, list(build_resumed_messages(resume)))
        for name in random.Random(len(stored)).sample(stored, min(5, len(stored))):
            assert [hit.position for hit in store.search(name, "s")] == [stored.index(name)]
        assert [s.id for s in store.sessions() if s.status == "active"] == ["s"]
        store.close()

    def _resumes(
        self, messages: list[Message], recent: tuple[Message, ...], sent: list[Message]
    ) -> None:
        assert not find_violations(sent) or not messages
        assert len(recent) <= CAPS.messages
        newest = [m for m in pair_tool_results(messages) if m.role != "tool"][-1:]
        assert [message_text(m)[:400] for m in recent if m.role != "tool"][-1:] == [
            message_text(m)[:400] for m in newest
        ]


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_no_kill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """Issue 6, done when: kill -9 at random moments of appending, compacting, retitling, flushing."""
    folder, known = tmp_path / "workspace", Known()
    begun = SqliteStore(folder)
    begun.create(id="s")
    begun.close()
    with nursery(WRITER) as process:
        for life in range(KILLS):
            said = one_life(process, folder, life)
            connection = sqlite3.connect(folder / ".ctxlab" / "sessions.db")
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            if life % 5 == 4:
                connection.execute(
                    "INSERT INTO messages_fts(messages_fts) VALUES('integrity-check')"
                )
            connection.close()
            known.agree(folder, said)
    (recording,) = load(folder, where="id=s")
    assert [m.text.split(" ")[0] for m in recording.messages] == known.names
    assert len(known.names) > KILLS
