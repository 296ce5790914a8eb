"""A reservation holds stock for a cart for a while; when the time is over, it counts no more.

How long is ``store.reservation.hold_minutes``; trade customers get ``trade_hold_minutes``. Free
stock is what is on hand less what live reservations hold, less the safety stock of the shop.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from stockroom.catalog import sellable
from stockroom.config import setting
from stockroom.errors import StockroomError
from stockroom.stock import StockLedger
from stockroom.units import check_quantity


@dataclass(frozen=True)
class Reservation:
    """Pieces of one SKU held for one cart."""

    id: str
    sku: str
    quantity: int
    cart: str
    expires: datetime

    def live(self, now: datetime) -> bool:
        """Whether it still holds stock; at the very minute of its end it no longer does."""
        return now < self.expires


class ReservationBook:
    """All reservations over one ledger."""

    def __init__(self, ledger: StockLedger) -> None:
        self.ledger = ledger
        self.entries: dict[str, Reservation] = {}
        self._next = 1

    def held(self, sku: str, now: datetime) -> int:
        """Pieces that live reservations hold."""
        return sum(r.quantity for r in self.entries.values() if r.sku == sku and r.live(now))

    def free_stock(self, sku: str, now: datetime) -> int:
        """Pieces that may still be promised; never below zero."""
        safety = safety_stock(sku)
        return max(0, self.ledger.on_hand(sku) - self.held(sku, now) - safety)

    def reserve_stock(
        self, sku: str, quantity: int, cart: str, now: datetime, trade: bool = False
    ) -> Reservation:
        """Hold pieces for a cart or refuse with E_RES_031."""
        product = sellable(sku)
        check_quantity(quantity)
        free = self.free_stock(product.sku, now)
        if quantity > free:
            raise StockroomError("E_RES_031", sku=product.sku, wanted=quantity, free=free)
        reservation = Reservation(
            id=f"R{self._next:05d}",
            sku=product.sku,
            quantity=quantity,
            cart=cart,
            expires=now + hold_time(trade),
        )
        self._next += 1
        self.entries[reservation.id] = reservation
        return reservation

    def extend(self, reservation_id: str, now: datetime, trade: bool = False) -> Reservation:
        """Start the time of a live reservation anew, as the checkout does on each step."""
        current = self.entries.get(reservation_id)
        if current is None or not current.live(now):
            raise StockroomError("E_RES_033", reservation=reservation_id)
        renewed = Reservation(
            current.id, current.sku, current.quantity, current.cart, now + hold_time(trade)
        )
        self.entries[reservation_id] = renewed
        return renewed

    def release(self, reservation_id: str) -> None:
        """Give a reservation up before its time."""
        if self.entries.pop(reservation_id, None) is None:
            raise StockroomError("E_RES_033", reservation=reservation_id)

    def purge_expired(self, now: datetime) -> list[str]:
        """Forget reservations whose time is over; returns their ids."""
        over = [r.id for r in self.entries.values() if not r.live(now)]
        for reservation_id in over:
            del self.entries[reservation_id]
        return over

    def fulfil(self, reservation_id: str, location: str, now: datetime) -> None:
        """Turn a live reservation into a shipment."""
        current = self.entries.get(reservation_id)
        if current is None or not current.live(now):
            raise StockroomError("E_RES_033", reservation=reservation_id)
        self.ledger.ship(current.sku, location, current.quantity, current.cart)
        del self.entries[reservation_id]


def hold_time(trade: bool) -> timedelta:
    """How long a reservation holds."""
    key = "trade_hold_minutes" if trade else "hold_minutes"
    return timedelta(minutes=int(setting(f"store.reservation.{key}")))


def safety_stock(sku: str) -> int:
    """Pieces of a SKU that are kept back for the shop counter."""
    exceptions = setting("store.safety.by_sku")
    return int(exceptions.get(sku, setting("store.safety.default")))
