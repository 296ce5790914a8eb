"""A date is read as people write one, and shown in the local time of whoever looks."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ctxlab.errors import SpecError

__all__ = ["format_time", "parse_date"]

_AGO_PATTERN = re.compile(r"(\d+)\s*([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?")


def parse_date(text: str, now: datetime | None = None) -> float:
    """Seconds since 1970 of a date as people write it.

    A day (``2026-11-22``, ``today``, ``yesterday``) is its first moment; with a time it is that moment
    (``2026-11-22 10:30``); both are local unless a zone is said (``2026-11-22T10:30Z``). ``7d``, ``12h``
    and ``2w`` are so long ago. ``now`` is what the time is. Raises ``SpecError`` for anything else.

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
        pass  # a day that no calendar has
    raise SpecError(
        f"{text!r} is not a date; write 2026-11-22, '2026-11-22 10:30', today, yesterday, or 7d, 12h or "
        "2w for so long ago"
    )


def format_time(seconds: float | None) -> str:
    """A moment in local time, to the minute; a dash where it is not known.

    >>> len(format_time(1_795_343_400.0)), format_time(None), format_time(0)
    (16, '–', '–')
    """
    if not seconds:
        return "–"
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "–"
