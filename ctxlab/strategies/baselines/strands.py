"""Strands' conversation managers: a sliding window, and a summary of the oldest part.

The window is applied when a turn of the agent has ended, not within it; both act where a request does
not fit, again and again until it does. The system prompt stands apart. All results of a step are one
message there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import ContentPart, Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary
from ctxlab.strategies.helpers.message_blocks import block_end, system_prompt_end
from ctxlab.strategies.helpers.text import with_text

__all__ = ["MODULE_BASELINES", "shorten_result", "sliding", "summarizing"]

_KEPT_CHARS = 200
_TRUNCATION_MARKER = "... [truncated:"


@dataclass(frozen=True, repr=False)
class sliding(BaseStrategy):
    """The newest messages once a turn is over; where a request does not fit, first the oldest result.

    The oldest step's results keep their first and last 200 characters; once they are that short, the
    oldest messages go: down to the window, or at least two, up to the next user's message, or up to the
    next call where there is none.

    Source: strands-agents 1.62.0, ``SlidingWindowConversationManager``.

    >>> from ctxlab import build_messages
    >>> said = [Message(role, role) for role in ("user", "assistant") * 3]
    >>> sent = build_messages(None, said, strategy=sliding(2))
    >>> [message["content"] for message in sent]
    ['user', 'assistant', 'user', 'assistant']
    """

    window_size: int = 40
    "messages that stay when a turn is over; 0: none"
    should_truncate_results: bool = True
    "shortens results before it drops messages"
    per_turn: bool | int = False
    "also before every model call, or before every so many of them"
    proactive_compression: float | None = None
    "share of the budget from which on messages go before the call; None: only where it does not fit"

    def __call__(self, context: Context, /) -> Context:
        done, calls = context.strategy_state.get(self, (0, 0))
        history = context.history
        for position in range(max(done, 1), context.history_length):
            before = history[position - 1].role
            if history[position].role == "user" and before not in ("user", "system"):
                self._apply_window(context, context.index_at_or_after(position))

        def before_call() -> None:
            nonlocal calls
            _compress_proactively(
                context, self.proactive_compression, lambda: self._reduce(context)
            )
            if self.per_turn is not False:
                calls += 1
                if calls % int(self.per_turn) == 0:
                    self._apply_window(context, len(context.entries))

        _reduce_until_fit(context, before_call, lambda: self._reduce(context, overflow=True))
        context.strategy_state[self] = context.history_length, calls
        return context

    def _apply_window(self, context: Context, stop: int) -> None:
        if len(_block_starts(context, stop)) - 1 > self.window_size:
            self._reduce(context, stop)

    def _reduce(self, context: Context, stop: int | None = None, overflow: bool = False) -> bool:
        """Whether anything could be done to the entries before ``stop``."""
        stop = len(context.entries) if stop is None else stop
        starts, entries = _block_starts(context, stop), context.entries
        count = len(starts) - 1
        if self.window_size == 0:
            begin = count
        else:
            if (
                overflow
                and self.should_truncate_results
                and _truncate_oldest_results(context, starts)
            ):
                return True
            begin = _find_trim_point(
                [entries[start].message for start in starts[:-1]],
                2 if count <= self.window_size else count - self.window_size,
            )
        if not 0 < begin <= count:
            return False
        context.drop(starts[0], starts[begin])
        return True


@dataclass(frozen=True, repr=False)
class summarizing(BaseStrategy):
    """Where a request does not fit, the oldest part becomes a summary, until it fits.

    Source: strands-agents 1.62.0, ``SummarizingConversationManager``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 400) for text in ("a ", "b ", "c ")]
    >>> sent = build_messages(None, said, strategy=summarizing(preserve_recent_messages=1), limit=1000)
    >>> [message["content"][:10] for message in sent]
    ['- user: a ', 'b b b b b ', 'c c c c c ']
    """

    summary_ratio: float = 0.3
    "share of the messages that becomes the summary, from 0.1 to 0.8"
    preserve_recent_messages: int = 10
    "newest messages that stay"
    proactive_compression: float | None = None
    "share of the budget from which on it summarises before the call; None: only where it does not fit"
    tokens: int = 1000
    "tokens of the summary at most; the package sets no limit"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        def reduce() -> bool:
            return self._summarize(context)

        def before_call() -> None:
            _compress_proactively(context, self.proactive_compression, reduce)

        _reduce_until_fit(context, before_call, reduce)
        return context

    def _summarize(self, context: Context) -> bool:
        """Whether there was enough to summarise, and it grew shorter."""
        entries, starts = context.entries, _block_starts(context, len(context.entries))
        count, tokens = len(starts) - 1, context.tokens
        ratio = max(0.1, min(0.8, self.summary_ratio))
        split = min(max(1, int(count * ratio)), count - self.preserve_recent_messages)
        if split <= 0:
            return False
        said = [entries[start].message for start in starts[:-1]]
        while split < count and (
            said[split].role == "tool"
            or (said[split].tool_calls and split + 1 < count and said[split + 1].role != "tool")
        ):
            split += 1
            if split == count:
                return False
        folded = entries[starts[0] : starts[split]]
        previous = ""
        if folded[0].form is Form.SUMMARY:
            previous, folded = folded[0].message.text, folded[1:]
        messages = [entry.message for entry in folded]
        text = write_unchecked_summary(context, previous, messages, self.tokens, self.model)
        context.fold(starts[0], starts[split], Message("user", text))
        context.report("summary")
        return split > 1 or context.tokens < tokens


def _compress_proactively(
    context: Context, share: float | None, reduce: Callable[[], bool]
) -> None:
    if share is not None and context.tokens >= share * context.available:
        reduce()


def _reduce_until_fit(
    context: Context, before_call: Callable[[], None], reduce: Callable[[], bool]
) -> None:
    """The agent's loop: a call that does not fit is reduced and made again."""
    before_call()
    while context.excess > 0:
        if not reduce():
            context.report("overflow: nothing more can be reduced, and the package raises")
            return
        before_call()


