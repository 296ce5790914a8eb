"""Count the messages of a session of the agent pi without ctxlab: ``python pi.py FILE ...``.

Since version 2 of the format, each entry names its parent, and the conversation is the path to the last
entry. An answer that failed or was aborted is not sent again; in version 1, its text was.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from counting import Row, print_counts, read_rows, start_totals


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of the session in a file."""
    header, *entries = read_rows(path)
    is_tree = header.get("version", 1) > 1
    total = start_totals()
    total["recordings"] = 1
    for entry in select_path(entries) if is_tree else entries:
        if entry["type"] == "compaction":
            total["compactions"] += 1
        elif entry["type"] == "message":
            total.update(count_message(entry["message"], is_tree))
    return dict(total)


def select_path(entries: list[Row]) -> list[Row]:
    by_id = {entry["id"]: entry for entry in entries}
    path = [entries[-1]]
    while path[-1]["parentId"] in by_id:
        path.append(by_id[path[-1]["parentId"]])
    return path


def count_message(message: Row, is_tree: bool) -> Counter[str]:
    role = message["role"]
    if role == "toolResult":
        return Counter(tool=1)
    if role != "assistant":
        return Counter(user=1)  # also a command that the user ran (bashExecution)
    kinds = Counter(block["type"] for block in message["content"])
    calls = kinds["toolCall"]
    if message["stopReason"] in ("aborted", "error"):
        if is_tree or not kinds["text"]:
            return Counter()
        calls = 0
    return Counter(assistant=1, calls=calls) + read_bill(message["usage"])


def read_bill(usage: Row) -> Counter[str]:
    read, written = usage["cacheRead"], usage["cacheWrite"]
    sent, output = usage["input"] + read + written, usage["output"]
    billed = int(sent + output > 0)
    return Counter(usages=billed, billed=sent, cache_read=read, cache_write=written, output=output)


if __name__ == "__main__":
    print_counts(count_file)
