"""Baselines of OpenClaw, which shortens tool results after a pause, and summarises between turns."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, Strategy
from ctxlab.strategies.baselines.anthropic import clear_tool_uses
from ctxlab.strategies.baselines.base import Baseline, ComposedStrategy
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.pi import recent_messages
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import is_text_only, with_text
from ctxlab.strategies.triggers.idle import idle

_PLACEHOLDER = "[Old tool result content cleared]"


@dataclass(frozen=True, repr=False)
class trim_old_results(BaseStrategy):
    """Trims long tool results, and clears the oldest ones if the request is still large.

    Only results between the first user message and the newest assistant messages are changed. Results
    with images are never changed.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 400, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *5 * step]
    >>> sent = build_messages(None, talk, strategy=trim_old_results(), limit=9000, reserve=0)
    >>> [len(m["content"]) for m in sent[2::2]]
    [3074, 3074, 6000, 6000, 6000]
    """

    keep_last_assistants: int = 3
    "results after the oldest of this number of newest assistant messages are not changed"
    soft_trim_ratio: float = 0.3
    "share of the window below which nothing is changed"
    hard_clear_ratio: float = 0.5
    "share of the window down to which results are cleared after the trimming, the oldest first"
    max_chars: int = 4_000
    "number of characters above which a result is trimmed"
    edge_chars: int = 1_500
    "number of characters of a trimmed result to keep at its beginning, and at its end"
    min_prunable_chars: int = 50_000
    "results are cleared only if they have at least this number of characters together"

    def __call__(self, context: Context, /) -> Context:
        """Trim long tool results, and clear the oldest ones if the request is still large."""
        size, entries = compaction.window_tokens(context), context.entries
        if context.tokens < self.soft_trim_ratio * size:
            return context
        roles = [entry.message.role for entry in entries]
        stop = len(roles)
        for _ in range(self.keep_last_assistants):
            if "assistant" not in roles[:stop]:
                return context
            stop = max(i for i in range(stop) if roles[i] == "assistant")
        first = roles.index("user") if "user" in roles else stop
        results = [i for i in range(first, stop) if roles[i] == "tool"]
        for index in results:
            context.rewrite(index, self.trim, Form.TRUNCATED)
        if sum(len(entries[i].message.text) for i in results) < self.min_prunable_chars:
            return context
        for index in results:
            if context.tokens < self.hard_clear_ratio * size:
                break
            context.rewrite(index, _clear, Form.STUB)
        return context

    def trim(self, message: Message, _: ToolCall | None) -> Message | None:
        """Keep the beginning and the end of a long tool result.

        Parameters
        ----------
        message : Message
            Tool result to trim.
        _ : ToolCall or None
            Not used.

        Returns
        -------
        Message or None
            Trimmed tool result; None if it is short enough or has images.
        """
        text, edge = message.text, self.edge_chars
        if len(text) <= max(self.max_chars, 2 * edge) or not is_text_only(message):
            return None
        note = f"[Trimmed: {edge} characters of each end of {len(text)} characters are kept.]"
        end = text[len(text) - edge :]
        return with_text(message, f"{text[:edge]}\n...\n{end}\n\n{note}")


def _clear(message: Message, _: ToolCall | None) -> Message | None:
    """Replace the text of a tool result by OpenClaw's placeholder; None if it has images."""
    if message.text == _PLACEHOLDER or not is_text_only(message):
        return None
    return with_text(message, _PLACEHOLDER)


