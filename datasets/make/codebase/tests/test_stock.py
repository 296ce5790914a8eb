"""Stock is the sum of its movements."""

from stockroom.audit import Entry, append, first_broken
from stockroom.stock import StockLedger
from stockroom.units import packs_needed, parcel_weight
from tests.check import equal, refused


def test_goods_that_are_not_there_cannot_leave() -> None:
    refused("E_STOCK_011", StockLedger.opening().ship, "BRK-4471", "COUNTER", 5)


def test_a_transfer_keeps_the_sum() -> None:
    ledger = StockLedger.opening()
    before = ledger.on_hand("BRK-4471")
    ledger.transfer("BRK-4471", "HALL-A", "COUNTER", 6)
    equal(ledger.on_hand("BRK-4471"), before)
    equal(ledger.on_hand("BRK-4471", "COUNTER"), 10)


def test_a_count_books_the_difference() -> None:
    ledger = StockLedger.opening()
    equal(ledger.adjust("BRK-4471", "HALL-A", 20, "count 44"), -2)
    equal(ledger.on_hand("BRK-4471", "HALL-A"), 20)


def test_unknown_locations_are_refused() -> None:
    refused("E_STOCK_014", StockLedger.opening().on_hand, "BRK-4471", "HALL-Z")


def test_unknown_products_are_refused() -> None:
    refused("E_CAT_004", StockLedger.opening().receive, "XXX-0000", "HALL-A", 1)


def test_packs_hold_at_least_what_is_needed() -> None:
    equal([packs_needed("BRK-4471", n) for n in (1, 5, 6)], [1, 1, 2])


def test_cartons_have_a_weight() -> None:
    equal(parcel_weight({"BRK-4471": 24}), 24 * 60 + 180)
    equal(parcel_weight({"BRK-4471": 25}), 25 * 60 + 360)


def test_the_audit_log_shows_where_it_was_changed() -> None:
    log = append(append((), "mw", "adjust", "BRK-4471"), "jt", "ship", "KO-61020")
    equal(first_broken(log), None)
    forged = (Entry("mw", "adjust", "BRK-4480", log[0].seal), log[1])
    equal(first_broken(forged), 0)
