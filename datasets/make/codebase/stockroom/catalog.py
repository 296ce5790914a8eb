"""The catalogue is data/products.csv, read once; a SKU is the only key of a product.

A SKU is three letters for the kind of part, a hyphen and four digits: ``BRK-4471``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from stockroom.config import data_rows
from stockroom.errors import StockroomError

SKU = re.compile(r"[A-Z]{3}-\d{4}")

CATEGORIES = (
    "brakes",
    "drivetrain",
    "wheels",
    "tyres",
    "lighting",
    "tools",
    "helmets",
    "clothing",
    "care",
)


@dataclass(frozen=True)
class Product:
    """One row of the catalogue."""

    sku: str
    name: str
    category: str
    price: int
    "net list price in cents"
    weight: int
    "grams of one piece, packed"
    pack: int
    "pieces in a supplier's box"
    supplier: str
    active: bool = True


@cache
def products() -> dict[str, Product]:
    """All products by SKU in the order of the file."""
    found: dict[str, Product] = {}
    for row in data_rows("products.csv"):
        product = Product(
            sku=row["sku"],
            name=row["name"],
            category=row["category"],
            price=int(row["price_cents"]),
            weight=int(row["weight_g"]),
            pack=int(row["pack"]),
            supplier=row["supplier"],
            active=row["status"] != "discontinued",
        )
        found[product.sku] = product
    return found


def find_product(sku: str) -> Product:
    """The product with this SKU; small letters and blanks around it are forgiven."""
    key = sku.strip().upper()
    if not SKU.fullmatch(key) or key not in products():
        raise StockroomError("E_CAT_004", sku=sku)
    return products()[key]


def sellable(sku: str) -> Product:
    """The product with this SKU if it may still be sold."""
    product = find_product(sku)
    if not product.active:
        raise StockroomError("E_CAT_007", sku=product.sku)
    return product


def by_category(category: str) -> list[Product]:
    """The active products of a category, cheapest first."""
    chosen = [p for p in products().values() if p.category == category and p.active]
    return sorted(chosen, key=lambda p: (p.price, p.sku))


def by_supplier(supplier: str) -> list[Product]:
    """The active products that one supplier delivers, by SKU."""
    chosen = [p for p in products().values() if p.supplier == supplier and p.active]
    return sorted(chosen, key=lambda p: p.sku)
