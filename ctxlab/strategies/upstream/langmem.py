"""Adapter for LangMem's ``summarize_messages``, which continues a running summary."""

from __future__ import annotations

import warnings
from typing import Any

from langmem.short_term import RunningSummary, summarize_messages

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.langchain_messages import LangChainAdapter


class _SummarizationAdapter(LangChainAdapter):
    """Adapter that applies ``summarize_messages`` to the whole conversation at every request."""

    separate_prompt = False

    def __init__(self, settings: PeerSettings, model: str | None = None, **options: Any) -> None:
        super().__init__(settings)
        self._options = {"token_counter": self.count_tokens, **settings.with_room(options)}
        self._options["model"] = self.make_chat_model(model)
        self._running_summary: RunningSummary | None = None

    def select(self) -> list[Message]:
        loaded: Any = self.load_all()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # LangMem warns if it cannot trim
            earlier = self._running_summary
            result = summarize_messages(loaded, running_summary=earlier, **self._options)
        self._running_summary = result.running_summary or self._running_summary
        return self.from_langchain(result.messages)


FACTORIES = {"summarize": _SummarizationAdapter}
