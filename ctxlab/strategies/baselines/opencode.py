"""Baseline of opencode, which summarises older messages and, if configured, clears old tool outputs."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import CLEARED_RESULT_TEXT, Message, ToolCall
from ctxlab.strategies.base import tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import with_text

_RESERVED = 20_000
_CONTINUE_PROMPT = "Go on with what is next, or stop and ask if it is not clear."


@dataclass(frozen=True, repr=False)
class recent_tail(compaction.CompactingStrategy):
    """Summarises everything except the newest messages when the window is nearly full.

    The kept messages may take a quarter of the usable tokens, but not less than 2,000 and not more
    than 15,000 tokens. If the newest message, or the newest tool call with its results, exceeds this
    size, everything is summarised.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> tail = recent_tail(preserve_recent_tokens=150)
    >>> sent = build_messages(None, talk[:23], strategy=tail, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    output: int = 32_000
    "number of tokens that the model may write, limited to a quarter of the window"
    reserved: int | None = None
    "number of tokens to keep free in addition to ``output``; None: 20,000, but at most ``output``"
    preserve_recent_tokens: int | None = None
    "maximum tokens of the kept messages; None: a quarter of the usable tokens, within 2,000 to 15,000"
    prune: bool = False
    "True: when the user sends a message, clear the tool outputs before the last two turns"
    prune_protect: int = 40_000
    """number of tokens up to which the newest outputs before the last two turns are not cleared, at
    four characters per token"""
    prune_minimum: int = 20_000
    "number of tokens that clearing must save; if it saves less, nothing is cleared"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Summarise everything except the newest messages when the window is nearly full."""
        if self.prune:
            self._prune(context)
        size, entries = compaction.window_tokens(context), context.entries
        output = min(self.output, size // 4)
        reserved = min(_RESERVED, output) if self.reserved is None else self.reserved
        usable = max(0, size - output - reserved)
        full = compaction.last_request_tokens(context) >= usable
        full = full or compaction.prompt_tokens(context) > size
        start = compaction.body_start(context)
        if not full or start == len(entries) or not self.should_compact(context, 0):
            return context
        keep = self.preserve_recent_tokens
        room = min(15_000, max(2_000, usable // 4)) if keep is None else keep
        stop = cut = len(entries)
        while stop > start and room >= entries[stop - 1].tokens:
            stop -= 1
            room -= entries[stop].tokens
            if context.is_safe_cut(stop):
                cut = stop
        if cut == start:
            cut = len(entries)
        asked = entries[-1].message.role == "user"
        if self.compact(context, start, cut) and not asked:
            go_on = Message("user", _CONTINUE_PROMPT)
            context.insert(len(context.entries), go_on, Form.REWRITTEN)
        return context

    def _prune(self, context: Context) -> None:
        """When a turn is over, clear the tool outputs of all turns except the last two.

        The newest ``prune_protect`` tokens of the outputs before these two turns are kept too.
        """
        users, results = context.history.user_positions, tool_result_positions(context)
        spoken = bisect_left(users, context.history_length)
        last, done = context.strategy_state.get(self, (0, 0))
        if spoken == last or spoken < 3:
            return
        # opencode prunes before the new user message arrives, so this message is not counted.
        upto = bisect_left(results, users[spoken - 3])
        total, going, newest = 0, list[int](), done
        for number in range(upto - 1, done - 1, -1):
            index = context.find_index(results[number])
            if index is None or context.entries[index].form is Form.SUMMARY:
                break
            tokens = len(context.entries[index].message.text) // 4
            total += tokens
            if total > self.prune_protect:
                newest = newest if going else number + 1
                going.append(index)
        if total - self.prune_protect > self.prune_minimum and going:
            for index in going:
                context.rewrite(index, _clear_text, Form.STUB)
            done = newest
        context.strategy_state[self] = spoken, done


def _clear_text(message: Message, _: ToolCall | None) -> Message:
    """Replace the text of a tool result by a note that the result was cleared."""
    return with_text(message, CLEARED_RESULT_TEXT)


_FILE = "opencode.json"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "opencode",
        recent_tail(),
        "opencode at 31e22f6",
        "https://github.com/sst/opencode/blob/31e22f65a23c498639b8cef24b90e6ae193cdcb6/packages/opencode/src/session/compaction.ts",
        "When the last request and its reply leave fewer free tokens than the parameters output and "
        "reserved together, a summary replaces everything except the newest 2,000 to 15,000 tokens, "
        "and a message tells the model to continue. Messages after the reply are not counted. Clearing "
        "old tool outputs (prune=True) is off by default. In opencode the summary is the reply to a "
        "separate message; in ctxlab it is a user message. Not implemented: if an answer overflows, the "
        "last user message is sent again; and mode suffix, which summarises in a cached request.",
        settings=(
            Setting(
                "output",
                "environment",
                "",
                "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX",
                note="also the longest reply",
                alternatives=(),
            ),
            Setting("reserved", "json", _FILE, "compaction.reserved", threshold="free"),
            Setting("preserve_recent_tokens", "json", _FILE, "compaction.preserve_recent_tokens"),
            Setting("prune", "json", _FILE, "compaction.prune"),
            *unavailable("prune_protect", "prune_minimum", note="fixed in the source"),
            *unavailable("summary_tokens", note="of ctxlab"),
            *unavailable("model", note="of ctxlab; opencode: agent.compaction.model"),
        ),
        formats=("opencode", "opencode-db"),
    ),
)
