"""An invoice number protects itself, and an invoice adds up."""

from datetime import date

from stockroom.invoices import build_invoice, check_digit, check_number, invoice_number, render
from stockroom.orders import find_order
from tests.check import equal, refused


def test_the_check_digit_is_known() -> None:
    equal(invoice_number(2025, 4217), "KP-2025-004217-5")
    equal(check_digit("2025004200"), "X")


def test_swapped_neighbours_do_not_pass() -> None:
    refused("E_INV_055", check_number, "KP-2025-004271-5")


def test_a_small_letter_is_forgiven() -> None:
    equal(check_number(" kp-2025-004217-5 "), "KP-2025-004217-5")


def test_other_texts_are_refused() -> None:
    refused("E_INV_055", check_number, "2025-4217")


def test_an_invoice_is_due_after_the_days_of_its_group() -> None:
    invoice = build_invoice(find_order("KO-61020"), 4217, date(2025, 10, 17))
    equal(invoice.due, date(2025, 11, 16))


def test_net_and_tax_make_the_total() -> None:
    total = build_invoice(find_order("KO-61020"), 4217, date(2025, 10, 17)).total
    equal((total.net, total.tax, total.gross), (34722, 6597, 41319))


def test_a_coupon_is_spread_to_the_cent() -> None:
    invoice = build_invoice(find_order("KO-61033"), 4218, date(2025, 10, 11))
    equal(invoice.quote.net, 3490 + 3 * 690 + 2 * 2890 - 500)


def test_the_text_names_every_rate() -> None:
    text = render(build_invoice(find_order("KO-61020"), 4217, date(2025, 10, 17)))
    equal("Tax 19.00 %" in text, True)
    equal(text.splitlines()[0], "Invoice KP-2025-004217-5 for order KO-61020")
