"""LangChain's own code as strategies: ``trim_messages`` and the two middlewares that shorten a context.

A middleware is driven by its hooks over a state that is kept here; an agent's system prompt is no part
of that state, so leading system messages stand before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.messages import trim_messages as trim

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import (
    Adapter,
    Setting,
)
from ctxlab.strategies.upstream.langchain_messages import (
    Cargo,
    asked,
)

__all__ = ["clear_tool_uses", "leading", "sizes", "summarization", "trim_messages"]


def trim_messages(setting: Setting, max_tokens: int | None = None, **options: Any) -> Adapter:
    """``trim_messages`` over the whole conversation before every request."""
    room = setting.available if max_tokens is None else max_tokens
    return _Trimmed(Cargo(setting), {"max_tokens": room, **options})


def summarization(setting: Setting, model: str | None = None, **options: Any) -> Adapter:
    """``SummarizationMiddleware.before_model`` over a state that it may rewrite."""
    return _Summarized(setting, model, options)


def clear_tool_uses(setting: Setting, **options: Any) -> Adapter:
    """``ContextEditingMiddleware`` with one ``ClearToolUsesEdit``; it edits a copy for each request."""
    return _Cleared(Cargo(setting), options)


def leading(history: Sequence[Message]) -> int:
    """How many system messages stand at the beginning."""
    return next((i for i, m in enumerate(history) if m.role != "system"), len(history))


def sizes(trigger: Any) -> Any:
    """A trigger as LangChain takes it: several sizes are a list."""
    return list(trigger) if trigger and not isinstance(trigger[0], str) else trigger


class _Trimmed:
    def __init__(self, cargo: Cargo, options: dict[str, Any]) -> None:
        self._cargo, self._options = cargo, options

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        cargo = self._cargo
        made = trim(cargo.load(history), token_counter=cargo.count, **self._options)
        return cargo.unload(made)


class _Summarized:
    def __init__(self, setting: Setting, model: str | None, options: dict[str, Any]) -> None:
        self._cargo = cargo = Cargo(setting)
        trigger = sizes(options.pop("trigger", None))
        chat: Any = asked(setting, model, cargo) if trigger else FakeListChatModel(responses=[""])
        self._middleware = SummarizationMiddleware(
            chat, trigger=trigger, token_counter=cargo.count, **options
        )
        self._state: list[BaseMessage] = []
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        head = leading(history)
        self._state += self._cargo.load(history, max(head, self._seen))
        self._seen = len(history)
        state: Any = {"messages": self._state}
        update = self._middleware.before_model(state, None)  # type: ignore[arg-type]
        if update:
            made = update["messages"]
            self._state = [m for m in made if not isinstance(m, RemoveMessage)]
        return [*history[:head], *self._cargo.unload(self._state)]


class _Cleared:
    def __init__(self, cargo: Cargo, options: dict[str, Any]) -> None:
        edit = ClearToolUsesEdit(**options)
        self._cargo = cargo
        self._middleware = ContextEditingMiddleware(edits=[edit], token_counter=cargo.count)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        head = leading(history)
        sent: list[BaseMessage] = []

        def answer(request: Any) -> Any:
            sent.extend(request.messages)

        state: Any = self._cargo.load(history, head)
        request: Any = ModelRequest(model=FakeListChatModel(responses=[""]), messages=state)
        self._middleware.wrap_model_call(request, answer)
        return [*history[:head], *self._cargo.unload(sent)]
