"""Ask which earlier session to resume when a chat begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.dates import format_time
from ctxlab.cli.output import one_line
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from rich.text import Text

    from ctxlab.sessions.base import Session

MAX_LISTED = 9
"""Number of sessions that are offered; older ones are resumed by their id."""

QUESTION = "Number to resume, Enter for a new session: "
"""The question. Enter alone starts a new session, since that is harmless: nothing is stored and no
earlier conversation is sent to a model until the user writes something."""

_MIN_ID_DIGITS = 4  # from so many digits on, an answer is the beginning of an id


def choose_session(
    sessions: Sequence[Session], ask: Callable[[str], str], show_error: Callable[[str], None]
) -> Session | None:
    """Ask which session to resume until the answer is valid.

    Parameters
    ----------
    sessions : sequence of Session
        The sessions, newest first.
    ask : callable
        Takes a question and returns the answer.
    show_error : callable
        Prints a line.

    Returns
    -------
    Session or None
        The session to resume; None starts a new one.
    """
    while True:
        try:
            return parse_session_choice(sessions, ask(QUESTION))
        except CtxlabError as error:
            show_error(str(error))


def parse_session_choice(sessions: Sequence[Session], answer: str) -> Session | None:
    """Return the session that an answer names by its number or the beginning of its id.

    Parameters
    ----------
    sessions : sequence of Session
        The sessions, newest first.
    answer : str
        The answer.

    Returns
    -------
    Session or None
        The session; None for a new one.

    Raises
    ------
    CtxlabError
        If the answer names no session, or several.
    """
    choice = answer.strip()
    if not choice or choice.lower() in ("n", "new"):
        return None
    last = min(len(sessions), MAX_LISTED)
    number = choice.isdecimal() and len(choice) < _MIN_ID_DIGITS
    if number and 1 <= int(choice) <= last:
        return sessions[int(choice) - 1]
    found = [] if number else [each for each in sessions if each.id.startswith(choice)]
    if len(found) == 1:
        return found[0]
    numbers = "1" if last == 1 else f"a number from 1 to {last}"
    what = f"is the beginning of {len(found)} ids" if found else "is not one of them"
    raise CtxlabError(f"{one_line(choice)} {what}; type {numbers}, an id, or Enter for a new one")


def session_choices_table(sessions: Sequence[Session]) -> Text:
    """Return a numbered table of sessions: title, time of update, messages, model and id.

    Parameters
    ----------
    sessions : sequence of Session
        The sessions, newest first.

    Returns
    -------
    Text
        The table.
    """
    from ctxlab.cli.render.table import Column, Table
    from ctxlab.cli.session_lookup import short_ids

    ids = short_ids(session.id for session in sessions)
    shown = sessions[:MAX_LISTED]
    titles = [f"{n}  {one_line(s.title) or '(untitled)'}" for n, s in enumerate(shown, 1)]
    columns = [
        Column("session", titles, left=True),
        Column("updated", [format_time(s.updated) for s in shown], left=True),
        Column("messages", [f"{s.messages:,}" for s in shown], drop=2),
        Column("model", [one_line(s.model or "–") for s in shown], drop=3, left=True),
        Column("id", [one_line(ids[s.id]) for s in shown], drop=1, left=True, style="dim"),
    ]
    text = Table(columns, prose=True).text
    if len(sessions) > MAX_LISTED:
        older = pluralize(len(sessions) - MAX_LISTED, "older session")
        text.append(f"\nand {older}: type the id, which ctxlab sessions list shows", "dim")
    return text
