"""Every refusal has a code, so that the shop and the warehouse talk about the same thing.

The codes are listed with their meaning in docs/error-codes.md; a code is never used twice and
never renamed, because the warehouse terminals translate it by number.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "E_CFG_001": "a configuration file or key is missing",
    "E_CAT_004": "no product has this SKU",
    "E_CAT_007": "the product is discontinued and may not be sold",
    "E_STOCK_011": "not enough stock on hand for this movement",
    "E_STOCK_014": "unknown location",
    "E_RES_031": "not enough free stock for this reservation",
    "E_RES_033": "the reservation is unknown or has expired",
    "E_PRC_020": "the coupon is unknown or does not apply",
    "E_PRC_022": "a quantity must be a positive whole number",
    "E_TAX_040": "no tax rate for this region and category",
    "E_ORD_050": "an order may not go from this state to that one",
    "E_ORD_052": "no order has this number",
    "E_INV_055": "the invoice number is malformed or its check digit is wrong",
    "E_PAY_058": "no invoice number was found in the payment reference",
    "E_SHP_060": "no shipping zone covers this postcode",
    "E_SHP_062": "the parcel is too heavy for the carrier",
    "E_RET_064": "the return window has closed",
    "E_RET_066": "this category cannot be returned",
    "E_IMP_070": "a row of a supplier file cannot be read",
    "E_IMP_072": "a supplier file lacks a column that is needed",
}


class StockroomError(Exception):
    """A refusal with its code and the values that explain it."""

    def __init__(self, code: str, **details: object) -> None:
        if code not in CODES:
            raise KeyError(code)
        self.code = code
        self.details = details
        values = ", ".join(f"{key}={value}" for key, value in sorted(details.items()))
        super().__init__(f"{code}: {CODES[code]}" + (f" ({values})" if values else ""))


def explain(code: str) -> str:
    """The meaning of a code as the terminals show it."""
    return CODES.get(code, "unknown code")
