"""Count the messages of a Copilot CLI session without ctxlab: ``python copilot_cli.py FILE ...``.

The events of one agent have its ``agentId``; those of the main agent have none. The
``assistant.message`` events with one ``apiCallId`` are one answer. Only its output tokens are logged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from counting import Row, print_counts, read_rows, start_totals


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of the conversations of all agents in a file."""
    agents: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(path):
        agents[row.get("agentId") or ""].append(row)
    total = start_totals()
    for agent, rows in agents.items():
        counted = count_agent(rows)
        if counted["user"] + counted["assistant"] + counted["tool"]:
            total.update(counted)
            total.update(recordings=1, subagents=int(bool(agent)))
    return dict(total)


def count_agent(rows: list[Row]) -> Counter[str]:
    """Count the conversation of one agent."""
    counted: Counter[str] = Counter()
    answers: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kind, data = row["type"], row["data"]
        if kind == "assistant.message":
            answers[data["apiCallId"]].append(data)
        elif kind == "tool.execution_complete":
            counted["tool"] += 1
        elif kind == "system.message":
            counted["system"] = 1  # it is logged again with every prompt
        elif kind == "user.message":
            counted["user"] += bool(data["content"] or data.get("transformedContent"))
        elif kind == "system.notification":
            # The other notifications are for the user.
            counted["user"] += data["content"].startswith("<system_notification>")
        elif kind == "session.compaction_complete":
            counted["compactions"] += data["success"]
    for parts in answers.values():
        calls = sum(len(part.get("toolRequests") or ()) for part in parts)
        if calls or any(part["content"] for part in parts):
            output = sum(part.get("outputTokens") or 0 for part in parts)
            counted.update(assistant=1, calls=calls, usages=int(output > 0), output=output)
    return counted


if __name__ == "__main__":
    print_counts(count_file)
