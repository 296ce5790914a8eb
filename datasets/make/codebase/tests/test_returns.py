"""Goods come back within their window, and what was paid comes back less the fee."""

from datetime import date

from stockroom.orders import find_order
from stockroom.returns import last_day, open_return, restocking_fee, window_days
from tests.check import equal, refused

WHEEL = "WHL-7203"


def test_the_window_starts_with_the_delivery() -> None:
    equal(last_day(find_order("KO-61007"), "wheels"), date(2025, 11, 4))


def test_an_order_on_its_way_has_days_of_grace() -> None:
    equal(last_day(find_order("KO-61033"), "helmets"), date(2025, 11, 3))


def test_each_category_has_its_window() -> None:
    equal([window_days(c, False) for c in ("helmets", "clothing", "tools")], [14, 45, 30])


def test_faulty_goods_have_two_years() -> None:
    equal(window_days("helmets", True), 730)


def test_after_the_window_a_return_is_refused() -> None:
    refused("E_RET_064", open_return, find_order("KO-61007"), WHEEL, 1, date(2025, 11, 5))


def test_care_products_do_not_come_back() -> None:
    refused("E_RET_066", open_return, find_order("KO-61033"), "CAR-8003", 1, date(2025, 10, 20))


def test_wheels_cost_a_fee() -> None:
    case = open_return(find_order("KO-61007"), WHEEL, 1, date(2025, 11, 3))
    equal((case.refund, case.fee), (10175, 1130))


def test_faulty_wheels_cost_none() -> None:
    case = open_return(find_order("KO-61007"), WHEEL, 1, date(2025, 11, 3), True)
    equal((case.refund, case.fee, case.number), (11305, 0, "RMA-2511-0001"))


def test_the_fee_is_capped() -> None:
    equal(restocking_fee("wheels", 90_000, False), 2500)


def test_no_more_comes_back_than_was_bought() -> None:
    refused("E_PRC_022", open_return, find_order("KO-61007"), "TLS-5038", 3, date(2025, 10, 20))
