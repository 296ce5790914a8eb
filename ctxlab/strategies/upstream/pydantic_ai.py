"""Adapters for the history processors and the context manager of summarization-pydantic-ai.

The messages that a history processor returns replace the conversation: later requests start from
them. The context manager is a capability: the messages that it returns are used for one request
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pydantic_ai_summarization as package
from pydantic_ai import messages as api
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings


class ProcessorAdapter(PeerAdapter):
    """Adapter that passes the messages kept so far, and the new messages, to a history processor.

    All messages between two replies of the model are parts of one ``ModelRequest``.
    """

    separate_prompt = False
    process: Any
    "asynchronous function that takes a list of messages and returns the messages to send"
    keeps_edits = True

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self.kept: list[api.ModelMessage] = []
        "messages of the conversation, as the processor left them"
        self._begins = False
        "True if the last ``ModelRequest`` was sent, so that the next message begins a new one"

    def add(self, position: int, block: Block) -> None:
        """Add a message to the newest request, or begin a new one."""
        (message,) = block
        begins, self._begins = self._begins, False
        if message.role == "assistant":
            calls = [api.ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
            said = [api.TextPart(message.text)] if message.text or not calls else []
            self.kept.append(self.link(api.ModelResponse(parts=[*said, *calls]), block))
            return
        part = self.link(_to_part(message), block)
        if self.kept and isinstance(self.kept[-1], api.ModelRequest) and not begins:
            self.kept[-1] = api.ModelRequest(parts=[*self.kept[-1].parts, part])
        else:
            self.kept.append(api.ModelRequest(parts=[part]))

    def select(self) -> list[Message]:
        """Return the messages that the processor leaves."""
        made = asyncio.run(self.process(list(self.kept)))
        if self.keeps_edits:
            self.kept = made
        self._begins = True
        return self.restore(made)

    def count_tokens(self, messages: Sequence[api.ModelMessage]) -> int:
        """Return the number of tokens of messages, counted with ctxlab's counter."""
        return sum(map(self.settings.counter.count_message, self.restore(messages)))

    def make_model(self, model: str | None) -> FunctionModel:
        """Create a Pydantic AI model that calls ctxlab's client."""
        writer = self.settings.make_writer(model)

        def answer(messages: list[api.ModelMessage], _: AgentInfo) -> api.ModelResponse:
            prompt = [_text(part) for m in messages for part in m.parts]
            return api.ModelResponse(parts=[api.TextPart(writer("\n".join(prompt)))])

        return FunctionModel(answer)

    def restore(self, messages: Sequence[api.ModelMessage]) -> list[Message]:
        """Convert messages of Pydantic AI back to ctxlab's messages."""
        linked: list[Any] = []
        for made in messages:
            linked += [made] if isinstance(made, api.ModelResponse) else made.parts
        return self.to_messages(linked, lambda part: Message("user", _text(part)))


def _text(part: Any) -> str:
    return str(getattr(part, "content", ""))


def _to_part(message: Message) -> api.ModelRequestPart:
    if message.role == "system":
        return api.SystemPromptPart(message.text)
    if message.role == "tool":
        return api.ToolReturnPart(message.name or "tool", message.text, message.tool_call_id or "")
    return api.UserPromptPart(message.text)


def _sliding(settings: PeerSettings, **options: Any) -> PeerAdapter:
    adapter = ProcessorAdapter(settings)
    fixed = {"max_input_tokens": settings.available, "token_counter": adapter.count_tokens}
    adapter.process = package.create_sliding_window_processor(**fixed, **options)
    return adapter


def _summarization(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    adapter = ProcessorAdapter(settings)
    fixed = {"max_input_tokens": settings.available, "token_counter": adapter.count_tokens}
    writer = adapter.make_model(model)
    adapter.process = package.create_summarization_processor(writer, **fixed, **options)
    return adapter


def _manager(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    adapter = ProcessorAdapter(settings)
    adapter.keeps_edits = False  # later requests start from all messages again
    fixed: dict[str, Any] = {"token_counter": adapter.count_tokens}
    fixed["summarization_model"] = adapter.make_model(model)
    capability = package.ContextManagerCapability(**fixed, **settings.with_room(options))

    async def process(messages: list[api.ModelMessage]) -> list[api.ModelMessage]:
        context: Any = SimpleNamespace(messages=messages)  # the only attribute that is read
        done = await capability.before_model_request(None, context)  # type: ignore[arg-type]
        return list(done.messages)

    adapter.process = process
    return adapter


FACTORIES = {"manager": _manager, "sliding": _sliding, "summarization": _summarization}
