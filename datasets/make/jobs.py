"""Jobs of the scripted coding agent: a ticket, the planted fault, and the way to its correction.

Each job is a TOML file in ``jobs/``. The file contains the text of the ticket and the messages of
the user and of the agent.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

_FOLDER = Path(__file__).parent / "jobs"


class Plant(msgspec.Struct, frozen=True):
    """A fault planted in one file: the correct code and the faulty code that replaces it."""

    path: str
    right: str
    wrong: str
    slip: str = ""
    "first attempt of a correction, which does not fix the fault; empty if there is none"
    slip_note: str = ""
    "message of the agent after the tests show that ``slip`` was not enough"


class Review(msgspec.Struct, frozen=True):
    """A tool call at the end of a recording that looks up a fact from much earlier."""

    tool: str
    args: dict[str, Any]
    note: str


class Job(msgspec.Struct, frozen=True):
    """A ticket with all texts and tool arguments that the scripted agent needs to work on it."""

    ticket: str
    area: str
    brief: str
    "message of the user if this is the first job of a recording"
    follow_up: str
    "message of the user if this is a later job of a recording"
    entry: str
    "name that the agent searches for first"
    symbols: tuple[str, ...]
    home: str
    "file that the agent reads first"
    reads: tuple[str, ...]
    doc: str
    tests: str
    suspicion: str
    "the agent's first guess at the cause, which is wrong"
    diagnosis: str
    remedy: str
    sweep: str
    "pattern that the agent searches for after the correction, to find the same fault elsewhere"
    sweep_note: str
    changelog: str
    cli: tuple[str, ...]
    "commands of the program that show the fault"
    ticket_text: str
    new_test: str
    new_test_name: str
    doc_old: str
    doc_new: str
    plants: tuple[Plant, ...]
    review: tuple[Review, ...]


def load_job(ticket: str) -> Job:
    """Load the job of a ticket and strip blank lines around its pieces of code."""
    data = tomllib.loads((_FOLDER / f"{ticket}.toml").read_text(encoding="utf-8"))
    for plant in data["plants"]:
        for key in ("right", "wrong", "slip"):
            if key in plant:
                plant[key] = plant[key].strip("\n")
    data["new_test"] = "\n\n" + data["new_test"].strip("\n") + "\n"
    return msgspec.convert(data, Job)
