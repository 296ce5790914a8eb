"""Baseline of Gemini CLI, which summarises 70 % of a conversation that fills half of the window."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.helpers.text import with_text

_ACKNOWLEDGMENT = "Thank you, I have this context now."


@dataclass(frozen=True, repr=False)
class older_share(compaction.CompactingStrategy):
    """Summarises the older part of the conversation; the kept part starts with a user message.

    The cut is before the first user message after the first ``1 - preserve`` of all characters. If
    there is no such message, there are two cases. If the last assistant message calls no tools, the
    cut is after this message. Otherwise the cut is before the last user message, so a conversation
    with a single user message is not compacted while the agent works. Messages after the last
    assistant message are always kept.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages(None, talk[:23], strategy=older_share(), limit=1200, reserve=0)
    >>> [m["content"][:14] for m in sent][:4]
    ['Summary of the', 'Thank you, I h', 'user 8 word wo', 'assistant 8 wo']
    """

    compression_threshold: float = 0.5
    "share of the context window at which compaction starts"
    preserve: float = 0.3
    "share of the characters of the conversation to keep"
    tool_tokens: int = 50_000
    "tokens of the newest tool results that are not shortened, at four characters per token"
    tool_chars: int = 40_000
    "characters of a shortened tool result: a fifth from its beginning, the rest from its end"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if ``preserve`` is not between 0 and 1."""
        super().__post_init__()
        if not 0 < self.preserve < 1:
            raise SpecError(f"older_share: preserve must be between 0 and 1, got {self.preserve!r}")

    def __call__(self, context: Context, /) -> Context:
        """Summarise the older part of the conversation if the request reaches the threshold."""
        users = bisect_left(context.history.user_positions, context.history_length)
        tried, failed = context.strategy_state.get(self, (0, False))
        full = self.compression_threshold * compaction.window_tokens(context)
        if compaction.prompt_tokens(context) < full or users == tried:
            return context
        entries, start, stop = context.entries, compaction.body_start(context), len(context.entries)
        while stop > start and entries[stop - 1].message.role != "assistant":
            stop -= 1
        if compaction.prompt_tokens(context) - sum(entry.tokens for entry in entries[stop:]) < full:
            return context  # Gemini CLI knows only the tokens of the last request
        cut = self._find_cut(context, start, stop)
        # Another compaction in the same turn would have the same cut and summarise the summary.
        context.strategy_state[self] = users, failed
        if failed:
            self._shorten_older_results(context, start, stop)
        elif cut is not None and cut > start and context.is_safe_cut(cut):
            if self.compact(context, start, cut):
                context.insert(start + 1, Message("assistant", _ACKNOWLEDGMENT), Form.REWRITTEN)
                self._shorten_older_results(context, start + 2, stop - (cut - start) + 2)
            else:
                context.strategy_state[self] = users, True
        return context

    def _find_cut(self, context: Context, start: int, stop: int) -> int | None:
        part = context.entries[start:stop]
        sizes = [len(dump_json(entry.message.to_dict())) for entry in part]
        target = (1 - self.preserve) * sum(sizes)
        before, last = 0, None
        for index, (entry, size) in enumerate(zip(part, sizes, strict=True), start):
            if entry.message.role == "user":
                if before >= target:
                    return index
                last = index
            before += size
        ended = part and part[-1].message.role == "assistant" and not part[-1].message.tool_calls
        return stop if ended else last

    def _shorten_older_results(self, context: Context, start: int, stop: int) -> None:
        """Shorten large tool results, except the newest ``tool_tokens`` tokens of tool results."""
        tokens = 0
        for index in range(stop - 1, start - 1, -1):
            message = context.entries[index].message
            if message.role != "tool":
                continue
            size = len(message.text) // 4
            if tokens + size > self.tool_tokens:
                context.rewrite(index, self.shorten, Form.TRUNCATED)
                size = len(context.entries[index].message.text) // 4
            tokens += size

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """Remove the middle of a tool result of more than ``tool_chars`` characters.

        Parameters
        ----------
        message : Message
            Tool result to shorten.
        _ : ToolCall or None
            Not used.

        Returns
        -------
        Message or None
            Shortened tool result; None if the result is not too long.
        """
        text = message.text
        if len(text) <= self.tool_chars:
            return None
        begin = self.tool_chars // 5
        gone = len(text) - self.tool_chars
        end = text[begin + gone :]
        return with_text(message, f"{text[:begin]}\n\n[{gone} characters left out]\n\n{end}")


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "gemini_cli",
        older_share(),
        "Gemini CLI, chatCompressionService at 02b2885",
        "https://github.com/google-gemini/gemini-cli/blob/02b2885cb824fecd2f9ed666aa6c7e397fc26384/packages/core/src/services/chatCompressionService.ts",
        "At half of the window, the older 70 % of the characters are replaced by a summary and an "
        "acknowledgement of the assistant. The share varies, because the cut is at a user message: "
        "if the agent has just finished, everything except the new message may be summarised. If "
        "there is a single user message, nothing is summarised, so a long turn overflows. A summary "
        "that is not shorter than the messages is discarded; from then on, only tool results are "
        "shortened. Not implemented: the second call, in which the model checks its summary, and "
        "the file with the full text of a shortened result.",
    ),
)
