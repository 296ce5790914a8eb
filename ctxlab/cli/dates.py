"""Parse dates as people write them and format times in the local time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ctxlab.errors import SpecError

_AGO_PATTERN = re.compile(r"(\d+)\s*([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?")


def parse_date(text: str, now: datetime | None = None) -> float:
    """Return the seconds since 1970 of a date as people write it.

    A day (``2026-11-22``, ``today``, ``yesterday``) means its first moment. A time may follow
    (``2026-11-22 10:30``). Both are local unless a zone is given (``2026-11-22T10:30Z``). ``12h``,
    ``7d`` and ``2w`` mean that many hours, days or weeks ago.

    Parameters
    ----------
    text : str
        The date.
    now : datetime, optional
        The current time; None asks the clock.

    Returns
    -------
    float
        Seconds since 1970.

    Raises
    ------
    SpecError
        If the text is not a date.

    Examples
    --------
    >>> from datetime import UTC
    >>> now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
    >>> parse_date("12h", now) - now.timestamp(), parse_date("2026-11-22T10:30Z") - now.timestamp()
    (-43200.0, -5400.0)
    """
    now = now or datetime.now().astimezone()
    lowered = text.strip().lower()
    try:
        if found := _AGO_PATTERN.fullmatch(lowered):
            return (now - timedelta(**{_UNITS[found[2]]: int(found[1])})).timestamp()
        if lowered in ("today", "yesterday"):
            day = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
            return (day - timedelta(days=lowered == "yesterday")).timestamp()
        if _DATE_PATTERN.fullmatch(text.strip()):
            return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        pass  # such as 2026-02-30
    hint = "2026-11-22, '2026-11-22 10:30', today, yesterday, or an age: 12h, 7d, 2w"
    raise SpecError(f"expected a date, got {text!r}; write {hint}")


def format_time(seconds: float | None) -> str:
    """Return a time as local date and time, to the minute.

    Parameters
    ----------
    seconds : float, optional
        Seconds since 1970; None or 0 if unknown.

    Returns
    -------
    str
        The time, or a dash if unknown.

    Examples
    --------
    >>> len(format_time(1_795_343_400.0)), format_time(None), format_time(0)
    (16, '–', '–')
    """
    if not seconds:
        return "–"
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "–"
