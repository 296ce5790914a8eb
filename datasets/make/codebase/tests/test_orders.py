"""Orders take allowed steps only; carts hold what they show."""

from datetime import date, datetime, timedelta

from stockroom.cart import Cart
from stockroom.orders import find_order, orders_of
from stockroom.reservations import ReservationBook
from stockroom.stock import StockLedger
from tests.check import equal, refused

NOON = datetime(2025, 10, 6, 12, 0)


def test_a_shipped_order_can_be_delivered() -> None:
    order = find_order("KO-61033").advance("delivered", date(2025, 10, 20))
    equal((order.state, order.delivered), ("delivered", date(2025, 10, 20)))


def test_a_delivered_order_cannot_be_cancelled() -> None:
    refused("E_ORD_050", find_order("KO-61007").advance, "cancelled", date(2025, 10, 20))


def test_unknown_numbers_are_refused() -> None:
    refused("E_ORD_052", find_order, "KO-1")


def test_the_latest_order_comes_first() -> None:
    days = [order.placed for order in orders_of("C-1077")]
    equal(days, sorted(days, reverse=True))


def test_a_cart_holds_stock_and_gives_it_back() -> None:
    book, cart = ReservationBook(StockLedger.opening()), Cart("cart-9")
    cart.add("BRK-4471", 4, book, NOON)
    equal(book.free_stock("BRK-4471", NOON), 16)
    cart.remove("BRK-4471", book)
    equal((book.free_stock("BRK-4471", NOON), cart.pieces()), (20, 0))


def test_the_checkout_renews_what_a_cart_holds() -> None:
    book, cart = ReservationBook(StockLedger.opening()), Cart("cart-9")
    cart.add("BRK-4471", 4, book, NOON)
    cart.touch(book, NOON + timedelta(minutes=20))
    equal(book.free_stock("BRK-4471", NOON + timedelta(minutes=40)), 16)


def test_a_cart_shows_its_tax() -> None:
    book, cart = ReservationBook(StockLedger.opening()), Cart("cart-9", group="club")
    cart.add("BRK-4471", 5, book, NOON)
    equal((cart.price().net, cart.total().gross), (5483, 6525))
