"""Ask the user which earlier session to resume when a chat starts."""

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
"""Maximum number of sessions in the list. Older sessions can be resumed by id."""

QUESTION = "Number to resume, Enter for a new session: "
"""Question that asks which session to resume.

Pressing Enter starts a new session. This default is harmless: until the user sends a message, nothing
is stored, and no earlier conversation is sent to a model."""

_MIN_ID_DIGITS = 4  # an answer with 4 or more digits is the beginning of an id, not a number


def choose_session(
    sessions: Sequence[Session], ask: Callable[[str], str], show_error: Callable[[str], None]
) -> Session | None:
    """Ask which session to resume. Repeat the question until the answer is valid.

    Parameters
    ----------
    sessions : sequence of Session
        Sessions that can be resumed, newest first.
    ask : callable
        Function that takes a question and returns the user's answer.
    show_error : callable
        Function that prints the error about an invalid answer.

    Returns
    -------
    Session or None
        Session to resume. None means that the user wants a new session.
    """
    while True:
        try:
            return parse_session_choice(sessions, ask(QUESTION))
        except CtxlabError as error:
            show_error(str(error))


def parse_session_choice(sessions: Sequence[Session], answer: str) -> Session | None:
    """Return the session that the user chose.

    Parameters
    ----------
    sessions : sequence of Session
        Sessions that can be resumed, newest first.
    answer : str
        Number of a session in the list, counted from 1, or the beginning of a session id. Digits
        are a number if there are fewer than four. An empty string, ``n`` and ``new`` start a new
        session.

    Returns
    -------
    Session or None
        Session to resume. None means that the user wants a new session.

    Raises
    ------
    CtxlabError
        If the answer matches no session, or if several ids begin with it.
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
    what = f"is the beginning of {len(found)} ids" if found else "matches no session"
    raise CtxlabError(
        f"{one_line(choice)!r} {what}; type {numbers} or an id, or press Enter for a new session"
    )


def session_choices_table(sessions: Sequence[Session]) -> Text:
    """Create a numbered table of sessions with title, time of update, messages, model and id.

    Parameters
    ----------
    sessions : sequence of Session
        Sessions that can be resumed, newest first. Only the first ``MAX_LISTED`` are in the table.

    Returns
    -------
    Text
        Table, and a line with the number of older sessions.
    """
    from ctxlab.cli.render.table import Table
    from ctxlab.cli.session_lookup import short_ids
    from ctxlab.evaluation.columns import Column

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
        text.append(f"\nand {older}; to resume one, type its id (see ctxlab sessions list)", "dim")
    return text
