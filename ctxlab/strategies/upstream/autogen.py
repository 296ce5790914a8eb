"""Adapters for AutoGen's model contexts, which store messages and select the messages to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall, model_context, models

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine


class _ContextAdapter(PeerAdapter):
    """Adapter that stores one conversation in a model context of AutoGen."""

    group_results = True
    context: Any

    def add(self, position: int, block: Block) -> None:
        made = self.link(self._to_llm_message(position, block), block)
        run_coroutine(self.context.add_message(made))

    def select(self) -> list[Message]:
        sent = run_coroutine(self.context.get_messages())
        return self.to_messages(sent, lambda made: Message("user", str(made.content)))

    def _to_llm_message(self, position: int, block: Block) -> Any:
        message = block[0]
        if message.role == "system":
            return models.SystemMessage(content=message.text)
        if message.role == "user":
            return models.UserMessage(content=message.text, source="user")
        if message.role == "tool":
            results = []
            for i, each in enumerate(block, position):
                name, key = self.tool_name(i), each.tool_call_id or ""
                made = models.FunctionExecutionResult(content=each.text, name=name, call_id=key)
                results.append(made)
            return models.FunctionExecutionResultMessage(content=results)
        if not message.tool_calls:
            return models.AssistantMessage(content=message.text, source="assistant")
        calls = [FunctionCall(call.id, call.arguments, call.name) for call in message.tool_calls]
        thought = message.text or None
        return models.AssistantMessage(content=calls, thought=thought, source="assistant")


class _CountingClient:
    """Model client for AutoGen that can only count tokens, with ctxlab's counter."""

    def __init__(self, adapter: PeerAdapter) -> None:
        self._adapter = adapter
        self._token_counts: dict[int, int] = {}

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        count = self._adapter.settings.counter.count_message
        for made in messages:
            if id(made) not in self._token_counts:
                block = self._adapter.original_block(made) or ()
                self._token_counts[id(made)] = sum(map(count, block))
        return sum([self._token_counts[id(made)] for made in messages])

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return self._adapter.settings.available - self.count_tokens(messages)


def _buffered(settings: PeerSettings, buffer_size: int = 40) -> PeerAdapter:
    adapter = _ContextAdapter(settings)
    adapter.context = model_context.BufferedChatCompletionContext(buffer_size)
    return adapter


def _head_and_tail(settings: PeerSettings, head_size: int = 10, tail_size: int = 30) -> PeerAdapter:
    adapter = _ContextAdapter(settings)
    adapter.context = model_context.HeadAndTailChatCompletionContext(head_size, tail_size)
    return adapter


def _limited(settings: PeerSettings, token_limit: int | None = None) -> PeerAdapter:
    adapter = _ContextAdapter(settings)
    client: Any = _CountingClient(adapter)
    limited = model_context.TokenLimitedChatCompletionContext
    adapter.context = limited(client, token_limit=token_limit)
    return adapter


FACTORIES = {"buffered": _buffered, "head_and_tail": _head_and_tail, "token_limited": _limited}
