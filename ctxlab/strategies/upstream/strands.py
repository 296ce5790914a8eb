"""Adapters that call the context management of Strands when Strands' agent would call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from strands.agent import conversation_manager as managers
from strands.experimental.context_manager import ContextManager, Offload
from strands.hooks import AfterModelCallEvent, BeforeModelCallEvent, HookRegistry, MessageAddedEvent
from strands.types.exceptions import ContextWindowOverflowException

from ctxlab.messages.types import ContentPart, Message
from ctxlab.strategies.baselines.common.parts import decode_image, parse_arguments
from ctxlab.strategies.baselines.strands.context_manager import append_text
from ctxlab.strategies.upstream.base import (
    Block,
    PeerAdapter,
    PeerSettings,
    Writer,
    run_coroutine,
)


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


class _ContextManagerAdapter(PeerAdapter):
    """Adapter that replaces the Strands agent for a context manager.

    The context manager edits the parts of messages, and joins messages. Each part is therefore
    linked to its original message.
    """

    group_results = True
    storage, session_id, agent_id = None, "session", "agent"

    def __init__(
        self,
        settings: PeerSettings,
        threshold: int = 1500,
        preview_tokens: int = 750,
        utilization: float = 0.85,
        preserve_recent: float = 4,
        tokens: int = 1000,
        model: str | None = None,
    ) -> None:
        super().__init__(settings)
        writer = settings.make_writer(model, tokens)
        self.messages: list[Any] = []
        self.model = self.aux_model = _ClientModel(settings.available, writer, self._count)
        self.hooks = HookRegistry()
        preview: Any = {"preview_tokens": preview_tokens}
        keep: Any = preserve_recent
        manager = ContextManager(
            strategies=[
                Offload.truncate("tool_results", preview).when(threshold=threshold),
                Offload.summarize("*").when(utilization=utilization, preserve_recent=keep),
            ]
        )
        agent: Any = self
        manager.init_agent(agent)
        self._parts: dict[int, tuple[Any, Message]] = {}
        self._before: list[tuple[list[Any], list[Any]]] = []

    def add(self, position: int, block: Block) -> None:
        made = _to_strands_message(block)
        made["content"] = made["content"] or [{"text": ""}]
        for number, part in enumerate(made["content"]):
            source = block[number] if block[0].role == "tool" else block[0]
            self._parts[id(part)] = part, source
        self.messages.append(made)
        agent: Any = self
        self._run_hooks(MessageAddedEvent(agent=agent, message=made))

    def select(self) -> list[Message]:
        agent: Any = self
        self._run_hooks(BeforeModelCallEvent(agent, projected_input_tokens=self._sent_tokens()))
        while self._sent_tokens() > self.settings.available:
            failed = AfterModelCallEvent(
                agent, exception=ContextWindowOverflowException("too long")
            )
            self._run_hooks(failed)
            if not failed.retry:
                break
            self._run_hooks(BeforeModelCallEvent(agent, projected_input_tokens=self._sent_tokens()))
        else:
            self._run_hooks(AfterModelCallEvent(agent))
        return self._to_messages(self.messages)

    def _run_hooks(self, event: Any) -> None:
        self._before = [(made["content"], list(made["content"])) for made in self.messages]
        run_coroutine(self.hooks.invoke_callbacks_async(event))
        self._link_changed()

    def _link_changed(self) -> None:
        """Link the parts that the manager replaced in their messages since the hooks began."""
        for content, parts in self._before:
            for index, new in enumerate(content):
                if new is not parts[index]:
                    self._parts[id(new)] = new, self._parts[id(parts[index])][1]
                    parts[index] = new

    def _sent_tokens(self) -> int:
        prompt = sum(map(self.settings.counter.count_message, self.prompt))
        return prompt + self._count(self.messages)

    def _count(self, messages: Iterable[Any]) -> int:
        return sum(map(self.settings.counter.count_message, self._to_messages(messages)))

    def _to_messages(self, messages: Iterable[Any]) -> list[Message]:
        result: list[Message] = []
        for made in messages:
            last = None
            for part in made["content"]:
                if "toolResult" in part and id(part) not in self._parts:
                    self._link_changed()
                source = self._parts.get(id(part), (None, None))[1]
                if source is None:
                    last = None
                    if result and result[-1].role == "assistant" and part is not made["content"][0]:
                        result[-1] = append_text(result[-1], part["text"])
                    else:
                        result.append(Message("assistant", part["text"]))
                elif source is not last:
                    last = source
                    result.append(_with_short_result(source, part))
        return result


def _with_short_result(message: Message, part: Any) -> Message:
    """Return a message; if it is a tool result that was shortened, with the new content."""
    items = part["toolResult"]["content"] if "toolResult" in part else _to_items(message)
    if items == _to_items(message):
        return message
    original = message.content if isinstance(message.content, tuple) else ()
    images = [each for each in original if "image" in _to_item(each)]
    if not images:
        return message.replace(content="".join(item["text"] for item in items))
    text = {"type": "text", "text": items[0]["text"]}
    return message.replace(content=(text, *images))


class _ClientModel:
    """Model for Strands that calls ctxlab's client."""

    def __init__(self, available: int, writer: Writer | None, count: Any = None) -> None:
        self.context_window_limit = available
        self._writer, self._count = writer, count

    async def count_tokens(self, messages: Any) -> int:
        """Return the number of tokens of messages, counted with ctxlab's counter."""
        tokens: int = self._count(messages)
        return tokens

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
                    "status": "error" if m.extra.get("is_error") else "success",
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


FACTORIES = {"auto": _ContextManagerAdapter, "sliding": _sliding, "summarizing": _summarizing}
