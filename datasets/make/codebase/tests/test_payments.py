"""Payments find their invoices in whatever a bank makes of a reference."""

from datetime import date

from stockroom.invoices import invoice_number
from stockroom.payments import Payment, dunning_level, match_payment, numbers_in, settle
from tests.check import equal, refused

A, B = invoice_number(2025, 4217), invoice_number(2025, 4230)
DAY = date(2025, 11, 3)


def test_a_clean_reference_is_read() -> None:
    equal(numbers_in(f"INVOICE {A}"), [A])


def test_lost_hyphens_and_blanks_do_not_matter() -> None:
    equal(numbers_in("RE KP20250042 17-5 DANKE"), [A])


def test_a_wrong_check_digit_is_no_number() -> None:
    equal(numbers_in("KP-2025-004217-4"), [])


def test_small_differences_are_written_off() -> None:
    equal(settle(10_000, 9_965), (0, "settled"))
    equal(settle(10_000, 9_964), (36, "partial"))
    equal(settle(10_000, 10_036), (-36, "overpaid"))


def test_one_payment_settles_two_invoices() -> None:
    found = match_payment(Payment(DAY, 15_000, f"{B} {A}"), {A: 10_000, B: 5_000})
    equal([(m.invoice, m.state) for m in found], [(A, "settled"), (B, "settled")])


def test_the_last_invoice_takes_what_is_left() -> None:
    found = match_payment(Payment(DAY, 12_000, f"{A} {B}"), {A: 10_000, B: 5_000})
    equal([(m.paid, m.open, m.state) for m in found][1], (2_000, 3_000, "partial"))


def test_a_reference_without_a_number_is_refused() -> None:
    refused("E_PAY_058", match_payment, Payment(DAY, 100, "thanks"), {A: 100})


def test_reminders_follow_the_steps() -> None:
    days = [date(2025, 11, 3), date(2025, 11, 10), date(2025, 11, 24), date(2025, 12, 15)]
    equal([dunning_level(DAY, day) for day in days], [0, 1, 2, 3])
