"""Where a parcel goes decides what it costs and when it arrives.

A zone is found by the longest postcode prefix in config/shipping.toml, so that an island with a
prefix of its own wins over the region around it. Orders after the cut-off leave a day later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from stockroom.config import load, setting
from stockroom.errors import StockroomError
from stockroom.units import parcel_weight
from stockroom.workdays import add_workdays, is_workday, next_workday


@dataclass(frozen=True)
class Zone:
    """A part of the map with one price list."""

    name: str
    base: int
    "cents for the first kilogram"
    per_kg: int
    "cents for each further kilogram begun"
    days: int
    "working days from dispatch to the door"


def zones() -> dict[str, Zone]:
    """All zones by name."""
    return {
        name: Zone(name, int(z["base"]), int(z["per_kg"]), int(z["days"]))
        for name, z in load("shipping")["zones"].items()
    }


def zone_for(country: str, postcode: str) -> Zone:
    """The zone of a postcode: the longest prefix wins; E_SHP_060 where none fits."""
    key = f"{country.upper()}-{postcode.replace(' ', '').upper()}"
    prefixes: dict[str, str] = load("shipping")["prefixes"]
    fitting = [prefix for prefix in prefixes if key.startswith(prefix)]
    if not fitting:
        raise StockroomError("E_SHP_060", country=country, postcode=postcode)
    return zones()[prefixes[max(fitting, key=len)]]


def shipping_cost(zone: Zone, grams: int, net: int = 0) -> int:
    """Cents for a parcel; free above the zone's threshold, refused above the carrier's limit."""
    limit = int(setting("shipping.carrier.max_grams"))
    if grams > limit:
        raise StockroomError("E_SHP_062", grams=grams, limit=limit)
    free_from = load("shipping")["free_from"].get(zone.name)
    if free_from is not None and net >= int(free_from):
        return 0
    further = max(0, -(-(grams - 1000) // 1000))
    return zone.base + further * zone.per_kg


def dispatch_day(ordered: datetime) -> date:
    """The day on which the parcel leaves: today before the cut-off, else the next working day."""
    hour, minute = (int(part) for part in setting("shipping.carrier.cutoff").split(":"))
    today = ordered.date()
    late = (ordered.hour, ordered.minute) >= (hour, minute)
    if late and is_workday(today):
        return next_workday(today + timedelta(days=1))
    return next_workday(today)


def promise_date(ordered: datetime, zone: Zone) -> date:
    """The day that the shop promises at the checkout; always a working day."""
    return add_workdays(dispatch_day(ordered), zone.days)


def parcel_quote(
    quantities: dict[str, int], country: str, postcode: str, ordered: datetime, net: int = 0
) -> dict[str, object]:
    """Cost, weight and promised day of a parcel, for the checkout page."""
    zone = zone_for(country, postcode)
    grams = parcel_weight(quantities)
    return {
        "zone": zone.name,
        "grams": grams,
        "cost": shipping_cost(zone, grams, net),
        "promised": promise_date(ordered, zone),
    }
