"""Base class of a support conversation: the customer, the shop's data and the transcript."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from ctxlab._utils.jsonio import parse_json
from datasets.make.support_store import Store
from datasets.make.transcript import Bag, Transcript
from datasets.make.words import load_words

_SHOP_SEED = 7
_MORNING = 1_763_971_200  # 2025-11-24 08:00 UTC


def day(iso: str) -> str:
    """Format an ISO date as day and month, such as ``3 November``."""
    when = date.fromisoformat(iso)
    return f"{when.day} {when:%B}"


class Contact:
    """One customer's conversation with the desk, with methods for messages and tool calls."""

    def __init__(self, customer: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = Store(_SHOP_SEED)
        self.customer = list(self.store.customers.values())[customer]
        self.home = dict(self.customer["address"])
        self.orders = self.store.orders_of(self.customer["customer_id"])
        self.texts = load_words("support")
        self.words = Bag(self.texts["pools"], self.rng)
        start = _MORNING + customer * 2_500 + self.rng.randrange(1_500)
        self.transcript = Transcript(self.rng, start, self.store.execute)
        self.facts: dict[str, dict[str, Any]] = {}
        "data from tool results, by the matter in which the desk got it"
        self.numbers: list[str] = []
        self.topics: list[str] = []

    def _user(self, pool: str, **values: object) -> None:
        self.transcript.user(self.words(pool, **values), 25, 240)

    def _say(self, pool: str, **values: object) -> None:
        self.transcript.say(self.words(pool, **values))

    def _act(self, name: str, /, text: str | None = None, **arguments: Any) -> dict[str, Any]:
        said = self.words("look") if text is None else text
        result = self.transcript.act(said, (name, arguments))[0]
        answer: dict[str, Any] = parse_json(result)
        return answer

    def _number(self, *numbers: str) -> None:
        self.numbers.extend(n for n in numbers if n not in self.numbers)

    def _item(self, order: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = order["items"][0]
        return found

    def _short(self, item: dict[str, Any]) -> str:
        return str(item["name"]).split(",")[0]

    def _content(self, order: dict[str, Any]) -> str:
        return ", ".join(f"{i['quantity']} x {i['name']}" for i in order["items"])

    def _quote(self, order: dict[str, Any], reason: str) -> tuple[dict[str, Any], dict[str, Any]]:
        self._act("get_order", order_id=order["order_id"])
        item = self._item(order)
        quote = self._act(
            "quote_refund", order_id=order["order_id"], sku=item["sku"], quantity=1, reason=reason
        )
        self._number(order["order_id"], quote["quote_id"], quote["pays_to"])
        return item, {**quote, "method": self.store.payments[order["payment_ref"]]["method"]}

    def _note(self, text: str) -> dict[str, Any]:
        arguments = {
            "customer_id": self.customer["customer_id"],
            "text": text,
            "references": list(self.numbers),
        }
        result = self.transcript.act(self.words("closing_note"), ("add_note", arguments))[0]
        answer: dict[str, Any] = parse_json(result)
        return answer
