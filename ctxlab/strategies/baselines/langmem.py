"""Baseline of LangMem: a running summary of the oldest messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary
from ctxlab.strategies.baselines.langchain.trim import trim_to_newest
from ctxlab.strategies.baselines.settings import Setting, arguments

_SUMMARY_PREFIX = "Summary of the conversation so far: "


@dataclass(frozen=True, repr=False)
class running_summary(BaseStrategy):
    r"""Adds the oldest messages to a running summary when unsummarised messages have enough tokens.

    The cut is the earliest one that satisfies two conditions: the messages before it have at least
    ``max_tokens_before_summary`` tokens, and the messages after it fit into the request together
    with the system prompt and the summary. If the last message before the cut calls tools, the
    results of these calls are summarised too. If the cut lies between the results of one message,
    the results after the cut stay without their call. The summary is a system message.

    Source: langmem, ``summarize_messages``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", text) for text in ("My name is Ada", "Hello", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> after = running_summary(max_tokens=20, max_tokens_before_summary=12, max_summary_tokens=14)
    >>> [m.content for m in after(context).messages]
    ['Summary of the conversation so far: - user: My name is Ada\n- user: Hello', 'Bye']
    """

    max_tokens: int | None = None
    "maximum tokens of the request and of the summariser's input; None: the available tokens"
    max_tokens_before_summary: int | None = None
    "number of tokens not yet summarised at which summarising starts; None: ``max_tokens``"
    max_summary_tokens: int = 256
    "number of tokens reserved for the summary"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Add the oldest messages to the summary if the unsummarised messages have enough tokens."""
        most = context.available if self.max_tokens is None else self.max_tokens
        if self.max_summary_tokens >= most:
            given = f"max_summary_tokens ({self.max_summary_tokens})"
            raise SpecError(f"langmem: {given} must be less than max_tokens ({most})")
        entries = context.entries
        starts_whole = bool(entries) and entries[0].message is context.history[0]
        head = int(starts_whole and entries[0].message.role == "system")
        said: str
        said, upto = context.strategy_state.get(self, ("", 0))
        first = head
        if upto:
            first, stop = head + 1, context.index_at_or_after(upto)
            if stop > first:  # results that were summarised together with their call
                context.drop(first, stop)
        tokens = context.tokens - sum(entry.tokens for entry in entries[:first])
        before = self.max_tokens_before_summary
        before = most if before is None else before
        if tokens < before:
            return context
        room = most - self.max_summary_tokens - sum(entry.tokens for entry in entries[:head])
        going = _find_older(entries[first:], tokens, room, before)
        if not going:
            return context
        counter = context.history.counter
        if upto:
            most -= counter.count_message(Message("system", said))
        messages = [entry.message for entry in going]
        if sum(entry.tokens for entry in going) > most:
            messages = trim_to_newest(messages, most, counter) or messages
        said = write_unchecked_summary(context, said, messages, self.max_summary_tokens, self.model)
        stop = min(first + len(going), len(entries))
        context.fold(head, stop, Message("system", _SUMMARY_PREFIX + said))
        context.strategy_state[self] = said, going[-1].start + 1
        context.report("summary")
        return context


def _find_older(entries: Sequence[Entry], tokens: int, room: int, before: int) -> list[Entry]:
    """Return the entries to summarise now, in the order of the summariser's input.

    The returned entries have at least ``before`` tokens. The remaining entries must fit in ``room``
    tokens. ``tokens`` is the total of ``entries``.
    """
    used = 0
    for count, entry in enumerate(entries, 1):
        used += entry.tokens
        if used >= before and tokens - used <= room:
            asked = entry.message.tool_calls
            calls = [call.id for call in asked if object_arguments(call) is not None]
            if not calls:
                return list(entries[:count])
            results = {e.message.tool_call_id: e for e in entries if e.message.role == "tool"}
            return [*entries[:count], *(results[call] for call in calls if call in results)]
    return []


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "langmem.summarize",
        running_summary(),
        "langmem 0.0.30",
        "https://github.com/langchain-ai/langmem/blob/main/src/langmem/short_term/summarization.py",
        "Adds the oldest messages to a running summary of 256 tokens when the messages not yet "
        "summarised have max_tokens tokens. LangMem has no default for max_tokens; ctxlab uses the "
        "available tokens. A cut may fall between the results of one message's calls. If results are "
        "in another order than their calls, LangMem fails and ctxlab continues.",
        (
            "max_tokens=6000, model='gpt-5-mini'",
            "max_tokens=4000, max_tokens_before_summary=2000, model='gpt-5-mini'",
            "max_tokens=3000, max_tokens_before_summary=5000, max_summary_tokens=100, "
            "model='gpt-5-mini'",
        ),
        settings=(
            *arguments(
                "langmem.short_term",
                "SummarizationNode",
                "max_tokens",
                "max_tokens_before_summary",
                "max_summary_tokens",
            ),
            Setting(
                "model",
                "python",
                "langmem.short_term",
                "SummarizationNode.model",
                "init_chat_model({value})",
            ),
        ),
    ),
)
