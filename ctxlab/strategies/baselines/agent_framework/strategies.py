"""Microsoft Agent Framework's compaction: whole groups of messages are left out, folded or summarised.

A group is a message, or a call with its results. What is left out stays out. Results that stand apart
from their call, with other messages between, are a group of their own here; the package keeps them with
the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.agent_framework.groups import (
    MessageGroup,
    drop_groups,
    group_ranges,
    iter_blocks,
    pop_older_steps,
    select_oldest_groups,
    split_groups,
)
from ctxlab.strategies.baselines.agent_framework.tokens import (
    TokenEstimates,
    estimate_tokens,
    format_for_summary,
)
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary

__all__ = [
    "MODULE_BASELINES",
    "context_window",
    "selective_tool_calls",
    "sliding_window",
    "summarization",
    "tool_results",
    "truncation",
]


@dataclass(frozen=True, repr=False)
class truncation(BaseStrategy):
    """Above a count of messages the oldest groups go until a lower count is reached.

    Source: agent-framework-core 1.23.0, ``TruncationStrategy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=truncation(4, 2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    max_n: int = 40
    "messages from above which on it acts, the results of a step counted as one"
    compact_to: int = 20
    "messages that it goes down to"
    preserve_system: bool = True
    "system messages stay"
    preserve_first_user_group: bool = False
    "the first user's message stays"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.compact_to <= self.max_n:
            raise SpecError("truncation: compact_to is at least 1, and max_n no less")

    def __call__(self, context: Context, /) -> Context:
        groups = split_groups(context.entries)
        sizes = [group.blocks for group in groups]
        if sum(sizes) > self.max_n:
            kept = self.preserve_system, self.preserve_first_user_group
            drop_groups(context, select_oldest_groups(groups, sizes, self.compact_to, *kept))
        return context


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """The newest groups; the task goes with what is old.

    Source: agent-framework-core 1.23.0, ``SlidingWindowStrategy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=sliding_window(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    keep_last_groups: int = 20
    "groups that stay, system messages not counted"
    preserve_system: bool = True
    "system messages stay"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_last_groups == 0:
            raise SpecError("sliding_window: keep_last_groups is 0; the package wants at least 1")

    def __call__(self, context: Context, /) -> Context:
        groups = split_groups(context.entries)
        others = [group for group in groups if group.kind != "system"]
        gone = others[: -self.keep_last_groups]
        if not self.preserve_system:
            gone = sorted([*gone, *(group for group in groups if group.kind == "system")])
        drop_groups(context, gone)
        return context


@dataclass(frozen=True, repr=False)
class selective_tool_calls(BaseStrategy):
    """Older calls go with their results; everything else stays.

    Source: agent-framework-core 1.23.0, ``SelectiveToolCallCompactionStrategy``.

    >>> from ctxlab import build_messages
    >>> from ctxlab.messages.types import ToolCall
    >>> call = Message("assistant", tool_calls=(ToolCall("c", "read"),))
    >>> said = [Message("user", "go"), *[call, Message("tool", "found", tool_call_id="c")] * 3]
    >>> sent = build_messages(None, said, strategy=selective_tool_calls())
    >>> [message["role"] for message in sent]
    ['user', 'assistant', 'tool']
    """

    keep_last_tool_call_groups: int = 1
    "steps with calls that stay"

    def __call__(self, context: Context, /) -> Context:
        drop_groups(context, pop_older_steps(context, self, self.keep_last_tool_call_groups))
        return context


@dataclass(frozen=True, repr=False)
class tool_results(BaseStrategy):
    """Older calls with their results become a message of the assistant that quotes the results.

    Source: agent-framework-core 1.23.0, ``ToolResultCompactionStrategy``.

    >>> from ctxlab import build_messages
    >>> from ctxlab.messages.types import ToolCall
    >>> call = Message("assistant", tool_calls=(ToolCall("c", "read"),))
    >>> said = [Message("user", "go"), *[call, Message("tool", "found", tool_call_id="c")] * 2]
    >>> sent = build_messages(None, said, strategy=tool_results())
    >>> sent[1]["content"]
    '[Tool results: read: found]'
    """

    keep_last_tool_call_groups: int = 1
    "steps with calls that stay"

    def __call__(self, context: Context, /) -> Context:
        for group in reversed(pop_older_steps(context, self, self.keep_last_tool_call_groups)):
            block = [entry.message for entry in context.entries[group.start : group.stop]]
            context.fold(group.start, group.stop, Message("assistant", _quote_results(block)))
        return context


@dataclass(frozen=True, repr=False)
class context_window(BaseStrategy):
    """At half of the window older calls become quotes of their results; at 0.8 the oldest groups go.

    Tokens are estimated as the package does: the characters of a message as JSON, by four.

    Source: agent-framework-core 1.23.0, ``ContextWindowCompactionStrategy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 400) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=context_window(600))
    >>> [message["content"][:1] for message in sent]
    ['d', 'e']
    """

    max_context_window_tokens: int | None = None
    "tokens of the window; None: what the budget allows"
    max_output_tokens: int = 0
    "tokens of it that are left for the reply"
    tool_eviction_threshold: float = 0.5
    "share of the window from which on older calls are folded"
    truncation_threshold: float = 0.8
    "share of the window from which on the oldest groups go, down to the share above"
    keep_last_tool_call_groups: int = 4
    "steps with calls that are not folded"
    preserve_first_user_group: bool = False
    "the first user's message stays"

    def __call__(self, context: Context, /) -> Context:
        window = self.max_context_window_tokens
        room = (context.available if window is None else window) - self.max_output_tokens
        least, most = (
            int(room * share) for share in (self.tool_eviction_threshold, self.truncation_threshold)
        )
        if self._update_estimates(context).total > least:
            tool_results(self.keep_last_tool_call_groups)(context)
        known = self._update_estimates(context)
        if known.total > most:
            groups = split_groups(context.entries)
            sizes = [known.group_tokens(context.entries, group) for group in groups]
            drop_groups(
                context,
                select_oldest_groups(groups, sizes, least, True, self.preserve_first_user_group),
            )
        return context

    def _update_estimates(self, context: Context) -> TokenEstimates:
        known: TokenEstimates | None = context.strategy_state.get(self)
        if known is None or known.version != context.version:
            known = TokenEstimates(context.version, {} if known is None else known.by_start)
            context.strategy_state[self] = known
        known.extend(context.entries)
        return known


@dataclass(frozen=True, repr=False)
class summarization(BaseStrategy):
    """Above a few messages the older groups become a summary, as many as one call may be told of.

    A group that alone is more than that is passed over where it is the oldest; behind a summary it is
    the end of all summarising, and only the summary is written again, at every request. Where the model
    fails the package leaves all as it is; here the lines of the text are extracted.

    Source: agent-framework-core 1.23.0, ``SummarizationStrategy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=summarization(2, 1))
    >>> [message["content"] for message in sent]
    ['- user: a\\n- user: b\\n- user: c', 'd', 'e']
    """

    target_count: int = 4
    "messages that stay, the results of a step counted as one; whole groups, so it may be one more"
    threshold: int = 2
    "messages above that at which it begins"
    max_summary_input_tokens: int | None = 8000
    "tokens that the summariser is given at most, at four characters a token; None: any number"
    tokens: int = 400
    "tokens of the summary at most; the package asks for five sentences"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_count == 0:
            raise SpecError("summarization: target_count is 0; the package wants at least 1")

    def __call__(self, context: Context, /) -> Context:
        entries = context.entries
        groups = [group for group in split_groups(entries) if group.kind != "system"]
        if sum(group.blocks for group in groups) <= self.target_count + self.threshold:
            return context
        kept, retained = len(groups), 0
        while kept and retained < self.target_count:
            kept -= 1
            retained += groups[kept].blocks
        chosen = self._select_fitting_groups(entries, groups[:kept])
        if not chosen:
            if kept:
                context.report("no summary: each of the older groups is too long for one call")
            return context
        folded = [entry for group in chosen for entry in entries[group.start : group.stop]]
        previous = ""
        if folded[0].form is Form.SUMMARY:
            previous, folded = folded[0].message.text, folded[1:]
        messages = [entry.message for entry in folded]
        text = write_unchecked_summary(context, previous, messages, self.tokens, self.model).strip()
        # System messages between them stay: what follows those goes, the rest is folded.
        rows = group_ranges(chosen)
        for start, stop in reversed(rows[1:]):
            context.drop(start, stop)
        context.fold(*rows[0], Message("assistant", text))
        context.report("summary")
        return context

    def _select_fitting_groups(
        self, entries: Sequence[Entry], groups: list[MessageGroup]
    ) -> list[MessageGroup]:
        """The oldest that one call can be told of, without those at the beginning that are too long."""
        if self.max_summary_input_tokens is None:
            return groups
        chosen: list[MessageGroup] = []
        used, count = _INSTRUCTION_TOKENS, 0
        for group in groups:
            blocks = list(iter_blocks(entries, group))
            said = "\n".join(
                format_for_summary(count + i, block) for i, block in enumerate(blocks, 1)
            )
            size = estimate_tokens(said) + (estimate_tokens("\n") if chosen else 0)
            if used + size > self.max_summary_input_tokens:
                if chosen:
                    break
                continue
            chosen.append(group)
            used, count = used + size, count + len(blocks)
        return chosen


_INSTRUCTION_TOKENS = 148
"""Tokens of the package's own instruction, as it estimates them."""


