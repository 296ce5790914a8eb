"""A job is a ticket with a planted fault: where it is, how an agent finds it, how it is put right.

Each job is one file in ``jobs/``; its texts are the ticket, the user's words and the agent's.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

_FOLDER = Path(__file__).parent / "jobs"


class Plant(msgspec.Struct, frozen=True):
    """One fault: a piece of text that is right and what is put in its place."""

    path: str
    right: str
    wrong: str
    slip: str = ""
    "a first correction that is not enough"
    slip_note: str = ""
    "what the agent says when the tests tell it so"


class Review(msgspec.Struct, frozen=True):
    """One look back at the end, long after the fact was seen."""

    tool: str
    args: dict[str, Any]
    note: str


class Job(msgspec.Struct, frozen=True):
    """One ticket with all that an agent needs to work on it."""

    ticket: str
    area: str
    brief: str
    "the user's words where it is the first job of a recording"
    follow_up: str
    "the user's words where it comes later"
    entry: str
    "the name that the agent searches first"
    symbols: tuple[str, ...]
    home: str
    "the file where the agent looks first"
    reads: tuple[str, ...]
    doc: str
    tests: str
    suspicion: str
    "a first guess, which is wrong"
    diagnosis: str
    remedy: str
    sweep: str
    "what is searched afterwards to find the same fault elsewhere"
    sweep_note: str
    changelog: str
    cli: tuple[str, ...]
    "commands that show the fault"
    ticket_text: str
    new_test: str
    new_test_name: str
    doc_old: str
    doc_new: str
    plants: tuple[Plant, ...]
    review: tuple[Review, ...]


def load_job(ticket: str) -> Job:
    """The job of a ticket; blank lines around its pieces of code are no part of them."""
    data = tomllib.loads((_FOLDER / f"{ticket}.toml").read_text(encoding="utf-8"))
    for plant in data["plants"]:
        for key in ("right", "wrong", "slip"):
            if key in plant:
                plant[key] = plant[key].strip("\n")
    data["new_test"] = "\n\n" + data["new_test"].strip("\n") + "\n"
    return msgspec.convert(data, Job)
