"""Baseline of Hermes Agent, which shortens old tool results and summarises the middle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import clip_text, is_text_only, rewrite_calls, with_text

_SMALL_WINDOW = 512_000
_MIN_LIMIT, _MAX_MIN_SHARE = 64_000, 0.85
_MIN_CHARS, _MIN_ARGUMENT_CHARS = 200, 500
_MAX_TAIL_FLOOR = 8
_SOFT = 1.5
_REPEATED = "[The same output as that of a later call]"


@dataclass(frozen=True, repr=False)
class middle_summary(compaction.CompactingStrategy):
    """Shortens old tool results, and replaces the middle of the conversation by a summary.

    The first messages stay at the first compaction only. The newest messages stay, with a fifth to
    three tenths of the tokens at which compaction starts, and always the last user message and the
    last reply with text, unless they are among the first messages.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(18) for r in roles]
    >>> sent = build_messages(None, talk[:35], strategy=middle_summary(), limit=1300, reserve=0)
    >>> [m["content"][:14] for m in sent][2:6]
    ['user 1 word wo', 'Summary of the', 'assistant 13 w', 'user 14 word w']
    """

    threshold: float = 0.5
    "share of the window at which compaction starts"
    small_window_threshold: float = 0.75
    "minimum of ``threshold`` in windows of less than 512,000 tokens"
    target_ratio: float = 0.2
    "tokens of the newest messages that stay, as a share of the tokens at which compaction starts"
    protect_first_n: int = 3
    "number of first messages after the system prompt that stay at the first compaction"
    protect_last_n: int = 20
    "number of newest messages whose tool results are not shortened; up to 8 of them always stay"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def limit(self, size: int) -> int:
        """Return the number of tokens at which compaction starts.

        Parameters
        ----------
        size : int
            Size of the context window in tokens.

        Returns
        -------
        int
            Number of tokens of the request: a share of the window, but at least 64,000 tokens or
            0.85 of the window.

        Examples
        --------
        >>> [middle_summary().limit(size) for size in (1_000_000, 200_000, 70_000)]
        [500000, 150000, 59500]
        """
        share = self.threshold
        if size < _SMALL_WINDOW:
            share = max(share, self.small_window_threshold)
        return int(max(share * size, min(_MIN_LIMIT, _MAX_MIN_SHARE * size)))

    def __call__(self, context: Context, /) -> Context:
        """Shorten old tool results, and replace the middle of the conversation by a summary."""
        size = compaction.window_tokens(context)
        limit, whole = self.limit(size), compaction.prompt_tokens(context)
        done, vain = context.strategy_state.get(self, (0, 0))
        if whole < limit:
            if vain:
                context.strategy_state[self] = done, 0
            return context
        # Two compactions in a row that did not help are the last until a request overflows.
        if (vain >= 2 and whole <= size) or not self.should_compact(context, limit):
            return context
        had_middle = self._compact_middle(context, int(self.target_ratio * limit), first=not done)
        helped = had_middle and compaction.prompt_tokens(context) < limit
        context.strategy_state[self] = done + had_middle, 0 if helped else vain + 1
        return context

    def _compact_middle(self, context: Context, budget: int, first: bool) -> bool:
        """Shorten tool results and summarise the middle; return False if there is no middle."""
        entries, start = context.entries, compaction.body_start(context)
        head = min(len(entries), start + (self.protect_first_n if first else 0))
        if len(entries) <= head + 4:
            return False
        self._shorten_old(context, start, budget)
        head = _skip_results(context, head)
        cut = self._find_tail(context, head, budget)
        if head >= cut:
            return False
        for index in range(head, cut):
            if entries[index].form is Form.SUMMARY and index > head:
                # The messages before the summary were kept verbatim once; now they are lost.
                context.drop(head, index)
                cut -= index - head
                break
        self.compact(context, head, cut)
        return True

    def _shorten_old(self, context: Context, start: int, budget: int) -> None:
        """Shorten tool results and arguments before the newest messages, and repeated results."""
        entries, kept, tokens = context.entries, len(context.entries), 0
        floor = min(self.protect_last_n, len(entries) - start)
        while kept > start and (
            tokens + entries[kept - 1].tokens <= budget or len(entries) - kept + 1 < floor
        ):
            kept -= 1
            tokens += entries[kept].tokens
        kept = min(max(kept - 1, start), len(entries) - floor)  # with the one that does not fit
        seen: set[str] = set()
        for index in range(len(entries) - 1, start - 1, -1):
            message = entries[index].message
            if index < kept and message.tool_calls:
                context.rewrite(index, _shorten_calls, Form.TRUNCATED)
            if message.role != "tool" or len(message.text) < _MIN_CHARS:
                continue
            if message.text in seen:
                context.rewrite(index, mark_repeated, Form.STUB)
            elif index < kept:
                context.rewrite(index, describe_result, Form.STUB)
            seen.add(message.text)

    def _find_tail(self, context: Context, head: int, budget: int) -> int:
        """Return the index of the first of the newest messages that stay."""
        entries = context.entries
        count = len(entries)
        available = max(0, count - head - 1)
        floor = max(3, min(self.protect_last_n, _MAX_TAIL_FLOOR))
        floor = min(floor, max(3, available - 2), available) if available > 1 else 0
        cut, tokens = _walk_back(context, head, int(_SOFT * budget), floor)
        if cut <= head and tokens <= int(_SOFT * budget):
            cut = max(_walk_back(context, head, budget, floor)[0] - 1, head)
        cut = min(cut, count - floor)
        if cut <= head:
            cut = max(count - floor, head + 1)
        cut = _before_call(context, cut)
        users = [i for i in range(head, count) if compaction.is_user_message(entries[i])]
        if users and users[-1] < cut:
            cut = users[-1] if users[-1] > head else _pair_end(context, users[-1])
        cut = max(cut, head + 1)
        replies = [i for i in range(head, count) if entries[i].message.role == "assistant"]
        spoken = [i for i in replies if entries[i].message.text.strip()] or replies
        if spoken and spoken[-1] < cut:
            cut = max(_before_call(context, spoken[-1]), head + 1)
        return _skip_results(context, cut)


def _walk_back(context: Context, head: int, budget: int, floor: int) -> tuple[int, int]:
    """Return the start of the newest messages that fit a budget, and their tokens.

    At least ``floor`` messages count as newest, whatever their size.
    """
    entries, tokens = context.entries, 0
    cut = len(entries)
    while cut > head:
        size = entries[cut - 1].tokens
        if tokens + size > budget and len(entries) - cut + 1 >= floor:
            break
        cut -= 1
        tokens += size
    return cut, tokens


def _skip_results(context: Context, index: int) -> int:
    """Return the first index from ``index`` on that is not a tool result."""
    later = islice(context.entries, index, None)
    return index + next(
        (n for n, entry in enumerate(later) if entry.message.role != "tool"),
        len(context.entries) - index,
    )


def _before_call(context: Context, index: int) -> int:
    """Return the index of the tool call whose results precede ``index``, or else ``index``."""
    entries, call = context.entries, index - 1
    if not 0 < index < len(entries):
        return index
    while call >= 0 and entries[call].message.role == "tool":
        call -= 1
    return call if call >= 0 and entries[call].message.tool_calls else index


def _pair_end(context: Context, user: int) -> int:
    """Return the index after a user message, its reply and the results of the reply's calls."""
    entries, index = context.entries, user + 1
    if index < len(entries) and entries[index].message.role == "assistant":
        index = _skip_results(context, index + 1)
    return index


