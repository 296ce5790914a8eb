"""Working days of the warehouse: no Saturdays, no Sundays, no holidays of data/holidays.csv."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache

from stockroom.config import data_rows

SATURDAY = 5


@cache
def holidays(region: str) -> frozenset[date]:
    """The holidays of a region, those of the whole country included."""
    return frozenset(
        date.fromisoformat(row["date"])
        for row in data_rows("holidays.csv")
        if row["region"] in ("*", region)
    )


def is_workday(day: date, region: str = "DE-HH") -> bool:
    """Whether the warehouse works on this day."""
    return day.weekday() < SATURDAY and day not in holidays(region)


def next_workday(day: date, region: str = "DE-HH") -> date:
    """The day itself if it is a working day, else the first one after it."""
    while not is_workday(day, region):
        day += timedelta(days=1)
    return day


def add_workdays(day: date, count: int, region: str = "DE-HH") -> date:
    """The working day that is ``count`` working days after a day.

    The day itself is not counted: one working day after a Friday is the Monday. With a count of
    zero the result is the next working day on or after the day.
    """
    day = next_workday(day, region)
    for _ in range(count):
        day = next_workday(day + timedelta(days=1), region)
    return day


def workdays_between(first: date, last: date, region: str = "DE-HH") -> int:
    """Working days after ``first`` up to and including ``last``."""
    days = (last - first).days
    return sum(1 for i in range(1, days + 1) if is_workday(first + timedelta(days=i), region))


def holiday_name(day: date, region: str = "DE-HH") -> str:
    """What a holiday is called, or nothing on any other day."""
    for row in data_rows("holidays.csv"):
        if row["date"] == day.isoformat() and row["region"] in ("*", region):
            return row["name"]
    return ""