def _block_starts(context: Context, stop: int) -> list[int]:
    """Where the blocks begin that follow the system prompt, and where the last of them ends."""
    entries, index = context.entries, system_prompt_end(context.entries)
    starts = [index]
    while index < stop:
        index = block_end(entries, index)
        starts.append(index)
    return starts


def _find_trim_point(messages: Sequence[Message], begin: int) -> int:
    """The first user's message from ``begin`` on, else the first call with a result; -1 for none."""
    for index in range(begin, len(messages)):
        if messages[index].role in ("user", "system"):
            return index
    for index in range(begin, len(messages) - 1):
        if messages[index].tool_calls and messages[index + 1].role == "tool":
            return index
    return -1


def _truncate_oldest_results(context: Context, starts: Sequence[int]) -> bool:
    """Shortens the results of the oldest step; whether there was anything to shorten."""
    entries = context.entries
    for start, stop in pairwise(starts):
        if entries[start].message.role == "tool":
            cut = [context.rewrite(i, shorten_result, Form.TRUNCATED) for i in range(start, stop)]
            return any(cut)
    return False


def shorten_result(message: Message, _: ToolCall | None) -> Message | None:
    """A result with the middle of each text left out, images as a line; None where it is short."""
    content = message.content
    if not isinstance(content, tuple):
        text = _shorten_text(message.text)
        return None if text is None else with_text(message, text)
    parts = tuple(_shorten_part(part) for part in content)
    return None if parts == content else message.replace(content=parts)


def _shorten_part(part: ContentPart) -> ContentPart:
    text: str | None = None
    if part.get("type") == "image_url":
        text = _image_placeholder(str(part.get("image_url", {}).get("url", "")))
    elif part.get("type") == "text":
        text = _shorten_text(str(part.get("text") or ""))
    return part if text is None else {"type": "text", "text": text}


def _shorten_text(text: str) -> str | None:
    left_out = len(text) - 2 * _KEPT_CHARS
    if left_out <= 0 or _TRUNCATION_MARKER in text:
        return None
    note = f"{_TRUNCATION_MARKER} {left_out} chars removed] ..."
    return f"{text[:_KEPT_CHARS]}...\n\n{note}\n\n...{text[-_KEPT_CHARS:]}"


def _image_placeholder(url: str) -> str | None:
    """What stands for an image whose data are there; None for an address, which the package lacks."""
    kind, comma, data = url.partition(";base64,")
    if not comma or not kind.startswith("data:image/"):
        return None
    try:
        size = len(base64.b64decode(data))
    except (binascii.Error, ValueError):
        return None
    return f"[image: {kind.removeprefix('data:image/')}, {size} bytes]"


_SOURCE_URL = (
    "https://github.com/strands-agents/harness-sdk/blob/python/v1.62.0/strands-py/src/strands/agent/"
    "conversation_manager/"
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "strands.sliding",
        sliding(),
        "strands-agents 1.62.0",
        _SOURCE_URL + "sliding_window_conversation_manager.py",
        "40 messages once a turn is over; within a turn it acts only where the request does not "
        "fit: the oldest step's results are cut to their ends, then the oldest messages go. Where "
        "it can do no more the package raises; here the request is sent and that is reported.",
        "strands-agents",
        (
            "",
            "window_size=10",
            "window_size=6, per_turn=True",
            "window_size=10, should_truncate_results=False, per_turn=3",
            "proactive_compression=0.7",
        ),
    ),
    Baseline(
        "strands.summarizing",
        summarizing(),
        "strands-agents 1.62.0",
        _SOURCE_URL + "summarizing_conversation_manager.py",
        "Where a request does not fit, the oldest 30 % of the messages become a summary, as often "
        "as it takes; the newest 10 stay. Where these alone do not fit the package raises, or "
        "summarises its summary without end; here the request is sent and that is reported.",
        "strands-agents",
        (
            "model='gpt-5-mini'",
            "model='gpt-5-mini', preserve_recent_messages=4",
            "model='gpt-5-mini', summary_ratio=0.6, preserve_recent_messages=2, "
            "proactive_compression=0.7",
        ),
    ),
)  # fmt: skip
