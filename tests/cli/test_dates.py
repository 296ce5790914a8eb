"""Tests of dates on the command line, which are in local time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from ctxlab.cli.dates import format_time, parse_date
from ctxlab.errors import SpecError


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(time, "tzset"):
        pytest.skip("the local time cannot be set here")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NOW = datetime.fromisoformat("2026-11-22T03:30:00+00:00")  # still the 21st in New York


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-22", "2026-11-22T05:00Z"),
        ("2026-07-01", "2026-07-01T04:00Z"),
        ("2026-11-22 10:30", "2026-11-22T15:30Z"),
        ("2026-11-22T10:30:15", "2026-11-22T15:30:15Z"),
        ("2026-11-22T10:30Z", "2026-11-22T10:30Z"),
        ("2026-11-22T10:30+02:00", "2026-11-22T08:30Z"),
        ("today", "2026-11-21T05:00Z"),
        ("Yesterday", "2026-11-20T05:00Z"),
        ("7d", "2026-11-15T03:30Z"),
        ("36 h", "2026-11-20T15:30Z"),
        ("2w", "2026-11-08T03:30Z"),
    ],
)
def test_it_is_read_as_it_is_meant(text: str, moment: str) -> None:
    assert parse_date(text, NOW.astimezone()) == datetime.fromisoformat(moment).timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026", "2026-13-01", "2026-02-30", "22.11.2026", "2026-11-22 25:00", "7", "d",
     "99999999999d", "-3d", "2026-W47", "20261122"],
)  # fmt: skip
def test_what_is_no_date_says_how_to_write_one(text: str) -> None:
    with pytest.raises(SpecError, match=r"expected a date, got .*; write 2026-11-22"):
        parse_date(text, NOW.astimezone())


def test_it_is_shown_in_local_time() -> None:
    assert format_time(NOW.timestamp()) == "2026-11-21 22:30"
    assert [format_time(odd) for odd in (None, 0, float("inf"), float("nan"), 1e300)] == ["–"] * 5
