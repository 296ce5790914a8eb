"""Convert a model's replies and tool results to messages that every provider accepts.

The conversation is sent again with each request. A single tool call with a name that no provider
accepts, or with arguments that are not JSON, would make every later request fail.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Container

from ctxlab._utils.jsonio import dump_json, repair_surrogates
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


def message_from_reply(reply: Reply, taken: Container[str]) -> tuple[Message, tuple[ToolCall, ...]]:
    """Convert a reply to the assistant's message to store and the tool calls to run.

    The stored calls have unique ids, names of the characters that providers allow, and one JSON
    object as arguments. The calls to run have the same ids, with name and arguments as the model
    wrote them.

    Parameters
    ----------
    reply : Reply
        The model's reply.
    taken : container of str
        Ids of tool calls that the conversation already contains; the new ids differ from them.

    Returns
    -------
    tuple of Message and tuple of ToolCall
        The message to store and the calls to run.
    """
    said = reply.message
    kept: dict[str, ToolCall] = {}
    meant: list[ToolCall] = []
    for call in said.tool_calls:
        wanted = id = repair_surrogates(call.id) or "call_0"
        number = 0
        while id in kept or id in taken:
            id, number = f"{wanted}_{number}", number + 1
        meant.append(ToolCall(id, repair_surrogates(call.name), repair_surrogates(call.arguments)))
        name = _INVALID_NAME_CHARS.sub("_", call.name)[:64] or "unnamed"
        kept[id] = ToolCall(id, name, _ensure_json_object(meant[-1]))
    content = said.content
    if isinstance(content, str):
        content = repair_surrogates(content) if content.strip() else None
    # The cost, if it is known, is stored and never sent.
    cost = {"usd": reply.usd} if reply.usd and math.isfinite(reply.usd) else {}
    message = said.replace(
        role="assistant",
        content=content or (None if kept else EMPTY_ANSWER),
        tool_calls=tuple(kept.values()),
        tool_call_id=None,
        usage=reply.usage,
        time=time.time(),
        extra=said.extra | cost,
    )
    return message, tuple(meant)


def partial_answer(deltas: list[str], stopped: bool) -> Message | None:
    """Build the message for an answer that was cut off.

    Parameters
    ----------
    deltas : list of str
        Pieces of the text so far.
    stopped : bool
        True if the user stopped it, False if it failed; a marker at the end of the text tells which.

    Returns
    -------
    Message or None
        The message; None if there is no text.
    """
    text = repair_surrogates("".join(deltas))
    marker = CANCELLED_MARKER if stopped else BROKEN_OFF_MARKER
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
    notes = {
        "is_error": None if result.ok else True,
        CANCELLED: True if result.error_type == CANCELLED else None,
        "duration_ms": result.duration_ms,
        "process_id": result.process_id,
    }
    extra = {name: note for name, note in notes.items() if note is not None}
    content = result.to_llm_content()
    return Message("tool", content, tool_call_id=call.id, time=time.time(), extra=extra)


def _ensure_json_object(call: ToolCall) -> str:
    """Return the arguments as one JSON object, which some providers require; wrap other values."""
    if not call.arguments.strip():
        return "{}"
    if isinstance(value := call.parse_arguments(), dict):
        return call.arguments
    return dump_json({"not_json" if value == call.arguments else "not_an_object": value})
