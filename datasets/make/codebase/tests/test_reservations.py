"""A reservation holds stock for its time and not a minute longer."""

from datetime import datetime, timedelta

from stockroom.reservations import ReservationBook, hold_time
from stockroom.stock import StockLedger
from tests.check import equal, refused

NOON = datetime(2025, 10, 6, 12, 0)
PADS = "BRK-4471"


def book() -> ReservationBook:
    """A book over the opening stock."""
    return ReservationBook(StockLedger.opening())


def test_safety_stock_is_not_promised() -> None:
    equal(book().free_stock(PADS, NOON), 26 - 6)


def test_a_reservation_takes_from_what_is_free() -> None:
    b = book()
    b.reserve_stock(PADS, 8, "cart-1", NOON)
    equal(b.free_stock(PADS, NOON), 12)


def test_more_than_is_free_is_refused() -> None:
    b = book()
    b.reserve_stock(PADS, 15, "cart-1", NOON)
    refused("E_RES_031", b.reserve_stock, PADS, 6, "cart-2", NOON)


def test_an_expired_reservation_holds_nothing() -> None:
    b = book()
    b.reserve_stock(PADS, 15, "cart-1", NOON)
    later = NOON + timedelta(minutes=25)
    equal(b.free_stock(PADS, later), 20)
    equal(b.purge_expired(later), ["R00001"])


def test_the_last_minute_still_counts() -> None:
    b = book()
    b.reserve_stock(PADS, 15, "cart-1", NOON)
    equal(b.free_stock(PADS, NOON + timedelta(minutes=24)), 5)


def test_trade_customers_hold_longer() -> None:
    equal(hold_time(True), timedelta(minutes=180))
    equal(hold_time(False), timedelta(minutes=25))


def test_extending_starts_the_time_anew() -> None:
    b = book()
    r = b.reserve_stock(PADS, 2, "cart-1", NOON)
    renewed = b.extend(r.id, NOON + timedelta(minutes=20))
    equal(renewed.expires, NOON + timedelta(minutes=45))


def test_an_expired_reservation_cannot_be_extended() -> None:
    b = book()
    r = b.reserve_stock(PADS, 2, "cart-1", NOON)
    refused("E_RES_033", b.extend, r.id, NOON + timedelta(hours=1))


def test_a_fulfilled_reservation_leaves_the_ledger() -> None:
    b = book()
    r = b.reserve_stock(PADS, 2, "cart-1", NOON)
    b.fulfil(r.id, "HALL-A", NOON + timedelta(minutes=5))
    equal(b.ledger.on_hand(PADS), 24)
    equal(b.entries, {})
