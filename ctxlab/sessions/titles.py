"""Derive titles from messages, build prompts that ask a model for a title, and keep title histories.

References
----------
Design document "Session Table of Contents and Interaction Summaries", sections "Session Title Update
Logic" and "Title History Tracking" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ctxlab._utils.text import replace_unprintable
from ctxlab.messages.types import Message
from ctxlab.sessions.common import interaction_id

MAX_TITLE_LENGTH = 60
"""Maximum number of characters of a title."""

MAX_TITLES = 20
"""Maximum number of titles in a title history."""

RECENT_TURNS = 3
"""Number of newest turns that the prompt for a title marks as recent."""

_MAX_SHOWN_TURNS = 40  # maximum number of turns in the prompt for a title
_FIRST_TITLE_CHARS = 50  # characters of the first user message that become the title
# The HTTP server puts the name of the open file before a message.
_OPEN_FILE_PREFIX = re.compile(r"\s*\[file: [^\n]{1,1000}?\] ")

_TITLE_RULES = f"""\
Generate a session title (max {MAX_TITLE_LENGTH} characters).
- If the [RECENT] turns discuss a NEW topic different from the current title, update to new topic
- If still on same topic, keep current title
- Focus on what user is CURRENTLY working on
Answer with the title alone, on one line."""


@dataclass(frozen=True)
class TitleChange:
    """Entry of a session's title history: one title and the time when it was set."""

    title: str
    "title that was set"
    changed_at: float
    "time of the change, in seconds since 1970"
    turn: int = 0
    "number of the turn that the title comes from; 0 if a user set the title"
    interaction_id: str = ""
    "id of the interaction ``turn``, to link to it; an empty string if ``turn`` is 0"


def title_at_turn(change: TitleChange, id: str, turn: int) -> TitleChange:
    """Return an entry of a title history with another turn.

    Parameters
    ----------
    change : TitleChange
        Entry of the title history.
    id : str
        Session id.
    turn : int
        Number of the turn that the title comes from; 0 if there is none.

    Returns
    -------
    TitleChange
        Entry with the new turn and its interaction id.
    """
    link = interaction_id(id, turn) if turn else ""
    return TitleChange(change.title, change.changed_at, turn, link)


def titles_after_change(
    id: str, titles: tuple[TitleChange, ...], title: str, turn: int, now: float
) -> tuple[TitleChange, ...]:
    """Return a session's title history with a new title added.

    Parameters
    ----------
    id : str
        Session id.
    titles : tuple of TitleChange
        Title history before the change, newest first.
    title : str
        New title. The history stays the same if the new title equals the newest title, unless a user
        sets it who wants to keep it, or if the history and the new title are both empty.
    turn : int
        Number of the turn that the title comes from; 0 if a user set the title.
    now : float
        Time of the change, in seconds since 1970.

    Returns
    -------
    tuple of TitleChange
        Title history after the change, newest first, limited to the newest ``MAX_TITLES`` titles.

    Examples
    --------
    >>> titles = titles_after_change("a", (), "Fix the parser", 1, 10.0)
    >>> titles
    (TitleChange(title='Fix the parser', changed_at=10.0, turn=1, interaction_id='a:1'),)
    >>> [change.title for change in titles_after_change("a", titles, "Write the docs", 7, 20.0)]
    ['Write the docs', 'Fix the parser']
    """
    change = title_at_turn(TitleChange(title, now), id, turn)
    if title != (titles[0].title if titles else ""):
        return (change, *titles)[:MAX_TITLES]
    return (change, *titles[1:]) if titles and turn == 0 else titles


def single_line(text: str, max_chars: int = MAX_TITLE_LENGTH) -> str:
    r"""Convert a string to one line without control characters, cut at ``max_chars``.

    Parameters
    ----------
    text : str
        String to convert.
    max_chars : int, default 60
        Maximum number of characters.

    Returns
    -------
    str
        String without line breaks; it ends with ``…`` if it was cut.

    Examples
    --------
    >>> single_line("  Fix\nthe \x1b[1mparser "), single_line("a long title", 6)
    ('Fix the [1mparser', 'a lon…')
    """
    line = " ".join(replace_unprintable(text, " ").split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def title_from_prompt(text: str) -> str:
    """Derive a session title from the first 50 characters of a user message.

    A prefix such as ``[file: a.py]``, which names the file that the user has open, is removed first.

    Parameters
    ----------
    text : str
        Text of the user message.

    Returns
    -------
    str
        Title on one line; it ends with ``...`` if the message is longer.

    References
    ----------
    Design document "Robustness", section 10.9, ``_update_title`` (see ``tests/SEEDS.md``).

    Examples
    --------
    >>> title_from_prompt("[file: a.py] Fix it")
    'Fix it'
    >>> title_from_prompt("Look at the parser, please: it fails on files that are odd")
    'Look at the parser, please: it fails on files that...'
    """
    said = _OPEN_FILE_PREFIX.sub("", text, count=1).lstrip()
    line = single_line(said[: 8 * _FIRST_TITLE_CHARS], max_chars=4 * _FIRST_TITLE_CHARS)
    return line if len(line) <= _FIRST_TITLE_CHARS else line[:_FIRST_TITLE_CHARS] + "..."


def title_from_messages(messages: Iterable[Message]) -> str:
    """Derive a session title from the first user message with visible text.

    Parameters
    ----------
    messages : iterable of Message
        Messages in order.

    Returns
    -------
    str
        Title; an empty string if no user message has visible text.
    """
    titles = (title_from_prompt(message.text) for message in messages if message.role == "user")
    return next(filter(None, titles), "")


def build_title_prompt(title: str, turn_summaries: Mapping[int, str]) -> str:
    """Build the prompt that asks a model for a session title.

    The prompt lists up to 40 turns, newest first, and marks the newest three with ``[RECENT]``.

    Parameters
    ----------
    title : str
        Current title.
    turn_summaries : mapping of int to str
        One-line summary by turn number.

    Returns
    -------
    str
        Prompt for the model.

    Examples
    --------
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
    heading = f"Conversation turns (newest first, [RECENT] marks last {RECENT_TURNS} turns):"
    current = f'Current session title: "{title}"'
    return "\n".join([current, "", heading, *shown, "", _TITLE_RULES])
