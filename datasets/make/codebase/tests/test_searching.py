"""The search box forgives accents and keeps its order."""

from stockroom.searching import search_products, suggest
from stockroom.textutil import fold, slug
from tests.check import equal


def skus(query: str) -> list[str]:
    """The SKUs that a query finds, best first."""
    return [hit.product.sku for hit in search_products(query)]


def test_accents_do_not_matter() -> None:
    equal(skus("mowe"), skus("Möwe"))
    equal(skus("elan"), ["BRK-4419"])


def test_letters_that_do_not_decompose_are_folded_too() -> None:
    equal(fold("Løkken Straße"), "lokken strasse")
    equal(len(skus("lokken")), 3)


def test_an_exact_sku_stands_alone() -> None:
    equal(skus("brk-4471"), ["BRK-4471"])


def test_whole_words_come_before_beginnings() -> None:
    equal(skus("komet")[0], "LGT-3015")


def test_ties_are_ordered_by_sku() -> None:
    equal(skus("disc brake pads talon"), ["BRK-4471", "BRK-4480"])
    equal(skus("helmet m"), sorted(skus("helmet m")[:2]) + skus("helmet m")[2:])


def test_every_word_must_be_somewhere() -> None:
    equal(skus("helmet chain"), [])


def test_synonyms_are_understood() -> None:
    equal(skus("winter tire"), skus("winter tyre"))


def test_discontinued_products_are_not_offered() -> None:
    equal("DRV-1155" in skus("cable"), False)


def test_suggestions_are_frequent_words() -> None:
    equal(suggest("ch", 2), ["chain", "children"])


def test_slugs_are_plain() -> None:
    equal(slug("Gravel tyre Düne 45-622"), "gravel-tyre-dune-45-622")
