"""A strategy in OpenAI's Agents SDK: ``RunConfig(call_model_input_filter=context_filter("…"))``.

The SDK speaks the Responses API, whose items are smaller than messages: reasoning and parallel calls are
items of their own. What belongs to one message goes in together and comes out as the same items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

from agents.run_config import CallModelData, ModelInputData

from ctxlab.adapters.base import Conversations
from ctxlab.conversation import Message, ToolCall
from ctxlab.jsontext import dump_json

__all__ = ["context_filter"]

Items: TypeAlias = tuple[dict[str, Any], ...]


def context_filter(
    *arguments: Any, **options: Any
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """A filter that sends the model what the strategy makes of the run's items; a session keeps all.

    Arguments are those of ``Conversations``. Instructions count towards the budget; the definitions of
    tools are not told to a filter, so keep room for them with ``reserve``. Source: the SDK's
    documentation of ``call_model_input_filter``.
    """
    conversations = Conversations[Items](*arguments, **options)

    async def manage(data: CallModelData[Any]) -> ModelInputData:
        given: list[tuple[Message, Items]] = []
        if data.model_data.instructions:
            given.append((Message("system", data.model_data.instructions), ()))
        given += _messages(data.model_data.input)
        # A strategy may ask a model itself, which would hold up every other run.
        sent = await asyncio.to_thread(conversations.prepare, given)
        items = [
            item
            for message, theirs in sent
            if message.role != "system" or theirs
            for item in (_items(message) if theirs is None else theirs)
        ]
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    return manage


def _messages(items: Sequence[Any]) -> Iterator[tuple[Message, Items]]:
    """Messages with the items that make them: reasoning, text and calls of one answer are one."""
    answer: list[dict[str, Any]] = []
    for item in items:
        if _of_answer(item):
            text_again = item.get("type") != "reasoning" and "function_call" not in item.get(
                "type", ""
            )
            if text_again and any("call_id" in earlier for earlier in answer):
                yield _answer(answer), tuple(answer)
                answer = []
            answer.append(item)
            continue
        if answer:
            yield _answer(answer), tuple(answer)
            answer = []
        yield _single(item), (item,)
    if answer:
        yield _answer(answer), tuple(answer)


def _of_answer(item: dict[str, Any]) -> bool:
    return item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant"


def _answer(items: list[dict[str, Any]]) -> Message:
    calls = tuple(
        ToolCall(item["call_id"], item["name"], item.get("arguments") or "{}")
        for item in items
        if item.get("type") == "function_call"
    )
    text = "\n".join(
        _text(item.get("content")) for item in items if item.get("role") == "assistant"
    )
    return Message("assistant", text or (None if calls else ""), calls)


def _single(item: dict[str, Any]) -> Message:
    if item.get("type") == "function_call_output":
        return Message("tool", _text(item.get("output")), tool_call_id=item["call_id"])
    role = item.get("role")
    if role in ("user", "system", "developer"):
        return Message("user" if role == "user" else "system", _text(item.get("content")))
    return Message("user", dump_json(item))  # an item of another kind: counted as what it is


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in content)


def _items(message: Message) -> Items:
    """A message that the strategy made, as items."""
    if message.role == "tool":
        output = {"type": "function_call_output", "call_id": message.tool_call_id}
        return ({**output, "output": message.text},)
    said: Items = ({"role": message.role, "content": message.text},) if message.text else ()
    calls = (
        {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments}
        for c in message.tool_calls
    )
    return (*said, *calls)
