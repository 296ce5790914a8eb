"""Stock is the sum of its movements; a level is never stored, so it can never disagree.

A movement has a kind, a SKU, a location and a signed quantity. The opening stock comes from
data/stock.csv as movements of the kind ``opening``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stockroom.catalog import find_product
from stockroom.config import data_rows, setting
from stockroom.errors import StockroomError
from stockroom.units import check_quantity

KINDS = ("opening", "receipt", "shipment", "adjustment", "transfer", "return")


@dataclass(frozen=True)
class Movement:
    """One change of the stock of a SKU at a location."""

    kind: str
    sku: str
    location: str
    quantity: int
    reference: str = ""
    "the order, delivery or count that caused it"


class StockLedger:
    """The movements of all locations, in the order in which they were booked."""

    def __init__(self, movements: Iterable[Movement] = ()) -> None:
        self.movements: list[Movement] = list(movements)
        self.locations: tuple[str, ...] = tuple(setting("store.locations.names"))

    @classmethod
    def opening(cls) -> StockLedger:
        """The ledger at the start of the day, from data/stock.csv."""
        return cls(
            Movement("opening", row["sku"], row["location"], int(row["on_hand"]), "stock.csv")
            for row in data_rows("stock.csv")
        )

    def on_hand(self, sku: str, location: str | None = None) -> int:
        """Pieces that are physically there, at one location or at all of them."""
        if location is not None:
            self._check_location(location)
        return sum(
            m.quantity
            for m in self.movements
            if m.sku == sku and (location is None or m.location == location)
        )

    def receive(self, sku: str, location: str, quantity: int, reference: str = "") -> None:
        """Book a delivery from a supplier."""
        self._book("receipt", sku, location, check_quantity(quantity), reference)

    def ship(self, sku: str, location: str, quantity: int, reference: str = "") -> None:
        """Book goods out to a customer; what is not there cannot leave."""
        check_quantity(quantity)
        there = self.on_hand(sku, location)
        if quantity > there:
            raise StockroomError("E_STOCK_011", sku=sku, wanted=quantity, on_hand=there)
        self._book("shipment", sku, location, -quantity, reference)

    def adjust(self, sku: str, location: str, counted: int, reference: str) -> int:
        """Book the difference between a count and the ledger; returns that difference."""
        difference = counted - self.on_hand(sku, location)
        if difference:
            self._book("adjustment", sku, location, difference, reference)
        return difference

    def transfer(self, sku: str, source: str, target: str, quantity: int) -> None:
        """Move pieces between two locations; the sum over all locations stays the same."""
        self._check_location(target)
        there = self.on_hand(sku, source)
        if check_quantity(quantity) > there:
            raise StockroomError("E_STOCK_011", sku=sku, wanted=quantity, on_hand=there)
        self._book("transfer", sku, source, -quantity, f"to {target}")
        self._book("transfer", sku, target, quantity, f"from {source}")

    def take_back(self, sku: str, location: str, quantity: int, reference: str) -> None:
        """Book returned goods that can be sold again."""
        self._book("return", sku, location, check_quantity(quantity), reference)

    def history(self, sku: str) -> list[Movement]:
        """The movements of one SKU, oldest first."""
        return [m for m in self.movements if m.sku == sku]

    def snapshot(self) -> dict[str, int]:
        """Pieces on hand by SKU over all locations; SKUs without stock are left out."""
        levels: dict[str, int] = {}
        for movement in self.movements:
            levels[movement.sku] = levels.get(movement.sku, 0) + movement.quantity
        return {sku: level for sku, level in sorted(levels.items()) if level}

    def _book(self, kind: str, sku: str, location: str, quantity: int, reference: str) -> None:
        self._check_location(location)
        find_product(sku)
        self.movements.append(Movement(kind, sku, location, quantity, reference))

    def _check_location(self, location: str) -> None:
        if location not in self.locations:
            raise StockroomError("E_STOCK_014", location=location)
