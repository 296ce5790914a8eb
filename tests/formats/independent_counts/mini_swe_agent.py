"""Count the messages of a mini-swe-agent run without ctxlab: ``python mini_swe_agent.py FILE ...``.

The messages are in OpenAI's format. The last one, of role ``exit``, was not sent to the model.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from counting import Row, print_counts, read_text, start_totals


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of the run in a file."""
    total = start_totals()
    total["recordings"] = 1
    for message in json.loads(read_text(path))["messages"]:
        if message["role"] != "exit":
            total.update({message["role"]: 1, "calls": len(message.get("tool_calls") or ())})
        if message["role"] == "assistant":
            total.update(read_bill(message["extra"]["response"]["usage"]))
    return dict(total)


def read_bill(usage: Row) -> Counter[str]:
    """Return the counts of one bill. ``prompt_tokens`` includes the tokens read from the cache."""
    return Counter(
        usages=1,
        billed=usage["prompt_tokens"],
        output=usage["completion_tokens"],
        cache_read=usage["prompt_tokens_details"]["cached_tokens"],
    )


if __name__ == "__main__":
    print_counts(count_file)
