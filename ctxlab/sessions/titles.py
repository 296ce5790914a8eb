"""A session's title says what is worked on now, and the titles that it had say what came before.

Source: seed design "Session Table of Contents and Interaction Summaries", "Session Title Update Logic"
and "Title History Tracking".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ctxlab.sessions.base import (
    TITLE_LENGTH,
    TITLES,
    Session,
    TitleChange,
)
from ctxlab.sessions.table_of_contents import interaction_id

__all__ = ["RECENT", "changed", "first_title", "tidy", "title_prompt"]

RECENT = 3
"""Turns that count as recent."""

_SHOWN = 40  # turns that a model is shown at most
_FIRST = 50  # characters of a first message that become a title
_OPEN_FILE = re.compile(r"\s*\[file: [^\]\n]{1,1000}\] ")  # as the HTTP server puts it in front

_RULES = f"""\
Generate a session title (max {TITLE_LENGTH} characters).
- If the [RECENT] turns discuss a NEW topic different from the current title, update to new topic
- If still on same topic, keep current title
- Focus on what user is CURRENTLY working on
Answer with the title alone, on one line."""


def changed(session: Session, title: str, turn: int, now: float) -> tuple[TitleChange, ...]:
    """The history of titles after a session was given another: newest first, ``TITLES`` at most.

    ``now``: seconds since 1970. A title that it has already changes nothing. Both stores keep what this
    returns.

    >>> titles = changed(Session("a"), "Fix the parser", 1, 10.0)
    >>> titles
    (TitleChange(title='Fix the parser', changed_at=10.0, turn=1, interaction_id='a:1'),)
    >>> session = Session("a", title="Fix the parser", titles=titles)
    >>> [change.title for change in changed(session, "Write the docs", 7, 20.0)]
    ['Write the docs', 'Fix the parser']
    """
    if title == session.title:
        return session.titles
    change = TitleChange(title, now, turn, interaction_id(session.id, turn) if turn else "")
    return (change, *session.titles)[:TITLES]


def tidy(text: str, limit: int = TITLE_LENGTH) -> str:
    """A text as a title: on one line, without what would steer a terminal, cut at ``limit`` characters.

    >>> tidy("  Fix\\nthe \\x1b[1mparser "), tidy("a long title", 6)
    ('Fix the [1mparser', 'a lon…')
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def first_title(text: str) -> str:
    """The title that a first user message gives: its first 50 characters, on one line.

    What stands in front of it says which file was open, and is no part of the title.

    Source: seed design "Robustness", 10.9 (``_update_title``).

    >>> first_title("[file: a.py] Fix it")
    'Fix it'
    >>> first_title("Look at the parser, please: it fails on files that are odd")
    'Look at the parser, please: it fails on files that...'
    """
    said = _OPEN_FILE.sub("", text, count=1).lstrip()
    line = tidy(said[: 8 * _FIRST], limit=4 * _FIRST)
    return line if len(line) <= _FIRST else line[:_FIRST] + "..."


def title_prompt(title: str, lines: Mapping[int, str]) -> str:
    """What a model is asked for a title: the turns newest first, the last three marked ``[RECENT]``.

    ``lines``: one-line summaries by the number of their turn. The newest 40 are shown.

    >>> print(title_prompt("Sign-in", {n: f"step {n}" for n in (1, 2, 3, 4)}).rpartition("Generate")[0])
    Current session title: "Sign-in"
    <BLANKLINE>
    Conversation turns (newest first, [RECENT] marks last 3 turns):
    [RECENT] Turn 4: step 4
    [RECENT] Turn 3: step 3
    [RECENT] Turn 2: step 2
    Turn 1: step 1
    <BLANKLINE>
    <BLANKLINE>
    """
    newest = sorted(lines, reverse=True)
    shown = [
        f"{'[RECENT] ' if place < RECENT else ''}Turn {number}: {lines[number]}"
        for place, number in enumerate(newest[:_SHOWN])
    ]
    if len(newest) > _SHOWN:
        shown.append("...")
    return "\n".join(
        [
            f'Current session title: "{title}"',
            "",
            f"Conversation turns (newest first, [RECENT] marks last {RECENT} turns):",
            *shown,
            "",
            _RULES,
        ]
    )
