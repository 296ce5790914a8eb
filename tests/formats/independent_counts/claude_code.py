"""Count the messages of a Claude Code session without ctxlab: ``python claude_code.py FILE ...``.

The counts follow the notes on the format, not the code of the reader. They are compared with the
recordings that ctxlab reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from counting import Row, print_counts, read_rows, start_totals

# Type of an attachment → keys of which at least one must have a value, so that text was sent.
SENT: dict[str, tuple[str, ...]] = {
    "agent_listing_delta": ("addedTypes", "removedTypes"),
    "auto_mode": ("type",),
    "auto_mode_exit": ("type",),
    "compact_file_reference": ("type",),
    "date_change": ("type",),
    "deferred_tools_delta": ("addedNames", "removedNames"),
    "diagnostics": ("files",),
    "edited_text_file": ("snippet",),
    "file": ("content",),
    "hook_additional_context": ("content",),
    "mcp_instructions_delta": ("addedNames", "removedNames"),
    "nested_memory": ("content",),
    "plan_mode": ("type",),
    "plan_mode_exit": ("type",),
    "plan_mode_reentry": ("type",),
    "skill_listing": ("content",),
    "task_reminder": ("type",),
    "ultra_effort_enter": ("type",),
}
CLIENT_TEXTS = ("[Request interrupted", "<local-command-", "<bash-std", "<task-notification")


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of all conversations in a file."""
    chains: dict[str, list[Row]] = defaultdict(list)
    for row in drop_abandoned(unique(read_rows(path))):
        data = row.get("data") or {}
        inner = data.get("message")
        if row.get("type") == "progress" and data.get("type") == "agent_progress" and inner:
            chains[data["agentId"]].append(inner)
        else:
            chains[(row.get("agentId") or "side") if row.get("isSidechain") else ""].append(row)
            result = row.get("toolUseResult")
            agent = result.get("agentId") if isinstance(result, dict) else None
            # The final answer of a subagent in progress rows is only in the result of its call.
            if agent in chains and result["status"] == "completed":
                answer = {"content": result["content"], "usage": result["usage"]}
                chains[agent].append({"type": "assistant", "uuid": agent, "message": answer})
    total = start_totals()
    for agent, rows in chains.items():
        counted = count_chain(rows)
        if counted["user"] + counted["assistant"] + counted["tool"]:
            total.update(counted)
            total.update(recordings=1, subagents=int(bool(agent)))
    return dict(total)


def unique(rows: Iterable[Row]) -> list[Row]:
    """Leave out rows whose uuid has occurred before."""
    first: dict[Any, Row] = {}
    for place, row in enumerate(rows):
        first.setdefault(row.get("uuid") or place, row)
    return list(first.values())


def drop_abandoned(rows: list[Row]) -> list[Row]:
    """Leave out the turns that the user replaced by editing an earlier prompt."""
    mains = [row for row in rows if not row.get("isSidechain")]
    parents = {
        r["uuid"]: r.get("parentUuid") or r.get("logicalParentUuid") for r in mains if "uuid" in r
    }
    order = {row["uuid"]: place for place, row in enumerate(mains) if "uuid" in row}
    spoken = [r["uuid"] for r in mains if r.get("type") in ("user", "assistant") and "uuid" in r]
    active = set(ancestors(spoken[-1], parents)) if spoken else set()
    prompts = [row for row in mains if is_prompt(row)]
    dropped: set[str] = set()
    for old in prompts:
        later = [
            order[new["uuid"]]
            for new in prompts
            if new["uuid"] in active
            and new.get("parentUuid") == old.get("parentUuid")
            and new.get("parentUuid") in parents
        ]
        if old["uuid"] in active or not later or order[old["uuid"]] > max(later):
            continue
        below = {uuid for uuid in order if old["uuid"] in ancestors(uuid, parents)}
        if all(order[uuid] < max(later) for uuid in below & set(spoken)):
            dropped |= below
    return [row for row in rows if row.get("uuid") not in dropped]


def ancestors(uuid: str | None, parents: dict[str, Any]) -> list[str]:
    path: dict[str, None] = {}
    while uuid in parents and uuid not in path:
        path[uuid] = None
        uuid = parents[uuid]
    return list(path)


def is_prompt(row: Row) -> bool:
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    content = row["message"]["content"]
    results = [b for b in content if isinstance(b, dict) and b.get("type") == "tool_result"]
    return not results and not text_of(content).startswith(CLIENT_TEXTS)


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(b["text"] for b in content or () if b.get("type") == "text").strip()


