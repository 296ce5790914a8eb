"""Generate the data set ``support-desk``: long conversations that return to early matters at the end.

The customer refers to things ("the parcel from the beginning"), whereas the desk's tools need ids.
These ids appear only in tool results from much earlier, so that an agent whose context has lost
them cannot act.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import Recording
from datasets.make.support_contact import Contact, day
from datasets.make.support_shop import GOODS, STREETS, TODAY, TOWNS
from datasets.make.support_store import ARTICLES
from datasets.make.support_tools import TOOLS

NAME = "support-desk"

_CONTACTS = 12
_REPEATED = 4  # the first 4 contacts have two trials each
_TALKED_ABOUT = ("parcel", "return", "faulty", "invoice", "address", "payment")
_IN_PASSING = ("cancel", "stock", "help", "advice", "recommend", "gift")
_NEEDED_BY = {
    "back_parcel": "parcel",
    "back_refund": "return",
    "back_faulty": "faulty",
    "back_documents": "invoice",
    "back_window": "invoice",
    "back_address": "address",
    "back_debit": "payment",
}
"""For each matter that the customer may return to, the earlier matter that it needs."""


def recordings() -> Iterator[tuple[str, Recording]]:
    """Yield the file name and the recording of each conversation of this data set."""
    for contact in range(_CONTACTS):
        trials = 2 if contact < _REPEATED else 1
        for trial in range(1, trials + 1):
            seed = 1_000 + 10 * contact + trial
            desk = _Desk(contact, seed)
            desk.run()
            task = f"contact-{contact + 1:02d}"
            meta = {"seed": seed, "task": task, "matters": desk.matters, "returns_to": desk.returns}
            name = f"{task}-{trial}"
            recording = desk.transcript.recording(NAME, name, task, meta, TOOLS)
            yield f"{name}.jsonl", recording


class _Desk(Contact):
    """One contact: several matters, a return to some of them, and the closing note."""

    def __init__(self, contact: int, seed: int) -> None:
        super().__init__(contact, seed)
        plan = random.Random(500 + contact)  # the same in every trial of the contact
        asked = plan.sample(_TALKED_ABOUT, 5)
        fillers = plan.sample(_IN_PASSING, 6)
        self.matters = [*asked[:3], fillers[0], *asked[3:], *fillers[1:]]
        possible = [b for b, matter in _NEEDED_BY.items() if matter in asked]
        self.returns = plan.sample(possible, len(possible))
        self.typo = plan.random() < 0.5

    def run(self) -> None:
        """Write all messages of the contact."""
        self.transcript.system(self.texts["system"].format(today=f"{TODAY:%A, %d %B %Y}"))
        self._identify()
        for matter in self.matters:
            getattr(self, f"_{matter}")()
        for back in self.returns:
            getattr(self, f"_{back}")()
        self._latest()
        self._close()

    # -- matters ----------------------------------------------------------------------------

    def _identify(self) -> None:
        person = self.customer
        email = person["email"]
        given = email.replace("@", ".de@", 1) if self.typo else email
        self._user("hello", email=given)
        found = self._act("find_customer", email=given)
        if "error" in found:
            self._say("not_found", email=given)
            last, postcode = person["last_name"], self.home["postcode"]
            self._user("by_name", last=last, postcode=postcode)
            self._act("find_customer", last_name=last, postcode=postcode)
        listed = self._act("list_orders", customer_id=person["customer_id"])
        self._say(
            "found",
            first=person["first_name"],
            customer=person["customer_id"],
            count=listed["count"],
            latest=day(self.orders[0]["placed"]),
            oldest=day(self.orders[-1]["placed"]),
        )

    def _parcel(self) -> None:
        order = self.orders[2]
        item, placed = self._short(self._item(order)), day(order["placed"])
        self._user("late", item=item, placed=placed)
        tracking = order["tracking_number"]
        calls = (
            ("get_order", {"order_id": order["order_id"]}),
            ("track_shipment", {"tracking_number": tracking}),
        )
        parcel = parse_json(self.transcript.act(self.words("look"), *calls)[1])
        last = parcel["events"][-1]
        shown = {"at": last["at"], "status": last["event"], "place": last["place"]}
        self._say("late_status", carrier=parcel["carrier"], **shown)
        self._user("late_yes")
        text = f"No scan since {last['at']}, last event: {last['event']} in {last['place']}."
        claim = self._act("open_claim", tracking_number=tracking, kind="delayed", description=text)
        self.facts["parcel"] = claim
        self._number(order["order_id"], tracking, claim["claim_id"], claim["carrier_reference"])
        self._say(
            "late_done",
            claim=claim["claim_id"],
            reference=claim["carrier_reference"],
            by=day(claim["answer_by"]),
            carrier=claim["carrier"],
        )

    def _return(self) -> None:
        order = self.orders[4]
        item = self._short(self._item(order))
        self._user("return", item=item, placed=day(order["placed"]))
        whole, quote = self._quote(order, "not_wanted")
        self.facts["return"] = quote
        keys = ("goods", "fee", "amount", "method")
        values = {key: quote[key] for key in keys}
        until = day(quote["valid_until"])
        self._say("return_quote", quote=quote["quote_id"], until=until, **values)
        self._user("return_label_only")
        rma = self._act(
            "create_return", order_id=order["order_id"], sku=whole["sku"], quantity=1, pickup=False
        )
        self._number(rma["rma"], rma["label"])
        before = day(rma["send_before"])
        self._say("return_done", rma=rma["rma"], label=rma["label"], before=before)

    def _faulty(self) -> None:
        order = self.orders[6]
        self._user("faulty", item=self._short(self._item(order)), placed=day(order["placed"]))
        self._say("faulty_ask")
        soft = ("tents", "sleeping", "packs", "clothing", "boots")
        is_soft = self._item(order)["category"] in soft
        self._user("faulty_soft" if is_soft else "faulty_hard")
        _, quote = self._quote(order, "faulty")
        self.facts["faulty"] = quote
        values = {key: quote[key] for key in ("amount", "method")}
        self._say("faulty_quote", quote=quote["quote_id"], **values)
        self._user("faulty_later")
        self._say("noted")

    def _invoice(self) -> None:
        order = self.orders[5]
        self._user("invoice", item=self._short(self._item(order)), placed=day(order["placed"]))
        invoice = self._act("get_invoice", invoice_id=order["invoice_id"])
        self.facts["invoice"] = invoice
        self._number(order["order_id"], invoice["invoice_id"], invoice["payment_ref"])
        tax = invoice["tax_included"]
        self._say(
            "invoice_say",
            invoice=invoice["invoice_id"],
            issued=day(invoice["issued"]),
            total=invoice["total"],
            tax=tax["amount"],
            rate=tax["rate"],
            payment=invoice["payment_ref"],
        )
        self._user("invoice_more", shipping=invoice["shipping"])
        self._say("invoice_why", shipping=invoice["shipping"])

    def _address(self) -> None:
        open_, sent = self.orders[0], self.orders[3]
        town, prefix = self.rng.choice(TOWNS)
        street = f"{self.rng.choice(STREETS)} {self.rng.randrange(1, 99)}"
        address = {
            "street": street,
            "postcode": f"{prefix}{self.rng.randrange(100, 999)}",
            "town": town,
        }
        days = {"open": day(open_["placed"]), "sent": day(sent["placed"])}
        self._user("address", **address, **days)
        self._act("update_address", target=sent["order_id"], **address)
        self._act("update_address", text="", target=open_["order_id"], **address)
        self.facts["address"] = {"order_id": open_["order_id"]}
        self._number(open_["order_id"], sent["order_id"], sent["tracking_number"])
        self._say("address_done", **address, **days, tracking=sent["tracking_number"])
        self._user("address_ok")
        self._say("between")

    def _cancel(self) -> None:
        order = self.orders[1]
        self._user("cancel", item=self._short(self._item(order)), placed=day(order["placed"]))
        self._act("get_order", order_id=order["order_id"])
        self._say("cancel_confirm", content=self._content(order), total=order["total"])
        self._user("cancel_yes")
        done = self._act("cancel_order", order_id=order["order_id"], reason="customer_request")
        self._number(order["order_id"], done["payment_ref"])
        self._say("cancel_done", total=done["released"], payment=done["payment_ref"])

    def _payment(self) -> None:
        order = self.orders[7]
        booked = day(self.store.payments[order["payment_ref"]]["booked"])
        self._user("payment", total=order["total"], booked=booked)
        self._act("get_order", order_id=order["order_id"])
        payment = self._act("get_payment", payment_ref=order["payment_ref"])
        self.facts["payment"] = payment
        self._number(order["order_id"], payment["payment_ref"], payment["mandate"])
        self._say(
            "payment_say",
            placed=day(order["placed"]),
            content=self._content(order),
            method=payment["method"],
            payment=payment["payment_ref"],
            mandate=payment["mandate"],
        )
        self._user("payment_ok")
        self._say("between")

    def _stock(self) -> None:
        order = self.orders[8]
        item = self._item(order)
        other = self.rng.choice([g for g in GOODS if g[0] != item["sku"]])
        names = {"item": self._short(item), "other": other[1].split(",")[0]}
        self._user("stock", placed=day(order["placed"]), **names)
        self._act("get_order", order_id=order["order_id"])
        calls = [("check_stock", {"sku": sku}) for sku in (item["sku"], other[0])]
        first, second = map(parse_json, self.transcript.act(self.words("look"), *calls))
        self._number(order["order_id"])
        self._say(
            "stock_say",
            **names,
            free=first["free"],
            free2=second["free"],
            next=day(first["next_delivery"]),
            next2=day(second["next_delivery"]),
            sku=first["sku"],
            sku2=second["sku"],
        )
        self._user("stock_ok")
        self._say("between")

    def _recommend(self) -> None:
        categories = {group for *_, group in GOODS} - set(self.topics)
        category = self.rng.choice(sorted(categories))
        self.topics.append(category)
        limit = self.rng.choice([60, 100, 200])
        self._user("recommend", category=category, limit=limit)
        articles = self._act("browse", category=category)["articles"]
        fitting = [a for a in articles if a["in_stock"] and float(a["price"]) <= limit]
        if not fitting:
            self._say("recommend_none", limit=limit)
            return
        best = max(fitting, key=lambda a: (a["rating"], a["reviews"]))
        keys = {"sku": "sku", "price": "price", "rating": "rating", "reviews": "reviews"}
        values = {key: best[name] for key, name in keys.items()}
        self._say("recommend_say", best=best["name"], share=best["returned_share"], **values)
        if self.rng.random() < 0.5:
            self._user("recommend_ok")
            self._say("between")

    _gift = _recommend

    def _help(self) -> None:
        topics = [t for t in sorted(ARTICLES) if t not in self.topics]
        topic = self.rng.choice(topics)
        self.topics.append(topic)
        self._user(f"help_{topic}")
        if self.rng.random() < 0.3:
            self._act("search_help", topic=topic.split("-")[0])
            self._act("search_help", text="", topic=topic)
        else:
            self._act("search_help", topic=topic)
        self._say(f"answer_{topic}")
        if self.rng.random() < 0.5:
            self._user("help_thanks")
            self._say("between")

    _advice = _help

    # -- coming back ------------------------------------------------------------------------

    def _back_parcel(self) -> None:
        claim = self.facts["parcel"]
        self._user("back_parcel")
        self._act("track_shipment", tracking_number=claim["tracking_number"])
        comment = "The customer has received the parcel."
        self._act("update_claim", claim_id=claim["claim_id"], status="withdrawn", comment=comment)
        self._say(
            "back_parcel_say",
            tracking=claim["tracking_number"],
            claim=claim["claim_id"],
            carrier=claim["carrier"],
            reference=claim["carrier_reference"],
        )

    def _pay_out(self, quote: dict[str, Any]) -> None:
        if quote["goods"] != quote["amount"] and self.rng.random() < 0.5:
            self._act("issue_refund", quote_id=quote["quote_id"], amount=quote["goods"])
            text = self.words("mismatch")
        else:
            text = self.words("look")
        refund = self._act(
            "issue_refund", text=text, quote_id=quote["quote_id"], amount=quote["amount"]
        )
        self._number(refund["refund_id"])
        self._say(
            "back_refund_say",
            amount=quote["amount"],
            method=quote["method"],
            refund=refund["refund_id"],
            payment=refund["payment_ref"],
            by=day(refund["expected_by"]),
        )

    def _back_refund(self) -> None:
        self._user("back_refund")
        self._pay_out(self.facts["return"])

    def _back_faulty(self) -> None:
        self._user("back_faulty")
        self._pay_out(self.facts["faulty"])

    def _back_documents(self) -> None:
        invoice, email = self.facts["invoice"], self.customer["email"]
        self._user("back_documents")
        references = [invoice["invoice_id"], invoice["payment_ref"], invoice["order_id"]]
        sent = self._act("send_email", to=email, template="documents", references=references)
        self._say(
            "back_documents_say",
            email=email,
            invoice=invoice["invoice_id"],
            payment=invoice["payment_ref"],
            message=sent["message_id"],
        )

    def _back_window(self) -> None:
        order = self.orders[5]
        self._user("back_window", item=self._short(self._item(order)))
        found = self._act("get_order", order_id=order["order_id"])
        until = (date.fromisoformat(found["delivered"]) + timedelta(days=30)).isoformat()
        self._say("back_window_say", delivered=day(found["delivered"]), until=day(until))

    def _back_address(self) -> None:
        self._user("back_address")
        target = self.facts["address"]["order_id"]
        self._act("update_address", target=target, **self.home)
        self._say("back_address_say", **self.home)

    def _back_debit(self) -> None:
        self._user("back_debit")
        payment = self._act("get_payment", payment_ref=self.facts["payment"]["payment_ref"])
        shown = {key: payment[key] for key in ("status", "amount", "refunded")}
        self._say("back_debit_say", payment=payment["payment_ref"], **shown)

    def _latest(self) -> None:
        self._user("latest")
        calls = [("get_order", {"order_id": order["order_id"]}) for order in self.orders[:2]]
        first, second = map(parse_json, self.transcript.act(self.words("look"), *calls))
        self._number(first["order_id"])
        self._say(
            "latest_say",
            placed=day(first["placed"]),
            status=first["status"],
            step=first["timeline"][-1]["step"],
            placed2=day(second["placed"]),
            status2=second["status"],
        )

    def _close(self) -> None:
        self._user("end")
        person = self.customer
        text = (
            f"Long contact: {', '.join(self.matters)}. Came back to earlier matters, all settled."
        )
        note = self._note(text)
        references = [self.orders[2]["order_id"], note["note_id"]]
        self._act(
            "send_email",
            text="",
            to=person["email"],
            template="confirmation",
            references=references,
        )
        self._say("bye", first=person["first_name"], note=note["note_id"], email=person["email"])
