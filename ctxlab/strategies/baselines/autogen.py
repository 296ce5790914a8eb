"""Baselines of AutoGen's model contexts: buffered, head and tail, and token limited.

An AutoGen agent stores its system messages separately and puts them before the messages of the model
context. AutoGen stores all tool results of a step in one message.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.settings import arguments
from ctxlab.strategies.helpers import message_blocks


@dataclass(frozen=True, repr=False)
class buffered(BaselineStrategy):
    """Keeps the newest ``buffer_size`` messages, but drops leading tool results.

    Source: autogen-core 0.7.5, ``BufferedChatCompletionContext``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=buffered(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    positive = ("buffer_size",)
    buffer_size: int = 40
    "number of messages to keep; the tool results of a step count as one message"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest ``buffer_size`` messages, but drop leading tool results."""
        entries, first = context.entries, message_blocks.system_prompt_end(context.entries)
        start = message_blocks.newest_blocks_start(entries, first, self.buffer_size)
        if start < len(entries) and entries[start].message.role == "tool":
            start = message_blocks.block_end(entries, start)
        if start > first:
            context.drop(first, start)
        return context


@dataclass(frozen=True, repr=False)
class head_and_tail(BaselineStrategy):
    """Keeps the oldest and the newest messages and replaces those in between by one line.

    The line states the number of skipped messages. A tool call at the end of the oldest messages and
    tool results at the start of the newest messages are dropped too, but the line does not count them.

    Source: autogen-core 0.7.5, ``HeadAndTailChatCompletionContext``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=head_and_tail(1, 2))
    >>> [message["content"] for message in sent]
    ['a', 'Skipped 2 messages.', 'd', 'e']
    """

    positive = ("head_size", "tail_size")
    head_size: int = 10
    "number of oldest messages to keep; the tool results of a step count as one message"
    tail_size: int = 30
    "number of newest messages to keep; the tool results of a step count as one message"

    def __call__(self, context: Context, /) -> Context:
        """Replace the messages between the oldest and the newest ones by one line."""
        state = context.strategy_state.get(self, _BlockCount())
        state = context.strategy_state[self] = state.advance(context)
        skipped = state.blocks - self.head_size - self.tail_size
        entries = context.entries
        if skipped <= 0:
            return context
        if state.first_skipped is None:
            head = message_blocks.system_prompt_end(entries)
            for _ in range(self.head_size):
                head = message_blocks.block_end(entries, head)
            if entries[head - 1].message.tool_calls:
                head -= 1
            first = entries[head].start
            context.strategy_state[self] = _BlockCount(state.length, state.blocks, first)
        else:
            head = context.index_at_or_after(state.first_skipped)
        tail = message_blocks.newest_blocks_start(entries, head, self.tail_size)
        if entries[tail].message.role == "tool":
            tail = message_blocks.block_end(entries, tail)
        line = Message("user", f"Skipped {skipped} messages.")
        if tail > head:
            context.fold(head, tail, line)
        else:
            context.insert(head, line)
        return context


@dataclass(frozen=True, repr=False)
class token_limited(BaselineStrategy):
    """Drops messages in the middle of the conversation until the others fit ``token_limit``.

    Tool calls and their results may be separated. The messages are selected from the whole
    conversation for each request, so a message that was dropped may be sent again later. System
    messages are not counted.

    Source: autogen-core 0.7.5, ``TokenLimitedChatCompletionContext``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=token_limited(15))
    >>> [message["content"] for message in sent]
    ['a', 'b', 'e']
    """

    positive = ("token_limit",)
    token_limit: int | None = None
    "maximum tokens without system messages; None: all tokens that are available for messages"

    def __call__(self, context: Context, /) -> Context:
        """Drop messages in the middle of the conversation until the others fit ``token_limit``."""
        limit = context.available if self.token_limit is None else self.token_limit
        known: _BlockSums | None = context.strategy_state.get(self)
        if known is None or known.version != context.version:
            head = message_blocks.system_prompt_end(context.entries)
            known = context.strategy_state[self] = _BlockSums(context.version, head)
        known.extend(context)
        entries, starts = context.entries, known.starts
        first, stop = starts[0], len(entries)
        kept = known.max_blocks(limit)
        head, tail = starts[kept - kept // 2], starts[len(starts) - 1 - kept // 2]
        fork = context
        if head < tail:
            fork = context.fork_with(head, tail, [])
            stop -= tail - head
        if first < stop and fork.entries[first].message.role == "tool":
            fork = fork if fork is not context else context.fork()
            fork.drop(first, message_blocks.block_end(fork.entries, first))
        return fork


@dataclass(frozen=True)
class _BlockCount:
    """Number of blocks of a conversation, not counting leading system messages.

    A block is a single message, or a sequence of consecutive tool results.
    """

    length: int = 0
    blocks: int = 0
    first_skipped: int | None = None
    "position of the first skipped message in the history; None if no message was skipped"

    def advance(self, context: Context) -> _BlockCount:
        history, blocks = context.history, self.blocks
        for position in range(self.length, context.history_length):
            role = history[position].role
            if role == "tool":
                blocks += not position or history[position - 1].role != "tool"
            else:
                blocks += role != "system" or blocks > 0
        return _BlockCount(context.history_length, blocks, self.first_skipped)


class _BlockSums:
    """Start indices and cumulative token counts of the blocks of a context.

    ``sums[i]`` is the number of tokens of the first ``i`` blocks.
    """

    def __init__(self, version: int, first: int) -> None:
        self.version = version
        self.starts = [first]
        "start index of each block, followed by the end index of the last block"
        self.sums = [0]

    def extend(self, context: Context) -> None:
        """Add the blocks of the entries that were appended since the last call."""
        entries = context.entries
        while (start := self.starts[-1]) < len(entries):
            stop = message_blocks.block_end(entries, start)
            self.starts.append(stop)
            self.sums.append(self.sums[-1] + sum([e.tokens for e in entries[start:stop]]))

    def max_blocks(self, limit: int) -> int:
        """Return the maximum number of blocks that fit ``limit`` tokens.

        Half of the blocks are taken from the start of the context, and half from the end.
        """
        sums, count = self.sums, len(self.sums) - 1

        def tokens(kept: int) -> int:
            return sums[kept - kept // 2] + sums[-1] - sums[count - kept // 2]

        return bisect_right(range(count + 1), limit, key=tokens) - 1


_PACKAGES_URL = "https://github.com/microsoft/autogen/blob/python-v0.7.5/python/packages"
_SOURCE_URL = f"{_PACKAGES_URL}/autogen-core/src/autogen_core/model_context/_"
_PRODUCT_VERSION = "autogen-core 0.7.5"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "autogen.buffered",
        buffered(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "buffered_chat_completion_context.py",
        "Keeps the newest messages; the tool results of a step count as one message. Tool results "
        "at the start are dropped, and the task is dropped like other old messages. AutoGen has no "
        "default size; 40 is ctxlab's choice.",
        ("buffer_size=40", "buffer_size=10", "buffer_size=3", "buffer_size=1"),
        settings=arguments(
            "autogen_core.model_context", "BufferedChatCompletionContext", "buffer_size"
        ),
    ),
    Baseline(
        "autogen.head_and_tail",
        head_and_tail(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "head_and_tail_chat_completion_context.py",
        "Keeps the oldest and the newest messages. A line in between states the number of skipped "
        "messages. Tool calls and their results stay together. AutoGen has no default sizes; 10 "
        "and 30 are ctxlab's choice.",
        ("", "head_size=2, tail_size=8", "head_size=1, tail_size=3", "head_size=5, tail_size=1"),
        settings=arguments(
            "autogen_core.model_context",
            "HeadAndTailChatCompletionContext",
            "head_size",
            "tail_size",
        ),
    ),
    Baseline(
        "autogen.token_limited",
        token_limited(),
        _PRODUCT_VERSION,
        _SOURCE_URL + "token_limited_chat_completion_context.py",
        "Drops messages in the middle of the conversation until the other messages fit. It may "
        "separate tool calls from their results, does not count the system prompt, and selects "
        "messages from the whole conversation for each request.",
        ("", "token_limit=8000", "token_limit=2000", "token_limit=500"),
        settings=arguments(
            "autogen_core.model_context", "TokenLimitedChatCompletionContext", "token_limit"
        ),
    ),
)