def count_chain(rows: list[Row]) -> Counter[str]:
    """Count one conversation."""
    counted: Counter[str] = Counter()
    answers: dict[str, list[Row]] = defaultdict(list)
    last = None
    shown: set[str] = set()  # calls whose results are in the context and were not cleared
    for row in rows:
        kind, message = row.get("type"), row.get("message") or {}
        if kind == "assistant":
            if message.get("model") != "<synthetic>" and not row.get("isApiErrorMessage"):
                last = message.get("id") or row["uuid"]
                answers[last].append(message)
        elif kind == "user" and row.get("isCompactSummary"):
            counted["compactions"] += 1
            shown.clear()
        elif kind == "user":
            content = message["content"]
            blocks = [{"type": "text"}] if isinstance(content, str) else content
            answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
            results = len(answered)
            shown.update(answered)
            said = any(block["type"] in ("text", "image") for block in blocks)
            counted.update(tool=results, user=int(said))
            last = None if said or results else last
        elif kind == "attachment" and was_sent(row):
            counted["user"] += 1
            last = None
        elif row.get("subtype") == "microcompact_boundary":
            cleared = shown.intersection(row["microcompactMetadata"]["compactedToolIds"])
            counted["compactions"] += bool(cleared)
            shown -= cleared
    for id, parts in answers.items():
        blocks = [block for part in parts for block in part["content"]]
        calls = sum(block["type"] == "tool_use" for block in blocks)
        if calls or any(block.get("text") for block in blocks) or id == last:
            usages = [part["usage"] for part in parts if part.get("usage")]
            usage = max(reversed(usages), key=lambda each: each["output_tokens"], default={})
            counted.update(assistant=1, calls=calls, usages=int(bool(usage)))
            counted.update(read_bill(usage))
    counted["user"] += count_queued(rows)
    return counted


def read_bill(usage: Row) -> Counter[str]:
    written = usage.get("cache_creation_input_tokens") or 0
    read = usage.get("cache_read_input_tokens") or 0
    return Counter(
        billed=(usage.get("input_tokens") or 0) + read + written,
        output=usage.get("output_tokens") or 0,
        cache_read=read,
        cache_write=written,
        cache_write_1h=(usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0,
    )


def was_sent(row: Row) -> bool:
    attachment = row["attachment"]
    kind = attachment["type"]
    if kind in ("queued_command", "prompt_snapshot"):
        return False
    if row.get("rendered"):
        return True
    if kind == "hook_success":
        event = attachment["hookEvent"]
        return event in ("SessionStart", "UserPromptSubmit") and bool(attachment["content"])
    return any(attachment.get(key) for key in SENT.get(kind, ()))


def count_queued(rows: list[Row]) -> int:
    """Count the queued prompts that have no user row.

    They are the attachments of type ``queued_command`` and the removals from the queue. A removal and
    an attachment or user row with the same text between two answers are the same prompt.
    """
    count = 0
    queues: dict[Any, list[Any]] = defaultdict(list)
    removed: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    answer = None
    for row in rows:
        kind, operation, queue = row.get("type"), row.get("operation"), queues[row.get("sessionId")]
        if kind == "assistant" and row["message"].get("id") != answer:
            answer = row["message"].get("id")
            count += removed.total()
            removed, shown = Counter(), Counter()
        elif operation == "enqueue":
            queue.append(row.get("content"))
        elif operation == "popAll":
            queue.clear()
        elif operation in ("dequeue", "remove"):
            prompt = take(queue, row.get("content"))
            text = text_of(prompt)
            if text and operation == "remove" and row.get("reason") in (None, "absorbed_mid_turn"):
                pair(text, shown, removed)
        elif kind == "attachment" and row["attachment"]["type"] == "queued_command":
            count += 1
            pair(text_of(row["attachment"]["prompt"]), removed, shown)
        elif kind == "user" and (text := text_of(row["message"]["content"])):
            pair(text, removed, shown)
    return count + removed.total()


def pair(text: str, others: Counter[str], own: Counter[str]) -> None:
    """Cancel a text against one of the others, or add it to the own texts."""
    if others[text]:
        others[text] -= 1
    else:
        own[text] += 1


def take(queue: list[Any], content: Any) -> Any:
    same = [prompt for prompt in queue if not content or text_of(prompt) == text_of(content)]
    if same:
        queue.remove(same[0])
    return same[0] if same else content


if __name__ == "__main__":
    print_counts(count_file)
