"""An invoice number carries its year, a running number and a check digit.

``KP-2025-004217-5``: the check digit is worked out over year and running number with the weights
of WEIGHTS from the right, modulo 11; the remainder 10 is written as X. A bank clerk who swaps
two neighbouring digits gets a number that does not pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

from stockroom.catalog import find_product
from stockroom.config import setting
from stockroom.errors import StockroomError
from stockroom.money import format_cents
from stockroom.orders import Order
from stockroom.pricing import Quote, quote
from stockroom.tax import TaxedTotal, tax_total
from stockroom.textutil import shorten, table

WEIGHTS = (2, 3, 4, 5, 6, 7)
NUMBER = re.compile(r"KP-(\d{4})-(\d{6})-([\dX])")


@dataclass(frozen=True)
class Invoice:
    """What a customer owes for one order."""

    number: str
    order: str
    customer: str
    issued: date
    due: date
    quote: Quote
    total: TaxedTotal


def check_digit(digits: str) -> str:
    """The check digit of a string of digits."""
    total = sum(int(digit) * WEIGHTS[i % len(WEIGHTS)] for i, digit in enumerate(reversed(digits)))
    rest = total % 11
    return "X" if rest == 10 else str(rest)


def invoice_number(year: int, running: int) -> str:
    """The number of the n-th invoice of a year."""
    digits = f"{year:04d}{running:06d}"
    return f"KP-{digits[:4]}-{digits[4:]}-{check_digit(digits)}"


def check_number(text: str) -> str:
    """The number itself if it is well formed and its check digit is right; else E_INV_055."""
    match = NUMBER.fullmatch(text.strip().upper())
    if match is None or check_digit(match[1] + match[2]) != match[3]:
        raise StockroomError("E_INV_055", number=text)
    return match[0]


def build_invoice(order: Order, running: int, issued: date) -> Invoice:
    """The invoice of an order; it is due after the days that its customer group has."""
    priced = quote(order.quantities, order.group, order.coupon, order.placed)
    total = tax_total([(line.category, line.net) for line in priced.lines], order.region)
    days = int(setting("store.invoices.due_days")[order.group])
    return Invoice(
        number=invoice_number(issued.year, running),
        order=order.number,
        customer=order.customer,
        issued=issued,
        due=issued + timedelta(days=days),
        quote=priced,
        total=total,
    )


def render(invoice: Invoice) -> str:
    """The invoice as plain text, as it goes into the e-mail."""
    rows = [
        [
            line.sku,
            shorten(find_product(line.sku).name, 28),
            str(line.quantity),
            format_cents(line.discount, symbol=False),
            format_cents(line.net, symbol=False),
        ]
        for line in invoice.quote.lines
    ]
    lines = [
        f"Invoice {invoice.number} for order {invoice.order}",
        f"Customer {invoice.customer}, issued {invoice.issued}, due {invoice.due}",
        "",
        table(["SKU", "Article", "Qty", "Discount", "Net"], rows, right=(2, 3, 4)),
        "",
    ]
    for part in invoice.total.lines:
        rate = f"{part.rate // 100}.{part.rate % 100:02d} %"
        lines.append(f"Tax {rate} on {format_cents(part.net)}: {format_cents(part.tax)}")
    lines.append(f"Total {format_cents(invoice.total.gross)}")
    return "\n".join(lines)
