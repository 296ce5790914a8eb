"""Tests of ``ctxlab show``: what a request contains, and how it differs."""

from __future__ import annotations

import json
from pathlib import Path

from running import Run, a_recording

from ctxlab.evaluation.replay import replay
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording

CHOICE = ("-s", "codex", "-l", "4k", "-m", "gpt-4o")


def test_it_shows_each_message_with_what_it_stands_for(run: Run, logs: Path) -> None:
    said = run("show", logs / "0.jsonl", *CHOICE)
    sent = replay(a_recording(0), "codex", 4000, "gpt-4o").sent(-1)
    assert (said.code, said.err) == (0, "")
    assert f"{len(sent.entries)} messages, {sent.tokens:,} tokens." in said.out.splitlines()[0]
    assert "summary" in said.out
    assert max(map(len, said.out.splitlines()[1:])) <= 100
    rows = json.loads(run("show", logs / "0.jsonl", *CHOICE, "--json").out)
    assert [row["form"] for row in rows] == sent.table["form"].tolist()
    assert [row["text"] for row in rows] == sent.table["text"].tolist()


def test_a_difference_accounts_for_the_tokens(run: Run, logs: Path) -> None:
    changes = replay(a_recording(0), "codex", 4000, "gpt-4o").diff(-1)
    saved = changes["other_tokens"].sum() - changes["tokens"].sum()
    said = run("show", logs / "0.jsonl", *CHOICE, "--diff", "full")
    assert f"{len(changes)} messages differ; the request has {saved:,} tokens fewer." in said.out
    assert "covered" in said.out
    same = run("show", logs / "0.jsonl", *CHOICE, "--diff", "codex")
    assert same.out.strip() == "Both requests have the same messages."


def test_one_of_several_recordings_is_chosen_by_its_id(run: Run, logs: Path) -> None:
    said = run("show", logs, *CHOICE)
    assert said.code == 2
    assert "got 6; add --recording with one of these ids: order-0, order-1" in said.err
    assert run("show", logs, *CHOICE, "--recording", "order-3").code == 0
    wrong = run("show", logs / "0.jsonl", *CHOICE, "-n", "99")
    assert (wrong.code, "--request: expected a request from 0 to 14" in wrong.err) == (2, True)


def test_a_log_cannot_control_the_terminal(run: Run, tmp_path: Path) -> None:
    evil = "\x1b[2J\x9b31mred\u202ebackwards"
    talk = (Message("user", evil), Message("assistant", evil))
    write([Recording("r", talk)], tmp_path / "log.jsonl")
    for more in ((), ("--text",), ("--diff", "nothing")):
        out = run("show", tmp_path / "log.jsonl", "-l", "1000", *more).out
        assert not {"\x1b", "\x9b"} & set(out)
