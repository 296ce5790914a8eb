"""Tools of the support desk, which read and change the data of a small shop in memory."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from ctxlab._utils.jsonio import dump_json
from datasets.make.support_shop import GOODS, TODAY, WORDS, Shop, cents, money
from datasets.make.words import load_words

ARTICLES = load_words("support_help")
_WINDOW = 30


class _Refused(Exception):
    """A tool call that the shop refuses; ``answer`` is the error that the agent gets."""

    def __init__(self, code: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.answer = {"error": {"code": code, "message": message, **details}}


class Store(Shop):
    """The shop's data and the desk's tools; each public method is a tool, except ``execute``."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.quotes: dict[str, dict[str, Any]] = {}
        self.returns: dict[str, dict[str, Any]] = {}
        self.claims: dict[str, dict[str, Any]] = {}
        self.notes: list[dict[str, Any]] = []

    def execute(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool and return its result, or its error, as JSON."""
        try:
            return dump_json(getattr(self, name)(**arguments))
        except _Refused as refusal:
            return dump_json(refusal.answer)

    def _get(self, table: dict[str, dict[str, Any]], key: str, kind: str) -> dict[str, Any]:
        if key not in table:
            raise _Refused(f"{kind.upper()}_NOT_FOUND", f"There is no {kind} {key}.")
        return table[key]

    def find_customer(self, email: str = "", last_name: str = "", postcode: str = "") -> Any:
        found = [
            c
            for c in self.customers.values()
            if (email and c["email"] == email.lower())
            or (last_name and c["last_name"] == last_name and c["address"]["postcode"] == postcode)
        ]
        if not found:
            query = {"email": email} if email else {"last_name": last_name, "postcode": postcode}
            raise _Refused("CUSTOMER_NOT_FOUND", "No customer matches the query.", query=query)
        return {"matches": found}

    def list_orders(self, customer_id: str) -> Any:
        rows = [
            {
                "order_id": o["order_id"],
                "placed": o["placed"],
                "status": o["status"],
                "total": o["total"],
                "items": sum(i["quantity"] for i in o["items"]),
                "contents": [f"{i['quantity']} x {i['name']}" for i in o["items"]],
                "invoice_id": o["invoice_id"],
                "payment_ref": o["payment_ref"],
                "tracking_number": o["tracking_number"],
                "channel": o["channel"],
            }
            for o in self.orders_of(customer_id)
        ]
        return {"customer_id": customer_id, "count": len(rows), "orders": rows}

    def get_order(self, order_id: str) -> Any:
        return self._get(self.orders, order_id, "order")

    def get_invoice(self, invoice_id: str) -> Any:
        return self._get(self.invoices, invoice_id, "invoice")

    def get_payment(self, payment_ref: str) -> Any:
        return self._get(self.payments, payment_ref, "payment")

    def track_shipment(self, tracking_number: str) -> Any:
        return self._get(self.parcels, tracking_number, "shipment")

    def check_stock(self, sku: str) -> Any:
        for code, name, _price, category in GOODS:
            if code == sku:
                places = {p: self.rng.randrange(0, 14) for p in ("Lund", "Hagen", "Aalen")}
                free = sum(places.values())
                restock = (TODAY + timedelta(days=self.rng.randrange(4, 20))).isoformat()
                return {
                    "sku": sku,
                    "name": name,
                    "category": category,
                    "free": free,
                    "by_warehouse": places,
                    "material": WORDS["details"][category]["material"],
                    "warranty": WORDS["details"][category]["warranty"],
                    "next_delivery": restock,
                }
        raise _Refused("SKU_NOT_FOUND", f"There is no article {sku}.")

    def browse(self, category: str) -> Any:
        found = [
            {
                "sku": code,
                "name": name,
                "price": money(price),
                "rating": f"{self.rng.randrange(36, 50) / 10:.1f}",
                "reviews": self.rng.randrange(3, 240),
                "gtin": f"40{self.rng.randrange(10**10, 10**11)}",
                "since": f"20{self.rng.randrange(17, 26)}",
                "weight_g": self.rng.randrange(60, 2_400),
                "colours": self.rng.sample(["moss", "sand", "rust", "slate", "dark blue"], 2),
                "in_stock": self.rng.random() < 0.8,
                "latest_reviews": self.rng.sample(WORDS["reviews"], 2),
                "returned_share": f"{self.rng.randrange(1, 12)} %",
            }
            for code, name, price, group in GOODS
            if group == category
        ]
        if not found:
            known = sorted(WORDS["details"])
            raise _Refused("NO_SUCH_CATEGORY", f"There is no {category}.", categories=known)
        about = WORDS["details"][category]
        return {"category": category, "about": about, "count": len(found), "articles": found}

    def search_help(self, topic: str) -> Any:
        if topic not in ARTICLES:
            text = f"There is no article {topic}."
            raise _Refused("ARTICLE_NOT_FOUND", text, articles=sorted(ARTICLES))
        others = self.rng.sample(sorted(ARTICLES.keys() - {topic}), 2)
        scores = ("0.91", "0.44", "0.38")
        hits = [
            {"article": name, "score": score, **ARTICLES[name]}
            for name, score in zip((topic, *others), scores, strict=True)
        ]
        return {"query": topic, "updated": "2025-09-30", "hits": hits}

    def quote_refund(self, order_id: str, sku: str, quantity: int, reason: str) -> Any:
        order = self._get(self.orders, order_id, "order")
        line = next((i for i in order["items"] if i["sku"] == sku), None)
        if line is None:
            raise _Refused("NOT_IN_ORDER", f"{sku} is not part of {order_id}.")
        if order["status"] not in ("delivered", "partly_returned"):
            raise _Refused("NOT_DELIVERED", "Refunds are quoted for delivered orders only.")
        paid = cents(line["unit_price"]) * quantity
        late = (TODAY - date.fromisoformat(order["delivered"])).days > _WINDOW
        fee = 0 if reason in ("faulty", "wrong_item") else (990 if late else 490)
        quote = {
            "quote_id": f"RQ-{self._number()}-{self.rng.randrange(10, 99)}",
            "order_id": order_id,
            "sku": sku,
            "quantity": quantity,
            "reason": reason,
            "goods": money(paid),
            "fee": money(min(fee, paid)),
            "amount": money(max(0, paid - fee)),
            "pays_to": order["payment_ref"],
            "valid_until": (TODAY + timedelta(days=7)).isoformat(),
            "terms": WORDS["terms"]["refund"],
        }
        self.quotes[quote["quote_id"]] = quote
        return quote

    def issue_refund(self, quote_id: str, amount: str) -> Any:
        quote = self._get(self.quotes, quote_id, "quote")
        if amount != quote["amount"]:
            text = "The amount differs from the quote."
            raise _Refused("AMOUNT_MISMATCH", text, quoted=quote["amount"], given=amount)
        if "refund_id" in quote:
            raise _Refused("ALREADY_REFUNDED", "This quote was used.", refund_id=quote["refund_id"])
        quote["refund_id"] = f"RF-{TODAY:%y%m}-{self._number()}"
        payment = self.payments[quote["pays_to"]]
        payment["refunded"] = money(cents(payment["refunded"]) + cents(amount))
        return {
            "refund_id": quote["refund_id"],
            "quote_id": quote_id,
            "amount": amount,
            "to": payment["method"],
            "payment_ref": quote["pays_to"],
            "expected_by": (TODAY + timedelta(days=5)).isoformat(),
        }

    def create_return(self, order_id: str, sku: str, quantity: int, pickup: bool = False) -> Any:
        order = self._get(self.orders, order_id, "order")
        if order["status"] not in ("delivered", "partly_returned"):
            raise _Refused("NOT_DELIVERED", f"{order_id} is {order['status']}.")
        rma = {
            "rma": f"RM-{self._number()}",
            "order_id": order_id,
            "sku": sku,
            "quantity": quantity,
            "label": f"{self.rng.randrange(10**9, 10**10)}",
            "pickup": pickup,
            "send_before": (TODAY + timedelta(days=14)).isoformat(),
            "return_to": "Larkfield returns, Speicherweg 9, 73430 Aalen",
            "instructions": WORDS["terms"]["return"],
        }
        order["status"] = "partly_returned"
        self.returns[rma["rma"]] = rma
        return rma

    def open_claim(self, tracking_number: str, kind: str, description: str) -> Any:
        parcel = self._get(self.parcels, tracking_number, "shipment")
        claim = {
            "claim_id": f"CLM-{self._number()}",
            "tracking_number": tracking_number,
            "carrier": parcel["carrier"],
            "kind": kind,
            "description": description,
            "status": "open",
            "carrier_reference": f"{parcel['carrier'][:3].upper()}/{self.rng.randrange(10**5, 10**6)}",
            "answer_by": (TODAY + timedelta(days=9)).isoformat(),
            "procedure": WORDS["terms"]["claim"],
        }
        self.claims[claim["claim_id"]] = claim
        return claim

    def update_claim(self, claim_id: str, status: str, comment: str) -> Any:
        claim = self._get(self.claims, claim_id, "claim")
        claim["status"] = status
        return {**claim, "comment": comment, "updated": TODAY.isoformat()}

    def cancel_order(self, order_id: str, reason: str) -> Any:
        order = self._get(self.orders, order_id, "order")
        if order["status"] != "processing":
            text = f"{order_id} is {order['status']} and can no longer be cancelled."
            raise _Refused("ORDER_LOCKED", text)
        order["status"] = "cancelled"
        payment = self.payments[order["payment_ref"]]
        payment["status"] = "voided"
        return {
            "order_id": order_id,
            "status": "cancelled",
            "reason": reason,
            "payment_ref": order["payment_ref"],
            "released": order["total"],
        }

    def update_address(
        self, target: str, street: str, postcode: str, town: str, note: str = ""
    ) -> Any:
        address = {"street": street, "postcode": postcode, "town": town}
        if target in self.customers:
            old = self.customers[target]["address"]
            self.customers[target]["address"] = address
            return {"updated": target, "old": old, "new": address}
        order = self._get(self.orders, target, "order")
        if order["status"] != "processing":
            text = f"{target} is {order['status']}; its address cannot be changed."
            raise _Refused("ORDER_LOCKED", text, tracking_number=order["tracking_number"])
        old, order["ship_to"] = order["ship_to"], {"name": order["ship_to"]["name"], **address}
        return {"updated": target, "old": old, "new": order["ship_to"], "note": note}

    def send_email(self, to: str, template: str, references: list[str]) -> Any:
        return {
            "message_id": f"<{self._number()}.{self.rng.randrange(10**6, 10**7)}@larkfield.example>",
            "to": to,
            "template": template,
            "references": references,
            "queued": True,
        }

    def add_note(self, customer_id: str, text: str, references: list[str]) -> Any:
        note = {"note_id": f"N-{self._number()}", "text": text, "references": references}
        self.notes.append({"customer_id": customer_id, **note})
        return {"customer_id": customer_id, **note, "notes_on_file": len(self.notes)}