def _shorten_calls(message: Message, _: ToolCall | None) -> Message | None:
    """Truncate the long strings of each tool call with more than 500 characters of arguments."""
    return rewrite_calls(message, _shorten_call)


def _shorten_call(call: ToolCall) -> ToolCall:
    if len(call.arguments) <= _MIN_ARGUMENT_CHARS:
        return call
    try:
        given = parse_json(call.arguments)
    except ValueError:
        return call
    short = _shorten_strings(given)
    return call if short == given else ToolCall(call.id, call.name, dump_json(short))


def _shorten_strings(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MIN_CHARS else value[:_MIN_CHARS] + "...[truncated]"
    if isinstance(value, dict):
        return {key: _shorten_strings(each) for key, each in value.items()}
    return [_shorten_strings(each) for each in value] if isinstance(value, list) else value


def mark_repeated(message: Message, _: ToolCall | None) -> Message | None:
    """Replace a tool result by a note that a later call has the same result.

    Parameters
    ----------
    message : Message
        Tool result to replace.
    _ : ToolCall or None
        Not used.

    Returns
    -------
    Message or None
        Message with the note as its text; None if the result has other parts than text.

    Examples
    --------
    >>> mark_repeated(Message("tool", "a.py", tool_call_id="c1"), None).text
    '[The same output as that of a later call]'
    """
    return with_text(message, _REPEATED) if is_text_only(message) else None


def describe_result(message: Message, call: ToolCall | None) -> Message | None:
    """Replace a tool result by one line with the tool, two arguments and the size of the result.

    Parameters
    ----------
    message : Message
        Tool result to replace.
    call : ToolCall or None
        Call that has this result.

    Returns
    -------
    Message or None
        Message with the line as its text; None if the result has at most 200 characters, or other
        parts than text.

    Examples
    --------
    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> describe_result(Message("tool", "x = 1 " * 200, tool_call_id="c1"), call).text
    '[read] path=a.py (1,200 characters)'
    """
    text = message.text
    if len(text) <= _MIN_CHARS or not is_text_only(message):
        return None
    try:
        given = parse_json(call.arguments) if call and call.arguments else {}
    except ValueError:
        given = {}
    pairs = list(given.items())[:2] if isinstance(given, dict) else []
    told = "".join(f" {key}={clip_text(str(value), 40)}" for key, value in pairs)
    return with_text(message, f"[{call.name if call else 'tool'}]{told} ({len(text):,} characters)")


_FILE = "~/.hermes/config.yaml"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "hermes",
        middle_summary(),
        "hermes-agent 0.19.0",
        "https://github.com/NousResearch/hermes-agent/blob/0000416b34a3dad10c39446ab62c6626c609c30f/agent/context_compressor.py",
        "At 0.5 of the window, or 0.75 if it has less than 512,000 tokens, one summary replaces the "
        "middle; 3 first messages and the newest messages stay, with a fifth to three tenths of that "
        "size. Before, older tool results become one line, repeated ones a note, and long arguments "
        "are cut. At the second compaction the 3 first messages are dropped without being summarised, "
        "as in Hermes, so the task of a single user message may be lost. After two compactions that "
        "leave the request too large, Hermes stops until a request overflows. The limit of windows "
        "below 75,300 tokens is 0.85 as in pull request 99700, merged on 2026-08-31; in 0.19.0 it is "
        "64,000 tokens if the window is larger than that. Before a message of a "
        "chat platform, Hermes also compacts at 0.85, which has no effect here. The line of a result "
        "is worded by tool; ctxlab uses one form. Hermes chooses the role of the summary so that roles "
        "alternate, or adds it to the next message; in ctxlab it is a user message. A summary that is "
        "not shorter than the middle is not used in ctxlab. Not implemented: the note in the system "
        "prompt, removing old images, and pruning without a summary, which is off by default.",
        (
            "model='scripted'",
            "protect_first_n=1, protect_last_n=4, model='scripted'",
            "target_ratio=0.5, protect_last_n=30, model='scripted'",
        ),
        settings=(
            Setting("threshold", "yaml", _FILE, "compression.threshold", threshold="share"),
            Setting("target_ratio", "yaml", _FILE, "compression.target_ratio", alternatives=(0.1,)),
            Setting(
                "protect_first_n", "yaml", _FILE, "compression.protect_first_n", alternatives=()
            ),
            Setting("protect_last_n", "yaml", _FILE, "compression.protect_last_n", alternatives=()),
            *unavailable(
                "small_window_threshold", note="fixed in the source; a higher threshold wins"
            ),
            *unavailable(
                "summary_tokens", note="of ctxlab; Hermes: a fifth of the middle, up to 10,000"
            ),
            *unavailable("model", note="of ctxlab; Hermes: auxiliary.compression.model"),
        ),
    ),
)
