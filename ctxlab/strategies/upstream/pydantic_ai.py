"""The history processors of summarization-pydantic-ai, and its context manager.

Pydantic AI decides whether a cut persists: it keeps the messages that a processor returns, but not
those that a capability puts into a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_summarization import (
    ContextManagerCapability,
    create_sliding_window_processor,
    create_summarization_processor,
)

from ctxlab.errors import SpecError
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings

_Processor = Callable[[list[ModelMessage]], Coroutine[Any, Any, list[ModelMessage]]]


def sliding(
    settings: PeerSettings,
    trigger: Any = ("messages", 100),
    keep: Any = ("messages", 50),
    keep_head: Any = None,
) -> _ProcessorAdapter:
    """Return an adapter for ``create_sliding_window_processor``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    trigger : tuple
        Size from which messages are dropped.
    keep : tuple
        Size of the newest part to keep.
    keep_head : tuple, optional
        Size of the first part to keep.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    run = _ProcessorAdapter(settings)
    run.process = create_sliding_window_processor(
        trigger, keep, keep_head, settings.available, run.count_tokens
    )
    return run


def summarization(
    settings: PeerSettings,
    trigger: Any = ("tokens", 170_000),
    keep: Any = ("messages", 20),
    model: str | None = None,
) -> _ProcessorAdapter:
    """Return an adapter for ``create_summarization_processor``.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    trigger : tuple
        Size from which messages are summarised.
    keep : tuple
        Size of the newest part to keep.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    run = _ProcessorAdapter(settings)
    run.process = create_summarization_processor(
        _summary_model(settings, model), trigger, keep, settings.available, run.count_tokens
    )
    return run


def manager(
    settings: PeerSettings,
    max_tokens: int | None = None,
    compress_threshold: float = 0.9,
    keep: Any = ("messages", 0),
    model: str | None = None,
) -> _ProcessorAdapter:
    """Return an adapter for ``ContextManagerCapability``; the history of the run stays whole.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    max_tokens : int, optional
        Tokens of the window; None: the available tokens.
    compress_threshold : float, default 0.9
        Share of the window from which messages are summarised.
    keep : tuple
        Size of the newest part to keep.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    run = _ProcessorAdapter(settings, keeps_edits=False)
    capability = ContextManagerCapability(
        max_tokens=settings.available if max_tokens is None else max_tokens,
        compress_threshold=compress_threshold,
        keep=keep,
        summarization_model=_summary_model(settings, model),
        token_counter=run.count_tokens,
    )

    async def process(messages: list[ModelMessage]) -> list[ModelMessage]:
        class RequestContext:  # the only part of the context that it reads
            pass

        request_context: Any = RequestContext()
        request_context.messages = messages
        done = await capability.before_model_request(None, request_context)  # type: ignore[arg-type]
        return list(done.messages)

    run.process = process
    return run


def _summary_model(settings: PeerSettings, model: str | None) -> FunctionModel:
    """Return a model of the package that is answered by ctxlab's client."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if settings.client is None or model is None:
            raise SpecError("peer:pydantic_ai calls a model; pass model='…' and a client")
        prompt = [str(getattr(part, "content", "")) for m in messages for part in m.parts]
        reply = settings.client.complete(Request(model, (Message("user", "\n".join(prompt)),)))
        return ModelResponse(parts=[TextPart(reply.text)])

    return FunctionModel(answer)


class _ProcessorAdapter:
    """One conversation: the messages that the processor left, and those since then."""

    process: _Processor

    def __init__(self, settings: PeerSettings, keeps_edits: bool = True) -> None:
        self._count_message, self._keeps_edits = settings.counter.count_message, keeps_edits
        self._kept: list[ModelMessage] = []
        self._seen = 0
        self._originals: dict[int, tuple[object, Message]] = {}
        "original message of a part or a reply, by identity"

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the processor's messages; all messages between two replies form one request."""
        for message in history[self._seen :]:
            self._append_message(message, starts_request=message is history[self._seen])
        self._seen = len(history)
        made = asyncio.run(self.process(list(self._kept)))
        if self._keeps_edits:
            self._kept = made
        return [message for each in made for message in self._to_messages(each)]

    def count_tokens(self, messages: Sequence[ModelMessage]) -> int:
        """Return the tokens of messages, counted by ctxlab's counter."""
        return sum(
            self._count_message(message) for each in messages for message in self._to_messages(each)
        )

    def _append_message(self, message: Message, starts_request: bool) -> None:
        if message.role == "assistant":
            calls = [ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
            said = [TextPart(message.text)] if message.text or not calls else []
            reply = ModelResponse(parts=[*said, *calls])
            self._originals[id(reply)] = (reply, message)
            self._kept.append(reply)
            return
        part = _to_part(message)
        self._originals[id(part)] = (part, message)
        last = self._kept[-1] if self._kept else None
        if isinstance(last, ModelRequest) and not starts_request:
            self._kept[-1] = ModelRequest(parts=[*last.parts, part])
        else:
            self._kept.append(ModelRequest(parts=[part]))

    def _to_messages(self, message: ModelMessage) -> list[Message]:
        if isinstance(message, ModelResponse):
            return [self._originals[id(message)][1]]
        back = []
        for part in message.parts:
            known = self._originals.get(id(part))
            content = str(getattr(part, "content", ""))
            back.append(known[1] if known else Message("user", content))
        return back


def _to_part(message: Message) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.text)
    if message.role == "tool":
        return ToolReturnPart(message.name or "tool", message.text, message.tool_call_id or "")
    return UserPromptPart(message.text)
