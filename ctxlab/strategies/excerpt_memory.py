"""Strategy that keeps recent messages, and quotes the older lines that are likely to be used again."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.entity_memory import FEATURES, WEIGHTS, EntityMemory
from ctxlab.strategies.helpers.excerpts import compose_excerpts
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER, summarize
from ctxlab.strategies.summaries.llm import load_prompt

_MIN_TOKENS = 50  # fewer hold no excerpts worth a compaction
_MAX_CANDIDATES = 800
_MAX_SHARE = 0.9  # of the tokens after compaction: the rest is for the newest messages
_SPARE_SHARE = 0.1


@dataclass(frozen=True, repr=False)
class excerpt_memory(BaseStrategy):
    r"""Keeps the newest messages, and before them one message of lines quoted from the older ones.

    When the request does not fit, all messages before a recent window are replaced by one message of
    excerpts. Until the next such compaction, requests only grow, so a prompt cache can serve them.
    The excerpts are made anew from the whole conversation each time, so a line can come back.

    A context is a cache: what the agent will use next is unknown, and it must be decided what to keep.
    The excerpts are therefore the lines that mention the paths, ids and other entities that the agent
    will most likely use next. The probability depends on how often the agent used an entity in short
    arguments, how long ago it was mentioned, by whom, and among how many others. Lines are chosen by
    probability per token. They are copied word for word, under headings that name the tool call or
    speaker they come from, with "edited since" where a file was changed after it was read. The
    beginnings of user messages and the decisions of the agent take a share of the space.

    System messages after the first user message stay as they are. Put ``panic`` after this strategy,
    because it does not shorten the newest messages or the head.

    Source: ctxlab. The weights were fitted by ``evals/fit_excerpts.py``; ``docs/excerpts.md`` compares
    the strategy with others on recordings for which it was not fitted.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> found = "src/io.py:12: def read_all(path):" + "\nan unrelated line" * 200
    >>> call = {"id": "c1", "function": {"name": "grep", "arguments": '{"pattern": "read_"}'}}
    >>> talk = [{"role": "user", "content": "Mend the reader"}]
    >>> talk += [{"role": "assistant", "tool_calls": [call]}]
    >>> talk += [{"role": "tool", "tool_call_id": "c1", "content": found}]
    >>> talk += [{"role": "assistant", "content": "There is one."}, {"role": "user", "content": "Go on"}]
    >>> sent = build_messages(None, talk, strategy=excerpt_memory(), limit=500, reserve=0)
    >>> print(*sent[1]["content"].splitlines()[1:], sep="\n")
    ### grep(read_) gave
    src/io.py:12: def read_all(path):
    """

    trigger: float = 1.0
    "share of the available tokens above which compaction starts"
    target: float = 0.6
    """share of the tokens beside the head that may be used after compaction; the head is the system
    prompt and the first user message"""
    share: float = 0.5
    """maximum share of the tokens beside the head for the excerpts, included in ``target``; the window
    takes the rest, and what the excerpts do not need"""
    said: float = 0.1
    "share of the excerpts for user messages and decisions of the agent"
    model: str | None = None
    """model that writes a summary before the excerpts, in the place of user messages and decisions;
    None: no summary"""
    prompt: str = "summary"
    "prompt of the model: ``summary``, ``structured`` or the path of a file"
    weights: tuple[float, ...] = WEIGHTS
    "weights of the model that predicts reuse: the intercept, and one weight per feature"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid or the prompt is unknown."""
        super().__post_init__()
        load_prompt(self.prompt)
        if self.target > self.trigger:
            wrong = f"target <= trigger ({self.trigger}), got target {self.target}"
        elif len(self.weights) != len(FEATURES) + 1:
            wrong = f"{len(FEATURES) + 1} weights, got {len(self.weights)}"
        elif not all(map(math.isfinite, self.weights)):
            wrong = f"finite weights, got {self.weights}"
        else:
            return
        raise SpecError(f"excerpt_memory: expected {wrong}")

    def __call__(self, context: Context, /) -> Context:
        """Replace older messages by excerpts if the request exceeds ``trigger``."""
        if context.tokens <= self.trigger * context.available:
            return context
        head, entries = context.first_droppable, context.entries
        kept = entries[:head] + [e for e in entries[head:] if e.message.role == "system"]
        fixed = sum([entry.tokens for entry in kept])
        free = context.available - fixed
        # With a large head, the target can be above the trigger.
        room = min(self.target * free, self.trigger * context.available - fixed)
        budget = int(min(self.share * free, room * _MAX_SHARE))
        newest = [e for e in entries[context.last_unit_start :] if e.message.role != "system"]
        left = int(self.trigger * context.available) - fixed - sum([e.tokens for e in newest])
        if left >= _MIN_TOKENS:  # a large newest unit takes some of the place of the excerpts
            budget = min(budget, left)
        start = _window_start(context, head, room - budget)
        if budget < _MIN_TOKENS or not _is_worthwhile(context, head, start):
            return context
        memory = self._remember(context)
        summary = int(self.said * budget) if self.model is not None else 0
        text, used = self._compose(context, memory, start, budget - summary)
        spare = budget - summary - used
        if spare > _SPARE_SHARE * budget:  # the window gets what the excerpts do not need
            wider = _window_start(context, head, room - used - summary)
            if wider < start and _is_worthwhile(context, head, wider):
                start = wider
                text, used = self._compose(context, memory, start, used)
        replaced = [e.tokens for e in context.entries[head:start] if e.message.role != "system"]
        if used + summary >= sum(replaced):
            return context
        if self.model is not None:
            text = self._with_summary(context, start, text, summary)
        _replace_by(context, head, start, text)
        return context

    def _remember(self, context: Context) -> EntityMemory:
        """Return the memory of the context, with all messages up to now."""
        memory: EntityMemory | None = context.strategy_state.get(self)
        if memory is None:
            memory = context.strategy_state[self] = EntityMemory(context.history)
        memory.add(_received(context), self.weights)
        return memory

    def candidates(self, context: Context, memory: EntityMemory, start: int) -> list[str]:
        """Return the entities that only messages to be replaced mention, or that they mentioned last.

        Parameters
        ----------
        context : Context
            Context before the compaction.
        memory : EntityMemory
            Entities of the messages of the context.
        start : int
            Index of the first entry of the window.

        Returns
        -------
        list of str
            Entities that could be lost.
        """
        head, entries = context.first_droppable, context.entries
        first, stop = replaced_span(context, start)
        kept = entries[:head] + [e for e in entries[head:start] if e.message.role == "system"]
        in_view = {text for entry in kept for text in memory.mentioned_at(entry.start)}
        return [
            text
            for text, record in memory.records.items()
            if first <= record.mentions[0] < stop and text not in in_view
        ]

    def _compose(
        self, context: Context, memory: EntityMemory, start: int, tokens: int
    ) -> tuple[str, int]:
        """Return excerpts from the messages between the head and ``start``, and their tokens."""
        history = context.history
        texts = self.candidates(context, memory, start)
        chances = memory.predict(texts, history.tokens_before[context.history_length], self.weights)
        likeliest = (-chances).argsort(kind="stable")[:_MAX_CANDIDATES].tolist()
        return compose_excerpts(
            memory,
            _replaced_positions(context, start),
            {texts[i]: float(chances[i]) for i in likeliest},
            tokens,
            self.said if self.model is None else 0.0,
            lambda text: _count_message(context, text),
        )

    def _with_summary(self, context: Context, start: int, excerpts: str, tokens: int) -> str:
        """Return a summary of the messages before ``start``, followed by the excerpts."""
        previous, done = context.strategy_state.get((self, "summary"), ("", 0))
        positions = _replaced_positions(context, start)
        new = positions[bisect_left(positions, done) :]
        tokens = max(0, tokens - context.history.counter.count_text(SUMMARY_HEADER))
        if new:
            messages = [m for each in new if (m := context.history[each]).role != "system"]
            previous = summarize(
                *(context, previous, messages, tokens, self.model, self.prompt, SUMMARY_HEADER)
            )
            context.strategy_state[self, "summary"] = previous, new[-1] + 1
        return "\n\n".join(filter(None, (previous and SUMMARY_HEADER + previous, excerpts)))


