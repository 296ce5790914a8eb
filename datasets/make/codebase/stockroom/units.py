"""Pieces, packs and grams: conversions that round in the direction that is safe."""

from __future__ import annotations

from stockroom.catalog import find_product
from stockroom.errors import StockroomError

CARTON_TARE_G = 180
MAX_PIECES_PER_CARTON = 24


def check_quantity(quantity: int) -> int:
    """The quantity itself if it is a positive whole number."""
    if isinstance(quantity, bool) or not isinstance(quantity, int) or quantity <= 0:
        raise StockroomError("E_PRC_022", quantity=quantity)
    return quantity


def packs_needed(sku: str, pieces: int) -> int:
    """How many full packs hold at least this many pieces."""
    pack = find_product(sku).pack
    return -(-pieces // pack)


def pieces_in_packs(sku: str, packs: int) -> int:
    """How many pieces a number of full packs holds."""
    return packs * find_product(sku).pack


def cartons_for(quantities: dict[str, int]) -> int:
    """Cartons that a mixed parcel needs; an empty parcel needs none."""
    pieces = sum(quantities.values())
    return -(-pieces // MAX_PIECES_PER_CARTON)


def parcel_weight(quantities: dict[str, int]) -> int:
    """Grams of a parcel: the goods and the cartons around them."""
    goods = sum(find_product(sku).weight * count for sku, count in quantities.items())
    return goods + cartons_for(quantities) * CARTON_TARE_G


def kilograms(grams: int) -> str:
    """Grams as kilograms with three decimals, as carriers want them."""
    return f"{grams // 1000}.{grams % 1000:03d} kg"
