"""Reports for the morning round: what is low, what lies too long, what the stock is worth."""

from __future__ import annotations

from stockroom.catalog import CATEGORIES, find_product
from stockroom.config import setting
from stockroom.money import format_cents
from stockroom.stock import StockLedger
from stockroom.suppliers import reorder_point, suppliers
from stockroom.textutil import plural, shorten, table


def low_stock(ledger: StockLedger) -> list[tuple[str, int, int]]:
    """(SKU, on hand, reorder point) of all that should be ordered, most urgent first."""
    rows = []
    for sku, level in ledger.snapshot().items():
        point = reorder_point(sku)
        if level <= point:
            rows.append((sku, level, point))
    return sorted(rows, key=lambda row: (row[1] - row[2], row[0]))


def valuation(ledger: StockLedger) -> dict[str, int]:
    """What the stock of each category cost, in cents, by the purchase share of the list price."""
    share = int(setting("store.sales.cost_percent"))
    values = dict.fromkeys(CATEGORIES, 0)
    for sku, level in ledger.snapshot().items():
        product = find_product(sku)
        values[product.category] += level * product.price * share // 100
    return values


def low_stock_text(ledger: StockLedger) -> str:
    """The list of what is low as a table."""
    rows = []
    for sku, level, point in low_stock(ledger):
        product = find_product(sku)
        supplier = suppliers()[product.supplier]
        rows.append([sku, shorten(product.name, 30), str(level), str(point), supplier.name])
    title = f"{plural(len(rows), 'article')} at or below the reorder point"
    return (
        title
        + "\n\n"
        + table(["SKU", "Article", "On hand", "Point", "Supplier"], rows, right=(2, 3))
    )


def valuation_text(ledger: StockLedger) -> str:
    """The value of the stock as a table with its sum."""
    values = valuation(ledger)
    rows = [[category, format_cents(value)] for category, value in values.items()]
    rows.append(["total", format_cents(sum(values.values()))])
    return table(["Category", "Value"], rows, right=(1,))


def movements_text(ledger: StockLedger, sku: str) -> str:
    """The history of one SKU as a table with a running level."""
    level = 0
    rows = []
    for movement in ledger.history(sku):
        level += movement.quantity
        rows.append([movement.kind, movement.location, f"{movement.quantity:+d}", str(level)])
    return table(["Kind", "Location", "Change", "Level"], rows, right=(2, 3))
