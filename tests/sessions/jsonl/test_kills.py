"""Tests that acknowledged writes to the JSONL store survive when the process is killed.

The environment variable ``CTXLAB_KILLS`` sets the number of kills (default: 5).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from killing import nursery, one_life

from ctxlab.formats import load
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.resume_window import ResumeCaps

KILLS = int(os.environ.get("CTXLAB_KILLS", "5"))
PAIRING = {"unanswered_call", "orphaned_result", "repeated_result"}
CAPS = ResumeCaps(messages=8, message_chars=500)

# Imports once, then forks a writer for each line that it is given, and says when that has died.
WRITER = """
import json, os, random, sys
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.resume_window import ResumeCaps

def live(folder, acks, number):
    dice = random.Random(number)
    store = JsonlStore(folder, max_history=dice.choice((1, 3, 5, 50)),
                         fsync=dice.choice(("always", "never")), caps=ResumeCaps(8, 500))
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def told(kind, **what):
        os.write(out, (json.dumps({"kind": kind, **what}) + "\\n").encode())
    told("begun")
    step = 0
    while True:
        step += 1
        name = f"{number}.{step}"
        size = dice.choice((5, 50, 5000, 400_000)) if step % 7 == 0 else 20
        call = ToolCall(f"call-{name}", "read", "{}")
        kind = dice.random()
        if kind < 0.6:
            said = [Message("user", f"{name}.0 " + "x" * size)]
            if dice.random() < 0.7:
                said += [Message("assistant", f"{name}.1", (call,)),
                         Message("tool", f"{name}.2 " + "y" * size, tool_call_id=call.id)]
            told("append", batch=name, count=len(said))
            at = store.append("s", *said)
            told("appended", batch=name, count=len(said), at=at)
        elif kind < 0.65:
            said = [Message("user", f"{name}.{n}") for n in range(dice.randint(4, 20))]
            told("append", batch=name, count=len(said))
            told("appended", batch=name, count=len(said), at=store.append("s", *said))
        elif kind < 0.75:
            told("title", title=name)
            store.retitle("s", name, step)
            told("titled", title=name)
        elif kind < 0.85:
            store.save_turn_summary("s", number * 1000 + step, name)
            told("kept", turn=number * 1000 + step, line=name)
        elif kind < 0.95:
            told("save", plan=name)
            store.save("s", plan=AgentPlan((name,), 0))
            told("saved", plan=name)
        else:
            other = f"other-{dice.randint(0, 2)}"
            if any(session.id == other for session in store.sessions()):
                store.delete(other)
            else:
                store.create(id=other)
                store.append(other, *[Message("user", name)] * 3)
"""


class Known:
    """The acknowledged writes of all writers, and the unfinished write of the last one."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.lines: dict[int, str] = {}
        self.title = self.plan = ""

    def agree(self, store: JsonlStore, said: list[dict[str, Any]]) -> None:
        """Assert that the store has all acknowledged writes, and all or none of the unfinished batch."""
        open_batch: list[str] = []
        titles, plans = {self.title}, {self.plan}
        for each in said:
            match each["kind"]:
                case "append":
                    open_batch = [f"{each['batch']}.{n}" for n in range(each["count"])]
                case "appended":
                    assert each["at"] == len(self.messages)
                    self.messages += open_batch
                    open_batch = []
                case "title":
                    titles.add(each["title"])
                case "titled":
                    titles = {each["title"]}
                case "save":
                    plans.add(each["plan"])
                case "saved":
                    plans = {each["plan"]}
                case "kept":
                    self.lines[each["turn"]] = each["line"]
        stored = [message.text.split()[0] for message in store.read_messages("s")]
        assert stored in (self.messages, [*self.messages, *open_batch])
        self.messages = stored
        assert self.lines.items() <= store.turn_summaries("s").items()
        session = store.get("s")
        assert session.messages == len(stored)
        self.title = session.title
        assert self.title in titles or "" in titles
        plan = store.open("s").plan
        self.plan = plan.steps[0] if plan else ""
        assert self.plan in plans


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked")
def test_no_kill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """Issue, "Two hundred kill -9": nothing acknowledged is lost, no file is unreadable, no tool
    message is unpaired after resume.
    """
    folder = tmp_path / "sessions"
    JsonlStore(folder).create(id="s")
    known = Known()
    with nursery(WRITER) as process:
        for number in range(1, KILLS + 1):
            said = one_life(process, folder, number)
            # Another process looks: first as a reader that repairs nothing, then as the next writer.
            (recording,) = (r for r in load(folder) if r.id == "s")
            store = JsonlStore(folder, max_history=4, caps=CAPS)
            assert tuple(store.read_messages("s")) == recording.messages
            resume = store.open("s")
            assert not [f for f in find_violations(list(resume.recent)) if f.rule in PAIRING], (
                resume.recent
            )
            known.agree(store, said)
            assert store.sessions()
    assert len(known.messages) > KILLS
