"""A payment is matched to its invoice by the number in the reference, then by its amount.

Bank references are upper case, may lose hyphens and may be broken by blanks every 27 characters.
Small differences up to ``store.payments.tolerance_cents`` are written off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from stockroom.config import setting
from stockroom.errors import StockroomError
from stockroom.invoices import check_digit

LOOSE = re.compile(r"KP(\d{4})(\d{6})([\dX])")


@dataclass(frozen=True)
class Payment:
    """One line of a bank statement."""

    booked: date
    amount: int
    reference: str


@dataclass(frozen=True)
class Match:
    """What a payment did to an invoice."""

    invoice: str
    paid: int
    open: int
    "cents that are still owed; negative where too much was paid"
    state: str
    "settled, partial or overpaid"


def numbers_in(reference: str) -> list[str]:
    """The invoice numbers in a reference whose check digit is right, in their order."""
    squeezed = re.sub(r"[^0-9A-Z]", "", reference.upper())
    found = []
    for year, running, digit in LOOSE.findall(squeezed):
        if check_digit(year + running) == digit:
            found.append(f"KP-{year}-{running}-{digit}")
    return found


def settle(owed: int, paid: int) -> tuple[int, str]:
    """What stays open of an amount and the state that follows from it."""
    tolerance = int(setting("store.payments.tolerance_cents"))
    rest = owed - paid
    if abs(rest) <= tolerance:
        return 0, "settled"
    return rest, "partial" if rest > 0 else "overpaid"


def match_payment(payment: Payment, owed: Mapping[str, int]) -> list[Match]:
    """Spread a payment over the invoices that its reference names, oldest number first.

    ``owed`` is open cents by invoice number. Refuses with E_PAY_058 where no known number stands
    in the reference.
    """
    numbers = sorted(number for number in numbers_in(payment.reference) if number in owed)
    if not numbers:
        raise StockroomError("E_PAY_058", reference=payment.reference)
    matches = []
    left = payment.amount
    for position, number in enumerate(numbers):
        last = position == len(numbers) - 1
        share = left if last else min(left, owed[number])
        rest, state = settle(owed[number], share)
        matches.append(Match(number, share, rest, state))
        left -= share
    return matches


def dunning_level(due: date, today: date) -> int:
    """How many reminders an open invoice has earned, by the days since it was due."""
    late = (today - due).days
    steps = setting("store.payments.dunning_days")
    return sum(1 for step in steps if late >= int(step))


def open_balance(matches: Iterable[Match]) -> int:
    """Cents that are still owed over all matches."""
    return sum(match.open for match in matches)
