"""Count the messages of a Codex rollout without ctxlab: ``python codex.py FILE ...``.

Each answer of the model is a run of items (reasoning, text, calls) with one ``token_count``. In older
files, the count precedes the items and each call is followed by its output. In newer files, the count
follows them. A count with the same totals as the count before reports nothing new.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from counting import Row, print_counts, read_rows, start_totals

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of the conversation in a file."""
    events = list(list_events(path))
    kinds = [kind for kind, _ in events]
    total = start_totals()
    total.update(recordings=1)
    total.update(tool=kinds.count("output"), compactions=kinds.count("compaction"))
    began = min(kinds.index(kind) for kind in ("user", "answer") if kind in kinds)
    for place, (kind, item) in enumerate(events):
        if kind == "meta":
            total["system"] += bool(item.get("base_instructions"))
            total["subagents"] += bool(item.get("parent_thread_id"))
        elif kind == "developer":
            total["system" if place < began else "user"] += 1
        elif kind == "user":
            total["user"] += 1
    counts_first = "bill" in kinds and kinds.index("bill") < kinds.index("answer")
    for items, bill in (group_after_bills if counts_first else group_before_bills)(events):
        calls = sum(item["type"] in CALLS for item in items)
        if calls or any(text_of(item) for item in items if item["type"] == "message"):
            total.update(assistant=1, calls=calls)
            total.update(read_bill(bill) if bill else {})
    return dict(total)


def list_events(path: Path) -> list[tuple[str, Row]]:
    """Return the rows that matter, each with its kind."""
    events: list[tuple[str, Row]] = []
    totals = None
    for row in read_rows(path):
        item = row["payload"]
        kind = item.get("type")
        if row["type"] == "session_meta" and not events:
            events.append(("meta", item))
        elif row["type"] in ("turn_context", "compacted"):
            events.append(("turn" if row["type"] == "turn_context" else "compaction", item))
        elif kind == "token_count" and (info := item.get("info")):
            if any(info["last_token_usage"].get(k) for k in ("input_tokens", "output_tokens")):
                if info["total_token_usage"] != totals:
                    events.append(("bill", info["last_token_usage"]))
                totals = info["total_token_usage"]
        elif row["type"] == "response_item":
            if kind == "message" and item["role"] != "assistant":
                if item["content"]:
                    events.append((item["role"], item))
            elif kind == "agent_message":
                events.append(("user", item))
            elif kind in OUTPUTS:
                events.append(("output", item))
            elif kind in ("message", "reasoning", "web_search_call", *CALLS):
                events.append(("answer", item))
    return events


def group_after_bills(events: list[tuple[str, Row]]) -> list[tuple[list[Row], Row | None]]:
    """Group the items of answers, with their bills, in files in which a bill precedes its items."""
    groups: list[tuple[list[Row], Row | None]] = []
    for kind, item in events:
        if kind == "bill":
            groups.append(([], item))
        elif kind == "answer":
            groups[-1][0].append(item)
    return groups


def group_before_bills(events: list[tuple[str, Row]]) -> list[tuple[list[Row], Row | None]]:
    """Group the items of answers, with their bills, in files in which a bill follows its items."""
    groups: list[tuple[list[Row], Row | None]] = []
    is_open = False
    for kind, item in events:
        if kind == "answer":
            if not is_open:
                groups.append(([], None))
            groups[-1][0].append(item)
        elif kind == "bill" and groups and groups[-1][1] is None:
            groups[-1] = (groups[-1][0], item)
        is_open = kind == "answer"
    return groups


def text_of(item: Row) -> str:
    return "".join(part.get("text") or "" for part in item["content"])


def read_bill(bill: Row) -> Counter[str]:
    return Counter(
        usages=1,
        billed=bill["input_tokens"],
        output=bill["output_tokens"],
        cache_read=bill["cached_input_tokens"],
        cache_write=bill.get("cache_write_input_tokens") or 0,
    )


if __name__ == "__main__":
    print_counts(count_file)
