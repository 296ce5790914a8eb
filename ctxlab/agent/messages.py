"""Convert a model's replies and tool results to messages that every provider accepts.

Each request contains the conversation so far. Therefore a single tool call with an invalid name, or
with arguments that are not JSON, would cause providers to reject every later request.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Container, Sequence

from ctxlab._utils.jsonio import dump_json, repair_surrogates
from ctxlab.agent.tools.result import CANCELLED, ToolResult
from ctxlab.llm.base import Reply
from ctxlab.messages.types import ContentPart, Message, ToolCall
from ctxlab.strategies.tool_stubs import OUTCOME_KEY

LIMIT_MARKER = "\n\n[Tool call limit reached]"
"""Text that is appended to the answer if a turn reaches the maximum number of model calls."""

CANCELLED_MARKER = "\n\n[Cancelled]"
"""Text that is appended to a partial answer if the user interrupts the turn."""

BROKEN_OFF_MARKER = "\n\n[The answer broke off]"
"""Text that is appended to a partial answer if the turn fails."""

EMPTY_ANSWER = "[The model gave an empty answer]"
"""Text that replaces a reply without text and tool calls, which providers would reject."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def message_from_reply(reply: Reply, taken: Container[str]) -> tuple[Message, tuple[ToolCall, ...]]:
    """Convert a model's reply to a message that is stored and to tool calls that are run.

    In the stored message, each tool call has a unique id, a name with only characters that all
    providers allow, and a JSON object as arguments. The tool calls to run have the same ids, but
    keep the names and arguments that the model wrote.

    Parameters
    ----------
    reply : Reply
        The model's reply.
    taken : container of str
        Ids of the tool calls in the conversation so far, which are not used again.

    Returns
    -------
    tuple of Message and tuple of ToolCall
        Message to store, and tool calls to run.
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
    # The cost is stored with the message but not sent to the model.
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
    """Build a message from the text of an incomplete answer.

    Parameters
    ----------
    deltas : list of str
        Pieces of text that the model has sent so far.
    stopped : bool
        True if the user stopped the turn, False if the turn failed. This determines the marker at
        the end of the message.

    Returns
    -------
    Message or None
        Message of the assistant; None if the model has sent no text.
    """
    text = repair_surrogates("".join(deltas))
    marker = CANCELLED_MARKER if stopped else BROKEN_OFF_MARKER
    return Message("assistant", text + marker, time=time.time()) if text.strip() else None


def user_message(text: str, images: Sequence[str] = (), file: str | None = None) -> Message:
    """Build the message of a user.

    Parameters
    ----------
    text : str
        Text of the message.
    images : sequence of str, optional
        URLs of images that the message contains.
    file : str, optional
        Path of the file that the user has open.

    Returns
    -------
    Message
        Message to store and to send to the model.
    """
    content = _content_with_images(text, images) if images else text
    return Message("user", content, time=time.time(), file=file)


def result_message(call: ToolCall, result: ToolResult) -> Message:
    """Build the tool message for the result of a tool call.

    Parameters
    ----------
    call : ToolCall
        Tool call that the message answers.
    result : ToolResult
        Result of the tool call.

    Returns
    -------
    Message
        Message to store and to send to the model.
    """
    notes = {
        "is_error": not result.ok,
        CANCELLED: True if result.error_type == CANCELLED else None,
        "duration_ms": result.duration_ms,
        "process_id": result.process_id,
        OUTCOME_KEY: result.outcome,
    }
    extra = {name: note for name, note in notes.items() if note is not None}
    text = result.to_llm_content()
    content: str | tuple[ContentPart, ...] = text
    if result.images:
        content = _content_with_images(text, result.images)
    return Message("tool", content, tool_call_id=call.id, time=time.time(), extra=extra)


def _content_with_images(text: str, urls: Sequence[str]) -> tuple[ContentPart, ...]:
    said: tuple[ContentPart, ...] = ({"type": "text", "text": text},) if text else ()
    return (*said, *({"type": "image_url", "image_url": {"url": url}} for url in urls))


def _ensure_json_object(call: ToolCall) -> str:
    """Return the arguments of a call as a JSON object, which some providers require.

    Arguments that are not JSON, or not an object, become the only value of a new object. Empty
    arguments become an empty object.
    """
    if not call.arguments.strip():
        return "{}"
    if isinstance(value := call.parse_arguments(), dict):
        return call.arguments
    return dump_json({"not_json" if value == call.arguments else "not_an_object": value})
