"""Adapter that calls the compaction of Letta's server before each request.

Letta passes its user to the token counter and to the model. The adapter takes that place, and does
the work of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from letta.schemas.enums import MessageRole
from letta.schemas.letta_message_content import TextContent
from letta.schemas.llm_config import LLMConfig
from letta.schemas.message import Message as LettaMessage
from letta.services.summarizer import compact, summarizer_all, summarizer_sliding_window
from letta.services.summarizer.summarizer_config import CompactionSettings
from letta.services.summarizer.thresholds import get_compaction_trigger_threshold

from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine

_TOOLS = [{"name": "all_tools", "parameters": {}}]  # only their tokens count


class _CompactionAdapter(PeerAdapter):
    """Adapter that keeps the messages of one conversation, and compacts them when they are too many."""

    def __init__(self, settings: PeerSettings, model: str | None = None, **options: Any) -> None:
        super().__init__(settings)
        self._write = settings.make_writer(model)
        self._options = options
        # Any type of endpoint will do for which Letta has no model of its own for summaries.
        self._config = LLMConfig(
            model="ctxlab", model_endpoint_type="vllm", context_window=settings.window
        )
        self._system = _to_letta(Message("system", ""))
        self._messages: list[LettaMessage] = []

    def add(self, position: int, block: Block) -> None:
        self._messages.append(self.link(_to_letta(block[0]), block))

    def select(self) -> list[Message]:
        self.link(self._system, tuple(self.prompt))
        threshold = get_compaction_trigger_threshold(self._config)
        if self._count([self._system, *self._messages]) + self.settings.overhead > threshold:
            run_coroutine(self._compact(threshold))
        return self._convert(self._messages)

    async def _compact(self, threshold: int) -> None:
        made = await compact.compact_messages(
            actor=self,
            agent_id="agent",
            agent_llm_config=self._config,
            telemetry_manager=None,
            llm_client=None,
            agent_type=None,
            messages=[self._system, *self._messages],
            timezone="UTC",
            compaction_settings=CompactionSettings(mode="sliding_window", **self._options),
            tools=_TOOLS,
            trigger_threshold=threshold,
        )
        self.link(made.summary_message, (Message("user", SUMMARY_HEADER + made.summary_text),))
        self._messages = made.compacted_messages[1:]

    def _convert(self, messages: Iterable[LettaMessage]) -> list[Message]:
        return [original for each in messages for original in self.original_block(each) or ()]

    def _count(self, messages: Iterable[LettaMessage]) -> int:
        return sum(map(self.settings.counter.count_message, self._convert(messages)))

    def convert_messages(self, messages: list[LettaMessage]) -> list[LettaMessage]:
        """Return messages as ``count_message_tokens`` expects them."""
        return messages

    async def count_message_tokens(self, messages: list[LettaMessage]) -> int:
        """Return the tokens of messages, counted with ctxlab's counter."""
        return self._count(messages)

    async def count_tool_tokens(self, _: Any) -> int:
        """Return the tokens of the tool definitions."""
        return self.settings.overhead

    async def summarize(self, messages: list[LettaMessage]) -> str:
        """Return a summary that ctxlab's client writes."""
        return self._write(self._convert(messages))


def _to_letta(message: Message) -> LettaMessage:
    content = [TextContent(text=message.text)]
    return LettaMessage(role=MessageRole(message.role), content=content)


def _count_with(actor: Any, **_: Any) -> Any:
    return actor


async def _summarize_with(messages: Any, actor: Any, **_: Any) -> str:
    said: str = await actor.summarize(messages)
    return said


summarizer_sliding_window.create_token_counter = _count_with
summarizer_sliding_window.simple_summary = summarizer_all.simple_summary = _summarize_with

FACTORIES = {"v0_16_8": _CompactionAdapter}
