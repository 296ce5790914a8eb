"""Baseline of goose: a summary of everything, followed by the last user message."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction

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


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "goose",
        last_request(),
        "goose, context_mgmt at 331a842 and agent.rs at 0086ae6",
        "https://github.com/block/goose/blob/331a842972378d642bb39bd800a8514b25ae3a70/crates/goose/src/context_mgmt/mod.rs",
        "Replaces the conversation by a summary, a note of the assistant, and the last user "
        "message. This happens when a user message arrives and the last request took more than 0.8 "
        "of the window, or when a request overflows. Not implemented: if the request for a summary "
        "overflows, goose repeats it without 10 % of the tool results, then without 20, 50 and 100 %, "
        "starting in the middle of the conversation.",
    ),
)
