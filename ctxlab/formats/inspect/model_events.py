"""Read usage, times, tools and compactions from the model events of an Inspect sample.

Each model call is matched by message id to the message that contains its answer. In logs until 2025,
messages have no ids, and the call is matched by the content of the answer. If no message of the
sample contains the answer, the call belongs to a scorer, a subagent or a summary, and is skipped.

The input of a call is read only if the call follows a ``compaction`` event. The input of other
calls is not needed, and it differs from the messages of the sample: before it sends messages,
Inspect joins adjacent messages of one role, moves images and removes reasoning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import first_choice
from ctxlab.formats.common.stitch import match_repeated
from ctxlab.formats.fields import get_count, get_in, get_text, get_time
from ctxlab.formats.inspect.messages import Attachments, parse_message, parse_tool
from ctxlab.messages.types import Compaction, Message, Substitute, Usage

_MessageKey: TypeAlias = tuple[Any, ...]
_Messages: TypeAlias = Sequence[Message]


class ModelCalls(NamedTuple):
    """Usage, times, tools and compactions from the model calls of a sample."""

    answers: dict[int, tuple[Usage | None, float | None]]
    "position of an answer → its usage, and its time in seconds since 1970"
    tools: tuple[dict[str, Any], ...]
    "tool definitions of the last call with tools"
    compactions: dict[int, Compaction]
    "position of the first answer after a compaction → the compaction"


def read_model_calls(
    sample: dict[str, Any],
    messages: Sequence[Message],
    ids: Sequence[str | None],
    attachments: Attachments,
    skip: SkipCallback,
) -> ModelCalls:
    """Read the model calls of a sample. A call is skipped if no message contains its answer.

    Parameters
    ----------
    sample : dict
        The logged sample.
    messages : sequence of Message
        The converted messages of the sample.
    ids : sequence of str or None
        The id of each message, or None for a message without an id.
    attachments : Attachments
        The attachments of the sample.
    skip : Callable
        Called with a description of each skipped call or compaction.

    Returns
    -------
    ModelCalls
        Usage, times, tools and compactions of the calls that were not skipped.

    Raises
    ------
    ValueError
        If an event is malformed.
    """
    places = _AnswerIndex(messages, ids)
    pool = get_in(sample, "events_data", "messages") or sample.get("message_pool")
    found = ModelCalls({}, (), {})
    waiting: dict[str | None, dict[str, Any]] = {}
    for event in _iter_events(sample):
        span = get_text(event, "span_id")
        if event.get("event") == "compaction":
            waiting[span] = event
            continue
        row = _answer_row(event)
        if row is None:
            skip("model call without an answer")
            continue
        # The skipped parts of an answer were already reported when the messages were converted.
        place = places.pop(get_text(row, "id"), parse_message(row, attachments, ignore_skip))
        if place is None:
            skip("model call of another conversation (scorer, subagent, summary)")
            continue
        time = get_time(event, "completed") or get_time(event, "timestamp")
        found.answers[place] = _parse_usage(get_in(event, "output", "usage")), time
        tools = event.get("tools")
        if isinstance(tools, list) and tools:
            found = found._replace(tools=tuple(parse_tool(t, attachments) for t in tools))
        if (compaction := waiting.pop(span, None)) is not None:
            rows = _sent_rows(event, pool)
            sent = [parse_message(row, attachments, ignore_skip) for row in rows]
            found.compactions[place] = _build_compaction(compaction, messages[:place], sent)
    for _ in waiting:
        skip("compaction of another conversation")
    return found


class _AnswerIndex:
    """Index to find the assistant message that contains the answer of a model call.

    Each message is found once only, so that two equal answers match two different messages.
    """

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
    """Yield the model and compaction events of a sample.

    If there are none, the ``output`` of the sample is yielded as its only model call.
    """
    events = sample.get("events") or get_in(sample, "transcript", "events") or []
    if not isinstance(events, list):
        raise ValueError(f"events must be a list, got {type(events).__name__}")
    seen = False
    for event in events:
        if get_in(event, "event") in ("model", "compaction"):
            seen = True
            yield event
    last = {"output": sample.get("output")}
    if not seen and _answer_row(last) is not None:
        yield last


def _answer_row(event: dict[str, Any]) -> dict[str, Any] | None:
    row = first_choice(get_in(event, "output"))
    return row if isinstance(row, dict) else None


def _parse_usage(value: Any) -> Usage | None:
    """Parse the logged token usage of a model call.

    In logs until 2025, ``input_tokens`` of OpenAI models includes cached tokens. Such logs are
    recognised by ``total_tokens``, which is then the sum of ``input_tokens`` and ``output_tokens``.
    """
    if not isinstance(value, dict):
        return None
    names = "input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens"
    sent, read, written, output = (get_count(value, name) for name in names)
    if sent + output == get_count(value, "total_tokens"):
        sent = max(sent - read - written, 0)
    return Usage(sent, read, written, output, get_count(value, "reasoning_tokens"))


def _sent_rows(event: dict[str, Any], pool: Any) -> Iterator[Any]:
    """Yield the messages of a model call's input, including those in the sample's message pool."""
    rows, ranges = event.get("input"), event.get("input_refs")
    if isinstance(rows, list):
        yield from rows
    for each in ranges if isinstance(ranges, list) and isinstance(pool, list) else ():
        start, end = each
        yield from pool[start:end]


def _build_compaction(event: dict[str, Any], before: _Messages, sent: _Messages) -> Compaction:
    """Build a compaction by comparing the earlier messages with the input of the next model call."""
    again = match_repeated([*map(_message_key, before)], [*map(_message_key, sent)])
    context: list[int | Substitute] = []
    for index, message in enumerate(sent):
        place = again.get(index)
        same = place is not None and before[place].text == message.text
        context.append(place if place is not None and same else Substitute(message, place))
    return Compaction(
        len(before),
        tuple(context),
        "clear" if event.get("type") == "edit" else "summary",
        trigger=get_text(event, "metadata", "trigger"),
        tokens_before=get_count(event, "tokens_before") or None,
    )


def _message_key(each: Message) -> _MessageKey:
    """Return a key that identifies a message. Clearing a tool result does not change its key."""
    if each.role == "tool":
        return "tool", each.tool_call_id
    return each.role, each.text, *(call.id for call in each.tool_calls)
