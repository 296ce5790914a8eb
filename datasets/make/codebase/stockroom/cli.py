"""The command line: each command parses its words, calls one function and prints.

A refusal is printed with its code and ends with status 2; a wrong call ends with status 64.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

from stockroom import config
from stockroom.errors import StockroomError, explain
from stockroom.importer import changes, read_prices
from stockroom.invoices import build_invoice, check_number, render
from stockroom.money import format_cents
from stockroom.orders import find_order
from stockroom.pricing import quote
from stockroom.report import low_stock_text, movements_text, valuation_text
from stockroom.reservations import ReservationBook
from stockroom.returns import last_day, open_return
from stockroom.searching import search_products
from stockroom.shipping import parcel_quote
from stockroom.stock import StockLedger
from stockroom.suppliers import expected, proposals
from stockroom.tax import tax_total


def pairs(words: list[str]) -> dict[str, int]:
    """``SKU=COUNT`` words as quantities."""
    return {sku.upper(): int(count) for sku, count in (word.split("=") for word in words)}


def cmd_quote(words: list[str]) -> str:
    """quote GROUP SKU=COUNT... [coupon:CODE]"""
    coupon = next((w.removeprefix("coupon:") for w in words if w.startswith("coupon:")), "")
    items = [w for w in words[1:] if "=" in w]
    priced = quote(pairs(items), words[0], coupon)
    lines = [
        f"{line.sku}  x{line.quantity}  list {format_cents(line.list_total)}"
        f"  off {format_cents(line.discount)}  net {format_cents(line.net)}"
        for line in priced.lines
    ]
    total = tax_total([(line.category, line.net) for line in priced.lines])
    lines.append(f"net {format_cents(total.net)}  tax {format_cents(total.tax)}")
    return "\n".join([*lines, f"gross {format_cents(total.gross)}"])


def cmd_stock(words: list[str]) -> str:
    """stock SKU"""
    return movements_text(StockLedger.opening(), words[0].upper())


def cmd_hold(words: list[str]) -> str:
    """hold SKU COUNT START THEN: reserve at START, then show what is free at THEN"""
    book = ReservationBook(StockLedger.opening())
    start, then = datetime.fromisoformat(words[2]), datetime.fromisoformat(words[3])
    before = book.free_stock(words[0], start)
    reservation = book.reserve_stock(words[0], int(words[1]), "cli", start)
    return (
        f"{reservation.id} holds {reservation.quantity} until {reservation.expires}\n"
        f"free before {before}, free at {then}: {book.free_stock(words[0], then)}"
    )


def cmd_ship(words: list[str]) -> str:
    """ship COUNTRY POSTCODE WHEN SKU=COUNT..."""
    when = datetime.fromisoformat(words[2])
    answer = parcel_quote(pairs(words[3:]), words[0], words[1], when)
    return "\n".join(f"{key}: {value}" for key, value in answer.items())


def cmd_invoice(words: list[str]) -> str:
    """invoice ORDER RUNNING DATE"""
    issued = date.fromisoformat(words[2])
    return render(build_invoice(find_order(words[0]), int(words[1]), issued))


def cmd_check(words: list[str]) -> str:
    """check INVOICE_NUMBER"""
    return f"{check_number(words[0])} is well formed"


def cmd_return(words: list[str]) -> str:
    """return ORDER SKU COUNT DATE [faulty]"""
    order, faulty = find_order(words[0]), "faulty" in words
    case = open_return(order, words[1], int(words[2]), date.fromisoformat(words[3]), faulty)
    return (
        f"{case.number}: {case.quantity} x {case.sku} of {case.order}\n"
        f"refund {format_cents(case.refund)}, fee {format_cents(case.fee)}"
    )


def cmd_lastday(words: list[str]) -> str:
    """lastday ORDER CATEGORY"""
    return f"returns of {words[1]} are accepted until {last_day(find_order(words[0]), words[1])}"


def cmd_search(words: list[str]) -> str:
    """search WORD..."""
    hits = search_products(" ".join(words))
    lines = [f"{hit.score:4d}  {hit.product.sku}  {hit.product.name}" for hit in hits]
    return "\n".join(lines) or "nothing found"


def cmd_reorder(words: list[str]) -> str:
    """reorder SUPPLIER DATE"""
    found = proposals(words[0], StockLedger.opening())
    lines = [
        f"{p.sku}  {p.pieces} pieces in {p.packs} packs  {format_cents(p.cost)}" for p in found
    ]
    arrives = expected(words[0], date.fromisoformat(words[1]))
    return "\n".join([*lines, f"{len(found)} articles, expected {arrives}"])


def cmd_report(words: list[str]) -> str:
    """report low|value"""
    ledger = StockLedger.opening()
    return low_stock_text(ledger) if words[0] == "low" else valuation_text(ledger)


def cmd_prices(words: list[str]) -> str:
    """prices FILE"""
    text = (config.DATA / words[0]).read_text(encoding="utf-8")
    imported = read_prices(text)
    lines = [
        f"{sku}  {format_cents(old)} -> {format_cents(new)}" for sku, old, new in changes(imported)
    ]
    lines.append(f"{len(imported.rows)} rows read, {len(imported.problems)} skipped")
    return "\n".join([*lines, *imported.problems])


def cmd_explain(words: list[str]) -> str:
    """explain CODE"""
    return f"{words[0]}: {explain(words[0])}"


COMMANDS: dict[str, Callable[[list[str]], str]] = {
    name.removeprefix("cmd_"): function
    for name, function in sorted(globals().items())
    if name.startswith("cmd_")
}


def main(words: list[str]) -> int:
    """Run one command; returns the exit status."""
    if not words or words[0] not in COMMANDS:
        print("usage: python -m stockroom COMMAND ...")
        for function in COMMANDS.values():
            print(f"  {function.__doc__}")
        return 64
    try:
        print(COMMANDS[words[0]](words[1:]))
    except StockroomError as error:
        print(error)
        return 2
    except (IndexError, ValueError):
        print(f"usage: {COMMANDS[words[0]].__doc__}")
        return 64
    return 0
