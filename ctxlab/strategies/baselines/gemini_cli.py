"""Baseline of Gemini CLI, which summarises 70 % at half of the window, and masks old tool results."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab._utils.jsonio import dump_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import with_text

_EXEMPT_TOOLS = ("activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode")
_EDGE_CHARS = 250
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


@dataclass(frozen=True, repr=False)
class mask_old_outputs(BaseStrategy):
    """Masks the tool results before the newest ones, many at a time.

    A masked result keeps its first and its last 250 characters. Results without a reply are neither
    counted nor masked. Sizes are estimated at four characters per token.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 99, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *6 * step]
    >>> mask = mask_old_outputs(protection_tokens=800, min_prunable_tokens=900)
    >>> [len(m["content"]) for m in build_messages(None, talk, strategy=mask)[2::2]]
    [530, 530, 530, 1485, 1485, 1485]
    """

    protection_tokens: int = 50_000
    "tokens of the newest tool results that are not masked"
    min_prunable_tokens: int = 30_000
    "the other results are masked once they have at least this number of tokens"

    def __call__(self, context: Context, /) -> Context:
        """Mask the tool results before the newest ones, once they are large enough."""
        results = tool_result_positions(context)
        seen, done = context.strategy_state.get(self, (0, 0))
        answered = context.history_length
        while answered and context.history[answered - 1].role != "assistant":
            answered -= 1
        stop = bisect_left(results, answered)
        if stop <= seen:
            return context
        kept, prunable, going = 0, 0, list[int]()
        for number in range(stop - 1, done - 1, -1):
            index = context.find_index(results[number])
            if index is None or context.entries[index].form is Form.SUMMARY:
                done = number + 1
                break
            tokens = self._maskable_tokens(context, results[number], index)
            kept += tokens
            if kept > self.protection_tokens and tokens:
                prunable += tokens
                going.append(index)
        if going and prunable >= self.min_prunable_tokens:
            for index in going:
                context.rewrite(index, _mask, Form.STUB)
            done = bisect_left(results, context.entries[going[0]].stop)
        context.strategy_state[self] = stop, done
        return context

    def _maskable_tokens(self, context: Context, position: int, index: int) -> int:
        """Return the estimated tokens of a result; 0 for a tool whose results are never masked."""
        call = context.history.calls_by_result.get(position)
        if call is not None and call.name in _EXEMPT_TOOLS:
            return 0
        return len(context.entries[index].message.text) // 4


def _mask(message: Message, _: ToolCall | None) -> Message | None:
    """Keep the beginning and the end of a tool result; None if this would not make it shorter."""
    text = message.text
    note = f"\n[{len(text)} characters are masked]\n"
    short = text[:_EDGE_CHARS] + note + text[-_EDGE_CHARS:]
    return with_text(message, short) if len(short) < len(text) else None


_FILE = "~/.gemini/settings.json"
_MASKING = "contextManagement.tools.outputMasking"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "gemini_cli",
        older_share() | mask_old_outputs(),
        "Gemini CLI 0.61.0 (npm @google/gemini-cli-core)",
        "https://unpkg.com/@google/gemini-cli-core@0.61.0/dist/src/context/chatCompressionService.js",
        "At half of the window, the older 70 % of the characters are replaced by a summary and an "
        "acknowledgement of the assistant. The share varies, because the cut is at a user message: "
        "if the agent has just finished, everything except the new message may be summarised. If "
        "there is a single user message, nothing is summarised, so a long turn overflows. A summary "
        "that is not shorter than the messages is discarded; from then on, only tool results are "
        "shortened. Before each request, tool results before the newest 50,000 tokens of them are "
        "masked, once they have 30,000 tokens (since 0.30 at the latest). Google may change the numbers "
        "by flags from its server. Not implemented: the second call, in which the model checks its "
        "summary; the files with the full text of a shortened or masked result; and contextManagement, "
        "which is off by default.",
        settings=(
            Setting(
                "compression_threshold",
                "json",
                _FILE,
                "model.compressionThreshold",
                threshold="share",
            ),
            Setting(
                "tool_chars",
                "json",
                _FILE,
                "tools.truncateToolOutputThreshold",
                alternatives=(20_000,),
            ),
            Setting(
                "protection_tokens",
                "json",
                _FILE,
                f"{_MASKING}.protectionThresholdTokens",
                alternatives=(),
            ),
            Setting(
                "min_prunable_tokens",
                "json",
                _FILE,
                f"{_MASKING}.minPrunableThresholdTokens",
                alternatives=(),
            ),
            *unavailable("preserve", "tool_tokens", note="fixed in the source"),
            *unavailable("summary_tokens", "model", note="of ctxlab"),
        ),
        formats=("gemini-cli",),
    ),
)
