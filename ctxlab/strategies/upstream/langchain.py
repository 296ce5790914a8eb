"""LangChain's code as strategies: ``trim_messages`` and two middlewares.

The hooks of a middleware run over a state that is kept here. An agent's system prompt is not part
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
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings
from ctxlab.strategies.upstream.langchain_messages import MessageConverter, make_chat_model


def trim_messages(
    settings: PeerSettings, max_tokens: int | None = None, **options: Any
) -> PeerAdapter:
    """Return an adapter for ``trim_messages``, run over the whole conversation at every request.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    max_tokens : int, optional
        Tokens to keep; None: the available tokens.
    **options
        Other parameters of the package's function.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    room = settings.available if max_tokens is None else max_tokens
    return _TrimAdapter(MessageConverter(settings), {"max_tokens": room, **options})


def summarization(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    """Return an adapter for ``SummarizationMiddleware.before_model``, which may rewrite the state.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    model : str, optional
        Model that writes the summary; required with a trigger.
    **options
        Other parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _SummarizationAdapter(settings, model, options)


def clear_tool_uses(settings: PeerSettings, **options: Any) -> PeerAdapter:
    """Return an adapter for ``ContextEditingMiddleware`` with one ``ClearToolUsesEdit``.

    It edits a copy of the conversation for each request.

    Parameters
    ----------
    settings : PeerSettings
        Counter of the tokens.
    **options
        Parameters of ``ClearToolUsesEdit``.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ClearingAdapter(MessageConverter(settings), options)


def count_leading_system_messages(history: Sequence[Message]) -> int:
    """Return the number of leading system messages.

    Parameters
    ----------
    history : sequence of Message
        Messages of a conversation.

    Returns
    -------
    int
        Index of the first other message.
    """
    return next((i for i, m in enumerate(history) if m.role != "system"), len(history))


def as_size_list(trigger: Any) -> Any:
    """Return a trigger in LangChain's form, where several sizes are a list.

    Parameters
    ----------
    trigger : tuple or None
        A size, or several sizes.

    Returns
    -------
    list, tuple or None
        The trigger.
    """
    return list(trigger) if trigger and not isinstance(trigger[0], str) else trigger


class _TrimAdapter:
    def __init__(self, converter: MessageConverter, options: dict[str, Any]) -> None:
        self._converter, self._options = converter, options

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        converter = self._converter
        made = trim(
            converter.to_langchain(history), token_counter=converter.count_tokens, **self._options
        )
        return converter.from_langchain(made)


class _SummarizationAdapter:
    def __init__(self, settings: PeerSettings, model: str | None, options: dict[str, Any]) -> None:
        self._converter = converter = MessageConverter(settings)
        trigger = as_size_list(options.pop("trigger", None))
        chat: Any = (
            make_chat_model(settings, model, converter)
            if trigger
            else FakeListChatModel(responses=[""])
        )
        self._middleware = SummarizationMiddleware(
            chat, trigger=trigger, token_counter=converter.count_tokens, **options
        )
        self._state: list[BaseMessage] = []
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        head = count_leading_system_messages(history)
        self._state += self._converter.to_langchain(history, max(head, self._seen))
        self._seen = len(history)
        state: Any = {"messages": self._state}
        update = self._middleware.before_model(state, None)  # type: ignore[arg-type]
        if update:
            made = update["messages"]
            self._state = [m for m in made if not isinstance(m, RemoveMessage)]
        return [*history[:head], *self._converter.from_langchain(self._state)]


class _ClearingAdapter:
    def __init__(self, converter: MessageConverter, options: dict[str, Any]) -> None:
        edit = ClearToolUsesEdit(**options)
        self._converter = converter
        self._middleware = ContextEditingMiddleware(
            edits=[edit], token_counter=converter.count_tokens
        )

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        head = count_leading_system_messages(history)
        sent: list[BaseMessage] = []

        def answer(request: Any) -> Any:
            sent.extend(request.messages)

        state: Any = self._converter.to_langchain(history, head)
        request: Any = ModelRequest(model=FakeListChatModel(responses=[""]), messages=state)
        self._middleware.wrap_model_call(request, answer)
        return [*history[:head], *self._converter.from_langchain(sent)]
