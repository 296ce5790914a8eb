"""Generate the data of an invented outdoor shop from a seed.

Customers, orders, invoices, parcels and payments refer to each other by id. Amounts are strings
with two decimals, as in the output of the desk's tools.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

from datasets.make.words import load_words

TODAY = date(2025, 11, 24)
WORDS = load_words("support_goods")
GOODS = [(g["sku"], g["name"], g["price"], g["category"]) for g in WORDS["goods"]]
TOWNS = [(town["name"], town["prefix"]) for town in WORDS["towns"]]
STREETS: list[str] = WORDS["streets"]
_CARRIERS = {"Nexpost": "NX", "Hallbote": "HB", "Kurierring": "KR"}


def money(amount: int) -> str:
    """Format an amount in cents as a string with two decimals."""
    return f"{amount // 100}.{amount % 100:02d}"


def cents(amount: str) -> int:
    """Convert an amount with two decimals to cents."""
    whole, _, rest = amount.partition(".")
    return int(whole) * 100 + int(rest.ljust(2, "0"))


class Shop:
    """Twenty customers with nine orders each, and the invoices, payments and parcels of the orders."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.customers: dict[str, dict[str, Any]] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.invoices: dict[str, dict[str, Any]] = {}
        self.parcels: dict[str, dict[str, Any]] = {}
        self.payments: dict[str, dict[str, Any]] = {}
        self.serial = self.rng.randrange(3_000, 9_000)
        for position in range(20):
            self._customer(position)

    def orders_of(self, customer: str) -> list[dict[str, Any]]:
        """Return the orders of a customer, latest first."""
        mine = [o for o in self.orders.values() if o["customer_id"] == customer]
        return sorted(mine, key=lambda order: (order["placed"], order["order_id"]), reverse=True)

    def _number(self) -> int:
        self.serial += self.rng.randrange(1, 40)
        return self.serial

    def _customer(self, position: int) -> None:
        rng = self.rng
        first, last = WORDS["first"][position], WORDS["last"][position]
        town, prefix = rng.choice(TOWNS)
        key = f"CU-{40_000 + position * 61 + rng.randrange(60)}"
        mail = rng.choice(["{f}.{l}", "{f}{l}", "{l}.{f}", "{f}_{l}"])
        mail = mail.format(f=first.lower(), l=last.lower()) + rng.choice(["", "", "7", "82"])
        self.customers[key] = {
            "customer_id": key,
            "first_name": first,
            "last_name": last,
            "email": f"{mail}@{rng.choice(['postfach', 'mailhus', 'nordnetz'])}.example",
            "phone": f"+49 171 39200{rng.randrange(100):02d}",
            "since": date(rng.randrange(2016, 2024), rng.randrange(1, 13), 3).isoformat(),
            "language": "en",
            "newsletter": rng.random() < 0.4,
            "level": rng.choice(["basic", "basic", "trail", "summit"]),
            "address": {
                "street": f"{rng.choice(STREETS)} {rng.randrange(1, 120)}",
                "postcode": f"{prefix}{rng.randrange(100, 999)}",
                "town": town,
            },
        }
        day = TODAY - timedelta(days=rng.randrange(1, 4))
        for turn in range(9):
            self._order(
                key, day, "processing" if turn < 2 else "shipped" if turn < 4 else "delivered"
            )
            day -= timedelta(days=rng.randrange(3, 6) if turn < 4 else rng.randrange(2, 30))

    def _order(self, customer: str, day: date, status: str) -> None:
        rng = self.rng
        person = self.customers[customer]
        order_id = f"LF-{day:%y%m}-{rng.randrange(100_000, 999_999)}"
        items: list[dict[str, Any]] = []
        for code, name, price, category in rng.sample(GOODS, rng.choice([1, 2, 2, 3, 4])):
            quantity = rng.choice([1, 1, 1, 2])
            items.append(
                {
                    "sku": code,
                    "name": name,
                    "category": category,
                    "gtin": f"40{rng.randrange(10**10, 10**11)}",
                    "quantity": quantity,
                    "unit_price": money(price),
                    "line_total": money(price * quantity),
                    "warehouse": rng.choice(["Aalen", "Lund", "Hagen"]),
                    "material": WORDS["details"][category]["material"],
                    "care": WORDS["details"][category]["care"],
                    "warranty": WORDS["details"][category]["warranty"],
                    "batch": f"B{rng.randrange(100, 999)}-{rng.randrange(10, 99)}",
                }
            )
        goods = sum(cents(i["unit_price"]) * i["quantity"] for i in items)
        shipping = 0 if goods >= 8_000 else 590
        total = goods + shipping
        carrier = rng.choice(sorted(_CARRIERS))
        tracking = f"{_CARRIERS[carrier]}{rng.randrange(10**9, 10**10)}DE"
        sent = status != "processing"
        delivered = day + timedelta(days=rng.randrange(3, 6)) if status == "delivered" else None
        invoice, payment = f"INV-{rng.randrange(10**6, 10**7)}", f"PAY-{rng.randrange(16**8):08x}"
        method = rng.choice(
            ["Visa ending 4417", "Mastercard ending 9032", "bank account ending 118", "PayPoint"]
        )
        self.orders[order_id] = {
            "order_id": order_id,
            "customer_id": customer,
            "placed": day.isoformat(),
            "status": status,
            "items": items,
            "goods": money(goods),
            "shipping": money(shipping),
            "total": money(total),
            "ship_to": {
                "name": f"{person['first_name']} {person['last_name']}",
                **person["address"],
            },
            "invoice_id": invoice if sent else None,
            "payment_ref": payment,
            "tracking_number": tracking if sent else None,
            "delivered": delivered.isoformat() if delivered else None,
            "channel": rng.choice(["web", "web", "app", "phone"]),
            "bill_to": {
                "name": f"{person['first_name']} {person['last_name']}",
                **person["address"],
            },
            "timeline": self._timeline(day, status),
        }
        self.payments[payment] = {
            "payment_ref": payment,
            "order_id": order_id,
            "method": method,
            "amount": money(total),
            "booked": (day + timedelta(days=1)).isoformat(),
            "status": "captured" if sent else "authorised",
            "refunded": "0.00",
            "mandate": f"MD-{rng.randrange(10_000, 99_999)}",
        }
        if sent:
            tax = total - (total * 100 + 59) // 119
            self.invoices[invoice] = {
                "invoice_id": invoice,
                "order_id": order_id,
                "issued": (day + timedelta(days=1)).isoformat(),
                "bill_to": dict(self.orders[order_id]["ship_to"]),
                "lines": [
                    {
                        "sku": i["sku"],
                        "text": i["name"],
                        "amount": money(cents(i["unit_price"]) * i["quantity"]),
                    }
                    for i in items
                ],
                "shipping": money(shipping),
                "tax_included": {"rate": "19 %", "amount": money(tax)},
                "total": money(total),
                "payment_ref": payment,
                "state": "paid",
                "small_print": WORDS["terms"]["invoice"],
            }
            self.parcels[tracking] = self._parcel(tracking, carrier, order_id, day, delivered)

    def _timeline(self, day: date, status: str) -> list[dict[str, str]]:
        steps = ["placed", "payment authorised", "released to warehouse"]
        if status != "processing":
            steps += ["picked", "packed", "handed to carrier"]
        clock = 7 * 60 + self.rng.randrange(200)
        rows = []
        for step in steps:
            clock += self.rng.randrange(9, 90)
            who = self.rng.choice(["system", "system", "wms-2", "k.ott", "b.sahin"])
            rows.append(
                {"at": f"{day} {clock // 60:02d}:{clock % 60:02d}", "step": step, "by": who}
            )
        return rows

    def _parcel(
        self, tracking: str, carrier: str, order: str, day: date, delivered: date | None
    ) -> dict[str, Any]:
        rng = self.rng
        places = [town for town, _ in rng.sample(TOWNS, 4)]
        steps = [
            ("label created", "Aalen"),
            ("handed over", "Aalen"),
            ("sorted", places[0]),
            ("in transit", places[1]),
            ("arrived at depot", places[2]),
        ]
        if delivered:
            steps += [("out for delivery", places[3]), ("delivered", places[3])]
        else:
            steps.append((rng.choice(["held at depot", "address unclear", "delayed"]), places[2]))
        events = [
            {
                "at": f"{min(day + timedelta(days=(n + 1) // 2), delivered or TODAY)} "
                f"{7 + n:02d}:{rng.randrange(60):02d}",
                "event": event,
                "place": place,
                "depot": f"D-{rng.randrange(100, 999)}",
                "scan": f"S{rng.randrange(10**5, 10**6)}",
            }
            for n, (event, place) in enumerate(steps, 1)
        ]
        return {
            "tracking_number": tracking,
            "carrier": carrier,
            "order_id": order,
            "weight_kg": f"{rng.randrange(3, 120) / 10:.1f}",
            "depot": f"D-{rng.randrange(100, 999)}",
            "status": steps[-1][0],
            "events": events,
        }
