"""The history processors of summarization-pydantic-ai, whose cuts an agent's run keeps, and its manager.

Whether a cut stays is Pydantic AI's doing, not theirs: it writes back what a processor returns, and not
what a capability puts into a request.
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
from ctxlab.strategies.upstream.base import Setting

__all__ = ["manager", "sliding", "summarization"]

_Process = Callable[[list[ModelMessage]], Coroutine[Any, Any, list[ModelMessage]]]


def sliding(
    setting: Setting,
    trigger: Any = ("messages", 100),
    keep: Any = ("messages", 50),
    keep_head: Any = None,
) -> _Run:
    """``create_sliding_window_processor``."""
    run = _Run(setting)
    run.process = create_sliding_window_processor(
        trigger, keep, keep_head, setting.available, run.count
    )
    return run


def summarization(
    setting: Setting,
    trigger: Any = ("tokens", 170_000),
    keep: Any = ("messages", 20),
    model: str | None = None,
) -> _Run:
    """``create_summarization_processor``; the model is asked through the setting's client."""
    run = _Run(setting)
    run.process = create_summarization_processor(
        _writer(setting, model), trigger, keep, setting.available, run.count
    )
    return run


def manager(
    setting: Setting,
    max_tokens: int | None = None,
    compress_threshold: float = 0.9,
    keep: Any = ("messages", 0),
    model: str | None = None,
) -> _Run:
    """``ContextManagerCapability``: an agent's run keeps its history whole behind it."""
    run = _Run(setting, lasts=False)
    capability = ContextManagerCapability(
        max_tokens=setting.available if max_tokens is None else max_tokens,
        compress_threshold=compress_threshold,
        keep=keep,
        summarization_model=_writer(setting, model),
        token_counter=run.count,
    )

    async def process(messages: list[ModelMessage]) -> list[ModelMessage]:
        class Asked:  # all that it looks at of a request
            pass

        asked: Any = Asked()
        asked.messages = messages
        done = await capability.before_model_request(None, asked)  # type: ignore[arg-type]
        return list(done.messages)

    run.process = process
    return run


def _writer(setting: Setting, model: str | None) -> FunctionModel:
    """A model of theirs that answers what our client answers."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if setting.client is None or model is None:
            raise SpecError("peer:pydantic_ai asks a model: name one, and give a client")
        prompt = [str(getattr(part, "content", "")) for m in messages for part in m.parts]
        reply = setting.client.complete(Request(model, (Message("user", "\n".join(prompt)),)))
        return ModelResponse(parts=[TextPart(reply.text)])

    return FunctionModel(answer)


class _Run:
    """One conversation: the messages that the processor left, and those that came since."""

    process: _Process

    def __init__(self, setting: Setting, lasts: bool = True) -> None:
        self._count, self._lasts = setting.counter.message, lasts
        self._kept: list[ModelMessage] = []
        self._seen = 0
        self._given: dict[int, tuple[object, Message]] = {}
        "the message that a part or a reply stands for, by identity"

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """What the processor gives; a request says all that stands between two replies."""
        for message in history[self._seen :]:
            self._add(message, begins=message is history[self._seen])
        self._seen = len(history)
        made = asyncio.run(self.process(list(self._kept)))
        if self._lasts:
            self._kept = made
        return [message for each in made for message in self._back(each)]

    def count(self, messages: Sequence[ModelMessage]) -> int:
        """Tokens, as we count them."""
        return sum(self._count(message) for each in messages for message in self._back(each))

    def _add(self, message: Message, begins: bool) -> None:
        if message.role == "assistant":
            calls = [ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
            said = [TextPart(message.text)] if message.text or not calls else []
            reply = ModelResponse(parts=[*said, *calls])
            self._given[id(reply)] = (reply, message)
            self._kept.append(reply)
            return
        part = _part(message)
        self._given[id(part)] = (part, message)
        last = self._kept[-1] if self._kept else None
        if isinstance(last, ModelRequest) and not begins:
            self._kept[-1] = ModelRequest(parts=[*last.parts, part])
        else:
            self._kept.append(ModelRequest(parts=[part]))

    def _back(self, message: ModelMessage) -> list[Message]:
        if isinstance(message, ModelResponse):
            return [self._given[id(message)][1]]
        back = []
        for part in message.parts:
            known = self._given.get(id(part))
            content = str(getattr(part, "content", ""))
            back.append(known[1] if known else Message("user", content))
        return back


def _part(message: Message) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.text)
    if message.role == "tool":
        return ToolReturnPart(message.name or "tool", message.text, message.tool_call_id or "")
    return UserPromptPart(message.text)
