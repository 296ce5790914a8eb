"""A session's title says what is worked on now, and the titles that it had say what came before.

Source: seed design "Session Table of Contents and Interaction Summaries", "Session Title Update Logic"
and "Title History Tracking".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ctxlab.sessions.base import MAX_TITLE_LENGTH, MAX_TITLES, Session, TitleChange
from ctxlab.sessions.table_of_contents import interaction_id

__all__ = [
    "RECENT_TURNS",
    "build_title_prompt",
    "single_line",
    "title_from_prompt",
    "titles_after_change",
]

RECENT_TURNS = 3
"""Turns that count as recent."""

_MAX_SHOWN_TURNS = 40  # turns that a model is shown at most
_FIRST_TITLE_CHARS = 50  # characters of a first message that become a title
_OPEN_FILE_PREFIX = re.compile(
    r"\s*\[file: [^\]\n]{1,1000}\] "
)  # as the HTTP server puts it in front

_TITLE_RULES = f"""\
Generate a session title (max {MAX_TITLE_LENGTH} characters).
- If the [RECENT] turns discuss a NEW topic different from the current title, update to new topic
- If still on same topic, keep current title
- Focus on what user is CURRENTLY working on
Answer with the title alone, on one line."""


def titles_after_change(
    session: Session, title: str, turn: int, now: float
) -> tuple[TitleChange, ...]:
    """The history of titles after a session was given another: newest first.

    It has ``MAX_TITLES`` entries at most. ``now``: seconds since 1970. A title that it has already
    changes nothing. Both stores keep what this returns.

    >>> titles = titles_after_change(Session("a"), "Fix the parser", 1, 10.0)
    >>> titles
    (TitleChange(title='Fix the parser', changed_at=10.0, turn=1, interaction_id='a:1'),)
    >>> session = Session("a", title="Fix the parser", titles=titles)
    >>> [change.title for change in titles_after_change(session, "Write the docs", 7, 20.0)]
    ['Write the docs', 'Fix the parser']
    """
    if title == session.title:
        return session.titles
    change = TitleChange(title, now, turn, interaction_id(session.id, turn) if turn else "")
    return (change, *session.titles)[:MAX_TITLES]


def single_line(text: str, max_chars: int = MAX_TITLE_LENGTH) -> str:
    """A text as a title: on one line, without what would steer a terminal, cut at ``max_chars``.

    >>> single_line("  Fix\\nthe \\x1b[1mparser "), single_line("a long title", 6)
    ('Fix the [1mparser', 'a lon…')
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def title_from_prompt(text: str) -> str:
    """The title that a first user message gives: its first 50 characters, on one line.

    What stands in front of it says which file was open, and is no part of the title.

    Source: seed design "Robustness", 10.9 (``_update_title``).

    >>> title_from_prompt("[file: a.py] Fix it")
    'Fix it'
    >>> title_from_prompt("Look at the parser, please: it fails on files that are odd")
    'Look at the parser, please: it fails on files that...'
    """
    said = _OPEN_FILE_PREFIX.sub("", text, count=1).lstrip()
    line = single_line(said[: 8 * _FIRST_TITLE_CHARS], max_chars=4 * _FIRST_TITLE_CHARS)
    return line if len(line) <= _FIRST_TITLE_CHARS else line[:_FIRST_TITLE_CHARS] + "..."


def build_title_prompt(title: str, turn_summaries: Mapping[int, str]) -> str:
    """What a model is asked for a title: the turns, newest first, the last three marked ``[RECENT]``.

    ``turn_summaries``: one-line summaries by the number of their turn. The newest 40 are shown.

    >>> prompt = build_title_prompt("Sign-in", {n: f"step {n}" for n in (1, 2, 3, 4)})
    >>> print(prompt.rpartition("Generate")[0])
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
    newest = sorted(turn_summaries, reverse=True)
    shown = [
        f"{'[RECENT] ' if place < RECENT_TURNS else ''}Turn {number}: {turn_summaries[number]}"
        for place, number in enumerate(newest[:_MAX_SHOWN_TURNS])
    ]
    if len(newest) > _MAX_SHOWN_TURNS:
        shown.append("...")
    return "\n".join(
        [
            f'Current session title: "{title}"',
            "",
            f"Conversation turns (newest first, [RECENT] marks last {RECENT_TURNS} turns):",
            *shown,
            "",
            _TITLE_RULES,
        ]
    )
