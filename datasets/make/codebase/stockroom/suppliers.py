"""When to order again, and how much: enough for the lead time and the safety days, in full packs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cache

from stockroom.catalog import by_supplier, find_product
from stockroom.config import data_rows, setting
from stockroom.stock import StockLedger
from stockroom.units import packs_needed, pieces_in_packs
from stockroom.workdays import add_workdays


@dataclass(frozen=True)
class Supplier:
    """Who delivers, how fast, and from which value on."""

    id: str
    name: str
    lead_days: int
    "working days from order to delivery"
    minimum: int
    "cents that an order must reach"


@dataclass(frozen=True)
class Proposal:
    """What should be ordered of one SKU."""

    sku: str
    pieces: int
    packs: int
    cost: int


@cache
def suppliers() -> dict[str, Supplier]:
    """All suppliers by their id."""
    return {
        row["id"]: Supplier(row["id"], row["name"], int(row["lead_days"]), int(row["minimum"]))
        for row in data_rows("suppliers.csv")
    }


def daily_sales(sku: str) -> int:
    """Pieces sold on a working day, in hundredths; the default where no figure is known."""
    figures = setting("store.sales.per_day_hundredths")
    return int(figures.get(sku, setting("store.sales.default_hundredths")))


def reorder_point(sku: str) -> int:
    """Stock at which to order again: sales over lead time and safety days, rounded up."""
    lead = suppliers()[find_product(sku).supplier].lead_days
    days = lead + int(setting("store.sales.safety_days"))
    return -(-daily_sales(sku) * days // 100)


def propose(sku: str, on_hand: int) -> Proposal | None:
    """How much to order of a SKU, or nothing while its stock is above the reorder point."""
    point = reorder_point(sku)
    if on_hand > point:
        return None
    cover = int(setting("store.sales.cover_days"))
    target = point + -(-daily_sales(sku) * cover // 100)
    packs = packs_needed(sku, target - on_hand)
    pieces = pieces_in_packs(sku, packs)
    cost = pieces * find_product(sku).price * int(setting("store.sales.cost_percent")) // 100
    return Proposal(sku, pieces, packs, cost)


def proposals(supplier: str, ledger: StockLedger) -> list[Proposal]:
    """What to order from a supplier; nothing while the sum stays below his minimum."""
    found = [propose(p.sku, ledger.on_hand(p.sku)) for p in by_supplier(supplier)]
    wanted = [proposal for proposal in found if proposal is not None]
    total = sum(proposal.cost for proposal in wanted)
    return wanted if total >= suppliers()[supplier].minimum else []


def expected(supplier: str, ordered: date) -> date:
    """The day on which an order should be at the ramp."""
    return add_workdays(ordered, suppliers()[supplier].lead_days)
