"""Convert the turn numbers of sessions that were stored before turns had steps.

Version 1 of the chunks and version 2 of the database counted each reply of the model as a turn of its
own. These numbers are converted when such a session is read or migrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def turns_by_step_number(roles: Iterable[str]) -> dict[int, int]:
    """Return the turn to which each number of the old numbering belongs.

    Parameters
    ----------
    roles : iterable of str
        Roles of all messages of the session, in order.

    Returns
    -------
    dict of int to int
        Turn by old number.

    Examples
    --------
    >>> turns_by_step_number(["user", "assistant", "tool", "assistant", "user", "assistant"])
    {1: 1, 2: 1, 3: 2}
    """
    found: dict[int, int] = {}
    number = turn = 0
    replied = True
    for role in roles:
        number += role == "user" or (role == "assistant" and replied)
        turn += role == "user" or (role == "assistant" and not turn)
        if role in ("user", "assistant"):
            found[number], replied = turn, role == "assistant"
    return found


def renumber_summaries(summaries: Mapping[int, str], roles: Iterable[str]) -> dict[int, str]:
    """Convert one-line summaries from the old numbers to turns.

    Parameters
    ----------
    summaries : mapping of int to str
        Summaries by old number.
    roles : iterable of str
        Roles of all messages of the session, in order.

    Returns
    -------
    dict of int to str
        Summaries by turn, in order. If several steps of a turn have a summary, the first is kept.

    Examples
    --------
    >>> roles = ["user", "assistant", "tool", "assistant", "user"]
    >>> renumber_summaries({1: "fixed it", 2: "ran tests", 3: "thanked"}, roles)
    {1: 'fixed it', 2: 'thanked'}
    """
    turns, found = turns_by_step_number(roles), dict[int, str]()
    for number in sorted(turns.keys() & summaries.keys()):
        found.setdefault(turns[number], summaries[number])
    return found
