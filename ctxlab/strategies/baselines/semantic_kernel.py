"""Baselines of Semantic Kernel's history reducers: truncation and summarization by message count.

The next request starts from the reduced history. If a cut is inside a chain of consecutive tool
calls and results, both reducers move it back to the start of the chain. A long turn of an agent is
such a chain, so it is hardly shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common.summaries import summarize_entries
from ctxlab.strategies.baselines.settings import Setting, arguments, unavailable


class _Reducer(BaselineStrategy):
    """Base class of the two reducers, which decides where they cut."""

    positive = ("target_count",)
    target_count: int
    threshold_count: int

    def _find_cut(self, context: Context, offset: int = 0) -> int | None:
        """Return the index of the first entry to keep; None if nothing is to be removed.

        ``offset`` is the number of summaries at the beginning of the context.
        """
        entries, target = context.entries, self.target_count
        count = len(entries)
        if count <= target + self.threshold_count:
            return None
        system = self._find_system_message(context)
        if system is not None and system < count - target:
            target -= 1
            if target <= 0:
                return count
        index = count - target
        earliest = index - self.threshold_count
        if earliest <= offset:
            return None
        if index < count and _is_call_or_result(entries[index]):
            index = max(offset, self._chain_start(context, index))
        users = (i for i in range(index, earliest - 1, -1) if entries[i].message.role == "user")
        return next(users, index)

    def _chain_start(self, context: Context, index: int) -> int:
        """Return the start index of the chain of calls and results that contains ``index``."""
        # The start is cached, because a long chain would be searched again at every request.
        known: tuple[int, int] | None = context.strategy_state.get((self, "chain"))
        entries, start = context.entries, index
        while start and _is_call_or_result(entries[start - 1]):
            if known and known[0] <= entries[start].start <= known[1]:
                start = context.index_at_or_after(known[0])
                break
            start -= 1
        context.strategy_state[self, "chain"] = (entries[start].start, entries[index].start)
        return start

    def _find_system_message(self, context: Context) -> int | None:
        """Return the index of the first system message; None if there is no system message."""
        entries = context.entries
        index = context.index_at_or_after(context.strategy_state.get((self, "system"), 0))
        while index < len(entries) and entries[index].message.role != "system":
            index += 1
        found = index < len(entries)
        seen = entries[index].start if found else context.history_length
        context.strategy_state[self, "system"] = seen
        return index if found else None


def _is_call_or_result(entry: Entry) -> bool:
    return entry.message.role == "tool" or bool(entry.message.tool_calls)


@dataclass(frozen=True, repr=False)
class truncation(_Reducer):
    """Drops the oldest messages when there are too many.

    A cut inside a chain of consecutive tool calls and results moves back to the start of the chain.
    The first system message is counted but not dropped.

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
    "number of messages to keep"
    threshold_count: int = 0
    "number of messages in excess of ``target_count`` that are tolerated before messages are dropped"

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest messages when there are too many."""
        cut = self._find_cut(context)
        if not cut:
            return context
        system = self._find_system_message(context)
        if system is None or system >= cut:
            context.drop(0, cut)
            return context
        if cut > system + 1:
            context.drop(system + 1, cut)
        if system:
            context.drop(0, system)
        return context


@dataclass(frozen=True, repr=False)
class summarization(_Reducer):
    r"""Summarises the oldest messages, without tool calls and results, when there are too many.

    The cut moves at every request, so each request has a new summary. Sometimes the only input of
    the new summary is the previous one. If the model fails, the package raises an error; ctxlab
    makes an extractive summary.

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
    "number of messages to keep"
    threshold_count: int = 0
    "number of messages in excess of ``target_count`` that are tolerated before a summary is made"
    include_function_content_in_summary: bool = False
    "True: summarise tool calls and results too; False: drop them"
    tokens: int = 400
    "maximum number of tokens of the summary; the package asks for five sentences"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace the oldest messages by a summary, and drop their tool calls and results."""
        entries = context.entries
        system = self._find_system_message(context)
        others = (i for i, entry in enumerate(entries) if entry.form is not Form.SUMMARY)
        cut = self._find_cut(context, next(others, 0))
        if cut is None:
            return context
        said = [entry for entry in entries[:cut] if entry.message.role != "system"]
        if not self.include_function_content_in_summary:
            said = [entry for entry in said if not _is_call_or_result(entry)]
        if not said:
            return context
        text = summarize_entries(context, said, self.tokens, self.model)
        message, start = Message("assistant", text), 0
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


_PYTHON_URL = "https://github.com/microsoft/semantic-kernel/blob/python-1.45.0/python"
_SOURCE_URL = f"{_PYTHON_URL}/semantic_kernel/contents/history_reducer/chat_history_"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "semantic_kernel.truncation",
        truncation(),
        "semantic-kernel 1.45.0",
        _SOURCE_URL + "truncation_reducer.py",
        "When there are more messages than target_count and threshold_count together, the oldest "
        "messages are dropped. If the cut is inside a chain of calls and results, it moves back to "
        "the start of the chain, so hardly anything but the task is dropped from a long turn. The "
        "package has no default for target_count; 40 is ctxlab's choice.",
        ("", "target_count=10", "target_count=6, threshold_count=4", "target_count=1"),
        settings=arguments(
            "semantic_kernel.contents",
            "ChatHistoryTruncationReducer",
            "target_count",
            "threshold_count",
        ),
    ),
    Baseline(
        "semantic_kernel.summarization",
        summarization(),
        "semantic-kernel 1.45.0",
        _SOURCE_URL + "summarization_reducer.py",
        "When there are more messages than target_count and threshold_count together, one summary "
        "without calls and results replaces the oldest messages. It is rewritten at nearly every "
        "request. The package has no default for target_count; 40 is ctxlab's choice.",
        (
            "model='gpt-5-mini'",
            "model='gpt-5-mini', target_count=10",
            "model='gpt-5-mini', target_count=6, threshold_count=4",
            "model='gpt-5-mini', target_count=6, include_function_content_in_summary=True",
        ),
        settings=(
            *arguments(
                "semantic_kernel.contents",
                "ChatHistorySummarizationReducer",
                "target_count",
                "threshold_count",
                "include_function_content_in_summary",
            ),
            Setting(
                "model",
                "python",
                "semantic_kernel.contents",
                "ChatHistorySummarizationReducer.service",
                "OpenAIChatCompletion(ai_model_id={value})",
            ),
            *unavailable("tokens", note="of ctxlab"),
        ),
    ),
)
