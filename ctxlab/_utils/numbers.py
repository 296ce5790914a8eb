"""Format numbers alike wherever results are shown: with at most three digits, and a dash for NaN."""

from __future__ import annotations

import math


def format_count(number: float) -> str:
    """Format a count with three significant digits.

    Parameters
    ----------
    number : float
        Count to format.

    Returns
    -------
    str
        Count with the suffix ``k``, ``M`` or ``G`` if it is 1,000 or more; a dash for NaN.

    Examples
    --------
    >>> [format_count(n) for n in (0, 950, 4_200, 12_240, 999_900, 1_220_000, float("nan"))]
    ['0', '950', '4.20k', '12.2k', '1.00M', '1.22M', '–']
    """
    if math.isnan(number):
        return "–"
    number = float(f"{number:.3g}")
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            value = number / size
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}{unit}"
    return f"{number:.3g}"


def format_bytes(count: int) -> str:
    """Format a size in bytes with three significant digits.

    Parameters
    ----------
    count : int
        Number of bytes.

    Returns
    -------
    str
        Size with the unit.

    Examples
    --------
    >>> format_bytes(12_240), format_bytes(7)
    ('12.2kB', '7B')
    """
    return f"{format_count(count)}B"


def format_percent(rate: float) -> str:
    """Format a rate as a percentage without decimals.

    Rates between 0 and 0.01 become ``<1``, and rates between 0.99 and 1 become ``>99``.

    Parameters
    ----------
    rate : float
        Rate from 0 to 1.

    Returns
    -------
    str
        Percentage without a percent sign; a dash for NaN.

    Examples
    --------
    >>> [format_percent(rate) for rate in (0, 0.0004, 0.178, 0.9996, 1, float("nan"))]
    ['0', '<1', '18', '>99', '100', '–']
    """
    if math.isnan(rate):
        return "–"
    if 0 < rate < 0.01:
        return "<1"
    return ">99" if 0.99 < rate < 1 else f"{rate:.0%}".rstrip("%")


def format_usd(amount: float) -> str:
    """Format an amount in US dollars with at most three digits after the point.

    Amounts of 1 or more have three significant digits. Amounts between 0 and 0.001 become
    ``<.001``.

    Parameters
    ----------
    amount : float
        Amount in US dollars.

    Returns
    -------
    str
        Amount without a dollar sign; a dash for NaN.

    Examples
    --------
    >>> [format_usd(amount) for amount in (0, 0.00004, 0.0123, 1.8209, 32, 123.4, 12_340)]
    ['0', '<.001', '0.012', '1.82', '32.0', '123', '12.3k']
    """
    if math.isnan(amount) or amount == 0 or amount >= 999.5:
        return format_count(amount)
    if amount < 0.001:
        return "<.001"
    places = 3 if amount < 0.1 else 2 if amount < 10 else 1 if amount < 99.95 else 0
    return f"{amount:.{places}f}"


def format_dollars(amount: float) -> str:
    """Format a price for a sentence: with cents, or with four decimals if it is below a dollar.

    Parameters
    ----------
    amount : float
        Amount in US dollars.

    Returns
    -------
    str
        Amount with a dollar sign.

    Examples
    --------
    >>> format_dollars(1250.5), format_dollars(0.0412)
    ('$1,250.50', '$0.0412')
    """
    return f"${amount:,.{2 if amount >= 1 else 4}f}"


def format_limit(limit: float) -> str:
    """Format a limit as a cell of a table.

    Parameters
    ----------
    limit : float
        Number of tokens; a float of at most 1 is a share of each recording.

    Returns
    -------
    str
        Number of tokens, or a percentage.

    Examples
    --------
    >>> format_limit(8000), format_limit(0.25)
    ('8,000', '25 %')
    """
    is_share = isinstance(limit, float) and limit <= 1
    return f"{limit * 100:.3g} %" if is_share else f"{limit:,.0f}"


def describe_limit(limit: float) -> str:
    """Describe a limit in words.

    Parameters
    ----------
    limit : float
        Number of tokens; a float of at most 1 is a share of each recording.

    Returns
    -------
    str
        Description of the limit.

    Examples
    --------
    >>> describe_limit(8000), describe_limit(0.25)
    ('8,000 tokens', '25 % of each recording')
    """
    said = format_limit(limit)
    return f"{said} of each recording" if said.endswith("%") else f"{said} tokens"


def format_share(value: float) -> str:
    """Format a share with two decimals. Shares between 0.99 and 1 become ``.99``, and 1 becomes ``1.0``.

    Parameters
    ----------
    value : float
        Share from 0 to 1.

    Returns
    -------
    str
        Share without a leading zero, such as ``.76``; a dash for NaN.

    Examples
    --------
    >>> [format_share(value) for value in (0, 0.7649, 0.9999, 1, float("nan"))]
    ['.00', '.76', '.99', '1.0', '–']
    """
    if math.isnan(value):
        return "–"
    return "1.0" if value >= 1 - 1e-9 else f"{min(value, 0.99):.2f}"[1:]


def format_signed_share(value: float) -> str:
    """Format the difference between two shares with its sign.

    Parameters
    ----------
    value : float
        Difference from -1 to 1.

    Returns
    -------
    str
        Difference without a leading zero, such as ``−.12``; a value that rounds to 0 has no sign.

    Examples
    --------
    >>> [format_signed_share(value) for value in (-0.123, 0.05, 0.001, -1)]
    ['−.12', '+.05', '.00', '−1.0']
    """
    size = format_share(abs(value) if abs(value) > 0.995 else round(abs(value), 2))
    return size if size == ".00" else f"{'−' if value < 0 else '+'}{size}"


def format_share_interval(value: float, low: float, high: float) -> str:
    """Format a share and its confidence interval.

    Parameters
    ----------
    value : float
        Share from 0 to 1.
    low, high : float
        Bounds of the interval; NaN if there is no interval.

    Returns
    -------
    str
        Share, followed by the interval in parentheses. The interval is left out if it does not exist
        or if both bounds are printed like the share.

    Examples
    --------
    >>> format_share_interval(0.7649, 0.7, 0.821), format_share_interval(1, 1, 1)
    ('.76 (.70–.82)', '1.0')
    """
    said = format_share(value)
    bounds = f"{format_share(low)}–{format_share(high)}"
    return said if math.isnan(low) or bounds == f"{said}–{said}" else f"{said} ({bounds})"


def to_sentence(text: str) -> str:
    """Capitalize the first letter of a string and end the string with a full stop.

    Parameters
    ----------
    text : str
        Words of a sentence, with or without a full stop.

    Returns
    -------
    str
        Sentence with a capital letter and one full stop.
    """
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
