"""Adapter that calls the context compressor of Hermes Agent before each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from agent import context_compressor as hermes

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.hermes import describe_result, mark_repeated
from ctxlab.strategies.helpers.text import is_text_only
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, Writer
from ctxlab.tokens.counter import TokenCounter

_SOURCE_KEY = "_source"  # Hermes copies further keys, and never sends those that begin with _


@dataclass(frozen=True)
class _Source:
    """Message of ctxlab that a message of Hermes was made of."""

    message: Message
    call: ToolCall | None
    "tool call that the message answers"
    counter: TokenCounter
    is_summary: bool = False


class _Compressor(hermes.ContextCompressor):
    """Compressor that writes summaries with ctxlab's client."""

    writer: Writer
    summary = Message("user", "")

    def _generate_summary(self, turns_to_summarize: Any, *_: Any, **__: Any) -> str:
        said = self.writer(message for turn in turns_to_summarize for message in _convert(turn))
        self._previous_summary = said
        self.summary = Message("user", SUMMARY_HEADER + said)
        return str(self._with_summary_prefix(said))


class _CompressorAdapter(PeerAdapter):
    """Adapter that compresses one conversation like Hermes' agent.

    Hermes puts the summary into the next message if two messages would have the same role, and the
    wording of its notes depends on the tool. After each compression, the adapter separates the
    summary, and replaces the wording by that of the baseline.
    """

    def __init__(
        self,
        settings: PeerSettings,
        model: str | None = None,
        threshold: float = 0.5,
        target_ratio: float = 0.2,
        **options: Any,
    ) -> None:
        super().__init__(settings)
        self._compressor = _Compressor(
            "ctxlab",
            threshold_percent=threshold,
            summary_target_ratio=target_ratio,
            quiet_mode=True,
            config_context_length=settings.window,
            **options,
        )
        self._compressor.writer = settings.make_writer(model)
        self._messages: list[dict[str, Any]] = []

    def add(self, position: int, block: Block) -> None:
        call = self._units.calls_by_result.get(position)
        self._messages.append(self._to_hermes(_Source(block[0], call, self.settings.counter)))

    def select(self) -> Iterable[Message]:
        compressor, tokens = self._compressor, self._sent_tokens()
        if compressor.should_compress(tokens) or tokens > self.settings.window:
            compressed = compressor.compress(list(self._messages), current_tokens=tokens)
            self._messages = [self._to_hermes(s) for m in compressed for s in self._sources(m)]
            if compressor._last_compression_made_progress:
                compressor.record_completed_compaction()
        compressor.update_from_response({"prompt_tokens": self._sent_tokens()})
        return [message[_SOURCE_KEY].message for message in self._messages]

    def _sent_tokens(self) -> int:
        messages = (message[_SOURCE_KEY].message for message in self._messages)
        counted = sum(map(self.settings.counter.count_message, (*self.prompt, *messages)))
        return counted + self.settings.overhead

    def _sources(self, message: dict[str, Any]) -> Iterator[_Source]:
        """Yield the messages of ctxlab for a message of Hermes; two if it contains the summary."""
        source = message.get(_SOURCE_KEY)
        if source is None or _is_merged(message):
            yield _Source(self._compressor.summary, None, self.settings.counter, is_summary=True)
        if source is not None:
            (converted,) = _convert(message)
            yield replace(source, message=converted)

    def _to_hermes(self, source: _Source) -> dict[str, Any]:
        message = source.message
        if source.is_summary:
            said = message.text.removeprefix(SUMMARY_HEADER)
            content = self._compressor._with_summary_prefix(said)
            return {"role": "user", "content": content, _SOURCE_KEY: source}
        made: dict[str, Any] = {"role": message.role, "content": _to_content(message)}
        if message.tool_calls:
            made["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        if message.role == "tool":
            made["tool_call_id"] = message.tool_call_id
        return {**made, _SOURCE_KEY: source}


def _to_content(message: Message) -> Any:
    whole = message.content is None or isinstance(message.content, str) or is_text_only(message)
    return message.text if whole else list(message.content or ())


def _is_merged(message: dict[str, Any]) -> bool:
    text = hermes._content_text_for_contains(message["content"])
    return text.startswith(hermes._MERGED_PRIOR_CONTEXT_HEADER)


def _convert(message: dict[str, Any]) -> tuple[Message, ...]:
    """Return the message of ctxlab for a message of Hermes, with the changes that Hermes made."""
    source = message[_SOURCE_KEY]
    converted: Message = source.message
    if converted.role == "tool" and message["content"] != _to_content(converted):
        repeated = message["content"].startswith("[Duplicate")
        shorten = mark_repeated if repeated else describe_result
        return (shorten(converted, source.call) or converted,)
    calls = tuple(
        _shorten_call(ours, theirs["function"]["arguments"])
        for ours, theirs in zip(converted.tool_calls, message.get("tool_calls", ()), strict=True)
    )
    return (converted if calls == converted.tool_calls else converted.replace(tool_calls=calls),)


def _shorten_call(call: ToolCall, arguments: str) -> ToolCall:
    if arguments == call.arguments or parse_json(arguments) == parse_json(call.arguments):
        return call
    return ToolCall(call.id, call.name, dump_json(parse_json(arguments)))


def _count_tokens(message: dict[str, Any]) -> int:
    (converted,) = _convert(message)
    return int(message[_SOURCE_KEY].counter.count_message(converted))


hermes._estimate_msg_budget_tokens = _count_tokens  # Hermes estimates tokens from characters

FACTORIES = {"": _CompressorAdapter}
