"""Goods may come back within a window that starts on the day of delivery.

Window and restocking fee belong to the category (config/returns.toml). A piece that was faulty
comes back without a fee and for a longer time; opened care products do not come back at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from stockroom.catalog import find_product
from stockroom.config import setting
from stockroom.errors import StockroomError
from stockroom.money import percent
from stockroom.orders import Order
from stockroom.pricing import quote


@dataclass(frozen=True)
class ReturnCase:
    """An accepted return and what is paid back for it before tax."""

    number: str
    order: str
    sku: str
    quantity: int
    refund: int
    fee: int
    faulty: bool


def window_days(category: str, faulty: bool) -> int:
    """Days that a customer has, counted from the delivery."""
    if faulty:
        return int(setting("returns.faulty_days"))
    return int(setting("returns.window_days").get(category, setting("returns.default_days")))


def last_day(order: Order, category: str, faulty: bool = False) -> date:
    """The last day on which a return is accepted; an undelivered order has all its time."""
    start = order.delivered or order.placed + timedelta(days=int(setting("returns.grace_days")))
    return start + timedelta(days=window_days(category, faulty))


def restocking_fee(category: str, paid: int, faulty: bool) -> int:
    """Cents kept back for checking and shelving; nothing for faulty goods."""
    if faulty:
        return 0
    points = int(setting("returns.fee_points").get(category, 0))
    return min(percent(paid, points), int(setting("returns.fee_cap")))


def open_return(
    order: Order, sku: str, quantity: int, on: date, faulty: bool = False, serial: int = 1
) -> ReturnCase:
    """Accept a return, or refuse it with E_RET_064 or E_RET_066."""
    product = find_product(sku)
    if product.category in setting("returns.excluded") and not faulty:
        raise StockroomError("E_RET_066", sku=product.sku, category=product.category)
    until = last_day(order, product.category, faulty)
    if on > until:
        raise StockroomError("E_RET_064", order=order.number, until=until)
    bought = order.quantities.get(product.sku, 0)
    if not 0 < quantity <= bought:
        raise StockroomError("E_PRC_022", quantity=quantity, bought=bought)
    paid = paid_share(order, product.sku, quantity)
    fee = restocking_fee(product.category, paid, faulty)
    return ReturnCase(
        number=f"RMA-{on.year % 100:02d}{on.month:02d}-{serial:04d}",
        order=order.number,
        sku=product.sku,
        quantity=quantity,
        refund=paid - fee,
        fee=fee,
        faulty=faulty,
    )


def paid_share(order: Order, sku: str, quantity: int) -> int:
    """What was really paid for some pieces of a line, discounts and coupon included."""
    priced = quote(order.quantities, order.group, order.coupon, order.placed)
    line = next(line for line in priced.lines if line.sku == sku)
    return line.net * quantity // line.quantity
