"""What a model says becomes a message that every provider takes back, whatever it said.

A conversation is sent again with each request, so one call with a name that no provider accepts, or
with arguments that are no JSON, would make every later request fail.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Container

from ctxlab._utils.jsonio import dump_json, parse_json, repair_surrogates
from ctxlab.agent.tools.result import CANCELLED, ToolResult
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, ToolCall

__all__ = [
    "BROKEN_OFF_MARKER",
    "CANCELLED_MARKER",
    "EMPTY_ANSWER",
    "LIMIT_MARKER",
    "message_from_reply",
    "partial_answer",
    "replace_surrogates",
    "result_message",
]

LIMIT_MARKER = "\n\n[Tool call limit reached]"
"""Stands after the partial answer of a turn in which the model was called as often as it may be."""

CANCELLED_MARKER = "\n\n[Cancelled]"
"""Stands after what the assistant had said when the user interrupted it."""

BROKEN_OFF_MARKER = "\n\n[The answer broke off]"
"""Stands after what the assistant had said when its answer failed."""

EMPTY_ANSWER = "[The model gave an empty answer]"
"""Stands for an answer without text and without calls, which providers refuse to be sent."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def replace_surrogates(message: Message) -> Message:
    """The message itself, unless a strategy that decodes JSON has put a lone surrogate into its text."""
    content = message.content
    if not isinstance(content, str) or (said := repair_surrogates(content)) == content:
        return message
    return message.replace(content=said)


def message_from_reply(
    reply: Reply, known_ids: Container[str]
) -> tuple[Message, tuple[ToolCall, ...]]:
    """The assistant's message as it is kept, and its calls as they were meant.

    Kept calls have ids that are not in ``known_ids`` (ids that the conversation already holds) and
    differ from each other, names of the letters that providers allow, and one JSON object as
    arguments. The calls as they were meant have these ids, and name and arguments as the model
    wrote them.
    """
    said = reply.message
    ids: set[str] = set()
    kept: list[ToolCall] = []
    meant: list[ToolCall] = []
    for call in said.tool_calls:
        wanted = id = repair_surrogates(call.id) or "call_0"
        number = 0
        while id in ids or id in known_ids:
            id, number = f"{wanted}_{number}", number + 1
        ids.add(id)
        meant.append(ToolCall(id, repair_surrogates(call.name), repair_surrogates(call.arguments)))
        name = _INVALID_NAME_CHARS.sub("_", call.name)[:64] or "unnamed"
        kept.append(ToolCall(id, name, _ensure_json_object(meant[-1].arguments)))
    content = repair_surrogates(said.content) if isinstance(said.content, str) else said.content
    if not content or (isinstance(content, str) and not content.strip()):
        content = None if kept else EMPTY_ANSWER
    message = said.replace(
        role="assistant",
        content=content,
        tool_calls=tuple(kept),
        tool_call_id=None,
        usage=reply.usage,
        time=time.time(),
        extra=said.extra | _price_field(reply),
    )
    return message, tuple(meant)


def partial_answer(deltas: list[str], marker: str) -> Message | None:
    """What was said before it was cut off, with the marker; None where nothing was."""
    text = repair_surrogates("".join(deltas))
    return Message("assistant", text + marker, time=time.time()) if text.strip() else None


def result_message(call: ToolCall, result: ToolResult) -> Message:
    """A tool's answer as the message that is kept and sent."""
    extra: dict[str, object] = {}
    if not result.ok:
        extra["is_error"] = True
    if result.error_type == CANCELLED:
        extra[CANCELLED] = True
    if result.duration_ms is not None:
        extra["duration_ms"] = result.duration_ms
    if result.process_id is not None:
        extra["process_id"] = result.process_id
    content = result.to_llm_content()
    return Message("tool", content, tool_call_id=call.id, time=time.time(), extra=extra)


def _ensure_json_object(arguments: str) -> str:
    """Arguments as one JSON object, which some providers insist on; what is none stands in one."""
    try:
        value = parse_json(arguments) if arguments.strip() else {}
    except ValueError:
        return dump_json({"not_json": arguments})
    if not isinstance(value, dict):
        return dump_json({"not_an_object": value})
    return arguments if arguments.strip() else "{}"


def _price_field(reply: Reply) -> dict[str, float]:
    """The price, where one is known; it is kept and never sent."""
    return {"usd": reply.usd} if reply.usd and math.isfinite(reply.usd) else {}
