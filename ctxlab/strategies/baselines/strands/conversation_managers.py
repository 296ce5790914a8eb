"""Baselines of Strands' conversation managers: a sliding window, and a summary of the oldest messages.

The sliding window is applied after a turn, not during the turn. If a request does not fit, both
managers reduce it until it fits. The system prompt is stored separately and never reduced.
Consecutive tool results count as one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import ContentPart, Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.parts import decode_image
from ctxlab.strategies.baselines.common.summaries import summarize_entries
from ctxlab.strategies.baselines.settings import Setting, arguments, unavailable
from ctxlab.strategies.helpers.message_blocks import block_end, system_prompt_end
from ctxlab.strategies.helpers.text import with_text

_KEPT_CHARS = 200
_TRUNCATION_MARKER = "... [truncated:"


class _Manager(BaseStrategy):
    """Base class of the conversation managers, which reduce a request until it fits."""

    proactive_compression: float | None

    def _reduce_until_fit(self, context: Context) -> None:
        self._before_call(context)
        while context.excess > 0:
            if not self._reduce(context, overflow=True):
                context.report("overflow: nothing can be reduced; the package would raise an error")
                return
            self._before_call(context)

    def _before_call(self, context: Context) -> None:
        share = self.proactive_compression
        if share is not None and context.tokens >= share * context.available:
            self._reduce(context)

    def _reduce(self, context: Context, overflow: bool = False) -> bool:
        """Reduce the conversation once; return False if nothing could be removed.

        ``overflow`` is True if the request does not fit.
        """
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class sliding(_Manager):
    """Keeps the newest messages of earlier turns, and reduces requests that do not fit.

    When a user message starts a new turn, only the newest ``window_size`` messages before it are
    kept. The messages of the new turn are added to them. If a request does not fit, tool results are
    shortened to their first and last 200 characters, starting with the oldest. If it still does not
    fit, the oldest messages are dropped until ``window_size`` messages remain; if there are no more
    than ``window_size`` messages, the oldest two are dropped.

    Whenever messages are dropped, more are dropped until the first kept message is a user message.
    If there is no later user message, the first kept message is a tool call with a result.

    Source: strands-agents 1.62.0, ``SlidingWindowConversationManager``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message(role, role) for role in ("user", "assistant") * 3]
    >>> sent = build_messages(None, said, strategy=sliding(2))
    >>> [message["content"] for message in sent]
    ['user', 'assistant', 'user', 'assistant']
    """

    window_size: int = 40
    "number of messages to keep after a turn; 0: keep no messages"
    should_truncate_results: bool = True
    "True: shorten tool results before messages are dropped"
    per_turn: bool | int = False
    "True: apply the window before every model call too; a number n: before every n-th call"
    proactive_compression: float | None = None
    "share of the available tokens at which a request is reduced; None: only on overflow"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest messages after each turn, and reduce a request that does not fit."""
        history = context.history
        for position in range(context.strategy_state.get(self, 1), context.history_length):
            before = history[position - 1].role
            if history[position].role == "user" and before not in ("user", "system"):
                self._apply_window(context, context.index_at_or_after(position))
        self._reduce_until_fit(context)
        context.strategy_state[self] = max(1, context.history_length)
        return context

    def _before_call(self, context: Context) -> None:
        super()._before_call(context)
        if self.per_turn is not False:
            calls = context.strategy_state.get((self, "calls"), 0) + 1
            context.strategy_state[self, "calls"] = calls
            if calls % int(self.per_turn) == 0:
                self._apply_window(context, len(context.entries))

    def _apply_window(self, context: Context, stop: int) -> None:
        if len(_block_starts(context, stop)) - 1 > self.window_size:
            self._reduce_before(context, stop)

    def _reduce(self, context: Context, overflow: bool = False) -> bool:
        return self._reduce_before(context, len(context.entries), overflow)

    def _reduce_before(self, context: Context, stop: int, overflow: bool = False) -> bool:
        """Shorten results or drop messages before index ``stop``; return True if anything changed.

        Results are shortened only if ``overflow`` is True. Messages are dropped only if no result
        was shortened.
        """
        starts, entries = _block_starts(context, stop), context.entries
        count = len(starts) - 1
        if self.window_size == 0:
            begin = count
        else:
            shortens = overflow and self.should_truncate_results
            if shortens and _truncate_oldest_results(context, starts):
                return True
            least = 2 if count <= self.window_size else count - self.window_size
            begin = _find_trim_point([entries[start].message for start in starts[:-1]], least)
        if not 0 < begin <= count:
            return False
        context.drop(starts[0], starts[begin])
        return True


