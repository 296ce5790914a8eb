"""Strands' conversation managers, run by the package as its agent's loop runs them."""

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
from ctxlab.messages.types import (
    Message,
    Part,
)
from ctxlab.strategies.upstream.base import Setting
from ctxlab.strategies.upstream.message_blocks import (
    Asked,
    Block,
    Translated,
)

__all__ = ["sliding", "summarizing"]


class _Agent:
    """What a manager sees of an agent, and the loop around it: reduce until the request fits."""

    def __init__(self, setting: Setting, manager: ConversationManager, model: Any) -> None:
        self.messages: list[Any] = []
        self.model = self.aux_model = model
        self._setting, self._manager = setting, manager
        self._known = Translated()
        self._contents: dict[int, Any] = {}
        self._hooks = HookRegistry()
        self._hooks.add_hook(manager)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for _, block in self._known.new(history):
            turn = block[0].role == "user" and self._asked_before()
            if turn:  # the turn before is over
                self._manager.apply_management(self)  # type: ignore[arg-type]
            made = self._known.stands(_made(block), block)
            self._contents[id(made)] = made["content"]
            self.messages.append(made)
            self._last = block[0].role
        self._before_call()
        while self._tokens() > self._setting.available:
            before = len(self.messages), self._tokens()
            try:
                error = ContextWindowOverflowException("too long")
                self._manager.reduce_context(self, e=error)  # type: ignore[arg-type]
            except ContextWindowOverflowException:
                break
            stuck = len(self.messages) == before[0] and self._tokens() >= before[1]
            if stuck and isinstance(self._manager, SummarizingConversationManager):
                break  # it summarises its own summary, and would without end
            self._before_call()
        return self._sent()

    _last: str | None = None

    def _asked_before(self) -> bool:
        return self._last not in (None, "user", "system")

    def _before_call(self) -> None:
        event = BeforeModelCallEvent(
            agent=self,  # type: ignore[arg-type]
            projected_input_tokens=self._tokens(),
        )
        self._hooks.invoke_callbacks(event)

    def _tokens(self) -> int:
        return sum(map(self._setting.counter.message, self._sent()))

    def _sent(self) -> list[Message]:
        messages = list(self._known.prompt)
        for made in self.messages:
            block = self._known.back(made)
            if block is None:
                messages.append(Message("user", "".join(part["text"] for part in made["content"])))
            elif made["content"] is self._contents[id(made)]:
                messages.extend(block)
            else:
                results = zip(block, made["content"], strict=True)
                messages += [_read(message, result["toolResult"]) for message, result in results]
        return messages


def sliding(
    setting: Setting,
    window_size: int = 40,
    should_truncate_results: bool = True,
    per_turn: bool | int = False,
    proactive_compression: float | None = None,
) -> _Agent:
    """The newest messages."""
    manager = SlidingWindowConversationManager(
        window_size,
        should_truncate_results,
        per_turn=per_turn,
        proactive_compression=_threshold(proactive_compression),
    )
    return _Agent(setting, manager, _Model(setting))


def summarizing(
    setting: Setting,
    summary_ratio: float = 0.3,
    preserve_recent_messages: int = 10,
    proactive_compression: float | None = None,
    tokens: int = 1000,
    model: str | None = None,
) -> _Agent:
    """A summary of the oldest messages."""
    manager = SummarizingConversationManager(
        summary_ratio,
        preserve_recent_messages,
        proactive_compression=_threshold(proactive_compression),
    )
    return _Agent(setting, manager, _Model(setting, Asked(setting, model, tokens)))


def _threshold(share: float | None) -> Any:
    return None if share is None else {"compression_threshold": share}


class _Model:
    """The package's model, answered by our client."""

    def __init__(self, setting: Setting, asked: Asked | None = None) -> None:
        self.context_window_limit = setting.available
        self._asked = asked

    def estimate_utilization(self, tokens: int) -> float:
        """Share of the window."""
        return tokens / max(1, self.context_window_limit)

    async def stream(self, messages: Any, *_: Any, **other: Any) -> AsyncIterator[dict[str, Any]]:
        """The answer in the pieces in which the package reads it."""
        assert self._asked is not None
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        said = self._asked([str(other.get("system_prompt", "")), *lines])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _made(block: Block) -> dict[str, Any]:
    message = block[0]
    if message.role == "tool":
        results = [
            {"toolUseId": m.tool_call_id or "", "status": "success", "content": _items(m)}
            for m in block
        ]
        return {"role": "user", "content": [{"toolResult": result} for result in results]}
    content = _items(message)
    for call in message.tool_calls:
        try:
            given = parse_json(call.arguments) if call.arguments else {}
        except ValueError:
            given = call.arguments
        content.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": given}})
    return {"role": "assistant" if message.role == "assistant" else "user", "content": content}


def _items(message: Message) -> list[dict[str, Any]]:
    if not isinstance(message.content, tuple):
        return [] if message.content is None else [{"text": message.content}]
    return [_item(part) for part in message.content]


def _item(part: Part) -> dict[str, Any]:
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


def _read(message: Message, result: dict[str, Any]) -> Message:
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
