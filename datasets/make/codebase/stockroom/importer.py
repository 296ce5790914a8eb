"""Price lists come from suppliers in their own dialects; one reader understands them all.

Columns are found by any of their known names, fields may be quoted, the separator is guessed
from the header. A row that cannot be read is reported with its number and skipped; the rest
is imported.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from stockroom.catalog import SKU, products
from stockroom.errors import StockroomError
from stockroom.money import parse_amount

ALIASES: dict[str, tuple[str, ...]] = {
    "sku": ("sku", "article", "artikelnummer", "item_no", "ref"),
    "price": ("price", "preis", "net_price", "ek", "unit_price"),
    "pack": ("pack", "pack_size", "ve", "moq"),
}
SEPARATORS = (";", "\t", ",")


@dataclass(frozen=True)
class PriceRow:
    """One price as the supplier announces it."""

    sku: str
    price: int
    pack: int


@dataclass(frozen=True)
class Import:
    """What was read of a file and what was not."""

    rows: tuple[PriceRow, ...]
    problems: tuple[str, ...]


def guess_separator(header: str) -> str:
    """The separator that cuts the header into most columns."""
    return max(SEPARATORS, key=header.count)


def columns(header: list[str]) -> dict[str, int]:
    """Where each column that is needed stands; E_IMP_072 where one is missing."""
    names = [name.strip().strip("\ufeff").lower().replace(" ", "_") for name in header]
    found: dict[str, int] = {}
    for column, aliases in ALIASES.items():
        for alias in aliases:
            if alias in names:
                found[column] = names.index(alias)
                break
        else:
            raise StockroomError("E_IMP_072", column=column)
    return found


def read_prices(text: str) -> Import:
    """The prices of a supplier's file."""
    lines = [line for line in text.splitlines() if line.strip()]
    separator = guess_separator(lines[0])
    table = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    where = columns(table[0])
    rows: list[PriceRow] = []
    problems: list[str] = []
    for number, cells in enumerate(table[1:], start=2):
        try:
            rows.append(read_row(cells, where))
        except (ValueError, IndexError):
            shown = separator.join(cells)
            problems.append(str(StockroomError("E_IMP_070", line=number, row=shown)))
    return Import(tuple(rows), tuple(problems))


def read_row(cells: list[str], where: dict[str, int]) -> PriceRow:
    """One row; ``ValueError`` or ``IndexError`` where it cannot be read."""
    sku = cells[where["sku"]].strip().upper()
    if not SKU.fullmatch(sku):
        raise ValueError(f"not a SKU: {sku!r}")
    price = parse_amount(cells[where["price"]])
    pack = int(cells[where["pack"]].strip() or "1")
    if price <= 0 or pack <= 0:
        raise ValueError("price and pack must be positive")
    return PriceRow(sku, price, pack)


def changes(imported: Import) -> list[tuple[str, int, int]]:
    """(SKU, old price, new price) of each known product whose price moves, largest move first."""
    known = products()
    moved = [
        (row.sku, known[row.sku].price, row.price)
        for row in imported.rows
        if row.sku in known and known[row.sku].price != row.price
    ]
    return sorted(moved, key=lambda change: (-abs(change[2] - change[1]), change[0]))
