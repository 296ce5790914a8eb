"""Every supplier's dialect is read, and what cannot be read is reported."""

from stockroom.config import DATA
from stockroom.importer import changes, columns, guess_separator, read_prices
from tests.check import equal, refused


def imported(name: str):  # type: ignore[no-untyped-def]
    """A supplier's file from the data folder."""
    return read_prices((DATA / name).read_text(encoding="utf-8"))


def test_the_separator_is_guessed_from_the_header() -> None:
    equal(guess_separator("Artikelnummer;Bezeichnung;EK;VE"), ";")
    equal(guess_separator("ref,name,unit_price,pack_size"), ",")


def test_columns_are_found_by_any_name() -> None:
    equal(columns(["VE", "x", "Preis", "Ref"]), {"sku": 3, "price": 2, "pack": 0})


def test_a_missing_column_is_refused() -> None:
    refused("E_IMP_072", columns, ["sku", "price"])


def test_a_separator_inside_quotes_does_not_cut() -> None:
    rows = {row.sku: row for row in imported("bremsol-2025-11.txt").rows}
    equal(rows["BRK-4471"].price, 1240)


def test_small_letters_in_a_sku_are_forgiven() -> None:
    skus = [row.sku for row in imported("bremsol-2025-11.txt").rows]
    equal("BRK-4409" in skus, True)


def test_an_empty_pack_means_one() -> None:
    rows = {row.sku: row for row in imported("bremsol-2025-11.txt").rows}
    equal(rows["CAR-8003"].pack, 1)


def test_bad_rows_are_counted_and_skipped() -> None:
    equal(len(imported("bremsol-2025-11.txt").problems), 2)
    equal(len(imported("gummiwerk-q4.txt").problems), 1)


def test_the_largest_move_comes_first() -> None:
    equal(changes(imported("gummiwerk-q4.txt"))[0], ("TYR-2231", 3990, 103990))


def test_a_price_that_stays_is_no_change() -> None:
    skus = [sku for sku, _, _ in changes(imported("bremsol-2025-11.txt"))]
    equal("BRK-4446" in skus, False)
