"""Baseline of goose, which summarises everything, and old tool calls one by one before that."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.common.summaries import limit_tokens, write_unchecked_summary
from ctxlab.strategies.baselines.settings import Setting, unavailable

_BATCH = 10
_MAX_PAIR_TOKENS = 100
_CONTINUATION_NOTE = "The context was compacted: the message above sums it up. I go on from there."


@dataclass(frozen=True, repr=False)
class last_request(compaction.CompactingStrategy):
    """Replaces the conversation by a summary, an assistant message, and the last user message.

    The assistant message says that the conversation was compacted.

    When a user message arrives, compaction starts if the last request and its reply exceeded
    ``threshold``. Later in the turn, compaction starts only if a request exceeds the window.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> sent = build_messages(None, talk, strategy=last_request(), limit=300, reserve=0)
    >>> [m["role"] for m in sent], sent[2]["content"]
    (['user', 'assistant', 'user'], 'Fix it')
    """

    threshold: float = 0.8
    "share of the window above which compaction starts; 0 or 1: only if a request overflows"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace the conversation by a summary, an assistant message, and the last user message."""
        entries, size = context.entries, compaction.window_tokens(context)
        asked = bool(entries) and compaction.is_user_message(entries[-1]) and 0 < self.threshold < 1
        due = asked and compaction.last_request_tokens(context) > self.threshold * size
        due = due or compaction.prompt_tokens(context) > size
        start = compaction.body_start(context)
        if not due or start == len(entries) or not self.should_compact(context, 0):
            return context
        last = len(entries) - 1
        while last >= start and not compaction.is_user_message(entries[last]):
            last -= 1
        staying = entries[last].tokens if last >= start else 0
        part = entries[start:]
        going = sum(entry.tokens for entry in part) - staying
        told = [entry for entry in part if last < start or entry is not entries[last]]
        message = self.summarize(context, told, going)
        if message is None:
            return context
        if last < start:
            context.fold(start, len(entries), message)
        else:
            if last + 1 < len(entries):
                context.drop(last + 1, len(entries))
            if start < last:
                context.fold(start, last, message)
            else:
                context.insert(start, message)
        context.insert(start + 1, Message("assistant", _CONTINUATION_NOTE), Form.REWRITTEN)
        return context


@dataclass(frozen=True, repr=False)
class tool_pair_summaries(BaseStrategy):
    """Replaces the oldest tool calls of earlier turns by a summary of each, ten calls at a time.

    A summary covers an assistant message with its calls and their results, and is a user message.
    Calls of the current turn are neither counted nor replaced.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *13 * step, {"role": "user", "content": "Go on"}]
    >>> sent = build_messages(None, talk, strategy=tool_pair_summaries(tool_call_cutoff=2))
    >>> len(talk), [m["role"] for m in sent[9:14]]
    (28, ['user', 'user', 'assistant', 'tool', 'assistant'])
    """

    tool_pair_summarization: bool = True
    "True: summarise tool calls of earlier turns; False: do nothing"
    threshold: float = 0.8
    "share of the window at which the whole conversation is compacted; decides ``tool_call_cutoff``"
    tool_call_cutoff: int | None = None
    """number of calls of earlier turns that stay; None: three calls per 20,000 tokens of ``threshold``,
    within 10 to 500"""
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace the oldest tool calls of earlier turns by a summary of each."""
        results, users = tool_result_positions(context), context.history.user_positions
        spoken = bisect_left(users, context.history_length)
        if not self.tool_pair_summarization or not spoken:
            return context
        stop = bisect_left(results, users[spoken - 1])
        done = context.strategy_state.get(self, 0)
        while done < stop and not self._is_visible(context, results[done]):
            done += 1  # the result is part of a summary
        if stop - done > self._cutoff(context) + _BATCH:
            for position in results[done : done + _BATCH]:
                if self._is_visible(context, position):
                    self._summarize(context, position)
            done += _BATCH
        context.strategy_state[self] = done
        return context

    def _cutoff(self, context: Context) -> int:
        if self.tool_call_cutoff is not None:
            return self.tool_call_cutoff
        share = self.threshold if 0 < self.threshold <= 1 else 0.8
        tokens = int(share * compaction.window_tokens(context))
        return min(500, max(10, 3 * tokens // 20_000))

    def _is_visible(self, context: Context, position: int) -> bool:
        index = context.find_index(position)
        return index is not None and context.entries[index].message.role == "tool"

    def _summarize(self, context: Context, position: int) -> None:
        """Replace the call of a result, with all results of the same message, by a summary."""
        start = context.index_at_or_after(context.history.unit_starts[position])
        stop = context.next_safe_cut(start + 1)
        part = context.entries[start:stop]
        most = limit_tokens(sum(entry.tokens for entry in part), self.model, _MAX_PAIR_TOKENS)
        messages = [entry.message for entry in part]
        text = write_unchecked_summary(context, "", messages, most, self.model)
        context.fold(start, stop, Message("user", text or "(a tool was called)"))


_FILE = "~/.config/goose/config.yaml"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "goose",
        last_request() | tool_pair_summaries(),
        "goose, crates/goose-compaction at 6a404c0",
        "https://github.com/block/goose/blob/6a404c06bbeb89ef6222115c523642c60dafb23f/crates/goose-compaction/src/lib.rs",
        "Replaces the conversation by a summary, a note of the assistant, and the last user "
        "message. This happens when a user message arrives and the last request took more than 0.8 "
        "of the window, or when a request overflows. Between these compactions, when earlier turns have "
        "more than 34 tool calls (in a window of 200,000 tokens), the oldest ten are summarised one by "
        "one, in the background; in ctxlab before the request. Versions of early 2026 did so with "
        "other numbers, or not at all (tool_pair_summarization=False). Not implemented: if the request "
        "for a summary overflows, goose repeats it without 10 % of the tool results, then without 20, "
        "50 and 100 %, starting in the middle of the conversation.",
        settings=(
            Setting("threshold", "yaml", _FILE, "GOOSE_AUTO_COMPACT_THRESHOLD", threshold="share"),
            Setting("tool_pair_summarization", "yaml", _FILE, "GOOSE_TOOL_PAIR_SUMMARIZATION"),
            Setting("tool_call_cutoff", "yaml", _FILE, "GOOSE_TOOL_CALL_CUTOFF"),
            *unavailable("summary_tokens", note="of ctxlab"),
            *unavailable("model", note="of ctxlab; goose uses the fast model of the provider"),
        ),
    ),
)
