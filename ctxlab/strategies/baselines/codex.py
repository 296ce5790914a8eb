"""Baselines of Codex CLI, which keeps user messages and summarises everything else."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class user_messages(compaction.CompactingStrategy):
    """Replaces a conversation near the token limit by its newest user messages and a summary.

    Tool calls, tool results and assistant messages are dropped, even the newest. User messages at
    the end that have no reply yet stay after the summary.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> step = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    >>> step += [{"role": "tool", "content": "a line of text " * 9, "tool_call_id": "c"}]
    >>> talk = [{"role": "user", "content": "Fix it"}, *8 * step]
    >>> sent = build_messages(None, talk, strategy=user_messages(), limit=300, reserve=0)
    >>> [m["role"] for m in sent], sent[1]["content"][:14]
    (['user', 'user'], 'Summary of the')
    """

    trigger: float = 0.9
    "share of the context window at which compaction starts; a value above 1 is a number of tokens"
    user_tokens: int = 64_000
    "maximum tokens of the kept user messages, at four bytes per token; the oldest is cut to fit"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace the conversation by its newest user messages and a summary."""
        if not self.should_compact(context, compaction.threshold_tokens(context, self.trigger)):
            return context
        entries, start, stop = context.entries, compaction.body_start(context), len(context.entries)
        while stop > start and compaction.is_user_message(entries[stop - 1]):
            stop -= 1
        part = entries[start:stop]
        # Searching from the end is faster: there may be many user messages at the start.
        if all(compaction.is_user_message(e) or e.form is Form.SUMMARY for e in reversed(part)):
            return context
        kept, cut = self._select_kept(context, start, stop)
        staying = sum(entries[i].tokens for i in kept)
        going = sum(entry.tokens for entry in part) - staying
        message = self.summarize(context, part, going)
        if message is None:
            return context
        last = kept[-1] + 1 if kept else start
        if last < stop:
            context.fold(last, stop, message)
        else:
            context.insert(stop, message)
        compaction.drop_between(context, [start - 1, *kept])
        if cut and kept:
            self._cut_message(context, start, cut)
        return context

    def _select_kept(self, context: Context, start: int, stop: int) -> tuple[list[int], int]:
        """Return the indices of the user messages to keep, and the new size of the oldest one.

        The size is a number of tokens; 0 means that the message is not cut.
        """
        kept: list[int] = []
        left = self.user_tokens
        for index in range(stop - 1, start - 1, -1):
            if not left:
                break
            if not compaction.is_user_message(context.entries[index]):
                continue
            kept.append(index)
            tokens = -(-len(context.entries[index].message.text.encode(errors="replace")) // 4)
            if tokens > left:
                return kept[::-1], left
            left -= tokens
        return kept[::-1], 0

    def _cut_message(self, context: Context, index: int, tokens: int) -> None:
        """Cut a message to about ``tokens`` tokens: keep its beginning and its end.

        A line with the number of removed tokens replaces the middle.
        """
        message = context.entries[index].message
        data, half = message.text.encode(errors="replace"), 2 * tokens
        gone = (len(data) - 2 * half) // 4
        begin, end = (part.decode(errors="ignore") for part in (data[:half], data[-half:]))
        shorter = with_text(message, f"{begin}\n[{gone} tokens left out]\n{end}")
        context.replace(index, shorter, Form.TRUNCATED)


_SETTINGS = (
    Setting(
        "trigger",
        "toml",
        "~/.codex/config.toml",
        "model_auto_compact_token_limit",
        "{tokens}",
        threshold="share",
        note="a number of tokens; the limit is 0.9 of the window, also if the setting is higher",
    ),
    *unavailable("user_tokens", note="fixed in the source"),
    *unavailable("summary_tokens", "model", note="of ctxlab"),
)
_SOURCE_URL = "https://github.com/openai/codex/blob/"


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "codex",
        user_messages(),
        "Codex CLI with a model of OpenAI, remote compaction v2 (default since 0.146) at 009bd87; "
        "threshold of 0.154.0",
        _SOURCE_URL
        + "009bd870cd794c4c867576d306717b6a5ca70857/codex-rs/core/src/compact_remote_v2.rs",
        "At 0.9 of the window, the conversation is replaced by its newest user messages, up to "
        "64,000 tokens, and an encrypted item of the server. What this item contains is not "
        "published; ctxlab writes a summary in its place. Not implemented: tool outputs are cut "
        "when they are stored, and an experimental mode lets the model start a new window. In a "
        "window of 64,000 tokens or less, the user messages may leave so little room that "
        "compaction happens at every other request.",
        settings=_SETTINGS,
        formats=("codex", "codex-exec"),
        caches_summaries=True,
    ),
    Baseline(
        "codex.local",
        user_messages(user_tokens=20_000),
        "Codex CLI with a model of another provider, local compaction at e06dd0e; threshold of 0.154.0",
        _SOURCE_URL + "e06dd0e5d5694c24968bf49b62466cdedae04aaa/codex-rs/core/src/compact.rs",
        "At 0.9 of the window, the conversation is replaced by its newest user messages, up to "
        "20,000 tokens, and a summary that the model writes. Not implemented: if a request for a "
        "summary overflows, Codex repeats it without the oldest item.",
        settings=_SETTINGS,
    ),
)
