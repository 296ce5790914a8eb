"""The model calls of an Inspect sample say what its messages do not: usage, time, tools, compactions.

A call is found beside the message that it answered with: by the message's id, or by what it says
where messages have none (until 2025). Calls that answered with no message of the sample are those of
scorers, subagents and writers of summaries. What a call was sent is looked at only behind a
``compaction`` event, for Inspect sends a list of its own making: neighbours of one role joined,
pictures moved, reasoning taken away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.base import (
    LeaveOut,
    silent,
)
from ctxlab.formats.common.chat_format import first_choice
from ctxlab.formats.common.compaction_match import found_again
from ctxlab.formats.inspect.messages import (
    Attachments,
    message,
    tool_definition,
)
from ctxlab.formats.optional_fields import (
    iso_time,
    text,
    whole_number,
    within,
)
from ctxlab.messages.types import (
    Compaction,
    Message,
    Usage,
)

__all__ = ["Calls", "calls_of"]

_Key: TypeAlias = tuple[Any, ...]


class Calls(NamedTuple):
    """What the model calls of a sample tell; positions are those of its messages."""

    answers: dict[int, tuple[Usage | None, float | None]]
    "usage and time of the answers"
    tools: tuple[dict[str, Any], ...]
    "those of the last call that had any"
    compactions: dict[int, Compaction]


def calls_of(
    sample: dict[str, Any],
    messages: Sequence[Message],
    ids: Sequence[str | None],
    attachments: Attachments,
    leave_out: LeaveOut,
) -> Calls:
    """The calls that answered with one of ``messages``, whose ``ids`` stand beside them.

    ``leave_out`` is told of every other; ``ValueError`` says what is wrong with an event.
    """
    places = _Places(messages, ids)
    pool = within(sample, "events_data", "messages") or sample.get("message_pool")
    found = Calls({}, (), {})
    waiting: dict[str | None, dict[str, Any]] = {}
    gone: set[int] = set()
    for event in _events(sample):
        span = text(event.get("span_id"))
        if event.get("event") == "compaction":
            waiting[span] = event
            continue
        row = _answer(event)
        if row is None:
            leave_out("model call without an answer")
            continue
        # What is left out of an answer was told where the messages said it.
        place = places.take(text(row.get("id")), message(row, attachments, silent))
        if place is None:
            leave_out("model call of another conversation (scorer, subagent, summary)")
            continue
        time = iso_time(event.get("completed")) or iso_time(event.get("timestamp"))
        found.answers[place] = _usage(within(event, "output", "usage")), time
        tools = event.get("tools")
        if isinstance(tools, list) and tools:
            found = found._replace(tools=tuple(tool_definition(t, attachments) for t in tools))
        if (compaction := waiting.pop(span, None)) is not None:
            sent = [message(each, attachments, silent) for each in _sent(event, pool)]
            found.compactions[place] = _compaction(compaction, messages[:place], sent, gone)
    for _ in waiting:
        leave_out("compaction of another conversation")
    return found


class _Places:
    """Where the answers stand, each to be taken once."""

    def __init__(self, messages: Sequence[Message], ids: Sequence[str | None]) -> None:
        self._by_id: dict[str, int] = {}
        self._by_key: dict[_Key, deque[int]] = {}
        for place, (each, id) in enumerate(zip(messages, ids, strict=True)):
            if each.role == "assistant" and id is not None:
                self._by_id.setdefault(id, place)
            elif each.role == "assistant":
                self._by_key.setdefault(_key(each), deque()).append(place)

    def take(self, id: str | None, answer: Message) -> int | None:
        if id is not None:
            return self._by_id.pop(id, None)
        same = self._by_key.get(_key(answer))
        return same.popleft() if same else None


def _events(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The model calls and compactions; where none are logged, the sample's output is the last call."""
    events = sample.get("events") or within(sample, "transcript", "events") or []
    if not isinstance(events, list):
        raise ValueError(f"events are a list, not {type(events).__name__}")
    seen = False
    for event in events:
        if within(event, "event") in ("model", "compaction"):
            seen = True
            yield event
    last = {"output": sample.get("output")}
    if not seen and _answer(last) is not None:
        yield last


def _answer(event: dict[str, Any]) -> dict[str, Any] | None:
    row = first_choice(within(event, "output"))
    return row if isinstance(row, dict) else None


def _usage(value: Any) -> Usage | None:
    """In logs until 2025, OpenAI's ``input_tokens`` hold the cached ones; their total gives it away."""
    if not isinstance(value, dict):
        return None
    names = "input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens"
    sent, read, written, output = (whole_number(value.get(name)) for name in names)
    if sent + output == whole_number(value.get("total_tokens")):
        sent = max(sent - read - written, 0)
    return Usage(sent, read, written, output, whole_number(value.get("reasoning_tokens")))


def _sent(event: dict[str, Any], pool: Any) -> Iterator[Any]:
    """The messages that a call was sent, from the pool where it only refers to them."""
    rows, ranges = event.get("input"), event.get("input_refs")
    if isinstance(rows, list):
        yield from rows
    for each in ranges if isinstance(ranges, list) and isinstance(pool, list) else ():
        start, end = each
        yield from pool[start:end]


def _compaction(
    event: dict[str, Any], before: Sequence[Message], sent: Sequence[Message], gone: set[int]
) -> Compaction:
    """What a compaction left of the messages before the call, by what the call was sent.

    ``gone`` are the results that are cleared already; those that are now are added.
    """
    again = found_again([*map(_key, before)], [*map(_key, sent)])
    trigger = text(within(event, "metadata", "trigger"))
    tokens = whole_number(event.get("tokens_before")) or None
    if event.get("type") == "edit":
        now = [
            place
            for index, place in sorted(again.items())
            if before[place].role == "tool" and before[place].text != sent[index].text
        ]
        cleared = tuple(before[place].tool_call_id or "" for place in now if place not in gone)
        gone.update(now)
        return Compaction(
            len(before), "clear", cleared=cleared, trigger=trigger, tokens_before=tokens
        )
    stand_in = [each.text for index, each in enumerate(sent) if index not in again]
    return Compaction(
        len(before),
        summary="\n\n".join(stand_in) or None,
        kept=tuple(sorted(again.values())),
        trigger=trigger,
        tokens_before=tokens,
    )


def _key(each: Message) -> _Key:
    """What stays the same of a message, also where its result was cleared."""
    if each.role == "tool":
        return "tool", each.tool_call_id
    return each.role, each.text, *(call.id for call in each.tool_calls)
