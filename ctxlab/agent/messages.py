"""Convert a model's replies and tool results to messages that every provider accepts.

The conversation is sent again with each request. A single tool call with a name that no provider
accepts, or with arguments that are not JSON, would make every later request fail.
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

LIMIT_MARKER = "\n\n[Tool call limit reached]"
"""Marks the answer of a turn that reached the limit of model calls."""

CANCELLED_MARKER = "\n\n[Cancelled]"
"""Marks the partial answer of a turn that the user interrupted."""

BROKEN_OFF_MARKER = "\n\n[The answer broke off]"
"""Marks the partial answer of a turn that failed."""

EMPTY_ANSWER = "[The model gave an empty answer]"
"""Replaces an answer without text and tool calls, which providers reject in a request."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def replace_surrogates(message: Message) -> Message:
    """Replace lone surrogates in a message's text, which a strategy that decodes JSON may add.

    Parameters
    ----------
    message : Message
        The message.

    Returns
    -------
    Message
        The message itself if it has no lone surrogates.
    """
    content = message.content
    if not isinstance(content, str) or (said := repair_surrogates(content)) == content:
        return message
    return message.replace(content=said)


def message_from_reply(
    reply: Reply, known_ids: Container[str]
) -> tuple[Message, tuple[ToolCall, ...]]:
    """Convert a reply to the assistant's message to store and the tool calls to run.

    The stored calls have unique ids, names of the characters that providers allow, and one JSON
    object as arguments. The calls to run have the same ids, with name and arguments as the model
    wrote them.

    Parameters
    ----------
    reply : Reply
        The model's reply.
    known_ids : container of str
        Ids of tool calls that the conversation already contains; the new ids differ from them.

    Returns
    -------
    tuple of Message and tuple of ToolCall
        The message to store and the calls to run.
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
    """Build the message for an answer that was cut off.

    Parameters
    ----------
    deltas : list of str
        Pieces of the text so far.
    marker : str
        Appended to the text.

    Returns
    -------
    Message or None
        The message; None if there is no text.
    """
    text = repair_surrogates("".join(deltas))
    return Message("assistant", text + marker, time=time.time()) if text.strip() else None


def result_message(call: ToolCall, result: ToolResult) -> Message:
    """Build the message to store and send for a tool result.

    Parameters
    ----------
    call : ToolCall
        The call.
    result : ToolResult
        Its result.

    Returns
    -------
    Message
        The tool message.
    """
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
    """Return the arguments as one JSON object, which some providers require; wrap other values."""
    try:
        value = parse_json(arguments) if arguments.strip() else {}
    except ValueError:
        return dump_json({"not_json": arguments})
    if not isinstance(value, dict):
        return dump_json({"not_an_object": value})
    return arguments if arguments.strip() else "{}"


def _price_field(reply: Reply) -> dict[str, float]:
    """Return the cost if it is known; it is stored and never sent."""
    return {"usd": reply.usd} if reply.usd and math.isfinite(reply.usd) else {}
