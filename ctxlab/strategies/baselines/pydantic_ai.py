"""Baselines of Pydantic AI: history processors that drop or summarise older messages.

The original processors are in the package summarization-pydantic-ai. A message of Pydantic AI
contains everything that is sent or received at once: the system prompt and the user's question are
one message, and all tool results for one reply are one message. Tokens are counted by ctxlab's
counter, which the package accepts as a parameter. The package's default counts one token for four
characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import body_start
from ctxlab.strategies.baselines.common.summaries import make_wrapped_summary
from ctxlab.strategies.baselines.settings import arguments

ContextSize: TypeAlias = tuple[str, float]
"""Size of messages: ``("messages", 20)``, ``("tokens", 4000)``, or ``("fraction", 0.9)`` of the window.

The window is the number of available tokens, unless the strategy has another maximum."""

_LOOKBACK_MESSAGES = 5
_INITIAL_SPAN = 64
_SUMMARY_INPUT_CHARS = 16_000
_SUMMARY_PREFIX = "Summary of previous conversation:\n\n"


@dataclass(frozen=True, repr=False)
class pydantic_ai_sliding(BaseStrategy):
    """Keeps only the newest messages, without the system prompt, when ``trigger`` is reached.

    The cut moves back until it separates no tool call from its result.

    Source: summarization-pydantic-ai, ``create_sliding_window_processor``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message(("user", "assistant")[i % 2], str(i)) for i in range(7)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> cut = pydantic_ai_sliding(trigger=("messages", 6), keep=("messages", 3))
    >>> [m.content for m in cut(context).messages]
    ['4', '5', '6']
    """

    trigger: ContextSize = ("messages", 100)
    "size of the conversation at which messages are dropped"
    keep: ContextSize = ("messages", 50)
    "size of the newest messages to keep"
    keep_head: ContextSize | None = None
    "size of the first messages to keep; None: keep only the newest messages"

    def __call__(self, context: Context, /) -> Context:
        """Keep only the newest messages if the conversation has reached ``trigger``."""
        view = _view_if_triggered(context, self.trigger)
        if view is None:
            return context
        cut = view.find_cut(self.keep, in_flight=False)
        if 0 < cut < view.size:
            head = view.head_count(self.keep_head) if self.keep_head else 0
            if head < cut:
                context.drop(view.starts[head], view.starts[cut])
        return context


@dataclass(frozen=True, repr=False)
class pydantic_ai_summarization(BaseStrategy):
    """Replaces everything before the newest messages by one summary when ``trigger`` is reached.

    The system prompt is kept. The cut moves back until it separates no tool call from its result.

    Source: summarization-pydantic-ai, ``create_summarization_processor``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message(("user", "assistant")[i % 2], f"message {i}. " * 9) for i in range(7)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> cut = pydantic_ai_summarization(trigger=("messages", 6), keep=("messages", 2))
    >>> [m.text[:10] for m in cut(context).messages]
    ['Summary of', 'message 5.', 'message 6.']
    """

    trigger: ContextSize = ("tokens", 170_000)
    "size of the conversation at which messages are summarised"
    keep: ContextSize = ("messages", 20)
    "size of the newest messages to keep; 0 messages: keep only messages without a reply"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace everything before the newest messages by one summary."""
        view = _view_if_triggered(context, self.trigger)
        if view is None:
            return context
        start, stop = body_start(context), view.starts[view.find_cut(self.keep, in_flight=True)]
        if start >= stop:
            return context
        context.fold(start, stop, _make_summary(context, start, stop, self.model))
        context.report("summary")
        return context


