"""Adapter for LlamaIndex's ``Memory``, to which messages are added one by one."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings


class _MemoryChatStore(AsyncDBChatStore):
    """Chat store that keeps the messages of a ``Memory`` in a list instead of a database."""

    kept: list[Any] = Field(default_factory=list)

    async def get_messages(self, key: str, *_: Any, **__: Any) -> list[ChatMessage]:
        return list(self.kept)

    async def count_messages(self, key: str, status: Any = None) -> int:
        return len(self.kept)

    async def add_message(self, key: str, message: ChatMessage, status: Any = None) -> None:
        self.kept.append(message)

    async def add_messages(self, key: str, messages: list[ChatMessage], status: Any = None) -> None:
        self.kept.extend(messages)

    async def set_messages(self, key: str, messages: list[ChatMessage], status: Any = None) -> None:
        self.kept = list(messages)

    async def delete_message(self, key: str, idx: int) -> Any:
        return self.kept.pop(idx)

    async def delete_messages(self, key: str, status: Any = None) -> None:
        self.kept.clear()

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        return await self.archive_oldest_messages(key, n)

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        gone, self.kept = self.kept[:n], self.kept[n:]
        return gone

    async def get_keys(self) -> list[str]:
        return ["session"]


class _MemoryAdapter(PeerAdapter):
    """Adapter that stores one conversation, without its system prompt, in a ``Memory``.

    The ``Memory`` has no memory blocks, so messages that it drops are not summarized or stored.
    """

    def __init__(self, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        count = settings.counter.count_text
        # Memory uses only the length of the token list, so a range of that length suffices.
        self._memory = Memory.from_defaults(
            tokenizer_fn=lambda text: range(count(text)),  # type: ignore[arg-type, return-value]
            chat_store=_MemoryChatStore(),
            **options,
        )

    def add(self, position: int, block: Block) -> None:
        self._memory.put(self.link(_to_chat_message(block[0]), block))

    def select(self) -> list[Message]:
        return [m for made in self._memory.get() for m in self.original_block(made) or ()]


def _to_chat_message(message: Message) -> ChatMessage:
    blocks: list[Any] = []
    if isinstance(message.content, tuple):
        for part in message.content:
            text = part.get("text")
            blocks.append(TextBlock(text=str(text)) if text is not None else ImageBlock(image=b"x"))
    elif message.content is not None:
        blocks.append(TextBlock(text=message.content))
    for call in message.tool_calls:
        asked = {"tool_call_id": call.id, "tool_name": call.name, "tool_kwargs": call.arguments}
        blocks.append(ToolCallBlock(**asked))
    extra = {"tool_call_id": message.tool_call_id} if message.role == "tool" else {}
    return ChatMessage(role=message.role, blocks=blocks, additional_kwargs=extra)


FACTORIES = {"memory": _MemoryAdapter}
