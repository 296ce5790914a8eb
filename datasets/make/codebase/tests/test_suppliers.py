"""Orders to suppliers come in time and in full packs."""

from datetime import date

from stockroom.stock import StockLedger
from stockroom.suppliers import expected, propose, proposals, reorder_point
from tests.check import equal


def test_the_point_covers_lead_time_and_safety_days() -> None:
    equal(reorder_point("BRK-4471"), 37)
    equal(reorder_point("TYR-2208"), 27)


def test_nothing_is_ordered_above_the_point() -> None:
    equal(propose("TYR-2208", 28), None)


def test_at_the_point_an_order_is_due() -> None:
    proposal = propose("TYR-2208", 27)
    equal(proposal is not None, True)


def test_packs_are_rounded_up() -> None:
    proposal = propose("BRK-4471", 26)
    assert proposal is not None
    equal(proposal.pieces % proposal.packs, 0)
    equal(proposal.pieces >= 37 + 82 - 26, True)
    equal((proposal.pieces, proposal.packs), (95, 19))


def test_a_small_order_waits_for_the_minimum() -> None:
    ledger = StockLedger.opening()
    equal(all(p.cost > 0 for p in proposals("kopfgut", ledger)), True)


def test_deliveries_are_expected_on_working_days() -> None:
    equal(expected("gummiwerk", date(2025, 10, 28)), date(2025, 11, 4))
