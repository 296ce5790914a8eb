"""A cart collects SKUs, holds stock for them and knows what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from stockroom.pricing import Quote, quote
from stockroom.reservations import ReservationBook
from stockroom.tax import TaxedTotal, tax_total
from stockroom.units import check_quantity


@dataclass
class Cart:
    """What one customer is about to buy."""

    id: str
    group: str = "retail"
    region: str = ""
    coupon: str = ""
    quantities: dict[str, int] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    "SKU to the ids of its reservations"

    def add(self, sku: str, quantity: int, book: ReservationBook, now: datetime) -> None:
        """Put pieces into the cart and hold stock for them."""
        check_quantity(quantity)
        trade = self.group == "trade"
        reservation = book.reserve_stock(sku, quantity, self.id, now, trade)
        self.quantities[reservation.sku] = self.quantities.get(reservation.sku, 0) + quantity
        self.held.setdefault(reservation.sku, []).append(reservation.id)

    def remove(self, sku: str, book: ReservationBook) -> None:
        """Take a SKU out of the cart and give its stock back."""
        for reservation_id in self.held.pop(sku, []):
            if reservation_id in book.entries:
                book.release(reservation_id)
        self.quantities.pop(sku, None)

    def touch(self, book: ReservationBook, now: datetime) -> None:
        """Renew every reservation, as each step of the checkout does."""
        for ids in self.held.values():
            for reservation_id in ids:
                book.extend(reservation_id, now, self.group == "trade")

    def merge(self, other: Cart) -> None:
        """Take over what another cart of the same customer holds, for instance after a login."""
        for sku, quantity in other.quantities.items():
            self.quantities[sku] = self.quantities.get(sku, 0) + quantity
        for sku, ids in other.held.items():
            self.held.setdefault(sku, []).extend(ids)
        other.quantities.clear()
        other.held.clear()

    def price(self) -> Quote:
        """The quote for all that is in the cart."""
        return quote(self.quantities, self.group, self.coupon)

    def total(self) -> TaxedTotal:
        """The quote with its tax."""
        amounts = [(line.category, line.net) for line in self.price().lines]
        return tax_total(amounts, self.region or None)

    def pieces(self) -> int:
        """How many pieces are in the cart."""
        return sum(self.quantities.values())
