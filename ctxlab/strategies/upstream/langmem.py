"""LangMem's own code as a strategy: ``summarize_messages`` with the running summary that it returns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from langmem.short_term import RunningSummary, summarize_messages

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import (
    Adapter,
    Setting,
)
from ctxlab.strategies.upstream.langchain_messages import (
    Cargo,
    asked,
)

__all__ = ["summarize"]


def summarize(
    setting: Setting, max_tokens: int | None = None, model: str | None = None, **options: Any
) -> Adapter:
    """``summarize_messages`` over the whole conversation before every request."""
    room = setting.available if max_tokens is None else max_tokens
    return _Summarized(setting, model, {"max_tokens": room, **options})


class _Summarized:
    def __init__(self, setting: Setting, model: str | None, options: dict[str, Any]) -> None:
        self._cargo = Cargo(setting)
        self._options: dict[str, Any] = options
        self._options["model"] = asked(setting, model, self._cargo)
        self._options["token_counter"] = self._cargo.count
        self._running: RunningSummary | None = None

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        loaded: Any = self._cargo.load(history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it says that it could not trim
            result = summarize_messages(loaded, running_summary=self._running, **self._options)
        self._running = result.running_summary or self._running
        return self._cargo.unload(result.messages)
