"""A strategy as Pydantic AI's history processor: ``capabilities=[ProcessHistory(context_processor())]``.

Its requests and responses hold several parts, each of which is a message elsewhere; they are taken apart
and put together again with the parts that the strategy left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ctxlab.adapters.base import Conversations
from ctxlab.conversation import Message, ToolCall

__all__ = ["context_processor"]

Origin: TypeAlias = tuple[ModelMessage, tuple[Any, ...]]
"""A message of the framework, and the parts of it that are one message here."""


def context_processor(
    *arguments: Any, **options: Any
) -> Callable[[list[ModelMessage]], Awaitable[list[ModelMessage]]]:
    """A processor that sends the model what the strategy makes of the history.

    Arguments are those of ``Conversations``. Instructions and the definitions of tools are not told to
    a processor, so keep room for them with ``reserve``. Pydantic AI goes on from what a processor
    returned, so what was folded stays folded. Source: Pydantic AI's documentation of history processors.
    """
    conversations = Conversations[Origin](*arguments, **options)

    async def manage(history: list[ModelMessage]) -> list[ModelMessage]:
        given = [pair for message in history for pair in _messages(message)]
        # A strategy may ask a model itself, which would hold up every other run.
        sent = await asyncio.to_thread(conversations.prepare, given)
        return _together(
            [_origin(message) if theirs is None else theirs for message, theirs in sent]
        )

    return manage


def _messages(whole: ModelMessage) -> Iterator[tuple[Message, Origin]]:
    if isinstance(whole, ModelResponse):
        yield _answer(whole), (whole, tuple(whole.parts))
        return
    for part in whole.parts:
        yield _single(part), (whole, (part,))


def _answer(response: ModelResponse) -> Message:
    text = "\n".join(part.content for part in response.parts if isinstance(part, TextPart))
    thought = "\n".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    calls = tuple(
        ToolCall(part.tool_call_id, part.tool_name, part.args_as_json_str())
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    return Message("assistant", text or (None if calls else ""), calls, reasoning=thought or None)


def _single(part: Any) -> Message:
    if isinstance(part, SystemPromptPart):
        return Message("system", part.content)
    if isinstance(part, ToolReturnPart):
        return Message("tool", part.model_response_str(), tool_call_id=part.tool_call_id)
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        return Message("tool", part.model_response(), tool_call_id=part.tool_call_id)
    if isinstance(part, UserPromptPart):
        content = part.content
        return Message("user", content if isinstance(content, str) else tuple(map(_piece, content)))
    return Message("user", part.model_response())


def _piece(piece: Any) -> dict[str, Any]:
    """Text and pictures count; of what else a prompt may hold, its kind is all that is known."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    url = getattr(piece, "data_uri", None) or getattr(piece, "url", "")
    if isinstance(piece, ImageUrl) or str(getattr(piece, "media_type", "")).startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": f"[{type(piece).__name__}]"}


def _origin(message: Message) -> Origin:
    """A message that the strategy made, as the framework would hold it."""
    if message.role == "assistant":
        said = [TextPart(message.text)] if message.text else []
        calls = [ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
        response = ModelResponse([*said, *calls])
        return response, tuple(response.parts)
    part: Any
    if message.role == "tool":
        part = ToolReturnPart(message.name or "tool", message.text, message.tool_call_id or "")
    else:
        kind = SystemPromptPart if message.role == "system" else UserPromptPart
        part = kind(message.text)
    return ModelRequest([part]), (part,)


def _together(origins: Sequence[Origin]) -> list[ModelMessage]:
    """Neighbouring parts of requests are one request, as the framework wants it."""
    made: list[ModelMessage] = []
    for whole, parts in origins:
        last = made[-1] if made else None
        if isinstance(whole, ModelResponse):
            made.append(whole)
        elif isinstance(last, ModelRequest):
            made[-1] = replace(last, parts=[*last.parts, *parts])
        else:
            made.append(
                whole if len(whole.parts) == len(parts) else replace(whole, parts=list(parts))
            )
    return made
