"""Whoever begins a chat where there were some before is asked whether to go on with one of them.

Source: seed design "Workspace-scoped sessions", "CLI Changes (Session Picker)".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.dates import format_time
from ctxlab.cli.output import one_line
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ctxlab.sessions.base import Session

__all__ = [
    "MAX_LISTED",
    "QUESTION",
    "choose_session",
    "parse_session_choice",
    "session_choices_table",
]

MAX_LISTED = 9
"""Sessions that are offered by number; an older one is resumed by its id."""

QUESTION = "Number to resume, Enter for a new session: "
"""What is asked. A new one is what a mistaken Enter does least harm by: nothing is stored of it, and
no old conversation goes to a model, before something is said in it."""

_MIN_ID_DIGITS = 4  # digits that are the beginning of an id and no number


def choose_session(
    sessions: Sequence[Session], ask: Callable[[str], str], show_error: Callable[[str], None]
) -> Session | None:
    """The session to go on with; None: a new one.

    ``sessions`` are the newest first; ``ask`` gives what is answered to a question, ``show_error``
    shows a line. What is no answer is told, and asked again.
    """
    while True:
        try:
            return parse_session_choice(sessions, ask(QUESTION))
        except CtxlabError as error:
            show_error(str(error))


def parse_session_choice(sessions: Sequence[Session], answer: str) -> Session | None:
    """The session that an answer names, by its number in the list or by the beginning of its id.

    Raises ``CtxlabError`` where it names none, or several.
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
    what = f"begins {len(found)} ids" if found else "is none of them"
    raise CtxlabError(f"{one_line(choice)} {what}; write {numbers}, an id, or nothing")


def session_choices_table(sessions: Sequence[Session]) -> RenderableType:
    """The sessions by number: title, when they were updated, messages, model, beginning of the id."""
    from rich.console import Group
    from rich.text import Text

    from ctxlab.cli.render.format import fit_columns, make_table
    from ctxlab.cli.session_lookup import short_ids

    ids = short_ids(session.id for session in sessions)
    shown = sessions[:MAX_LISTED]
    columns = {
        "session": [f"{n}  {one_line(s.title) or '(untitled)'}" for n, s in enumerate(shown, 1)],
        "updated": [format_time(s.updated) for s in shown],
        "messages": [f"{s.messages:,}" for s in shown],
        "model": [one_line(s.model or "–") for s in shown],
        "id": [one_line(ids[s.id]) for s in shown],
    }
    heads = fit_columns(columns, ["model", "messages", "id"])
    rows = [(cells, "") for cells in zip(*(columns[head] for head in heads), strict=True)]
    left = {n for n, head in enumerate(heads) if head != "messages"}
    drawn = make_table(
        heads, rows, left, dim_columns=[n for n, head in enumerate(heads) if head == "id"]
    )
    if len(sessions) <= MAX_LISTED:
        return drawn
    older = pluralize(len(sessions) - MAX_LISTED, "older one")
    return Group(drawn, Text(f"and {older}: ctxlab sessions list, and here their id", "dim"))
