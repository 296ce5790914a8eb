"""Count the messages of an exported opencode session without ctxlab: ``python opencode.py FILE ...``.

Each assistant message of the export is one request. An answer that ended with an error was not sent
again, and is not counted; one that the user stopped was sent again if it has a text or a call.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from counting import Row, print_counts, read_text, start_totals


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of the session in a file."""
    session = json.loads(read_text(path))
    total = start_totals()
    total.update(recordings=1, subagents=int("parentID" in session["info"]))
    for message in session["messages"]:
        info, parts = message["info"], message["parts"]
        if info["role"] == "user":
            total["user"] += any(part.get("text") and not part.get("ignored") for part in parts)
        elif was_sent_again(info, parts):
            calls = sum(part["type"] == "tool" for part in parts)
            # Every call has a result: if the tool did not end, opencode sends a text that says so.
            total.update(assistant=1, calls=calls, tool=calls)
            for part in parts:
                if part["type"] == "step-finish":
                    total.update(read_bill(part["tokens"]))
    return dict(total)


def was_sent_again(info: Row, parts: list[Row]) -> bool:
    kinds = {part["type"] for part in parts if part["type"] != "text" or part["text"]}
    if info.get("error"):
        return info["error"]["name"] == "MessageAbortedError" and bool(kinds & {"text", "tool"})
    return bool(kinds & {"text", "tool", "reasoning"})


def read_bill(tokens: Row) -> Counter[str]:
    """Return the counts of one bill. ``total`` tells whether ``output`` includes the reasoning."""
    read, written = tokens["cache"]["read"], tokens["cache"]["write"]
    sent = tokens["input"] + read + written
    output = tokens["output"]
    if tokens.get("total") == sent + output + tokens["reasoning"]:
        output += tokens["reasoning"]
    billed = int(sent + output > 0)
    return Counter(usages=billed, billed=sent, cache_read=read, cache_write=written, output=output)


if __name__ == "__main__":
    print_counts(count_file)
