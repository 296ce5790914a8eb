"""Adapters for the compactions of pydantic-ai-harness, which rewrite the history of a run.

The usage of each reply is counted by ctxlab, in place of the provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import messages as api
from pydantic_ai.models import (
    ModelRequestContext,
    ModelRequestParameters,
    _conversation_summary_text,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_ai_harness.compaction import (
    ClearToolResults,
    DeduplicateFileReads,
    SummarizingCompaction,
    TieredCompaction,
)

from ctxlab.messages.file_access import parse_file_access
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings
from ctxlab.strategies.upstream.pydantic_ai import ProcessorAdapter

_POSITION = "ctxlab.position"


class _CompactionAdapter(ProcessorAdapter):
    """Adapter that calls a compaction before each request of a run."""

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._model: Any = FunctionModel(lambda *_: api.ModelResponse(parts=[]))
        self.compaction: Any = None
        self._sent = 0

    def add(self, position: int, block: Block) -> None:
        super().add(position, block)
        made = self.kept[-1]
        # Copies of a reply or of a tool result keep the metadata.
        if isinstance(made, api.ModelResponse):
            reply = self.settings.counter.count_message(block[0])
            made.usage = RequestUsage(input_tokens=self._sent, output_tokens=reply)
            made.metadata = {_POSITION: position}
        elif isinstance(made.parts[-1], api.ToolReturnPart):
            made.parts[-1].metadata = {_POSITION: position}

    def select(self) -> list[Message]:
        sent = super().select()
        self._sent = sum(map(self.settings.counter.count_message, sent))
        return sent

    async def process(self, messages: list[api.ModelMessage]) -> list[api.ModelMessage]:
        """Return the messages that the compaction leaves."""
        run: Any = RunContext(deps=None, model=self._model, usage=RunUsage(), messages=messages)
        request = ModelRequestContext(
            model=self._model,
            messages=list(messages),
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        await self.compaction.before_model_request(run, request)
        return list(run.messages)

    def restore(self, messages: Sequence[api.ModelMessage]) -> list[Message]:
        """Convert messages back; calls and results may have been changed."""
        parts: list[Any] = []
        for made in messages:
            parts += [made] if isinstance(made, api.ModelResponse) else made.parts
        return self.to_messages(parts, self._restore_changed)

    def _restore_changed(self, made: Any) -> Message:
        if isinstance(made, api.CompactionPart):
            return Message("user", _conversation_summary_text(made.content))
        original = self.history[made.metadata[_POSITION]]
        if isinstance(made, api.ToolReturnPart):
            return original.replace(content=str(made.content))
        calls = [part for part in made.parts if isinstance(part, api.ToolCallPart)]
        return original.replace(tool_calls=tuple(map(_to_call, calls)))


def _to_call(part: api.ToolCallPart) -> ToolCall:
    return ToolCall(part.tool_call_id, part.tool_name, str(part.args))


def _read_key(part: api.ToolCallPart) -> str | None:
    access = parse_file_access(_to_call(part))
    if access is None or access.operation != "read":
        return None
    return f"{access.path} {access.line_range}"


def _clear_tool_results(settings: PeerSettings, **options: Any) -> PeerAdapter:
    adapter = _CompactionAdapter(settings)
    if options.get("max_tokens") is None:
        options.setdefault("max_fraction", 0.7)
    excluded = frozenset(options.pop("exclude_tools", ()))
    adapter.compaction = ClearToolResults(
        **options, exclude_tools=excluded, context_window=settings.available
    )
    return adapter


def _deduplicate_reads(settings: PeerSettings, **options: Any) -> PeerAdapter:
    adapter = _CompactionAdapter(settings)
    window = settings.available
    adapter.compaction = DeduplicateFileReads(_read_key, **options, context_window=window)
    return adapter


def _tiered(
    settings: PeerSettings,
    target_tokens: int | None = 100_000,
    target_fraction: float | None = None,
    keep_pairs: int = 3,
    keep_messages: int = 20,
    model: str | None = None,
) -> PeerAdapter:
    adapter = _CompactionAdapter(settings)
    writer = adapter.make_model(model)
    adapter.compaction = TieredCompaction(
        [
            ClearToolResults(max_tokens=1, keep_pairs=keep_pairs),
            DeduplicateFileReads(_read_key),
            SummarizingCompaction(model=writer, max_messages=1, keep_messages=keep_messages),
        ],
        target_tokens=target_tokens,
        target_fraction=target_fraction,
        context_window=settings.available,
    )
    return adapter


FACTORIES = {
    "clear_tool_results": _clear_tool_results,
    "deduplicate_reads": _deduplicate_reads,
    "tiered": _tiered,
}
