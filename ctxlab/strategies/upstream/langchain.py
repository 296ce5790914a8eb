"""Adapters for LangChain: the function ``trim_messages`` and two middlewares.

The adapters keep the state that the hooks of a middleware read and change. In LangChain, the state
does not include the system prompt, so leading system messages are kept separately.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import middleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.messages import trim_messages as trim

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerSettings
from ctxlab.strategies.upstream.langchain_messages import LangChainAdapter


class _TrimAdapter(LangChainAdapter):
    """Adapter that applies ``trim_messages`` to the whole conversation at every request."""

    separate_prompt = False

    def __init__(self, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        self._options = {"token_counter": self.count_tokens, **settings.with_room(options)}

    def select(self) -> list[Message]:
        return self.from_langchain(trim(self.load_all(), **self._options))


class _SummarizationAdapter(LangChainAdapter):
    """Adapter that calls ``SummarizationMiddleware.before_model``, which may change the state."""

    def __init__(
        self, settings: PeerSettings, trigger: Any = None, model: str | None = None, **options: Any
    ) -> None:
        super().__init__(settings)
        chat = self.make_chat_model(model) if trigger else FakeListChatModel(responses=[""])
        fixed: Any = {"trigger": as_size_list(trigger), "token_counter": self.count_tokens}
        self._middleware = middleware.SummarizationMiddleware(chat, **fixed, **options)
        self._state: list[BaseMessage] = []

    def add(self, position: int, block: Block) -> None:
        self._state.append(self.load(position))

    def select(self) -> list[Message]:
        state: Any = {"messages": self._state}
        if update := self._middleware.before_model(state, None):  # type: ignore[arg-type]
            self._state = [m for m in update["messages"] if not isinstance(m, RemoveMessage)]
        return self.from_langchain(self._state)


class _ClearingAdapter(LangChainAdapter):
    """Adapter for ``ContextEditingMiddleware``, which edits a new copy of the conversation each time."""

    def __init__(self, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        edits: Any = [middleware.ClearToolUsesEdit(**options)]
        count = self.count_tokens
        self._middleware = middleware.ContextEditingMiddleware(edits=edits, token_counter=count)

    def select(self) -> list[Message]:
        sent: list[BaseMessage] = []
        model, messages = FakeListChatModel(responses=[""]), self.load_all()
        request: Any = ModelRequest(model=model, messages=messages)

        def answer(request: Any) -> Any:
            sent.extend(request.messages)

        self._middleware.wrap_model_call(request, answer)
        return self.from_langchain(sent)


def as_size_list(trigger: Any) -> Any:
    """Convert a trigger to LangChain's form, in which several sizes are a list.

    Parameters
    ----------
    trigger : tuple or None
        One size, such as ``("tokens", 4000)``, or a tuple of several sizes.

    Returns
    -------
    list, tuple or None
        List of several sizes; one size and None are returned unchanged.
    """
    return list(trigger) if trigger and not isinstance(trigger[0], str) else trigger


FACTORIES = {
    "clear_tool_uses": _ClearingAdapter,
    "summarization": _SummarizationAdapter,
    "trim_messages": _TrimAdapter,
}
