"""Baseline of deepagents, which truncates arguments, then summarises, when the window is nearly full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import body_start, newest_that_fit
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.baselines.common.summaries import summarize_entries
from ctxlab.strategies.baselines.deepagents.files import find_call, stub_saved_result
from ctxlab.strategies.baselines.langchain import summarization as sizes
from ctxlab.strategies.baselines.langchain.summarization import ContextSize
from ctxlab.strategies.baselines.settings import Setting, arguments, unavailable
from ctxlab.strategies.helpers.text import rewrite_calls

_WRITE_TOOLS = ("write_file", "edit_file")
_KEPT_CHARS, _TRUNCATION_MARKER = 20, "...(argument truncated)"
_MAX_WINDOW_SHARE = 0.95
_SUMMARY_PREFIX = """\
You are in the middle of a conversation that has been summarized.

The full conversation history has been saved to /conversation_history/session.md should you need to \
refer back to it for details.

A condensed summary follows:

<summary>
"""
_SUMMARY_SUFFIX = "\n</summary>"


@dataclass(frozen=True, repr=False)
class summarize_near_the_end(BaseStrategy):
    """Truncates arguments of older file writes, then summarises, when the window is nearly full.

    Arguments are truncated in each request; the stored conversation keeps them in full. If the
    request then still reaches ``trigger``, everything except the newest messages is replaced by a
    summary. The summary is a user message that names a file with the full conversation. If the
    request still takes more than 0.95 of the window, the newest tool results are replaced by stubs
    that name a file with the full result. If the request still does not fit, deepagents fails, and
    ctxlab sends the request unchanged.

    Source: deepagents, ``SummarizationMiddleware`` as ``create_deep_agent`` sets it up.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"This is the message with the number {i}") for i in range(60)]
    >>> context = Context(Budget(600), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(60)
    >>> [m.text[-9:] for m in summarize_near_the_end(summary_tokens=99)(context).messages[:2]]
    ['/summary>', 'number 56']
    """

    trigger: ContextSize | tuple[ContextSize, ...] = ("fraction", 0.85)
    "size of the request at which messages are summarised; if there are several, any one is enough"
    keep: ContextSize = ("fraction", 0.1)
    "size of the newest messages, which are not summarised"
    truncate_trigger: ContextSize = ("fraction", 0.85)
    "size of the request at which arguments are truncated"
    truncate_keep: ContextSize = ("fraction", 0.1)
    "size of the newest messages, whose arguments are not truncated"
    max_length: int = 2000
    "maximum number of characters of an argument that is not truncated"
    summary_tokens: int = 1000
    "target number of tokens of the summary; a longer summary of a model is used unchanged"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Truncate arguments of older file writes, then summarise if that is not enough."""
        limit, entries = context.available, context.entries
        head = body_start(context)
        before = sum(entry.tokens for entry in entries[:head])
        count, tokens = len(entries) - head, context.tokens - before
        most = int(limit * _MAX_WINDOW_SHARE)
        cuts = sizes.is_triggered(self.truncate_trigger, count, context.tokens, limit)
        fits = context.tokens <= most
        if fits and not cuts and not self._is_triggered(context.tokens, count, limit):
            return context
        rest: Sequence[Entry] = entries[head:]
        if cuts:
            rest = self._shorten_arguments(context, rest)
            tokens = sum(entry.tokens for entry in rest)
        if before + tokens <= most and not self._is_triggered(before + tokens, count, limit):
            return self._fork_if_changed(context, head, rest)
        cut = sizes.find_cutoff(rest, 0, self.keep, limit)
        made: list[Entry] = []
        if cut:
            around = _SUMMARY_PREFIX, _SUMMARY_SUFFIX
            said = summarize_entries(context, rest[:cut], self.summary_tokens, self.model, *around)
            message = Message("user", said.strip().join(around))
            size = context.history.counter.count_message(message)
            made = [Entry(message, size, Form.SUMMARY, rest[0].start, rest[cut - 1].stop)]
        made += rest[cut:]
        room = most - before - sum(entry.tokens for entry in made)
        small = self._stub_newest_results(context, made) if room < 0 else {}
        room -= sum(entry.tokens - made[index].tokens for index, entry in small.items())
        if room < 0:
            context.report("deepagents fails: the request is too long even after the compaction")
            return context
        for index, entry in small.items():
            where = head + (cut - 1 if cut else 0) + index
            context.replace(where, entry.message, Form.POINTER)
            made[index] = context.entries[where]
        if cut:
            context.fold(head, head + cut, made[0].message)
            context.report("summary")
            made[0] = context.entries[head]
        return self._fork_if_changed(context, head, made)

    def _is_triggered(self, tokens: int, count: int, limit: int) -> bool:
        return sizes.is_triggered(self.trigger, count, tokens, limit)

    def _stub_newest_results(self, context: Context, entries: Sequence[Entry]) -> dict[int, Entry]:
        """Return stubs of the tool results at the end of ``entries``, by index."""
        messages, small = [entry.message for entry in entries], {}
        index = len(entries) - 1
        while index >= 0 and messages[index].role == "tool":
            call = find_call(messages, messages[index].tool_call_id)
            message = stub_saved_result(messages[index], call)
            tokens, old = context.history.counter.count_message(message), entries[index]
            small[index] = Entry(message, tokens, Form.POINTER, old.start, old.stop)
            index -= 1
        return small

    def _fork_if_changed(self, context: Context, start: int, rest: Sequence[Entry]) -> Context:
        """Return a copy of the context whose entries from ``start`` on are replaced by ``rest``.

        If the entries are already the same, the context itself is returned.
        """
        if all(new is old for new, old in zip(rest, context.entries[start:], strict=True)):
            return context
        return context.fork_with(start, len(context.entries), rest)

    def _shorten_arguments(self, context: Context, rest: Sequence[Entry]) -> Sequence[Entry]:
        stop = self._recent_start(rest, context.available)
        if stop == len(rest):
            return rest
        rewrites = context.history.get_rewrite_cache(self.shorten)
        made: list[Entry] = []
        for entry in rest[:stop]:
            message, tokens = rewrites.apply(entry) if entry.message.tool_calls else (None, 0)
            if message is not None:
                place = entry.start, entry.stop, context.request_index
                entry = Entry(message, tokens, Form.TRUNCATED, *place)
            made.append(entry)
        return [*made, *rest[stop:]]

    def _recent_start(self, rest: Sequence[Entry], limit: int) -> int:
        kind, value = self.truncate_keep
        if kind == "messages":
            return len(rest) - int(value) if len(rest) > value else len(rest)
        return newest_that_fit(rest, max(1, int(sizes.size_tokens(self.truncate_keep, limit))))

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """Truncate long arguments of the file writes of a message.

        Parameters
        ----------
        message : Message
            Message with tool calls.
        _ : ToolCall or None
            Not used.

        Returns
        -------
        Message or None
            Message with truncated arguments; None if no argument is too long.
        """
        return rewrite_calls(message, self._shorten_call)

    def _shorten_call(self, call: ToolCall) -> ToolCall:
        if call.name not in _WRITE_TOOLS or len(call.arguments) <= self.max_length:
            return call
        arguments = object_arguments(call) or {}
        cut = arguments | {
            key: value[:_KEPT_CHARS] + _TRUNCATION_MARKER
            for key, value in arguments.items()
            if isinstance(value, str) and len(value) > self.max_length
        }
        if cut == arguments:
            return call
        return ToolCall(call.id, call.name, json.dumps(cut, ensure_ascii=False))


_REPOSITORY_URL = "https://github.com/langchain-ai/deepagents/blob/deepagents%3D%3D0.7.32"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "deepagents",
        summarize_near_the_end(),
        "deepagents 0.7.32",
        _REPOSITORY_URL + "/libs/deepagents/deepagents/middleware/summarization.py",
        "At 0.85 of the window, arguments of more than 2,000 characters in older write_file and "
        "edit_file calls are truncated to 20 characters. If that is not enough, everything except "
        "the newest 0.1 of the window is summarised. If more than 0.95 of the window is still in "
        "use, the newest tool results are saved to files, and only their first and last lines are "
        "sent. If that is not enough, deepagents fails; ctxlab sends the request unchanged. "
        "`deepagents.offload` saves long results before. Not implemented: other tools and prompts "
        "of deepagents.",
        (
            "model='gpt-5-mini'",
            "trigger=('tokens', 6000), keep=('messages', 6), truncate_trigger=('messages', 20), "
            "truncate_keep=('messages', 8), max_length=300, model='gpt-5-mini'",
        ),
        settings=(
            *arguments(
                "deepagents.middleware.summarization",
                "SummarizationMiddleware",
                "trigger",
                "keep",
                "model",
            ),
            *(
                Setting(
                    parameter,
                    "python",
                    "deepagents.middleware.summarization",
                    "SummarizationMiddleware.truncate_args_settings",
                    value,
                )
                for parameter, value in (
                    ("truncate_trigger", '{"trigger": {value}}'),
                    ("truncate_keep", '{"keep": {value}}'),
                    ("max_length", '{"max_length": {value}}'),
                )
            ),
            *unavailable("summary_tokens", note="of ctxlab"),
        ),
    ),
)
