"""A parcel costs what its zone says and arrives on a working day."""

from datetime import date, datetime

from stockroom.shipping import (
    dispatch_day,
    parcel_quote,
    promise_date,
    shipping_cost,
    zone_for,
    zones,
)
from tests.check import equal, refused


def test_the_longest_prefix_wins() -> None:
    equal(zone_for("DE", "26548").name, "island")
    equal(zone_for("DE", "25980").name, "island")
    equal(zone_for("DE", "25335").name, "country")
    equal(zone_for("FR", "20137").name, "far")


def test_the_city_is_the_rest_of_its_prefix() -> None:
    equal(zone_for("DE", "20357").name, "city")


def test_blanks_in_a_postcode_do_not_matter() -> None:
    equal(zone_for("de", "2 0357").name, "city")


def test_an_unknown_country_is_refused() -> None:
    refused("E_SHP_060", zone_for, "US", "94110")


def test_each_kilogram_begun_costs() -> None:
    zone = zones()["country"]
    equal([shipping_cost(zone, grams) for grams in (400, 1000, 1001, 3000)], [490, 490, 550, 610])


def test_city_parcels_are_free_above_the_threshold() -> None:
    equal(shipping_cost(zones()["city"], 2500, net=6000), 0)
    equal(shipping_cost(zones()["island"], 800, net=99999), 1190)


def test_the_carrier_has_a_limit() -> None:
    refused("E_SHP_062", shipping_cost, zones()["city"], 31501)


def test_the_cut_off_is_half_past_two() -> None:
    equal(dispatch_day(datetime(2025, 10, 6, 14, 29)), date(2025, 10, 6))
    equal(dispatch_day(datetime(2025, 10, 6, 14, 30)), date(2025, 10, 7))


def test_weekend_orders_leave_on_monday() -> None:
    equal(dispatch_day(datetime(2025, 10, 4, 18, 0)), date(2025, 10, 6))


def test_promises_step_over_holidays() -> None:
    ordered = datetime(2025, 10, 30, 15, 10)
    equal(promise_date(ordered, zones()["country"]), date(2025, 11, 5))


def test_a_parcel_knows_its_weight() -> None:
    answer = parcel_quote({"BRK-4471": 30}, "DE", "20357", datetime(2025, 10, 6, 9, 0))
    equal((answer["grams"], answer["cost"]), (2160, 470))
