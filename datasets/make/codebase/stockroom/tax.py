"""Tax is worked out once for each rate over the sum of its lines, not line by line.

The tax office of the home region asks for half-up rounding of each rate's sum; rounding every
line and adding up gives other cents. Rates are basis points in config/region.toml.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stockroom.config import load, setting
from stockroom.errors import StockroomError
from stockroom.money import BASIS_POINTS, round_half_up


@dataclass(frozen=True)
class TaxLine:
    """All lines of one rate."""

    rate: int
    "basis points"
    net: int
    tax: int


@dataclass(frozen=True)
class TaxedTotal:
    """A total with its tax, a line for each rate, highest rate first."""

    lines: tuple[TaxLine, ...]

    @property
    def net(self) -> int:
        """The sum before tax."""
        return sum(line.net for line in self.lines)

    @property
    def tax(self) -> int:
        """The tax of all rates."""
        return sum(line.tax for line in self.lines)

    @property
    def gross(self) -> int:
        """What is to be paid."""
        return self.net + self.tax


def rate_for(region: str, category: str) -> int:
    """Basis points for a category in a region; exports outside the union are free of tax."""
    regions = load("region")["regions"]
    if region not in regions:
        raise StockroomError("E_TAX_040", region=region, category=category)
    entry = regions[region]
    if entry.get("export", False):
        return 0
    reduced = entry.get("reduced_categories", [])
    return int(entry["reduced"] if category in reduced else entry["standard"])


def tax_total(amounts: Iterable[tuple[str, int]], region: str | None = None) -> TaxedTotal:
    """The tax of (category, net cents) pairs; the home region where none is given."""
    where = region or home_region()
    sums: dict[int, int] = {}
    for category, net in amounts:
        rate = rate_for(where, category)
        sums[rate] = sums.get(rate, 0) + net
    lines = [
        TaxLine(rate, net, round_half_up(net * rate, BASIS_POINTS)) for rate, net in sums.items()
    ]
    return TaxedTotal(tuple(sorted(lines, key=lambda line: -line.rate)))


def home_region() -> str:
    """The region that the shop is registered in."""
    return str(setting("region.home"))


def small_business(year_net: int) -> bool:
    """Whether a seller's yearly net stays under the limit below which no tax is shown."""
    return year_net < int(setting("region.small_business_limit"))


def reverse_charge(region: str, vat_id: str | None) -> bool:
    """Whether the customer owes the tax: a business in another region of the union."""
    entry = load("region")["regions"].get(region, {})
    return bool(vat_id) and region != home_region() and not entry.get("export", False)