_MAX_QUOTE_CHARS = 4096


def _quote_results(block: Sequence[Message]) -> str:
    """What stands for a step: its results, each after the name of its tool."""
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


_SOURCE_URL = (
    "https://github.com/microsoft/agent-framework/blob/python-1.23.0/python/packages/core/"
    "agent_framework/_compaction.py"
)
_PACKAGE = "agent-framework-core"


def _make_baseline(
    name: str, strategy: BaseStrategy, description: str, *conformance_options: str
) -> Baseline:
    version = f"{_PACKAGE} 1.23.0"
    return Baseline(
        f"agent_framework.{name}",
        strategy,
        version,
        _SOURCE_URL,
        description,
        _PACKAGE,
        conformance_options,
    )


MODULE_BASELINES: tuple[Baseline, ...] = (
    _make_baseline(
        "context_window",
        context_window(),
        "At half of the window older steps become quotes of their results, the newest 4 left; at "
        "0.8 the oldest groups go, down to half. Tokens are characters of JSON by four.",
        "",
        "max_context_window_tokens=8000, max_output_tokens=1000",
        "max_context_window_tokens=2000, keep_last_tool_call_groups=1",
        "max_context_window_tokens=8000, preserve_first_user_group=True, truncation_threshold=0.5",
    ),
    _make_baseline(
        "truncation",
        truncation(),
        "Above a count of messages the oldest groups go until a lower one is reached. The package "
        "sets no counts: 40 and 20 are ours.",
        "",
        "max_n=10, compact_to=4",
        "max_n=6, compact_to=6, preserve_first_user_group=True",
        "max_n=6, compact_to=1, preserve_system=False",
    ),
    _make_baseline(
        "sliding_window",
        sliding_window(),
        "The newest groups and the system messages; a call with its results is one group. The "
        "package sets no count: 20 is that of its example.",
        "",
        "keep_last_groups=6",
        "keep_last_groups=1",
        "keep_last_groups=3, preserve_system=False",
    ),
    _make_baseline(
        "selective_tool_calls",
        selective_tool_calls(),
        "All calls but those of the newest step go with their results.",
        "",
        "keep_last_tool_call_groups=5",
        "keep_last_tool_call_groups=0",
    ),
    _make_baseline(
        "tool_results",
        tool_results(),
        "All steps with calls but the newest become a message of the assistant that quotes the "
        "results, up to 4,096 characters.",
        "",
        "keep_last_tool_call_groups=5",
        "keep_last_tool_call_groups=0",
    ),
    _make_baseline(
        "summarization",
        summarization(),
        "Above 6 messages all but the newest 4 become a summary, as far as 8,000 tokens of input "
        "reach; a step that is longer by itself stays, and behind a summary nothing after it is "
        "summarised, so that the request then goes on growing.",
        "model='gpt-5-mini'",
        "model='gpt-5-mini', target_count=10, threshold=5",
        "model='gpt-5-mini', max_summary_input_tokens=1000",
        "model='gpt-5-mini', target_count=1, threshold=0, max_summary_input_tokens=None",
    ),
)
