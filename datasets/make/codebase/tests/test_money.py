"""Cents are never lost and never invented."""

from stockroom.money import (
    allocate,
    format_cents,
    net_of_gross,
    parse_amount,
    percent,
    round_half_up,
    round_ratio,
)
from tests.check import equal


def test_ties_go_to_the_even_neighbour() -> None:
    equal([round_ratio(n, 2) for n in (1, 3, 5, 7)], [0, 2, 2, 4])


def test_the_tax_office_rounds_ties_up() -> None:
    equal([round_half_up(n, 2) for n in (1, 3, -1)], [1, 2, -1])


def test_percent_takes_basis_points() -> None:
    equal(percent(9999, 550), 550)


def test_parts_add_up_to_the_total() -> None:
    for total in (0, 1, 99, 100, 101, 2999, 100_000):
        equal(sum(allocate(total, [3, 3, 3, 1])), total)


def test_left_over_cents_go_to_the_largest_remainder() -> None:
    equal(allocate(100, [1, 1, 1]), [34, 33, 33])
    equal(allocate(101, [3890, 2070, 2890]), [44, 24, 33])


def test_amounts_are_shown_with_two_decimals() -> None:
    equal(format_cents(-123456), "-1,234.56 EUR")


def test_a_decimal_comma_is_read() -> None:
    equal(parse_amount("12,40"), 1240)


def test_thousands_are_told_from_decimals() -> None:
    equal(parse_amount("1.044,50"), 104450)
    equal(parse_amount("1,039.90"), 103990)


def test_one_decimal_means_ten_cents() -> None:
    equal(parse_amount("6.5"), 650)
    equal(parse_amount("1.234,5"), 123450)


def test_net_and_tax_make_the_gross() -> None:
    equal(net_of_gross(11900, 1900), 10000)
