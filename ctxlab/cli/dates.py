"""Parse dates in options, and format times in the local time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ctxlab.errors import SpecError

_AGO_PATTERN = re.compile(r"(\d+)\s*([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?")


def parse_date(text: str, now: datetime | None = None) -> float:
    """Convert a date to seconds since 1970.

    These forms are accepted:

    - a day: ``2026-11-22``, ``today`` or ``yesterday``; its start is used
    - a day and a time: ``2026-11-22 10:30``, or ``2026-11-22T10:30Z`` with a time zone
    - an age: ``12h``, ``7d`` or ``2w``, which mean 12 hours, 7 days or 2 weeks before ``now``

    Days and times without a time zone are local.

    Parameters
    ----------
    text : str
        Date to parse.
    now : datetime, optional
        Current time. None reads the clock.

    Returns
    -------
    float
        Seconds since 1970.

    Raises
    ------
    SpecError
        If ``text`` has none of the accepted forms, or if the day does not exist.

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
        pass  # the day does not exist, such as 2026-02-30
    hint = "2026-11-22, '2026-11-22 10:30', today, yesterday, or an age such as 12h, 7d or 2w"
    raise SpecError(f"expected a date, got {text!r}; write {hint}")


def format_time(seconds: float | None) -> str:
    """Format a time as local date, hour and minute.

    Parameters
    ----------
    seconds : float, optional
        Seconds since 1970. None and 0 mean that the time is unknown.

    Returns
    -------
    str
        Date and time, such as ``2026-11-22 10:30``; a dash if the time is unknown.

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
