"""Strands' conversation managers, run by the package in a loop like that of its agent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from typing import Any

from strands.agent.conversation_manager import (
    ConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import ContentPart, Message
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.message_blocks import Block, ModelCaller, TranslatedHistory


class _AgentAdapter:
    """The agent as a manager sees it, with the loop that reduces until the request fits."""

    def __init__(self, settings: PeerSettings, manager: ConversationManager, model: Any) -> None:
        self.messages: list[Any] = []
        self.model = self.aux_model = model
        self._settings, self._manager = settings, manager
        self._translated = TranslatedHistory()
        self._original_contents: dict[int, Any] = {}
        self._hooks = HookRegistry()
        self._hooks.add_hook(manager)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for _, block in self._translated.new_blocks(history):
            turn = block[0].role == "user" and self._follows_agent_message()
            if turn:  # the previous turn is over
                self._manager.apply_management(self)  # type: ignore[arg-type]
            made = self._translated.link(_to_strands_message(block), block)
            self._original_contents[id(made)] = made["content"]
            self.messages.append(made)
            self._last_role = block[0].role
        self._invoke_hooks()
        while self._sent_tokens() > self._settings.available:
            before = len(self.messages), self._sent_tokens()
            try:
                error = ContextWindowOverflowException("too long")
                self._manager.reduce_context(self, e=error)  # type: ignore[arg-type]
            except ContextWindowOverflowException:
                break
            stuck = len(self.messages) == before[0] and self._sent_tokens() >= before[1]
            if stuck and isinstance(self._manager, SummarizingConversationManager):
                break  # it would summarise its own summary without end
            self._invoke_hooks()
        return self._to_messages()

    _last_role: str | None = None

    def _follows_agent_message(self) -> bool:
        return self._last_role not in (None, "user", "system")

    def _invoke_hooks(self) -> None:
        event = BeforeModelCallEvent(
            agent=self,  # type: ignore[arg-type]
            projected_input_tokens=self._sent_tokens(),
        )
        self._hooks.invoke_callbacks(event)

    def _sent_tokens(self) -> int:
        return sum(map(self._settings.counter.count_message, self._to_messages()))

    def _to_messages(self) -> list[Message]:
        messages = list(self._translated.prompt)
        for made in self.messages:
            block = self._translated.original_block(made)
            if block is None:
                messages.append(Message("user", "".join(part["text"] for part in made["content"])))
            elif made["content"] is self._original_contents[id(made)]:
                messages.extend(block)
            else:
                results = zip(block, made["content"], strict=True)
                messages += [
                    _with_result(message, result["toolResult"]) for message, result in results
                ]
        return messages


def sliding(
    settings: PeerSettings,
    window_size: int = 40,
    should_truncate_results: bool = True,
    per_turn: bool | int = False,
    proactive_compression: float | None = None,
) -> _AgentAdapter:
    """Return an adapter for ``SlidingWindowConversationManager``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    window_size : int, default 40
        Messages to keep after a turn.
    should_truncate_results : bool, default True
        Shorten results before messages are dropped.
    per_turn : bool or int, default False
        Apply the window before every model call too, or before every n-th call.
    proactive_compression : float, optional
        Share of the budget from which messages are dropped before a call.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    manager = SlidingWindowConversationManager(
        window_size,
        should_truncate_results,
        per_turn=per_turn,
        proactive_compression=_compression_config(proactive_compression),
    )
    return _AgentAdapter(settings, manager, _ClientModel(settings))


def summarizing(
    settings: PeerSettings,
    summary_ratio: float = 0.3,
    preserve_recent_messages: int = 10,
    proactive_compression: float | None = None,
    tokens: int = 1000,
    model: str | None = None,
) -> _AgentAdapter:
    """Return an adapter for ``SummarizingConversationManager``.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    summary_ratio : float, default 0.3
        Share of the messages to summarise.
    preserve_recent_messages : int, default 10
        Newest messages to keep.
    proactive_compression : float, optional
        Share of the budget from which messages are summarised before a call.
    tokens : int, default 1000
        Maximum tokens of the summary.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    manager = SummarizingConversationManager(
        summary_ratio,
        preserve_recent_messages,
        proactive_compression=_compression_config(proactive_compression),
    )
    return _AgentAdapter(
        settings, manager, _ClientModel(settings, ModelCaller(settings, model, tokens))
    )


def _compression_config(share: float | None) -> Any:
    return None if share is None else {"compression_threshold": share}


class _ClientModel:
    """The package's model, answered by ctxlab's client."""

    def __init__(self, settings: PeerSettings, caller: ModelCaller | None = None) -> None:
        self.context_window_limit = settings.available
        self._caller = caller

    def estimate_utilization(self, tokens: int) -> float:
        """Return the share of the window that tokens take."""
        return tokens / max(1, self.context_window_limit)

    async def stream(self, messages: Any, *_: Any, **other: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the reply in the events that the package reads."""
        assert self._caller is not None
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        said = self._caller([str(other.get("system_prompt", "")), *lines])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _to_strands_message(block: Block) -> dict[str, Any]:
    message = block[0]
    if message.role == "tool":
        results = [
            {"toolUseId": m.tool_call_id or "", "status": "success", "content": _to_items(m)}
            for m in block
        ]
        return {"role": "user", "content": [{"toolResult": result} for result in results]}
    content = _to_items(message)
    for call in message.tool_calls:
        try:
            arguments = parse_json(call.arguments) if call.arguments else {}
        except ValueError:
            arguments = call.arguments
        content.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments}})
    return {"role": "assistant" if message.role == "assistant" else "user", "content": content}


def _to_items(message: Message) -> list[dict[str, Any]]:
    if not isinstance(message.content, tuple):
        return [] if message.content is None else [{"text": message.content}]
    return [_to_item(part) for part in message.content]


def _to_item(part: ContentPart) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"text": str(part.get("text") or "")}
    kind, comma, data = str(part.get("image_url", {}).get("url", "")).partition(";base64,")
    if comma and kind.startswith("data:image/"):
        try:
            source = {"bytes": base64.b64decode(data)}
        except (binascii.Error, ValueError):
            return {"json": part}
        return {"image": {"format": kind.removeprefix("data:image/"), "source": source}}
    return {"json": part}


def _with_result(message: Message, result: dict[str, Any]) -> Message:
    items = result["content"]
    if not isinstance(message.content, tuple):
        return (
            message.replace(content="".join(item["text"] for item in items)) if items else message
        )
    parts = zip(message.content, items, strict=True)
    return message.replace(
        content=tuple(
            {"type": "text", "text": item["text"]} if "text" in item else part
            for part, item in parts
        )
    )
