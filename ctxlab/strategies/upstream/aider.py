"""Adapter for the chat summary of aider, which runs when the user writes a new message."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from aider import prompts
from aider.history import ChatSummary

from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings


class _SummaryAdapter(PeerAdapter):
    """Adapter that keeps the messages of earlier turns, as aider does.

    aider makes no tool calls, so a call and its results are passed to it as one message.
    """

    def __init__(
        self,
        settings: PeerSettings,
        model: str | None = None,
        max_chat_history_tokens: int | None = None,
    ) -> None:
        super().__init__(settings)
        most: float | None = max_chat_history_tokens
        if most is None:
            most = min(max(settings.window / 16, 1024), 8192)
        self._summary = ChatSummary(_ClientModel(self, model), most)
        self._done: list[dict[str, Any]] = []
        self._moved = 0
        "number of messages of ``history`` that are in ``_done`` or its summary"

    def select(self) -> list[Message]:
        users = [place for place in range(self._moved, len(self.history)) if self._is_user(place)]
        if users and users[-1] > self._moved:
            self._move_back(users[-1])
        current = self.history[max(self._moved, len(self.prompt)) :]
        return [*self.to_messages(self._done, _to_message), *current]

    def count_tokens(self, messages: Any) -> int:
        """Return the tokens of one message of aider, or of several."""
        several = messages if isinstance(messages, list) else [messages]
        return sum(map(self.settings.counter.count_message, self.to_messages(several, _to_message)))

    def _is_user(self, position: int) -> bool:
        return self.history[position].role == "user"

    def _move_back(self, position: int) -> None:
        """Add the messages before a position to the earlier turns, and summarise these."""
        places = range(max(self._moved, len(self.prompt)), position)
        for _, unit in groupby(places, key=self._units.starts.__getitem__):
            block = tuple(self.history[place] for place in unit)
            text = "\n".join(message.text for message in block)
            self._done.append(self.link({"role": block[0].role, "content": text}, block))
        self._moved = position
        if self._summary.too_big(self._done):
            self._done = self._summary.summarize(self._done)


class _ClientModel:
    """Model for aider that uses ctxlab's token counter and client."""

    name = "ctxlab"
    info: dict[str, Any] = {"max_input_tokens": 10**9}  # noqa: RUF012 - aider only reads it

    def __init__(self, adapter: _SummaryAdapter, model: str | None) -> None:
        self.token_count = adapter.count_tokens
        self._writer = adapter.settings.make_writer(model)

    def simple_send_with_retries(self, messages: Iterable[dict[str, Any]]) -> str:
        return self._writer(Message(each["role"], each["content"]) for each in messages)


def _to_message(made: dict[str, Any]) -> Message:
    """Return a message that aider created: a summary, or the reply after it."""
    content = made["content"]
    if made["role"] == "user":
        content = SUMMARY_HEADER + content.removeprefix(prompts.summary_prefix)
    return Message(made["role"], content)


FACTORIES = {"": _SummaryAdapter}
