"""A price is the list price, less the tier discount, less the group discount, less a coupon.

The discounts follow each other in this order and each is rounded on its own, as the price
list in docs/pricing-rules.md promises. Every amount is net and in cents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from stockroom.catalog import sellable
from stockroom.config import setting
from stockroom.errors import StockroomError
from stockroom.money import allocate, percent
from stockroom.units import check_quantity

GROUPS = ("retail", "club", "trade")


@dataclass(frozen=True)
class QuoteLine:
    """One SKU in a quote."""

    sku: str
    quantity: int
    list_total: int
    discount: int
    category: str

    @property
    def net(self) -> int:
        """What the customer pays for the line before tax."""
        return self.list_total - self.discount


@dataclass(frozen=True)
class Quote:
    """Lines with the coupon already spread over them."""

    lines: tuple[QuoteLine, ...]
    coupon: str = ""

    @property
    def net(self) -> int:
        """The sum of the lines before tax."""
        return sum(line.net for line in self.lines)


def tier_discount(quantity: int) -> int:
    """Basis points off for a quantity: the highest tier that it reaches."""
    tiers = setting("store.pricing.tiers")
    reached = [int(tier["off"]) for tier in tiers if quantity >= int(tier["from"])]
    return max(reached, default=0)


def group_discount(group: str, category: str) -> int:
    """Basis points off for a customer group; some categories are excluded."""
    if group not in GROUPS:
        raise ValueError(f"unknown customer group {group!r}")
    if category in setting("store.pricing.no_group_discount"):
        return 0
    return int(setting("store.pricing.groups").get(group, 0))


def quote_line(sku: str, quantity: int, group: str = "retail") -> QuoteLine:
    """The price of one SKU before any coupon."""
    product = sellable(sku)
    check_quantity(quantity)
    list_total = product.price * quantity
    tier = percent(list_total, tier_discount(quantity))
    group_off = percent(list_total - tier, group_discount(group, product.category))
    return QuoteLine(product.sku, quantity, list_total, tier + group_off, product.category)


def quote(
    quantities: Mapping[str, int], group: str = "retail", coupon: str = "", on: date | None = None
) -> Quote:
    """The price of several SKUs; a coupon is spread over the lines by their net value."""
    lines = [quote_line(sku, quantity, group) for sku, quantity in quantities.items()]
    if not coupon or not lines:
        return Quote(tuple(lines))
    off = coupon_value(coupon, sum(line.net for line in lines), on)
    shares = allocate(off, [line.net for line in lines])
    spread = [
        QuoteLine(line.sku, line.quantity, line.list_total, line.discount + share, line.category)
        for line, share in zip(lines, shares, strict=True)
    ]
    return Quote(tuple(spread), coupon)


def coupon_value(code: str, net: int, on: date | None = None) -> int:
    """Cents off for a coupon, or a refusal with E_PRC_020."""
    coupon = setting("store.coupons").get(code)
    if coupon is None:
        raise StockroomError("E_PRC_020", coupon=code)
    if net < int(coupon.get("min_net", 0)):
        raise StockroomError("E_PRC_020", coupon=code, needed=coupon["min_net"], net=net)
    if on is not None and on > coupon.get("until", on):
        raise StockroomError("E_PRC_020", coupon=code, until=coupon["until"])
    if "percent" in coupon:
        return percent(net, int(coupon["percent"]) * 100)
    return min(net, int(coupon["cents"]))
