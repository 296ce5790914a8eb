"""An order moves through states along allowed steps only, and remembers when it took them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache

from stockroom.config import data_rows
from stockroom.errors import StockroomError

STEPS: dict[str, tuple[str, ...]] = {
    "placed": ("paid", "cancelled"),
    "paid": ("picked", "cancelled"),
    "picked": ("shipped", "paid"),
    "shipped": ("delivered", "lost"),
    "delivered": ("returned",),
    "lost": ("paid", "cancelled"),
    "returned": (),
    "cancelled": (),
}


@dataclass(frozen=True)
class Order:
    """One order with its lines and the day of each step."""

    number: str
    customer: str
    group: str
    region: str
    postcode: str
    placed: date
    state: str
    quantities: dict[str, int] = field(default_factory=dict)
    days: dict[str, date] = field(default_factory=dict)
    "state to the day on which the order came into it"
    coupon: str = ""

    def advance(self, state: str, on: date) -> Order:
        """The order in its next state; E_ORD_050 where the step is not allowed."""
        if state not in STEPS[self.state]:
            raise StockroomError("E_ORD_050", order=self.number, now=self.state, wanted=state)
        return replace(self, state=state, days={**self.days, state: on})

    @property
    def delivered(self) -> date | None:
        """The day of delivery, where there was one."""
        return self.days.get("delivered")

    @property
    def open(self) -> bool:
        """Whether something is still to happen."""
        return bool(STEPS[self.state]) and self.state != "delivered"


@cache
def orders() -> dict[str, Order]:
    """The orders of data/orders.csv by number; a row of the file is one line of an order."""
    found: dict[str, Order] = {}
    for row in data_rows("orders.csv"):
        number = row["order"]
        if number not in found:
            days = {"placed": date.fromisoformat(row["placed"])}
            if row["delivered"]:
                days["delivered"] = date.fromisoformat(row["delivered"])
            found[number] = Order(
                number=number,
                customer=row["customer"],
                group=row["group"],
                region=row["region"],
                postcode=row["postcode"],
                placed=days["placed"],
                state=row["state"],
                days=days,
                coupon=row["coupon"],
            )
        found[number].quantities[row["sku"]] = int(row["quantity"])
    return found


def find_order(number: str) -> Order:
    """The order with this number or a refusal with E_ORD_052."""
    key = number.strip().upper()
    if key not in orders():
        raise StockroomError("E_ORD_052", order=number)
    return orders()[key]


def orders_of(customer: str) -> list[Order]:
    """The orders of a customer, latest first."""
    mine = [order for order in orders().values() if order.customer == customer]
    return sorted(mine, key=lambda order: (order.placed, order.number), reverse=True)
