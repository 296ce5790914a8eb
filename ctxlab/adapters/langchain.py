"""Adapter for LangChain: ``create_agent(…, middleware=[ContextMiddleware("…")])``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from ctxlab.adapters.base import ConversationPool
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Role, ToolCall

_ROLES: dict[type, Role] = {AIMessage: "assistant", ToolMessage: "tool", SystemMessage: "system"}
# Provider prefixes of ``init_chat_model``. Other text before a colon may be part of a model's name.
_PROVIDERS = {
    *("openai", "azure_openai", "azure_ai", "anthropic", "anthropic_bedrock", "bedrock"),
    *("bedrock_converse", "google_genai", "google_vertexai", "google_anthropic_vertex"),
    *("mistralai", "deepseek", "xai", "groq", "cohere", "together", "fireworks", "huggingface"),
    *("ollama", "openrouter", "perplexity", "upstage", "nvidia", "ibm", "litellm", "baseten"),
}


class ContextMiddleware(AgentMiddleware[Any, Any]):
    """Middleware that applies a strategy to the messages of each model call.

    The messages in the agent's state are not changed. The system prompt and the tools count towards
    the budget. A middleware may be shared between threads, event loops and agents.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. If ``model`` is not passed, the model of each
        request is used.

    References
    ----------
    LangChain's documentation of middleware (``wrap_model_call``).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = ConversationPool[AnyMessage](*arguments, **options)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse | AIMessage:
        """Apply the strategy to a request and call the model.

        Parameters
        ----------
        request : ModelRequest
            Request of the agent to the model.
        handler : callable
            Function that sends a request to the model.

        Returns
        -------
        ModelResponse or AIMessage
            Response of the model, as returned by ``handler``.
        """
        return handler(self._manage_request(request))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse | AIMessage:
        """Apply the strategy to a request and call the model asynchronously.

        The strategy runs in a separate thread, because it may call a model itself and would then
        block the event loop.

        Parameters
        ----------
        request : ModelRequest
            Request of the agent to the model.
        handler : callable
            Asynchronous function that sends a request to the model.

        Returns
        -------
        ModelResponse or AIMessage
            Response of the model, as returned by ``handler``.
        """
        return await handler(await asyncio.to_thread(self._manage_request, request))

    def _manage_request(self, request: ModelRequest) -> ModelRequest:
        system = [request.system_message] if request.system_message else []
        conversation = [(_to_message(message), message) for message in (*system, *request.messages)]
        tools = [_tool_definition(tool) for tool in request.tools or ()]
        sent = self._conversations.prepare_messages(conversation, tools, _model_name(request.model))
        # ``sent`` begins with the unchanged system prompt, which the request contains already.
        messages = [each.to_framework(_to_langchain) for each in sent[len(system) :]]
        return request.override(messages=messages)


def _model_name(model: Any) -> str | None:
    """Return the name of a chat model without a provider prefix such as ``openai:``."""
    model = getattr(model, "bound", model)  # a model with tools or settings bound to it
    names = (getattr(model, key, None) for key in ("model_name", "model", "model_id"))
    name = next((name for name in names if isinstance(name, str) and name), None)
    provider, colon, rest = (name or "").partition(":")
    return rest if colon and provider in _PROVIDERS else name


def _tool_definition(tool: Any) -> dict[str, Any]:
    """Convert a tool to a definition in OpenAI's format.

    A tool that LangChain cannot convert gets a definition without parameters. The description of
    this definition is the tool as JSON.
    """
    try:
        return convert_to_openai_tool(tool)
    except Exception:  # the chat model may accept tools that LangChain cannot convert
        name = next(iter(tool), "tool") if isinstance(tool, Mapping) else "tool"
        return {"name": name, "description": json.dumps(tool, default=repr)}


def _to_message(message: AnyMessage) -> Message:
    try:
        made = message_from_dict(convert_to_openai_messages(message))
        if isinstance(made.content, tuple):
            made = made.replace(content=tuple(map(_convert_part, made.content)))
        return made
    except Exception:  # provider-specific roles and parts are counted as JSON
        calls = tuple(
            ToolCall(call["id"] or "", call["name"], json.dumps(call["args"], default=repr))
            for call in getattr(message, "tool_calls", ())
        )
        said = message.content
        text = said if isinstance(said, str) else json.dumps(said, default=repr)
        roles = [role for cls, role in _ROLES.items() if isinstance(message, cls)] or ["user"]
        return Message(roles[0], text, calls, getattr(message, "tool_call_id", None))


def _convert_part(part: dict[str, Any]) -> dict[str, Any]:
    """Return ``{"type": "block", "block": part}`` for a call or result of the provider's own tools.

    Other parts are returned unchanged.
    """
    own = str(part.get("type")).endswith(("tool_use", "tool_result"))
    return {"type": "block", "block": part} if own else part


def _to_langchain(message: Message, original: AnyMessage | None) -> AnyMessage:
    """Convert a changed message to a LangChain message; keep all other fields of ``original``."""
    if original is None:
        return convert_to_messages([message.to_dict()])[0]
    content: Any = list(message.content) if isinstance(message.content, tuple) else message.content
    was = _to_message(original)
    if isinstance(original, AIMessage):
        return _update_ai_message(message, was, original)
    changes = {} if message.content == was.content else {"content": content or ""}
    return original.model_copy(update=changes)


def _update_ai_message(message: Message, was: Message, original: AIMessage) -> AIMessage:
    """Return a copy of ``original`` with the text and tool calls of ``message``.

    ``was`` is the message before the change. Content blocks that contain neither text nor a tool
    call are copied from ``original``.
    """
    ids = {call.id for call in message.tool_calls}
    edited = (call for call in message.tool_calls if call not in was.tool_calls)
    changed = {call.id: _as_object(call.parse_arguments()) for call in edited}
    blocks: Any = original.content
    if message.content != was.content:
        blocks = _replace_text(blocks, message)
    if isinstance(blocks, list):
        kept = [block for block in blocks if _block_call_id(block) in {None, *ids}]
        blocks = [_replace_call_arguments(block, changed) for block in kept]
    calls = [call for call in original.tool_calls if call["id"] in ids]
    calls = [call | {"args": changed.get(call["id"], call["args"])} for call in calls]
    beside = {k: v for k, v in original.additional_kwargs.items() if k != "tool_calls"}
    update = {"content": blocks, "tool_calls": calls, "additional_kwargs": beside}
    return original.model_copy(update=update)


def _replace_text(blocks: Any, message: Message) -> Any:
    """Replace the first text block by the text of ``message``, and remove all other text blocks."""
    if not isinstance(blocks, list):
        return message.text
    new = [{"type": "text", "text": message.text}] if message.text else []
    before = list(takewhile(lambda block: not _is_text(block), blocks))
    after = [block for block in blocks[len(before) :] if not _is_text(block)]
    return [*before, *new, *after]


def _is_text(block: Any) -> bool:
    return isinstance(block, str) or _block_type(block) == "text"


def _block_type(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _block_call_id(block: Any) -> str | None:
    """Return the id of the tool call in a content block; None if the block is not a tool call."""
    keys = {"tool_use": "id", "tool_call": "id", "function_call": "call_id"}
    key = keys.get(_block_type(block))
    return str(block.get(key)) if key else None


def _replace_call_arguments(block: Any, changed: Mapping[str, Any]) -> Any:
    arguments = changed.get(_block_call_id(block) or "")
    if arguments is None:
        return block
    if block["type"] == "function_call":
        return block | {"arguments": json.dumps(arguments)}
    return block | {"input" if block["type"] == "tool_use" else "args": arguments}


def _as_object(arguments: Any) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}
