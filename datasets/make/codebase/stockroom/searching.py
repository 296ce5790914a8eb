"""The search box of the shop: folded words, whole words before beginnings, ties by SKU."""

from __future__ import annotations

from dataclasses import dataclass

from stockroom.catalog import Product, products
from stockroom.config import setting
from stockroom.textutil import fold, words


@dataclass(frozen=True)
class Hit:
    """A product with the score that it earned."""

    product: Product
    score: int


def score(product: Product, wanted: list[str]) -> int:
    """Points of a product for the words of a query; zero where one of them is nowhere.

    A whole word of the name counts ``word``, the beginning of one ``prefix``, the category
    ``category``; an exact SKU beats everything.
    """
    points = setting("store.search")
    names = words(product.name)
    total = 0
    for word in wanted:
        if word in names:
            total += int(points["word"])
        elif any(name.startswith(word) for name in names):
            total += int(points["prefix"])
        elif fold(product.category).startswith(word):
            total += int(points["category"])
        else:
            return 0
    return total


def search_products(query: str, limit: int = 10) -> list[Hit]:
    """The best products for a query, best first; equal scores are ordered by SKU."""
    key = query.strip().upper()
    if key in products():
        return [Hit(products()[key], int(setting("store.search.exact")))]
    wanted = expand(words(query))
    hits = [Hit(p, score(p, wanted)) for p in products().values() if p.active]
    found = sorted((h for h in hits if h.score), key=lambda h: (-h.score, h.product.sku))
    return found[:limit]


def expand(wanted: list[str]) -> list[str]:
    """The words of a query with the shop's synonyms put in their place."""
    synonyms: dict[str, str] = setting("store.search.synonyms")
    return [synonyms.get(word, word) for word in wanted]


def suggest(prefix: str, limit: int = 5) -> list[str]:
    """Words of product names that begin like this, the most frequent first."""
    start = fold(prefix)
    counts: dict[str, int] = {}
    for product in products().values():
        for word in set(words(product.name)):
            if product.active and word.startswith(start):
                counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: (-counts[word], word))[:limit]
