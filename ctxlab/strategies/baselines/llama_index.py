"""Baseline of LlamaIndex: a memory that drops the oldest turns when it exceeds a token limit."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import History
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.settings import arguments
from ctxlab.tokens.counter import TokenCounter

_IMAGE_TOKENS = 256


@dataclass(frozen=True, repr=False)
class memory(BaseStrategy):
    """Drops the oldest turns when the conversation exceeds a token limit.

    Enough turns are dropped at a time to remove about ``token_flush_size`` tokens. The newest turn
    is never shortened, even if it exceeds the limit. Tool calls and the system prompt are not
    counted.

    Source: llama-index-core, ``Memory`` without memory blocks.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> said = [Message("user", text) for text in ("My name is Ada", "Hello", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> [m.content for m in memory(token_limit=5, token_flush_size=1)(context).messages]
    ['Hello', 'Bye']
    """

    token_limit: int = 30_000
    "maximum number of tokens of the memory"
    chat_history_token_ratio: float = 0.7
    "share of ``token_limit`` that the messages may take"
    token_flush_size: int = 3000
    "minimum tokens to drop at a time; if it exceeds ``token_limit``, 0.7 of ``token_limit`` is used"

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest turns if the conversation exceeds the limit."""
        history = context.history
        queue: _MessageQueue | None = context.strategy_state.get(self)
        if queue is None:
            queue = context.strategy_state[self] = _MessageQueue(history, context.history_length)
        limit, flush = self.token_limit * self.chat_history_token_ratio, self.token_flush_size
        if flush > self.token_limit:
            flush = int(self.token_limit * 0.7)
        begin = queue.start
        for position in range(queue.stop, context.history_length):
            queue.put(history[position])
            while queue.tokens > limit and queue.flush(flush):
                pass
        if queue.start > begin:
            head = context.index_at_or_after(queue.head)
            stop = context.index_at_or_after(queue.start)
            if stop > head:
                context.drop(head, stop)
        return context


class _MessageQueue:
    """History positions of the messages that are still in the memory, and their token counts."""

    def __init__(self, history: History, length: int) -> None:
        self._history = history
        self.head = next((i for i in range(length) if history[i].role != "system"), length)
        self.start = self.stop = self.head
        self._cumulative_tokens = [0]  # running totals; the first message is at ``head``

    @property
    def tokens(self) -> int:
        return self._cumulative_tokens[-1] - self._cumulative_tokens[self.start - self.head]

    def put(self, message: Message) -> None:
        tokens = _estimate_tokens(message, self._history.counter)
        self._cumulative_tokens.append(self._cumulative_tokens[-1] + tokens)
        self.stop += 1

    def flush(self, min_tokens: int) -> bool:
        """Drop the oldest turns with about ``min_tokens`` tokens; return True if any was dropped."""
        if self.stop - self.start <= 1:
            return False
        wanted = self._cumulative_tokens[self.start - self.head] + min_tokens
        cut = max(self.start, self.head + bisect_left(self._cumulative_tokens, wanted))
        cut = min(cut, self.stop - 1)
        users = self._history.user_positions
        at = bisect_left(users, cut)
        if at < len(users) and users[at] < self.stop:
            cut = users[at]
        elif at and users[at - 1] >= self.start:
            cut = users[at - 1]  # no user message follows, so the newest turn is not cut
        else:
            cut = self.stop
        went, self.start = cut > self.start, cut
        return went


def _estimate_tokens(message: Message, counter: TokenCounter) -> int:
    content, count = message.content, counter.count_text
    if isinstance(content, tuple):
        texts = [part.get("text") for part in content]
        tokens = sum(_IMAGE_TOKENS if text is None else count(str(text)) for text in texts)
    else:
        tokens = count(content or "")
    if message.role == "tool":  # LlamaIndex counts the printed form of a dictionary with the id
        tokens += count(str({"tool_call_id": message.tool_call_id}))
    return tokens


_REPOSITORY_URL = "https://github.com/run-llama/llama_index/blob/v0.14.25"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "llama_index.memory",
        memory(),
        "llama-index-core 0.14.25",
        f"{_REPOSITORY_URL}/llama-index-core/llama_index/core/memory/memory.py",
        "When the messages exceed 21,000 tokens (0.7 of 30,000), the oldest turns are dropped, "
        "about 3,000 tokens at a time. The newest turn is never shortened, and tool calls are not "
        "counted. ctxlab adds messages one by one; LlamaIndex's agents add all messages of a turn "
        "when it is over.",
        (
            "token_limit=4000",
            "token_limit=2000, token_flush_size=100, chat_history_token_ratio=1.0",
            "token_limit=8000, token_flush_size=1000",
        ),
        settings=arguments(
            "llama_index.core.memory",
            "Memory.from_defaults",
            "token_limit",
            "chat_history_token_ratio",
            "token_flush_size",
        ),
    ),
)