@dataclass(frozen=True, repr=False)
class maintenance(recent_messages):
    """Summarises everything except the newest messages when a user message arrives.

    Examples
    --------
    >>> maintenance().limit(200_000), maintenance().limit(32_000)
    (180000, 24000)
    """

    reserve_tokens: int = 20_000
    """compaction starts when fewer than this number of tokens of the window are free, limited to a
    quarter of the window"""
    between_turns: bool = False
    "True: also compact while the agent works"

    def limit(self, size: int) -> int:
        """Return the number of tokens above which compaction starts.

        Parameters
        ----------
        size : int
            Size of the context window in tokens.

        Returns
        -------
        int
            Number of tokens of the request.
        """
        return size - min(self.reserve_tokens, size // 4)


@dataclass(frozen=True, repr=False)
class prune_and_compact(ComposedStrategy):
    """Shortens old tool results after a pause, and summarises older messages between turns.

    Examples
    --------
    >>> prune_and_compact(ttl=5).compose()
    idle(trim_old_results(), minutes=5) | maintenance()
    """

    ttl: float = 60
    "pause in minutes after which old tool results are shortened"
    keep_last_assistants: int = 3
    "results after the oldest of this number of newest assistant messages are not shortened"
    soft_trim_ratio: float = 0.3
    "share of the window below which no result is shortened"
    hard_clear_ratio: float = 0.5
    "share of the window down to which results are cleared after the trimming, the oldest first"
    reserve_tokens: int = 20_000
    """a summary is made when fewer than this number of tokens of the window are free, limited to a
    quarter of the window"""
    keep_recent_tokens: int = 20_000
    "about how many tokens of the newest messages stay"
    mid_turn: bool = False
    "True: also compact while the agent works"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def compose(self) -> Strategy:
        """Return the pruning after a pause and the compaction, with the parameters of this strategy.

        Returns
        -------
        Strategy
            Pipeline of both.
        """
        ratios = self.soft_trim_ratio, self.hard_clear_ratio
        pruning = idle(trim_old_results(self.keep_last_assistants, *ratios), self.ttl)
        sizes = self.reserve_tokens, self.keep_recent_tokens
        return pruning | maintenance(*sizes, self.mid_turn, self.summary_tokens, self.model)


@dataclass(frozen=True, repr=False)
class clear_and_compact(ComposedStrategy):
    """Has Anthropic's API clear old tool results, and summarises older messages between turns.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": "Fix it"}]
    >>> build_messages(None, talk, strategy=clear_and_compact())
    [{'role': 'user', 'content': 'Fix it'}]
    """

    trigger_ratio: float = 0.3
    "share of the window above which results are cleared; at least ``min_trigger`` tokens"
    min_trigger: int = 50_000
    "minimum number of tokens above which results are cleared"
    clear_ratio: float = 0.05
    "minimum share of the window that clearing must save; at least a quarter of ``min_trigger``"
    keep: int = 3
    "number of newest tool results to keep"
    reserve_tokens: int = 20_000
    """a summary is made when fewer than this number of tokens of the window are free, limited to a
    quarter of the window"""
    keep_recent_tokens: int = 20_000
    "about how many tokens of the newest messages stay"
    mid_turn: bool = False
    "True: also compact while the agent works"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def compose(self) -> Strategy:
        """Return the compaction, with the parameters of this strategy.

        Returns
        -------
        Strategy
            Strategy that compacts.
        """
        sizes = self.reserve_tokens, self.keep_recent_tokens
        return maintenance(*sizes, self.mid_turn, self.summary_tokens, self.model)

    def __call__(self, context: Context, /) -> Context:
        """Clear old tool results as the API does for this window, then compact."""
        size = compaction.window_tokens(context)
        trigger = max(self.min_trigger, int(self.trigger_ratio * size))
        least = max(self.min_trigger // 4, int(self.clear_ratio * size))
        clearing = clear_tool_uses(trigger, self.keep, least)
        return super().__call__(clearing(context))


_FILE = "~/.openclaw/openclaw.json"
_COMPACTION_SETTINGS = (
    Setting("keep_recent_tokens", "json", _FILE, "agents.defaults.compaction.keepRecentTokens"),
    Setting("mid_turn", "json", _FILE, "agents.defaults.compaction.midTurnPrecheck.enabled"),
    *unavailable("reserve_tokens", note="fixed in the source; earlier compaction.reserveTokens"),
    *unavailable("summary_tokens", note="of ctxlab"),
    *unavailable("model", note="of ctxlab; OpenClaw: agents.defaults.compaction.model"),
)
_COMPACTION = (
    "When a user message arrives and fewer than 20,000 tokens (at most a quarter of the window) are "
    "free, a summary replaces everything except about the newest 20,000 tokens. Not implemented: the "
    "checks of a summary, notes that the agent saves before, and a shorter kept part if the result "
    "would not fit."
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "openclaw",
        prune_and_compact(),
        "OpenClaw 2026.9.6, its documentation and pruner.ts at 11b0d35",
        "https://unpkg.com/openclaw@2026.9.6/docs/concepts/session-pruning.md",
        "After a pause of an hour, if the request exceeds 0.3 of the window, tool results of more than "
        "4,000 characters keep 1,500 at each end, except after the third newest assistant message. "
        "If the request still exceeds 0.5 and these results have 50,000 characters, the oldest are "
        f"cleared. {_COMPACTION} This is the default of subscriptions of Anthropic (mode cache-ttl). "
        "With ttl unset the pause is 5 minutes. Other providers do not prune unless the user says so, "
        "and a session whose requests have no times is never pruned. OpenClaw measures in characters; "
        "ctxlab counts tokens.",
        settings=(
            Setting(
                "ttl",
                "json",
                _FILE,
                "agents.defaults.contextPruning.ttl",
                '"{value}m"',
                "requires mode: cache-ttl",
            ),
            *unavailable(
                "keep_last_assistants",
                "soft_trim_ratio",
                "hard_clear_ratio",
                note="fixed in the source; earlier versions: agents.defaults.contextPruning",
            ),
            *_COMPACTION_SETTINGS,
        ),
    ),
    Baseline(
        "openclaw.api_key",
        clear_and_compact(),
        "OpenClaw 2026.9.6, its documentation",
        "https://unpkg.com/openclaw@2026.9.6/docs/concepts/session-pruning.md",
        "With a key of Anthropic's API, the API clears tool results except the newest 3: above 0.3 of "
        "the window or 50,000 tokens, if this saves 0.05 of the window or 12,500 tokens (the greater "
        f"of each two). {_COMPACTION}",
        settings=(
            *unavailable(
                "trigger_ratio",
                "min_trigger",
                "clear_ratio",
                "keep",
                note="fixed in the source; derived from the window",
            ),
            *_COMPACTION_SETTINGS,
        ),
    ),
)
