"""LangMem's ``summarize_messages`` as a strategy, with the running summary that it returns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from langmem.short_term import RunningSummary, summarize_messages

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings
from ctxlab.strategies.upstream.langchain_messages import MessageConverter, make_chat_model


def summarize(
    settings: PeerSettings, max_tokens: int | None = None, model: str | None = None, **options: Any
) -> PeerAdapter:
    """Return an adapter for ``summarize_messages``, run over the whole conversation at every request.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    max_tokens : int, optional
        Target tokens; None: the available tokens.
    model : str, optional
        Model that writes the summary; required.
    **options
        Other parameters of the package's function.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    room = settings.available if max_tokens is None else max_tokens
    return _SummarizationAdapter(settings, model, {"max_tokens": room, **options})


class _SummarizationAdapter:
    def __init__(self, settings: PeerSettings, model: str | None, options: dict[str, Any]) -> None:
        self._converter = MessageConverter(settings)
        self._options: dict[str, Any] = options
        self._options["model"] = make_chat_model(settings, model, self._converter)
        self._options["token_counter"] = self._converter.count_tokens
        self._running_summary: RunningSummary | None = None

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        loaded: Any = self._converter.to_langchain(history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # raised if it could not trim
            result = summarize_messages(
                loaded, running_summary=self._running_summary, **self._options
            )
        self._running_summary = result.running_summary or self._running_summary
        return self._converter.from_langchain(result.messages)