@dataclass(frozen=True, repr=False)
class pydantic_ai_manager(BaseStrategy):
    """Replaces older messages by a summary, for one request only, when the window is nearly full.

    The original class passes a shortened copy of the conversation to the model and keeps the full
    conversation. The older messages are therefore summarised again, by another model call, before
    each later request.

    Source: summarization-pydantic-ai, ``ContextManagerCapability``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message(("user", "assistant")[i % 2], f"message {i}. " * 9) for i in range(7)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.text[:10] for m in pydantic_ai_manager(max_tokens=200)(context).messages]
    ['Summary of', 'message 6.']
    >>> len(context.messages)
    7
    """

    max_tokens: int | None = None
    "number of tokens of the window; None: the available tokens"
    compress_threshold: float = 0.9
    "share of the window at which messages are summarised"
    keep: ContextSize = ("messages", 0)
    "size of the newest messages to keep; 0 messages: keep only messages without a reply"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace older messages by a summary, for this request only, if the window is nearly full."""
        window = context.available if self.max_tokens is None else self.max_tokens
        if context.tokens < int(window * self.compress_threshold):
            return context
        # The context keeps all messages and may be long, so only a part of its end is searched.
        entries, span, cut = context.entries, _INITIAL_SPAN, 0
        while True:
            view = _MessageView(context, max(0, len(entries) - span), window)
            cut = view.find_cut(self.keep, in_flight=True)
            if cut > _LOOKBACK_MESSAGES or span >= len(entries):
                break
            span *= 4
        start, stop = body_start(context), view.starts[cut]
        if cut <= 0 or start >= stop:
            return context
        said = _make_summary(context, start, stop, self.model)
        tokens = context.history.counter.count_message(said)
        first, last = entries[start].start, entries[stop - 1].stop
        context.report("summary")
        summary = Entry(said, tokens, Form.SUMMARY, first, last, context.request_index)
        return context.fork_with(start, stop, [summary])


def _make_summary(context: Context, start: int, stop: int, model: str | None) -> Message:
    prefix, chars = _SUMMARY_PREFIX, _SUMMARY_INPUT_CHARS
    return make_wrapped_summary(context, start, stop, model, prefix, input_chars=chars, strip=True)


def _view_if_triggered(context: Context, trigger: ContextSize) -> _MessageView | None:
    """Return the messages of a context if it has reached the trigger; None if it has not."""
    kind, value = trigger
    if kind != "messages":
        threshold = int(value * context.available) if kind == "fraction" else value
        return _MessageView(context) if context.tokens >= threshold else None
    if len(context.entries) < value:
        return None
    view = _MessageView(context)
    return view if view.size >= value else None


class _MessageView:
    """Entries of a context, grouped into messages of Pydantic AI.

    ``starts[i]`` is the index of the first entry of message ``i``.
    """

    def __init__(self, context: Context, begin: int = 0, window: int | None = None) -> None:
        self.context, self.entries, self.window = context, context.entries, window
        self.starts: list[int] = []
        ends, last = True, 0
        for index in range(begin, len(self.entries)):
            entry = self.entries[index]
            reply = entry.message.role == "assistant"
            if reply or ends or entry.start != last:
                self.starts.append(index)
            # The message after a summary or after a cut is separate.
            ends, last = reply or entry.form is Form.SUMMARY, entry.stop
        self.size = len(self.starts)
        self.starts.append(len(self.entries))
        sums = [0, *accumulate(entry.tokens for entry in self.entries[begin:])]
        self.sums = [sums[index - begin] for index in self.starts]

    def find_cut(self, keep: ContextSize, in_flight: bool) -> int:
        """Return the index of the first message of Pydantic AI to keep.

        With ``in_flight``, a last message without a reply is kept even if ``keep`` is 0 messages.
        """
        kind, value = keep
        if kind != "messages":
            return self._find_token_cut(self._size_tokens(keep))
        wanted = int(value)
        if wanted == 0:
            if not (in_flight and self.size) or self.entries[-1].message.role == "assistant":
                return self.size
            wanted = 1
        return self._find_safe_cut(self.size - wanted) if self.size > wanted else 0

    def _size_tokens(self, size: ContextSize) -> int:
        kind, value = size
        window = self.context.available if self.window is None else self.window
        return int(value * window) if kind == "fraction" else int(value)

    def _find_token_cut(self, tokens: int) -> int:
        whole = self.sums[-1]
        found = next(i for i in range(self.size + 1) if whole - self.sums[i] <= tokens)
        return self._find_safe_cut(min(found, self.size - 1))

    def _find_safe_cut(self, cut: int) -> int:
        answered = self._newest_results()
        return next((i for i in range(cut, 0, -1) if self._is_safe_cut(i, answered)), 0)

    def head_count(self, keep: ContextSize) -> int:
        """Return how many messages to keep at the beginning, as Pydantic AI counts messages.

        These are the messages that ``keep`` allows, and as many more as are needed to separate no call
        from its result.
        """
        kind, value = keep
        if kind == "messages":
            count = min(int(value), self.size)
        else:
            tokens = self._size_tokens(keep)
            count = next((i for i in range(self.size) if self.sums[i + 1] > tokens), self.size)
        answered = self._newest_results()
        while count < self.size and not self._is_safe_cut(count, answered):
            count += 1
        return count

    def _message_entries(self, number: int) -> Sequence[Entry]:
        return self.entries[self.starts[number] : self.starts[number + 1]]

    def _newest_results(self) -> dict[str, int]:
        """Return, for each call id, the index of the newest message with a result of the call."""
        return {
            entry.message.tool_call_id: number
            for number in range(self.size)
            for entry in self._message_entries(number)
            if entry.message.role == "tool" and entry.message.tool_call_id
        }

    def _is_safe_cut(self, cut: int, answered: dict[str, int]) -> bool:
        """Return True if no call in the five messages before ``cut`` has its result after ``cut``."""
        return not any(
            answered.get(call.id, -1) >= cut
            for number in range(max(0, cut - _LOOKBACK_MESSAGES), cut)
            for entry in self._message_entries(number)
            for call in entry.message.tool_calls
        )


_PRODUCT_VERSION = "summarization-pydantic-ai 0.1.11"
_SOURCE_URL = "https://github.com/vstorm-co/summarization-pydantic-ai/blob/v0.1.11/src/pydantic_ai_summarization/"
_COUNTING_NOTE = (
    " Tokens are counted by ctxlab's counter, which the package accepts as a parameter."
)
_SCRIPTED_MODEL = "model='scripted'"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "pydantic_ai.sliding",
        pydantic_ai_sliding(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "sliding_window.py",
        "At 100 messages, only the newest 50 are kept, and the system prompt is dropped. This is "
        "the package's processor, which shortens the stored history. The package's capability of "
        "the same name shortens a copy of the full history before each request." + _COUNTING_NOTE,
        (
            "trigger=('messages', 30), keep=('messages', 15)",
            "trigger=('tokens', 6000), keep=('tokens', 2500)",
            "trigger=('fraction', 0.5), keep=('fraction', 0.2), keep_head=('messages', 1)",
        ),
        settings=arguments(
            "pydantic_ai_summarization",
            "create_sliding_window_processor",
            "trigger",
            "keep",
            "keep_head",
        ),
    ),
    Baseline(
        "pydantic_ai.summarization",
        pydantic_ai_summarization(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "processor.py",
        "At 170,000 tokens, a summary replaces everything except the newest 20 messages. The "
        "summariser gets only the last 16,000 characters. This is the package's processor, which "
        "stores the summary. The package's capability of the same name writes a new summary before "
        "each request." + _COUNTING_NOTE,
        (
            f"trigger=('tokens', 8000), {_SCRIPTED_MODEL}",
            f"trigger=('messages', 24), keep=('messages', 8), {_SCRIPTED_MODEL}",
            f"trigger=('fraction', 0.5), keep=('tokens', 2000), {_SCRIPTED_MODEL}",
        ),
        settings=arguments(
            "pydantic_ai_summarization",
            "create_summarization_processor",
            "trigger",
            "keep",
            "model",
        ),
    ),
    Baseline(
        "pydantic_ai.manager",
        pydantic_ai_manager(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "capability.py",
        "At 0.9 of the window, a summary replaces everything except the messages after the last "
        "reply of the model. The stored history is not changed, so the whole history is summarised "
        "again before each later request." + _COUNTING_NOTE,
        (
            _SCRIPTED_MODEL,
            f"max_tokens=6000, {_SCRIPTED_MODEL}",
            f"compress_threshold=0.4, keep=('messages', 6), {_SCRIPTED_MODEL}",
            f"keep=('tokens', 3000), {_SCRIPTED_MODEL}",
        ),
        settings=arguments(
            "pydantic_ai_summarization",
            "ContextManagerCapability",
            "max_tokens",
            "compress_threshold",
            "keep",
            model="summarization_model",
        ),
    ),
)
