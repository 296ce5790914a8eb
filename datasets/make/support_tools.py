"""Definitions of the support desk's tools in OpenAI's format."""

from __future__ import annotations

from typing import Any

_TYPES = {"quantity": "integer", "pickup": "boolean"}
_FIELDS = {
    "email": "E-mail address of the customer, as spelled by the customer.",
    "last_name": "Family name; needs the postcode as well.",
    "postcode": "Postcode with five digits.",
    "customer_id": "Customer number such as CU-40123.",
    "order_id": "Order number such as LF-2511-123456.",
    "invoice_id": "Invoice number such as INV-1234567.",
    "payment_ref": "Payment reference such as PAY-0a1b2c3d.",
    "tracking_number": "Tracking number of the carrier, such as NX1234567890DE.",
    "sku": "Article number such as TNT-2041.",
    "quantity": "Number of pieces.",
    "reason": "One of: not_wanted, wrong_size, faulty, wrong_item, late, duplicate.",
    "category": "Category such as tents or boots.",
    "topic": "Name of the article, such as boot-sizes.",
    "quote_id": "Number of a refund quote such as RQ-1234-56.",
    "amount": "Amount exactly as quoted, such as 129.90.",
    "pickup": "Whether the carrier collects the parcel. Default: false.",
    "kind": "One of: lost, damaged, delayed, address.",
    "description": "What happened, in one sentence.",
    "claim_id": "Number of a claim such as CLM-1234.",
    "status": "New status: open, withdrawn or settled.",
    "comment": "Why the status changes.",
    "target": "Order number, or customer number for the address on file.",
    "street": "Street and house number.",
    "town": "Town.",
    "note": "A line for the carrier.",
    "to": "E-mail address of the receiver.",
    "template": "One of: documents, return_label, confirmation, claim_opened.",
    "references": "Numbers that the text refers to.",
    "text": "The note, for colleagues.",
}


def _tool(name: str, description: str, required: str, optional: str = "") -> dict[str, Any]:
    properties = {}
    for field in [*required.split(), *optional.split()]:
        if field == "references":
            shape: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
        else:
            shape = {"type": _TYPES.get(field, "string")}
        properties[field] = {**shape, "description": _FIELDS[field]}
    parameters = {"type": "object", "properties": properties, "required": required.split()}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: tuple[dict[str, Any], ...] = (
    _tool(
        "find_customer",
        "Find customers by e-mail, or by name and postcode.",
        "",
        "email last_name postcode",
    ),
    _tool("list_orders", "List a customer's orders, latest first.", "customer_id"),
    _tool("get_order", "One order with its items, address and payment.", "order_id"),
    _tool("get_invoice", "One invoice with its lines and tax.", "invoice_id"),
    _tool("get_payment", "One payment with its method and state.", "payment_ref"),
    _tool("track_shipment", "Events of a parcel.", "tracking_number"),
    _tool("check_stock", "Free stock of an article.", "sku"),
    _tool("browse", "All articles of a category with ratings.", "category"),
    _tool("search_help", "The three articles of the help pages that fit best.", "topic"),
    _tool(
        "quote_refund", "What would be refunded. Changes nothing.", "order_id sku quantity reason"
    ),
    _tool("issue_refund", "Refund a quoted amount. Cannot be undone.", "quote_id amount"),
    _tool(
        "create_return", "Announce a return and make a label.", "order_id sku quantity", "pickup"
    ),
    _tool("open_claim", "Open a claim with the carrier.", "tracking_number kind description"),
    _tool("update_claim", "Change the status of a claim.", "claim_id status comment"),
    _tool("cancel_order", "Cancel an order that is still processing.", "order_id reason"),
    _tool("update_address", "Change a delivery address.", "target street postcode town", "note"),
    _tool("send_email", "Send a template to the customer.", "to template references"),
    _tool("add_note", "Add a note to the customer's file.", "customer_id text references"),
)
