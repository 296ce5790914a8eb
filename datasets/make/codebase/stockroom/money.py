"""Money is whole cents; nothing in this package holds an amount in a float.

Percentages are basis points: 1 percent is 100, the standard tax rate of 19 percent is 1900.
Rounding is half to even unless a rule of the tax office says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

BASIS_POINTS = 10_000
CURRENCY = "EUR"


def round_ratio(numerator: int, denominator: int) -> int:
    """The nearest whole number to a ratio, ties to the even neighbour."""
    if denominator <= 0:
        raise ValueError("the denominator must be positive")
    whole, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1):
        return whole + 1
    return whole


def round_half_up(numerator: int, denominator: int) -> int:
    """The nearest whole number to a ratio, ties away from zero, as the tax office wants it."""
    if denominator <= 0:
        raise ValueError("the denominator must be positive")
    sign = -1 if numerator < 0 else 1
    return sign * ((2 * abs(numerator) + denominator) // (2 * denominator))


def percent(cents: int, basis_points: int) -> int:
    """A share of an amount, rounded half to even."""
    return round_ratio(cents * basis_points, BASIS_POINTS)


def allocate(total: int, weights: Sequence[int]) -> list[int]:
    """Split an amount in proportion to weights so that the parts add up to it exactly.

    Cents that are left over go to the parts with the largest remainder; among equals the first
    wins. A discount for a whole order is spread over its lines this way.
    """
    whole = sum(weights)
    if whole <= 0:
        raise ValueError("at least one weight must be positive")
    parts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return parts


def format_cents(cents: int, symbol: bool = True) -> str:
    """An amount for people: two decimals, a comma between thousands, the currency behind."""
    sign = "-" if cents < 0 else ""
    whole, rest = divmod(abs(cents), 100)
    text = f"{sign}{whole:,}.{rest:02d}"
    return f"{text} {CURRENCY}" if symbol else text


def parse_amount(text: str) -> int:
    """Cents from an amount as suppliers write it, with a decimal point or a decimal comma.

    The last separator that has one or two digits behind it is the decimal one; all others
    separate thousands. ``1.234,5`` and ``1,234.50`` are both 123450.
    """
    cleaned = text.strip().replace(" ", "").replace("€", "").removesuffix(CURRENCY)
    sign = -1 if cleaned.startswith("-") else 1
    cleaned = cleaned.lstrip("+-")
    position = max(cleaned.rfind("."), cleaned.rfind(","))
    decimals = ""
    if position >= 0 and 1 <= len(cleaned) - position - 1 <= 2:
        cleaned, decimals = cleaned[:position], cleaned[position + 1 :]
    digits = cleaned.replace(".", "").replace(",", "")
    if not (digits + decimals).isdigit():
        raise ValueError(f"not an amount: {text!r}")
    return sign * (int(digits or "0") * 100 + int(decimals.ljust(2, "0")))


def net_of_gross(gross: int, basis_points: int) -> int:
    """The net amount that a gross amount contains at a rate."""
    return round_half_up(gross * BASIS_POINTS, BASIS_POINTS + basis_points)
