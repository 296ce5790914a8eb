"""Tax is taken from the sum of a rate, once."""

from stockroom.config import setting
from stockroom.tax import rate_for, reverse_charge, small_business, tax_total
from tests.check import equal, refused


def test_the_home_rate_is_nineteen_percent() -> None:
    equal(setting("region.regions.DE-HH.standard"), 1900)
    equal(rate_for("DE-HH", "brakes"), 1900)


def test_lines_of_one_rate_are_summed_before_rounding() -> None:
    total = tax_total([("brakes", 1187), ("tools", 1187), ("tyres", 1187)])
    equal(total.tax, 677)


def test_each_rate_has_its_own_line() -> None:
    total = tax_total([("helmets", 5990), ("brakes", 1190)], "BE")
    equal([(line.rate, line.tax) for line in total.lines], [(2100, 250), (600, 359)])


def test_ties_are_rounded_up() -> None:
    equal(tax_total([("tools", 50)]).tax, 10)


def test_export_is_free_of_tax() -> None:
    equal(tax_total([("tools", 9950)], "CH").gross, 9950)
    equal(rate_for("DE-HG", "tools"), 0)


def test_an_unknown_region_is_refused() -> None:
    refused("E_TAX_040", rate_for, "XX", "tools")


def test_a_business_abroad_owes_the_tax_itself() -> None:
    equal(reverse_charge("BE", "BE0000000000"), True)
    equal(reverse_charge("DE-HH", "DE000000000"), False)
    equal(reverse_charge("CH", "CHE-116"), False)


def test_the_limit_for_small_businesses_is_exclusive() -> None:
    equal(small_business(2_499_999), True)
    equal(small_business(2_500_000), False)