def _window_start(context: Context, head: int, room: float) -> int:
    """Return the index of the first entry of the window, which holds at least the newest unit."""
    entries, start = context.entries, len(context.entries)
    while start > head and not _is_written(entries[start - 1]):
        if entries[start - 1].message.role != "system":  # these stay in any case
            room -= entries[start - 1].tokens
        if room < 0:
            break
        start -= 1
    return max(head, min(context.next_safe_cut(start), context.last_unit_start))


def _is_worthwhile(context: Context, head: int, start: int) -> bool:
    """Return whether there is more to replace than excerpts of an earlier compaction."""
    return any(
        not _is_written(entry) and entry.message.role != "system"
        for entry in context.entries[head:start]
    )


def _is_written(entry: Entry) -> bool:
    """Return whether a strategy wrote the message; excerpts can stand for a single message too."""
    return entry.is_aggregate or entry.form is Form.SUMMARY


def _replace_by(context: Context, head: int, start: int, text: str) -> None:
    """Replace the entries between the head and ``start`` by a text; system messages stay after it."""
    folded = not text
    stop = start
    for index in range(start - 1, head - 2, -1):  # from the end, so that indexes stay right
        if index >= head and context.entries[index].message.role != "system":
            continue
        if index + 1 < stop and not folded:
            context.fold(
                index + 1, stop, Message("user", text), tokens=_count_message(context, text)
            )
            context.report("excerpts")
            folded = True
        elif index + 1 < stop:
            context.drop(index + 1, stop)
        stop = index


def _count_message(context: Context, text: str) -> int:
    """Return the number of tokens of a message with a text; 0 if there is no text to send."""
    counter = context.history.counter
    return counter.count_message(Message("user", text), by_line=True) if text else 0


def _received(context: Context) -> Sequence[int]:
    """Return the positions of all messages that the context ever received."""
    # A fork of a branch is a plain context with the attributes of the branch.
    received: Sequence[int] = getattr(context, "positions", range(context.history_length))
    return received


def replaced_span(context: Context, start: int) -> tuple[int, int]:
    """Return the range of positions in the history that excerpts before a window stand for.

    It begins after the head, also where earlier compactions dropped the messages there.

    Parameters
    ----------
    context : Context
        Context before the compaction.
    start : int
        Index of the first entry of the window.

    Returns
    -------
    tuple of (int, int)
        First position, and the position after the last one.
    """
    first = context.head_end if isinstance(context, Branch) else None
    entries = context.entries
    stop = entries[start].start if start < len(entries) else context.history_length
    return context.history.head_length if first is None else first, stop


def _replaced_positions(context: Context, start: int) -> Sequence[int]:
    """Return the positions of the messages that the context received from the head to a window."""
    received, (first, stop) = _received(context), replaced_span(context, start)
    return received[bisect_left(received, first) : bisect_left(received, stop)]
