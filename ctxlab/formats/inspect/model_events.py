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

from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import first_choice
from ctxlab.formats.common.stitch import match_repeated
from ctxlab.formats.fields import count_or_zero, get_nested, parse_iso_time, text_or_none
from ctxlab.formats.inspect.messages import Attachments, parse_message, parse_tool
from ctxlab.messages.types import Compaction, Message, Usage

__all__ = ["ModelCalls", "read_model_calls"]

_MessageKey: TypeAlias = tuple[Any, ...]


class ModelCalls(NamedTuple):
    """What the model calls of a sample tell; positions are those of its messages."""

    answers: dict[int, tuple[Usage | None, float | None]]
    "usage and time of the answers"
    tools: tuple[dict[str, Any], ...]
    "those of the last call that had any"
    compactions: dict[int, Compaction]


def read_model_calls(
    sample: dict[str, Any],
    messages: Sequence[Message],
    ids: Sequence[str | None],
    attachments: Attachments,
    skip: SkipCallback,
) -> ModelCalls:
    """The calls that answered with one of ``messages``, whose ``ids`` stand beside them.

    ``skip`` is told of every other; ``ValueError`` says what is wrong with an event.
    """
    places = _AnswerIndex(messages, ids)
    pool = get_nested(sample, "events_data", "messages") or sample.get("message_pool")
    found = ModelCalls({}, (), {})
    waiting: dict[str | None, dict[str, Any]] = {}
    cleared: set[int] = set()
    for event in _iter_events(sample):
        span = text_or_none(event.get("span_id"))
        if event.get("event") == "compaction":
            waiting[span] = event
            continue
        row = _answer_row(event)
        if row is None:
            skip("model call without an answer")
            continue
        # What is left out of an answer was told where the messages said it.
        place = places.pop(
            text_or_none(row.get("id")), parse_message(row, attachments, ignore_skip)
        )
        if place is None:
            skip("model call of another conversation (scorer, subagent, summary)")
            continue
        time = parse_iso_time(event.get("completed")) or parse_iso_time(event.get("timestamp"))
        found.answers[place] = _parse_usage(get_nested(event, "output", "usage")), time
        tools = event.get("tools")
        if isinstance(tools, list) and tools:
            found = found._replace(tools=tuple(parse_tool(t, attachments) for t in tools))
        if (compaction := waiting.pop(span, None)) is not None:
            sent = [
                parse_message(each, attachments, ignore_skip) for each in _sent_rows(event, pool)
            ]
            found.compactions[place] = _build_compaction(
                compaction, messages[:place], sent, cleared
            )
    for _ in waiting:
        skip("compaction of another conversation")
    return found


class _AnswerIndex:
    """Where the answers stand, each to be taken once."""

    def __init__(self, messages: Sequence[Message], ids: Sequence[str | None]) -> None:
        self._by_id: dict[str, int] = {}
        self._by_key: dict[_MessageKey, deque[int]] = {}
        for place, (each, id) in enumerate(zip(messages, ids, strict=True)):
            if each.role == "assistant" and id is not None:
                self._by_id.setdefault(id, place)
            elif each.role == "assistant":
                self._by_key.setdefault(_message_key(each), deque()).append(place)

    def pop(self, id: str | None, answer: Message) -> int | None:
        if id is not None:
            return self._by_id.pop(id, None)
        same = self._by_key.get(_message_key(answer))
        return same.popleft() if same else None


def _iter_events(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The model calls and compactions; where none are logged, the sample's output is the last call."""
    events = sample.get("events") or get_nested(sample, "transcript", "events") or []
    if not isinstance(events, list):
        raise ValueError(f"events are a list, not {type(events).__name__}")
    seen = False
    for event in events:
        if get_nested(event, "event") in ("model", "compaction"):
            seen = True
            yield event
    last = {"output": sample.get("output")}
    if not seen and _answer_row(last) is not None:
        yield last


def _answer_row(event: dict[str, Any]) -> dict[str, Any] | None:
    row = first_choice(get_nested(event, "output"))
    return row if isinstance(row, dict) else None


def _parse_usage(value: Any) -> Usage | None:
    """In logs until 2025, OpenAI's ``input_tokens`` hold the cached ones; their total gives it away."""
    if not isinstance(value, dict):
        return None
    names = "input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens"
    sent, read, written, output = (count_or_zero(value.get(name)) for name in names)
    if sent + output == count_or_zero(value.get("total_tokens")):
        sent = max(sent - read - written, 0)
    return Usage(sent, read, written, output, count_or_zero(value.get("reasoning_tokens")))


def _sent_rows(event: dict[str, Any], pool: Any) -> Iterator[Any]:
    """The messages that a call was sent, from the pool where it only refers to them."""
    rows, ranges = event.get("input"), event.get("input_refs")
    if isinstance(rows, list):
        yield from rows
    for each in ranges if isinstance(ranges, list) and isinstance(pool, list) else ():
        start, end = each
        yield from pool[start:end]


def _build_compaction(
    event: dict[str, Any],
    before: Sequence[Message],
    sent: Sequence[Message],
    cleared_before: set[int],
) -> Compaction:
    """What a compaction left of the messages before the call, by what the call was sent.

    ``cleared_before`` are the results that are cleared already; those that are now are added.
    """
    again = match_repeated([*map(_message_key, before)], [*map(_message_key, sent)])
    trigger = text_or_none(get_nested(event, "metadata", "trigger"))
    tokens = count_or_zero(event.get("tokens_before")) or None
    if event.get("type") == "edit":
        now = [
            place
            for index, place in sorted(again.items())
            if before[place].role == "tool" and before[place].text != sent[index].text
        ]
        cleared = tuple(
            before[place].tool_call_id or "" for place in now if place not in cleared_before
        )
        cleared_before.update(now)
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


def _message_key(each: Message) -> _MessageKey:
    """What stays the same of a message, also where its result was cleared."""
    if each.role == "tool":
        return "tool", each.tool_call_id
    return each.role, each.text, *(call.id for call in each.tool_calls)
