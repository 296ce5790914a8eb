"""Discounts follow each other in the promised order."""

from datetime import date

from stockroom.pricing import coupon_value, group_discount, quote, quote_line, tier_discount
from tests.check import equal, refused


def test_the_highest_tier_counts() -> None:
    equal([tier_discount(n) for n in (4, 5, 9, 10, 25, 250)], [0, 300, 300, 550, 900, 1250])


def test_the_group_discount_is_taken_from_the_rest() -> None:
    line = quote_line("BRK-4471", 10, "trade")
    equal((line.list_total, line.discount, line.net), (11900, 2678, 9222))


def test_some_categories_have_no_group_discount() -> None:
    equal(group_discount("trade", "helmets"), 0)


def test_a_coupon_is_spread_over_the_lines() -> None:
    priced = quote({"BRK-4471": 1, "TYR-2208": 1, "CAR-8003": 1}, coupon="WELCOME5")
    equal([line.discount for line in priced.lines], [125, 303, 72])
    equal(priced.net, 1190 + 2890 + 690 - 500)


def test_a_coupon_needs_its_minimum() -> None:
    refused("E_PRC_020", coupon_value, "RIDE-8840", 9_899)


def test_a_coupon_ends() -> None:
    equal(coupon_value("SPRING12", 10_000, date(2025, 5, 31)), 1_200)
    refused("E_PRC_020", coupon_value, "SPRING12", 10_000, date(2025, 6, 1))


def test_discontinued_products_are_not_sold() -> None:
    refused("E_CAT_007", quote_line, "TLS-5035", 1)


def test_quantities_are_positive() -> None:
    refused("E_PRC_022", quote_line, "BRK-4471", 0)
