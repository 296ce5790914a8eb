"""Adapters that call the conversation managers of Strands when Strands' agent would call them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strands.agent import conversation_manager as managers
from strands.hooks import BeforeModelCallEvent, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from ctxlab.messages.types import ContentPart, Message
from ctxlab.strategies.baselines.common.parts import decode_image, parse_arguments
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, Writer


class _AgentAdapter(PeerAdapter):
    """Adapter that replaces the Strands agent and reduces the messages until the request fits.

    The adapter has the attributes of an agent that a manager uses, such as ``messages``.
    """

    group_results = True

    def __init__(self, settings: PeerSettings, manager: Any, writer: Writer | None) -> None:
        super().__init__(settings)
        self._manager = manager
        self.messages: list[Any] = []
        self.model = self.aux_model = _ClientModel(settings.available, writer)
        self._original_contents: dict[int, Any] = {}
        self._hooks = HookRegistry()
        self._hooks.add_hook(self._manager)
        self._last_role: str | None = None

    def add(self, position: int, block: Block) -> None:
        role = block[0].role
        if role == "user" and self._last_role not in (None, "user", "system"):
            self._manager.apply_management(self)  # the previous turn is over
        made = self.link(_to_strands_message(block), block)
        self._original_contents[id(made)] = made["content"]
        self.messages.append(made)
        self._last_role = role

    def select(self) -> list[Message]:
        self._invoke_hooks()
        while self._sent_tokens() > self.settings.available:
            before = len(self.messages), self._sent_tokens()
            try:
                self._manager.reduce_context(self, e=ContextWindowOverflowException("too long"))
            except ContextWindowOverflowException:
                break
            stuck = len(self.messages) == before[0] and self._sent_tokens() >= before[1]
            if stuck and isinstance(self._manager, managers.SummarizingConversationManager):
                break  # the manager would summarise its own summary again and again
            self._invoke_hooks()
        return self._to_messages()

    def _invoke_hooks(self) -> None:
        agent: Any = self
        event = BeforeModelCallEvent(agent=agent, projected_input_tokens=self._sent_tokens())
        self._hooks.invoke_callbacks(event)

    def _sent_tokens(self) -> int:
        sent = [*self.prompt, *self._to_messages()]
        return sum(map(self.settings.counter.count_message, sent))

    def _to_messages(self) -> list[Message]:
        messages: list[Message] = []
        for made in self.messages:
            block, content = self.original_block(made), made["content"]
            if block is None:
                messages.append(Message("user", "".join(part["text"] for part in content)))
            elif content is self._original_contents[id(made)]:
                messages += block
            else:
                pairs = zip(block, content, strict=True)
                messages += [_with_result(message, each["toolResult"]) for message, each in pairs]
        return messages


class _ClientModel:
    """Model for Strands that calls ctxlab's client."""

    def __init__(self, available: int, writer: Writer | None) -> None:
        self.context_window_limit = available
        self._writer = writer

    def estimate_utilization(self, tokens: int) -> float:
        """Return a number of tokens as a share of the context window."""
        return tokens / max(1, self.context_window_limit)

    async def stream(self, messages: Any, *_: Any, **other: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the reply of the model as the stream events that Strands expects."""
        assert self._writer is not None
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        said = self._writer("\n".join([str(other.get("system_prompt", "")), *lines]))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _to_strands_message(block: Block) -> dict[str, Any]:
    message = block[0]
    if message.role == "tool":
        results = [
            {
                "toolResult": {
                    "toolUseId": m.tool_call_id or "",
                    "status": "success",
                    "content": _to_items(m),
                }
            }
            for m in block
        ]
        return {"role": "user", "content": results}
    content = _to_items(message)
    for call in message.tool_calls:
        asked = {"toolUseId": call.id, "name": call.name, "input": parse_arguments(call)}
        content.append({"toolUse": asked})
    return {"role": "assistant" if message.role == "assistant" else "user", "content": content}


def _to_items(message: Message) -> list[dict[str, Any]]:
    if not isinstance(message.content, tuple):
        return [] if message.content is None else [{"text": message.content}]
    return [_to_item(part) for part in message.content]


def _to_item(part: ContentPart) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"text": str(part.get("text") or "")}
    if image := decode_image(str(part.get("image_url", {}).get("url", ""))):
        return {"image": {"format": image[0], "source": {"bytes": image[1]}}}
    return {"json": part}


def _with_result(message: Message, result: dict[str, Any]) -> Message:
    items = result["content"]
    if isinstance(message.content, tuple):
        content: Any = tuple(
            {"type": "text", "text": item["text"]} if "text" in item else part
            for part, item in zip(message.content, items, strict=True)
        )
    else:
        content = "".join(item["text"] for item in items) if items else message.content
    return message.replace(content=content)


def _translate(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which ``proactive_compression`` is a dict, as Strands expects it."""
    if (share := options.get("proactive_compression")) is None:
        return options
    return {**options, "proactive_compression": {"compression_threshold": share}}


def _sliding(settings: PeerSettings, **options: Any) -> PeerAdapter:
    manager = managers.SlidingWindowConversationManager(**_translate(options))
    return _AgentAdapter(settings, manager, None)


def _summarizing(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    writer = settings.make_writer(model, options.pop("tokens", 1000))
    manager = managers.SummarizingConversationManager(**_translate(options))
    return _AgentAdapter(settings, manager, writer)


FACTORIES = {"sliding": _sliding, "summarizing": _summarizing}
