"""Baselines of Semantic Kernel's history reducers: truncation and summarization by message count.

The reduced history is kept for the next request. Both reducers move a cut back to the start of the
chain of calls and results there, so an agent's run is hardly shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary


@dataclass(frozen=True, repr=False)
class truncation(BaseStrategy):
    """Drops the oldest messages above a number, up to the start of the chain of calls at the cut.

    The first system message stays and is counted.

    Source: semantic-kernel 1.45.0, ``ChatHistoryTruncationReducer``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=truncation(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    target_count: int = 40
    "number of messages that remain"
    threshold_count: int = 0
    "number of messages above ``target_count`` at which messages are dropped"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self.target_count)

    def __call__(self, context: Context, /) -> Context:
        cut = _find_cut(context, self, self.target_count, self.threshold_count, 0)
        if cut is None:
            return context
        system = _find_system_message(context, self)
        if system is None or system >= cut:
            if cut:
                context.drop(0, cut)
            return context
        if cut > system + 1:
            context.drop(system + 1, cut)
        if system:
            context.drop(0, system)
        return context


@dataclass(frozen=True, repr=False)
class summarization(BaseStrategy):
    r"""Summarises the oldest messages above a number; the summary leaves out calls and results.

    The cut moves at every request, so the summary is rewritten each time, sometimes from nothing
    but itself. If the model fails the package raises; here the summary is extracted.

    Source: semantic-kernel 1.45.0, ``ChatHistorySummarizationReducer``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=summarization(2))
    >>> [message["content"] for message in sent]
    ['- user: a\n- user: b\n- user: c', 'd', 'e']
    """

    target_count: int = 40
    "number of messages that remain"
    threshold_count: int = 0
    "number of messages above ``target_count`` at which messages are summarised"
    include_function_content_in_summary: bool = False
    "summarise calls and results too; False: they are dropped without a trace"
    tokens: int = 400
    "tokens of the summary at most; the package asks for five sentences"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self.target_count)

    def __call__(self, context: Context, /) -> Context:
        entries = context.entries
        system = _find_system_message(context, self)
        summaries = 0
        while summaries < len(entries) and _is_summary(entries[summaries]):
            summaries += 1
        offset = summaries if summaries < len(entries) else 0
        cut = _find_cut(context, self, self.target_count, self.threshold_count, offset)
        if cut is None:
            return context
        said = [entry for entry in entries[:cut] if entry.message.role != "system"]
        if not self.include_function_content_in_summary:
            said = [entry for entry in said if not _is_call_or_result(entry)]
        if not said:
            return context
        previous = ""
        if _is_summary(said[0]):
            previous = said[0].message.text
            said = said[1:]
        text = write_unchecked_summary(
            context, previous, [entry.message for entry in said], self.tokens, self.model
        )
        message = Message("assistant", text)
        start = 0
        if system is not None and system < cut:
            if system:
                context.drop(0, system)
            start, cut = 1, cut - system
        if cut > start:
            context.fold(start, cut, message)
        else:
            context.insert(start, message)
        context.report("summary")
        return context


def _find_cut(
    context: Context, strategy: BaseStrategy, target: int, threshold: int, offset: int
) -> int | None:
    """Return the index of the first entry to keep; None if nothing is to be done."""
    entries = context.entries
    count = len(entries)
    if count <= target + threshold:
        return None
    system = _find_system_message(context, strategy)
    if system is not None and system < count - target:
        target -= 1
        if target <= 0:
            return count
    earliest = count - threshold - target
    if earliest <= offset:
        return None
    index = count - target
    if index < count and _is_call_or_result(entries[index]):
        index = max(offset, _chain_start(context, strategy, index))
    for user in range(index, earliest - 1, -1):
        if entries[user].message.role == "user":
            return user
    return index


def _chain_start(context: Context, strategy: BaseStrategy, index: int) -> int:
    """Return the start of the chain of consecutive calls and results that reaches ``index``."""
    # Stored by position: an agent's run is one chain, which would be walked at every request.
    known: tuple[int, int] | None = context.strategy_state.get((strategy, "chain"))
    entries = context.entries
    start = index
    while start and _is_call_or_result(entries[start - 1]):
        if known and known[0] <= entries[start].start <= known[1]:
            start = context.index_at_or_after(known[0])
            break
        start -= 1
    context.strategy_state[strategy, "chain"] = (entries[start].start, entries[index].start)
    return start


def _find_system_message(context: Context, strategy: BaseStrategy) -> int | None:
    """Return the index of the first system message, or None."""
    seen = context.strategy_state.get((strategy, "system"), 0)
    entries = context.entries
    index = context.index_at_or_after(seen)
    while index < len(entries) and entries[index].message.role != "system":
        index += 1
    context.strategy_state[strategy, "system"] = (
        entries[index].start if index < len(entries) else context.history_length
    )
    return index if index < len(entries) else None


def _is_call_or_result(entry: Entry) -> bool:
    return entry.message.role == "tool" or bool(entry.message.tool_calls)


def _is_summary(entry: Entry) -> bool:
    return entry.form is Form.SUMMARY


def _require_positive(target: int) -> None:
    if target == 0:
        raise SpecError("semantic_kernel: expected a target_count of at least 1, got 0")


_SOURCE_URL = (
    "https://github.com/microsoft/semantic-kernel/blob/python-1.45.0/python/semantic_kernel/contents/"
    "history_reducer/chat_history_"
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "semantic_kernel.truncation",
        truncation(),
        "semantic-kernel 1.45.0",
        _SOURCE_URL + "truncation_reducer.py",
        "Above target and threshold the oldest messages are dropped. The cut moves back to the "
        "start of a chain of calls and results, so an agent's run loses little but its task. The "
        "package sets no target; 40 is ctxlab's choice.",
        ("", "target_count=10", "target_count=6, threshold_count=4", "target_count=1"),
    ),
    Baseline(
        "semantic_kernel.summarization",
        summarization(),
        "semantic-kernel 1.45.0",
        _SOURCE_URL + "summarization_reducer.py",
        "Above target and threshold the oldest messages become one summary, without calls and "
        "results. It is rewritten at nearly every request. The package sets no target; 40 is "
        "ctxlab's choice.",
        (
            "model='gpt-5-mini'",
            "model='gpt-5-mini', target_count=10",
            "model='gpt-5-mini', target_count=6, threshold_count=4",
            "model='gpt-5-mini', target_count=6, include_function_content_in_summary=True",
        ),
    ),
)
