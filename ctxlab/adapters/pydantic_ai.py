"""Adapter for Pydantic AI: ``capabilities=[ProcessHistory(context_processor())]``.

A request or response of Pydantic AI consists of several parts. Each part of a request is converted
to one message; all parts of a response together are converted to one message. Parts that the
strategy does not change are sent as the framework's own objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic_ai import messages as api

from ctxlab.adapters.base import ConversationPool
from ctxlab.messages.types import Message, ToolCall

MessageWithParts: TypeAlias = tuple[api.ModelMessage, tuple[Any, ...]]
"""A message of the framework, and the parts of it that are converted to one ctxlab message."""


def context_processor(
    *arguments: Any, **options: Any
) -> Callable[[list[api.ModelMessage]], Awaitable[list[api.ModelMessage]]]:
    """Return a history processor that applies a strategy to the message history.

    The framework does not pass the instructions and the tool definitions to a processor; increase
    ``reserve`` by their number of tokens. The framework replaces its message history with the
    messages that a processor returns. Therefore every change is permanent, even if the strategy
    normally makes it for one request only. For example, messages that ``panic`` drops or
    ``retrieval`` leaves out are lost. A processor may be shared between threads, event loops and agents.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. Pass ``model``, because the framework does not
        tell a processor which model is used.

    Returns
    -------
    callable
        Asynchronous function to pass to ``ProcessHistory``.

    References
    ----------
    Pydantic AI's documentation of history processors.
    """
    conversations = ConversationPool[MessageWithParts](*arguments, **options)

    async def manage(history: list[api.ModelMessage]) -> list[api.ModelMessage]:
        conversation = [pair for message in history for pair in _split_message(message)]
        # A strategy may call a model itself, which would block the event loop.
        sent = await asyncio.to_thread(conversations.prepare_messages, conversation)
        return _merge_requests([each.to_framework(_to_pydantic_ai) for each in sent])

    return manage


def _split_message(whole: api.ModelMessage) -> Iterator[tuple[Message, MessageWithParts]]:
    if isinstance(whole, api.ModelResponse):
        yield _response_to_message(whole), (whole, tuple(whole.parts))
        return
    for part in whole.parts:
        yield _part_to_message(part), (whole, (part,))


def _response_to_message(response: api.ModelResponse) -> Message:
    parts = response.parts
    text = "\n".join(part.content for part in parts if isinstance(part, api.TextPart))
    thought = "\n".join(part.content for part in parts if isinstance(part, api.ThinkingPart))
    made = [part for part in parts if isinstance(part, api.ToolCallPart)]
    calls = tuple(ToolCall(c.tool_call_id, c.tool_name, c.args_as_json_str()) for c in made)
    return Message("assistant", text or (None if calls else ""), calls, reasoning=thought or None)


def _part_to_message(part: Any) -> Message:
    if isinstance(part, api.SystemPromptPart):
        return Message("system", part.content)
    if isinstance(part, api.ToolReturnPart):
        # ``model_response_str`` may add text to errors, so a string is taken as it is.
        text = part.content if isinstance(part.content, str) else part.model_response_str()
        return Message("tool", text, (), part.tool_call_id, part.tool_name)
    if isinstance(part, api.RetryPromptPart) and part.tool_name is not None:
        return Message("tool", part.model_response(), (), part.tool_call_id, part.tool_name)
    if isinstance(part, api.UserPromptPart):
        content = part.content
        text = isinstance(content, str)
        return Message("user", content if text else tuple(map(_to_content_part, content)))
    return Message("user", part.model_response() if hasattr(part, "model_response") else repr(part))


def _to_content_part(piece: Any) -> dict[str, Any]:
    """Convert text or an image to OpenAI's format; replace other content by its type name."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    url = getattr(piece, "data_uri", None) or getattr(piece, "url", "")
    media_type = str(getattr(piece, "media_type", ""))
    if isinstance(piece, api.ImageUrl) or media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": f"[{type(piece).__name__}]"}


def _to_pydantic_ai(message: Message, original: MessageWithParts | None) -> MessageWithParts:
    """Convert a changed message to a Pydantic AI message; keep all other fields of ``original``."""
    if message.role == "assistant":
        response = _update_response(message, original)
        return response, tuple(response.parts)
    whole, was = (None, None) if original is None else (original[0], original[1][0])
    part: Any
    if isinstance(was, api.UserPromptPart):
        part = replace(was, content=_update_prompt(message, was))
    elif isinstance(was, api.ToolReturnPart | api.SystemPromptPart):
        part = replace(was, content=message.text)
    elif message.role == "tool":
        part = api.ToolReturnPart(message.name or "tool", message.text, message.tool_call_id or "")
    else:
        kind = api.SystemPromptPart if message.role == "system" else api.UserPromptPart
        part = kind(message.text)
    if isinstance(whole, api.ModelRequest):
        return replace(whole, parts=[part]), (part,)
    return api.ModelRequest([part]), (part,)


def _update_prompt(message: Message, was: api.UserPromptPart) -> Any:
    """Return the content of a user prompt that a strategy changed.

    ``was`` is the prompt before the change. Unchanged parts of the content are taken from ``was``.
    """
    if not isinstance(message.content, tuple) or isinstance(was.content, str):
        return message.text
    known = [(_to_content_part(piece), piece) for piece in was.content]
    return [
        next((piece for part, piece in known if part == made), str(made.get("text") or ""))
        for made in message.content
    ]


def _update_response(message: Message, original: MessageWithParts | None) -> api.ModelResponse:
    """Convert a changed assistant message to a response; keep all other parts of ``original``."""
    calls = {call.id: call for call in message.tool_calls}
    if original is None:
        said: list[Any] = [api.TextPart(message.text)] if message.text else []
        said += [api.ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
        return api.ModelResponse(said)
    whole, parts = original
    assert isinstance(whole, api.ModelResponse)
    was = _response_to_message(whole)
    changed = message.text != was.text
    made: list[Any] = [api.TextPart(message.text)] if message.text and changed else []
    for part in parts:
        if isinstance(part, api.ToolCallPart):
            call = calls.get(part.tool_call_id)
            if call is not None:
                same = call.arguments == part.args_as_json_str()
                made.append(part if same else replace(part, args=call.arguments))
        elif isinstance(part, api.TextPart):
            made += [] if changed else [part]
        elif isinstance(part, api.ThinkingPart):
            # Providers that sign thinking parts require them at the beginning.
            thoughts = sum(isinstance(before, api.ThinkingPart) for before in made)
            made[thoughts:thoughts] = [part] if message.reasoning else []
        else:
            made.append(part)
    return replace(whole, parts=made)


def _merge_requests(origins: Sequence[MessageWithParts]) -> list[api.ModelMessage]:
    """Build the message history. The framework requires consecutive request parts in one request."""
    made: list[api.ModelMessage] = []
    for whole, parts in origins:
        last = made[-1] if made else None
        if isinstance(whole, api.ModelResponse):
            made.append(whole)
        elif isinstance(last, api.ModelRequest):
            made[-1] = replace(last, parts=[*last.parts, *parts])
        else:
            is_whole = len(whole.parts) == len(parts)
            made.append(whole if is_whole else replace(whole, parts=list(parts)))
    return made