@dataclass(frozen=True, repr=False)
class summarizing(_Manager):
    """Summarises the oldest messages of a request that does not fit, repeatedly until it fits.

    Source: strands-agents 1.62.0, ``SummarizingConversationManager``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 400) for text in ("a ", "b ", "c ")]
    >>> sent = build_messages(None, said, strategy=summarizing(preserve_recent_messages=1), limit=1000)
    >>> [message["content"][:10] for message in sent]
    ['- user: a ', 'b b b b b ', 'c c c c c ']
    """

    summary_ratio: float = 0.3
    "share of the messages to summarise at a time, limited to values from 0.1 to 0.8"
    preserve_recent_messages: int = 10
    "number of newest messages to keep"
    proactive_compression: float | None = None
    "share of the available tokens at which messages are summarised; None: only on overflow"
    tokens: int = 1000
    "maximum number of tokens of the summary; the package sets no limit"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Summarise the oldest messages of a request that does not fit, repeatedly until it fits."""
        self._reduce_until_fit(context)
        return context

    def _reduce(self, context: Context, overflow: bool = False) -> bool:
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
        start, stop = starts[0], starts[split]
        text = summarize_entries(context, entries[start:stop], self.tokens, self.model)
        context.fold(start, stop, Message("user", text))
        context.report("summary")
        return split > 1 or context.tokens < tokens


def _block_starts(context: Context, stop: int) -> list[int]:
    """Return the start index of each block after the system prompt, and the end of the last block.

    A block is a sequence of consecutive tool results, or a single message of another role.
    """
    entries, index = context.entries, system_prompt_end(context.entries)
    starts = [index]
    while index < stop:
        index = block_end(entries, index)
        starts.append(index)
    return starts


def _find_trim_point(messages: Sequence[Message], begin: int) -> int:
    """Return the index at which the kept messages should begin, or -1 if there is none.

    It is the index of the first user message at or after ``begin``. If there is no user message, it
    is the index of the first tool call with a result.
    """
    for index in range(begin, len(messages)):
        if messages[index].role in ("user", "system"):
            return index
    for index in range(begin, len(messages) - 1):
        if messages[index].tool_calls and messages[index + 1].role == "tool":
            return index
    return -1


def _truncate_oldest_results(context: Context, starts: Sequence[int]) -> bool:
    """Shorten the oldest block of tool results; return True if any result was shortened."""
    entries = context.entries
    for start, stop in pairwise(starts):
        if entries[start].message.role == "tool":
            cut = [context.rewrite(i, shorten_result, Form.TRUNCATED) for i in range(start, stop)]
            return any(cut)
    return False


def shorten_result(message: Message, _: ToolCall | None) -> Message | None:
    """Remove the middle of long texts in a tool result, and replace images by lines of text.

    Images that are links are kept.

    Parameters
    ----------
    message : Message
        Tool result to shorten.
    _ : ToolCall or None
        Not used.

    Returns
    -------
    Message or None
        Shortened tool result; None if there is nothing to shorten.
    """
    content = message.content
    if not isinstance(content, tuple):
        text = _shorten_text(message.text)
        return None if text is None else with_text(message, text)
    parts = tuple(_shorten_part(part) for part in content)
    return None if parts == content else message.replace(content=parts)


def _shorten_part(part: ContentPart) -> ContentPart:
    text: str | None = None
    if part.get("type") == "image_url":
        # The package ignores images that are links.
        if image := decode_image(str(part.get("image_url", {}).get("url", ""))):
            text = f"[image: {image[0]}, {len(image[1])} bytes]"
    elif part.get("type") == "text":
        text = _shorten_text(str(part.get("text") or ""))
    return part if text is None else {"type": "text", "text": text}


def _shorten_text(text: str) -> str | None:
    left_out = len(text) - 2 * _KEPT_CHARS
    if left_out <= 0 or _TRUNCATION_MARKER in text:
        return None
    note = f"{_TRUNCATION_MARKER} {left_out} chars removed] ..."
    return f"{text[:_KEPT_CHARS]}...\n\n{note}\n\n...{text[-_KEPT_CHARS:]}"


_REPOSITORY_URL = "https://github.com/strands-agents/harness-sdk/blob/python/v1.62.0"
_SOURCE_URL = f"{_REPOSITORY_URL}/strands-py/src/strands/agent/conversation_manager/"

_PROACTIVE = '{"compression_threshold": {value}}'

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "strands.sliding",
        sliding(),
        "strands-agents 1.62.0",
        _SOURCE_URL + "sliding_window_conversation_manager.py",
        "Keeps 40 messages after each turn. During a turn, only a request that does not fit is "
        "reduced: the oldest tool results are cut to their first and last 200 characters, then the "
        "oldest messages are dropped. If nothing more can be reduced, the package raises an error; "
        "ctxlab reports this and sends the request.",
        (
            "",
            "window_size=10",
            "window_size=6, per_turn=True",
            "window_size=10, should_truncate_results=False, per_turn=3",
            "proactive_compression=0.7",
        ),
        settings=(
            *arguments(
                "strands.agent.conversation_manager",
                "SlidingWindowConversationManager",
                "window_size",
                "should_truncate_results",
                "per_turn",
            ),
            Setting(
                "proactive_compression",
                "python",
                "strands.agent.conversation_manager",
                "SlidingWindowConversationManager.proactive_compression",
                _PROACTIVE,
            ),
        ),
    ),
    Baseline(
        "strands.summarizing",
        summarizing(),
        "strands-agents 1.62.0",
        _SOURCE_URL + "summarizing_conversation_manager.py",
        "If a request does not fit, a summary replaces the oldest 30 % of the messages, repeatedly "
        "until the request fits. The newest 10 messages are kept. If these alone do not fit, the "
        "package raises an error or summarises its own summary forever; ctxlab reports this and "
        "sends the request.",
        (
            "model='gpt-5-mini'",
            "model='gpt-5-mini', preserve_recent_messages=4",
            "model='gpt-5-mini', summary_ratio=0.6, preserve_recent_messages=2, "
            "proactive_compression=0.7",
        ),
        settings=(
            *arguments(
                "strands.agent.conversation_manager",
                "SummarizingConversationManager",
                "summary_ratio",
                "preserve_recent_messages",
            ),
            Setting(
                "proactive_compression",
                "python",
                "strands.agent.conversation_manager",
                "SummarizingConversationManager.proactive_compression",
                _PROACTIVE,
            ),
            Setting(
                "model",
                "python",
                "strands.agent.conversation_manager",
                "SummarizingConversationManager.summarization_agent",
                "Agent(model={value})",
            ),
            *unavailable("tokens", note="of ctxlab"),
        ),
    ),
)
