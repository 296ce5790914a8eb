"""Baselines of Microsoft Agent Framework, which drops, shortens or summarises groups of messages.

A group is a single message, or a tool call with its results. A group that was dropped is not sent
again. If other messages separate a tool call from its results, ctxlab treats the results as a
separate group, while the package keeps them with the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.agent_framework import groups as grouping
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common.summaries import summarize_entries
from ctxlab.strategies.baselines.settings import arguments, unavailable

_Groups: TypeAlias = list[grouping.MessageGroup]


@dataclass(frozen=True, repr=False)
class truncation(BaseStrategy):
    """Drops the oldest groups until ``compact_to`` messages remain, if there are more than ``max_n``.

    Source: agent-framework-core 1.23.0, ``TruncationStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=truncation(4, 2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    max_n: int = 40
    """number of messages above which groups are dropped; all tool results of a step count as one
    message"""
    compact_to: int = 20
    "number of messages at which dropping stops"
    preserve_system: bool = True
    "keep system messages"
    preserve_first_user_group: bool = False
    "keep the first user message"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if ``compact_to`` is less than 1 or greater than ``max_n``."""
        super().__post_init__()
        if not 0 < self.compact_to <= self.max_n:
            got = f"got compact_to={self.compact_to}, max_n={self.max_n}"
            raise SpecError(f"truncation: compact_to must be at least 1 and at most max_n, {got}")

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest groups until ``compact_to`` messages remain."""
        groups = grouping.split_groups(context.entries)
        sizes = [group.blocks for group in groups]
        if sum(sizes) > self.max_n:
            kept = self.preserve_system, self.preserve_first_user_group
            gone = grouping.select_oldest_groups(groups, sizes, self.compact_to, *kept)
            grouping.drop_groups(context, gone)
        return context


@dataclass(frozen=True, repr=False)
class sliding_window(BaselineStrategy):
    """Keeps the newest ``keep_last_groups`` groups; the task is dropped like other old messages.

    Source: agent-framework-core 1.23.0, ``SlidingWindowStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=sliding_window(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    positive = ("keep_last_groups",)
    keep_last_groups: int = 20
    "number of groups to keep, not counting system messages"
    preserve_system: bool = True
    "keep system messages"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest ``keep_last_groups`` groups; the task is dropped like other old messages."""
        groups = grouping.split_groups(context.entries)
        others = [group for group in groups if group.kind != "system"]
        gone = others[: -self.keep_last_groups]
        if not self.preserve_system:
            gone = sorted([*gone, *(group for group in groups if group.kind == "system")])
        grouping.drop_groups(context, gone)
        return context


@dataclass(frozen=True, repr=False)
class selective_tool_calls(BaseStrategy):
    """Drops older tool calls with their results and keeps all other messages.

    Source: agent-framework-core 1.23.0, ``SelectiveToolCallCompactionStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> from ctxlab.messages.types import ToolCall
    >>> call = Message("assistant", tool_calls=(ToolCall("c", "read"),))
    >>> said = [Message("user", "go"), *[call, Message("tool", "found", tool_call_id="c")] * 3]
    >>> sent = build_messages(None, said, strategy=selective_tool_calls())
    >>> [message["role"] for message in sent]
    ['user', 'assistant', 'tool']
    """

    keep_last_tool_call_groups: int = 1
    "number of newest steps with tool calls to keep"

    def __call__(self, context: Context, /) -> Context:
        """Drop older tool calls with their results and keep all other messages."""
        steps = grouping.pop_older_steps(context, self, self.keep_last_tool_call_groups)
        grouping.drop_groups(context, steps)
        return context


@dataclass(frozen=True, repr=False)
class tool_results(BaseStrategy):
    """Replaces each older tool call and its results by an assistant message with the results.

    Source: agent-framework-core 1.23.0, ``ToolResultCompactionStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> from ctxlab.messages.types import ToolCall
    >>> call = Message("assistant", tool_calls=(ToolCall("c", "read"),))
    >>> said = [Message("user", "go"), *[call, Message("tool", "found", tool_call_id="c")] * 2]
    >>> sent = build_messages(None, said, strategy=tool_results())
    >>> sent[1]["content"]
    '[Tool results: read: found]'
    """

    keep_last_tool_call_groups: int = 1
    "number of newest steps with tool calls to keep"

    def __call__(self, context: Context, /) -> Context:
        """Replace each older tool call and its results by an assistant message with the results."""
        steps = grouping.pop_older_steps(context, self, self.keep_last_tool_call_groups)
        for group in reversed(steps):
            block = [entry.message for entry in context.entries[group.start : group.stop]]
            context.fold(group.start, group.stop, Message("assistant", _quote_results(block)))
        return context


@dataclass(frozen=True, repr=False)
class context_window(BaseStrategy):
    """Replaces older tool calls by their results, then drops the oldest groups if necessary.

    If the conversation takes more than ``tool_eviction_threshold`` of the window, each older tool
    call and its results are replaced by an assistant message that contains the results. If the
    conversation still takes more than ``truncation_threshold`` of the window, the oldest groups are
    dropped. Tokens are estimated as in the package: the number of characters of a message as JSON,
    divided by four.

    Source: agent-framework-core 1.23.0, ``ContextWindowCompactionStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 400) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=context_window(600))
    >>> [message["content"][:1] for message in sent]
    ['d', 'e']
    """

    max_context_window_tokens: int | None = None
    "tokens of the context window; None: all tokens that are available for messages"
    max_output_tokens: int = 0
    "tokens of the window reserved for the reply"
    tool_eviction_threshold: float = 0.5
    "share of the window above which older tool calls are replaced by their results"
    truncation_threshold: float = 0.8
    """share of the window above which the oldest groups are dropped, until the rest takes at most
    ``tool_eviction_threshold``"""
    keep_last_tool_call_groups: int = 4
    "number of newest steps with tool calls that stay unchanged"
    preserve_first_user_group: bool = False
    "keep the first user message"

    def __call__(self, context: Context, /) -> Context:
        """Replace older tool calls by their results, then drop the oldest groups if necessary."""
        window = self.max_context_window_tokens
        room = (context.available if window is None else window) - self.max_output_tokens
        shares = self.tool_eviction_threshold, self.truncation_threshold
        least, most = (int(room * share) for share in shares)
        if self._update_estimates(context).total > least:
            tool_results(self.keep_last_tool_call_groups)(context)
        known = self._update_estimates(context)
        if known.total > most:
            groups = grouping.split_groups(context.entries)
            sizes = [known.group_tokens(context.entries, group) for group in groups]
            kept = True, self.preserve_first_user_group
            gone = grouping.select_oldest_groups(groups, sizes, least, *kept)
            grouping.drop_groups(context, gone)
        return context

    def _update_estimates(self, context: Context) -> grouping.TokenEstimates:
        known: grouping.TokenEstimates | None = context.strategy_state.get(self)
        if known is None or known.version != context.version:
            by_start = {} if known is None else known.by_start
            known = grouping.TokenEstimates(context.version, by_start)
            context.strategy_state[self] = known
        known.extend(context.entries)
        return known


@dataclass(frozen=True, repr=False)
class summarization(BaselineStrategy):
    r"""Summarises the oldest groups, as many as fit one model call, if there are too many messages.

    Oldest groups that are too long for one call stay unchanged. If such a group directly follows an
    earlier summary, only that summary is summarised again, at every request, and the conversation
    keeps growing. If the model fails, the package leaves the messages unchanged; ctxlab makes an
    extractive summary.

    Source: agent-framework-core 1.23.0, ``SummarizationStrategy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=summarization(2, 1))
    >>> [message["content"] for message in sent]
    ['- user: a\n- user: b\n- user: c', 'd', 'e']
    """

    positive = ("target_count",)
    target_count: int = 4
    """number of messages to keep; all tool results of a step count as one message. One more message
    is kept if a group would otherwise be split"""
    threshold: int = 2
    "number of messages above ``target_count`` that are allowed before summarising starts"
    max_summary_input_tokens: int | None = 8000
    "maximum tokens of the summariser's input, at four characters per token; None: no maximum"
    tokens: int = 400
    "maximum tokens of the summary; the package instead asks the model for five sentences"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Summarise the oldest groups, as many as fit one model call, if there are too many messages."""
        entries = context.entries
        groups = [group for group in grouping.split_groups(entries) if group.kind != "system"]
        if sum(group.blocks for group in groups) <= self.target_count + self.threshold:
            return context
        kept, retained = len(groups), 0
        while kept and retained < self.target_count:
            kept -= 1
            retained += groups[kept].blocks
        chosen = self._select_fitting(entries, groups[:kept])
        if not chosen:
            if kept:
                context.report("no summary: each of the older groups is too long for one call")
            return context
        folded = [entry for group in chosen for entry in entries[group.start : group.stop]]
        text = summarize_entries(context, folded, self.tokens, self.model).strip()
        # System messages between the groups stay: the first range becomes the summary, and the
        # later ranges are dropped.
        rows = grouping.group_ranges(chosen)
        for start, stop in reversed(rows[1:]):
            context.drop(start, stop)
        context.fold(*rows[0], Message("assistant", text))
        context.report("summary")
        return context

    def _select_fitting(self, entries: Sequence[Entry], groups: _Groups) -> _Groups:
        """Skip leading groups that are too long for one model call; return the next ones that fit."""
        if self.max_summary_input_tokens is None:
            return groups
        chosen: _Groups = []
        used, count = _INSTRUCTION_TOKENS, 0
        for group in groups:
            blocks = list(grouping.iter_blocks(entries, group))
            numbered = enumerate(blocks, count + 1)
            said = "\n".join(grouping.format_for_summary(*each) for each in numbered)
            size = grouping.estimate_tokens(said) + bool(chosen)  # the line break is one token
            if used + size > self.max_summary_input_tokens:
                if chosen:
                    break
                continue
            chosen.append(group)
            used, count = used + size, count + len(blocks)
        return chosen


_INSTRUCTION_TOKENS = 148
"Tokens of the package's instruction to the summariser, as the package estimates them."


_MAX_QUOTE_CHARS = 4096


def _quote_results(block: Sequence[Message]) -> str:
    """Return the text that replaces a step: its results, each preceded by the name of its tool."""
    names = {call.id: call.name for message in block for call in message.tool_calls if call.id}
    results = []
    for message in block:
        if message.role == "tool":
            name = names.get(message.tool_call_id or "")
            results.append((f"{name}: {message.text}" if name else message.text).strip())
    label = "; ".join(results) if results else "no results"
    whole = f"[Tool results: {label}]"
    if len(whole) <= _MAX_QUOTE_CHARS:
        return whole
    room = _MAX_QUOTE_CHARS - len("[Tool results: ... [truncated]]")
    return f"[Tool results: {label[:room].rstrip()}... [truncated]]"


_REPOSITORY_URL = "https://github.com/microsoft/agent-framework/blob/python-1.23.0"
_SOURCE_URL = f"{_REPOSITORY_URL}/python/packages/core/agent_framework/_compaction.py"


_SETTINGS = {
    "tokens": unavailable("tokens", note="of ctxlab"),
    "model": unavailable("model", note="set in the chat client that is passed as `client`"),
}


def _make_baseline(strategy: Any, product_class: str, description: str, *options: str) -> Baseline:
    name, version = f"agent_framework.{type(strategy).__name__}", "agent-framework-core 1.23.0"
    settings = tuple(
        setting
        for each in fields(strategy)
        for setting in _SETTINGS.get(each.name)
        or arguments("agent_framework", product_class, each.name)
    )
    return Baseline(name, strategy, version, _SOURCE_URL, description, options, settings)


MODULE_BASELINES: tuple[Baseline, ...] = (
    _make_baseline(
        context_window(),
        "ContextWindowCompactionStrategy",
        "At half of the window, all tool calls except those of the newest 4 steps are replaced by "
        "their results. At 0.8 of the window, the oldest groups are dropped until half of the "
        "window is in use. Tokens are estimated as the characters of the messages as JSON, divided "
        "by four.",
        "",
        "max_context_window_tokens=8000, max_output_tokens=1000",
        "max_context_window_tokens=2000, keep_last_tool_call_groups=1",
        "max_context_window_tokens=8000, preserve_first_user_group=True, truncation_threshold=0.5",
    ),
    _make_baseline(
        truncation(),
        "TruncationStrategy",
        "If there are more than 40 messages, the oldest groups are dropped until 20 messages "
        "remain. A tool call with its results is one group. The package has no default numbers; 40 "
        "and 20 are ctxlab's choice.",
        "",
        "max_n=10, compact_to=4",
        "max_n=6, compact_to=6, preserve_first_user_group=True",
        "max_n=6, compact_to=1, preserve_system=False",
    ),
    _make_baseline(
        sliding_window(),
        "SlidingWindowStrategy",
        "Keeps the newest 20 groups and the system messages. A tool call with its results is one "
        "group. The package has no default number; 20 is from one of its examples.",
        "",
        "keep_last_groups=6",
        "keep_last_groups=1",
        "keep_last_groups=3, preserve_system=False",
    ),
    _make_baseline(
        selective_tool_calls(),
        "SelectiveToolCallCompactionStrategy",
        "Drops all tool calls and their results, except those of the newest step.",
        "",
        "keep_last_tool_call_groups=5",
        "keep_last_tool_call_groups=0",
    ),
    _make_baseline(
        tool_results(),
        "ToolResultCompactionStrategy",
        "Replaces every step with tool calls, except the newest, by an assistant message with the "
        "results. The message is cut at 4,096 characters.",
        "",
        "keep_last_tool_call_groups=5",
        "keep_last_tool_call_groups=0",
    ),
    _make_baseline(
        summarization(),
        "SummarizationStrategy",
        "Above 6 messages, the messages before the newest 4 become a summary. The summariser's "
        "input is limited to 8,000 tokens, and a step with more tokens is not summarised. If such a "
        "step follows a summary, no later messages are summarised and the request keeps growing.",
        "model='gpt-5-mini'",
        "model='gpt-5-mini', target_count=10, threshold=5",
        "model='gpt-5-mini', max_summary_input_tokens=1000",
        "model='gpt-5-mini', target_count=1, threshold=0, max_summary_input_tokens=None",
    ),
)
