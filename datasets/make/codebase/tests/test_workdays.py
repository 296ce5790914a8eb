"""The warehouse works on working days."""

from datetime import date

from stockroom.workdays import (
    add_workdays,
    holiday_name,
    is_workday,
    next_workday,
    workdays_between,
)
from tests.check import equal


def test_saturday_is_no_working_day() -> None:
    equal(is_workday(date(2025, 10, 4)), False)


def test_a_holiday_of_the_region_counts() -> None:
    equal(is_workday(date(2025, 10, 31)), False)
    equal(is_workday(date(2025, 10, 31), "BE"), True)


def test_the_next_working_day_may_be_today() -> None:
    equal(next_workday(date(2025, 10, 6)), date(2025, 10, 6))
    equal(next_workday(date(2025, 10, 3)), date(2025, 10, 6))


def test_the_day_itself_is_not_counted() -> None:
    equal(add_workdays(date(2025, 10, 6), 1), date(2025, 10, 7))


def test_holidays_in_between_are_stepped_over() -> None:
    equal(add_workdays(date(2025, 10, 2), 2), date(2025, 10, 7))
    equal(add_workdays(date(2025, 12, 24), 1), date(2025, 12, 29))
    equal(add_workdays(date(2025, 10, 30), 3), date(2025, 11, 5))


def test_zero_days_is_the_next_working_day() -> None:
    equal(add_workdays(date(2025, 10, 4), 0), date(2025, 10, 6))


def test_days_between_exclude_the_first() -> None:
    equal(workdays_between(date(2025, 10, 2), date(2025, 10, 7)), 2)


def test_holidays_have_names() -> None:
    equal(holiday_name(date(2025, 10, 31)), "Reformation Day")
    equal(holiday_name(date(2025, 10, 30)), "")
