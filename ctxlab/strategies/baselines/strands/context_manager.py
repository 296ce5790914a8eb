"""Baseline of the context manager ``auto`` of Strands: previews of long results, then a summary.

Strands stores parallel tool results as one message of the user. When messages were removed, it joins
consecutive messages of the user, and of the assistant, so that roles alternate. A joined message
counts as one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import ContentPart, Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.parts import decode_image
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary
from ctxlab.strategies.baselines.settings import Setting, arguments, unavailable
from ctxlab.strategies.helpers.message_blocks import system_prompt_end

_CHARS_PER_TOKEN, _HEAD_SHARE = 4, 0.6
_RETRIEVAL_TOOL = "retrieve_context"
_MAX_RETRIES = 3
_EMERGENCY_SHARE = 0.2
_PREVIEW_TEMPLATE = "[Truncated: {blocks} {word}, ~{tokens:,} tokens]\n\n{preview}"

Group = tuple[int, int]
"Range of entries that Strands stores as one message."


@dataclass(frozen=True, repr=False)
class auto(BaseStrategy):
    """Shortens long tool results at once, and summarises when the window is nearly full.

    A long tool result is replaced by its beginning and its end, unless it is an error. At
    ``utilization`` of the available tokens, a summary replaces everything between the first message
    and the newest ``preserve_recent`` messages. If the messages still do not fit, the oldest fifth of
    them is removed. Both leave a note in the text of the assistant's message next to the gap. If the
    request still does not fit, all steps are repeated up to three times. The first message is always
    kept.

    Source: strands-agents 1.62.0, ``Agent(context_manager="auto")``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message(role, role + " a" * 60) for role in ("user", "assistant") * 4]
    >>> sent = build_messages(None, said, strategy=auto(), limit=600, reserve=0)
    >>> for message in sent[:3]:
    ...     print(message["role"], message["content"][:14])
    user user a a a a a
    assistant [Summarized: 3
    user user a a a a a
    """

    threshold: int = 1500
    "maximum tokens of a tool result that is not shortened; more than ``preview_tokens``"
    preview_tokens: int = 750
    "size of a shortened result, where a token is four characters"
    utilization: float = 0.85
    "share of the available tokens at which messages are summarised"
    preserve_recent: float = 4
    "number of newest messages that are not summarised; a number below 1 is a share of the messages"
    tokens: int = 1000
    "maximum number of tokens of the summary; the package sets no limit"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if shortened results could be longer than the threshold."""
        super().__post_init__()
        if self.threshold <= self.preview_tokens:
            raise SpecError(
                f"auto: expected threshold greater than preview_tokens, got {self.threshold} and "
                f"{self.preview_tokens}"
            )

    def __call__(self, context: Context, /) -> Context:
        """Shorten long tool results, and summarise if the window is nearly full."""
        state = context.strategy_state
        added = range(state.get(self, 0), context.history_length)
        state[self] = context.history_length
        self._shorten(context, added)
        self._run(context, context.tokens)
        for _ in range(_MAX_RETRIES):
            if context.excess <= 0:
                break
            if not self._run(context, _message_tokens(context), overflow=True):
                break
            self._run(context, context.tokens)
        if context.excess > 0:
            context.report("overflow: nothing can be reduced; the package would raise an error")
        return context

    def _run(self, context: Context, tokens: int, overflow: bool = False) -> bool:
        """Run all steps once; return True if any of them changed something."""
        available = max(1, context.available)
        acted = self._shorten(context, context.strategy_state.get((self, "long"), ()))
        if acted:
            tokens = _message_tokens(context)
        if overflow or tokens / available >= self.utilization:
            acted = self._summarize(context) or acted
        if (overflow and not acted) or _message_tokens(context) >= available:
            acted = self._remove_oldest(context) or acted
        return acted

    def _shorten(self, context: Context, positions: Iterable[int]) -> bool:
        """Shorten long tool results; return True if any changed.

        A preview of dense text can be longer than the threshold. The package shortens it again
        before each call of the model.
        """
        still_long, acted = [], False
        for position in positions:
            index = context.find_index(position)
            if index is None or context.entries[index].message.role != "tool":
                continue
            if context.entries[index].tokens <= self.threshold:
                continue
            before = context.entries[index].message
            call = context.history.calls_by_result.get(position)
            made = self.shorten_result(before, call)
            if made is not None:
                context.replace(index, made, Form.POINTER)
                acted = True
                if context.entries[index].tokens > self.threshold:
                    still_long.append(position)
        known = context.strategy_state.get((self, "long"), ())
        context.strategy_state[self, "long"] = tuple(dict.fromkeys((*known, *still_long)))
        return acted

    def shorten_result(self, message: Message, call: ToolCall | None) -> Message | None:
        """Replace the text of a tool result by its beginning and its end.

        Parameters
        ----------
        message : Message
            Tool result to shorten.
        call : ToolCall or None
            Tool call that the result answers; None if it is unknown.

        Returns
        -------
        Message or None
            Shortened tool result; None if there is nothing to shorten.
        """
        if message.extra.get("is_error") or (call is not None and call.name == _RETRIEVAL_TOOL):
            return None
        parts = message.content
        if not isinstance(parts, tuple):
            parts = () if parts is None else ({"type": "text", "text": parts},)
        images = tuple(part for part in parts if _is_image(part))
        texts = [_part_text(part) for part in parts if part not in images]
        text = "\n".join(texts)
        preview = self._preview(text, len(texts))
        if preview == text:
            return None
        refs = [f"{message.tool_call_id or ''}_{index}" for index in range(len(parts))]
        preview += f"\n\n[Stashed] [ref{'s' if len(refs) > 1 else ''}: {', '.join(refs)}]"
        shown: ContentPart = {"type": "text", "text": preview}
        return message.replace(content=(shown, *images) if images else preview)

    def _preview(self, text: str, blocks: int) -> str:
        kept = self.preview_tokens * _CHARS_PER_TOKEN
        if len(text) <= kept:
            return text
        head_chars = int(kept * _HEAD_SHARE)
        tail_chars = kept - head_chars
        marker = f"[... {len(text) - kept:,} chars elided ...]"
        pieces = text[:head_chars], marker, text[-tail_chars:] if tail_chars else ""
        made = _PREVIEW_TEMPLATE.format(
            blocks=blocks,
            word="block" if blocks == 1 else "blocks",
            tokens=math.ceil(len(text) / _CHARS_PER_TOKEN),
            preview="\n\n".join(piece for piece in pieces if piece),
        )
        return made if len(made) < len(text) else text

    def _summarize(self, context: Context) -> bool:
        groups = self._groups(context)
        keep = self.preserve_recent
        kept = math.ceil(len(groups) * keep) if 0 < keep < 1 else int(keep)
        going = _with_pairs(context, groups, range(1, len(groups) - kept))
        if len(groups) <= 1 or not going:
            return False
        entries = [e for number in going for e in context.entries[slice(*groups[number])]]
        messages = [entry.message for entry in entries]
        said = write_unchecked_summary(context, "", messages, self.tokens, self.model).strip()
        if not said:
            return False
        tokens = sum(entry.tokens for entry in entries)
        head = f"[Summarized: {len(going)} messages, ~{tokens:,} tokens]"
        self._replace(context, groups, going, f"{head}\n\n{said}")
        context.report("summary")
        return True

    def _remove_oldest(self, context: Context) -> bool:
        groups = self._groups(context)
        if len(groups) <= 3:
            return False
        count = max(1, int((len(groups) - 1) * _EMERGENCY_SHARE))
        if context.entries[groups[count + 1][0]].message.role != "assistant":
            count += 1
        going = _with_pairs(context, groups, range(1, count + 1))
        if not going:
            return False
        word = "message" if len(going) == 1 else "messages"
        self._replace(context, groups, going, f"[... {len(going)} {word} elided ...]")
        return True

    def _groups(self, context: Context) -> list[Group]:
        """Return the ranges of entries after the system prompt that are one message of Strands."""
        entries, first = context.entries, system_prompt_end(context.entries)
        joined: int = context.strategy_state.get((self, "joined"), 0)
        starts: list[int] = []
        for index in range(first, len(entries)):
            one, before = entries[index].message, entries[index - 1].message
            same = index > first and (one.role == "assistant") == (before.role == "assistant")
            if entries[index].start >= joined:
                new_results = one.role == "tool" and entries[index - 1].start >= joined
                same = same and new_results and before.role == "tool"
            if not same:
                starts.append(index)
        return list(zip(starts, [*starts[1:], len(entries)], strict=True))

    def _replace(
        self, context: Context, groups: Sequence[Group], going: Sequence[int], note: str
    ) -> None:
        """Replace groups by a note, in the message of the assistant next to the gap if there is one."""
        lowest = going[0]
        left = [number for number in range(len(groups)) if number not in going]
        carrier = None
        for number in (left[lowest - 1], *left[lowest : lowest + 1]):
            at = groups[number][1] - 1
            if number > 0 and context.entries[at].message.role == "assistant":
                carrier = at
                break
        if carrier is not None:
            noted = append_text(context.entries[carrier].message, note)
            context.replace(carrier, noted, Form.REWRITTEN)
        for number in reversed(going):
            start, stop = groups[number]
            if number == lowest and carrier is None:
                context.fold(start, stop, Message("assistant", note))
            else:
                context.drop(start, stop)
        context.strategy_state[self, "joined"] = context.history_length


def append_text(message: Message, text: str) -> Message:
    """Append a text part to the content of a message.

    Parameters
    ----------
    message : Message
        Message to copy. It is not changed.
    text : str
        Text of the new part.

    Returns
    -------
    Message
        Copy of the message with the part; the content is a string if there was none before.
    """
    content = message.content
    if not content:
        return message.replace(content=text)
    parts = content if isinstance(content, tuple) else ({"type": "text", "text": content},)
    return message.replace(content=(*parts, {"type": "text", "text": text}))


def _is_image(part: ContentPart) -> bool:
    """Return True for an image that Strands stores as such; links are stored as JSON."""
    url = str(part.get("image_url", {}).get("url", ""))
    return part.get("type") == "image_url" and decode_image(url) is not None


def _part_text(part: ContentPart) -> str:
    return str(part.get("text") or "") if part.get("type") == "text" else json.dumps(part)


def _message_tokens(context: Context) -> int:
    """Return the tokens of the messages after the system prompt."""
    prompt = context.entries[: system_prompt_end(context.entries)]
    return context.tokens - sum(entry.tokens for entry in prompt)


def _with_pairs(context: Context, groups: Sequence[Group], numbers: Iterable[int]) -> list[int]:
    """Return groups together with those that have their calls or results, in order.

    The first and the last group are never returned, nor is the one that belongs to them.
    """
    last, going = len(groups) - 1, set[int]()

    def has(number: int, what: str) -> bool:
        entries: list[Entry] = context.entries[slice(*groups[number])]
        if what == "calls":
            return any(entry.message.tool_calls for entry in entries)
        return any(entry.message.role == "tool" for entry in entries)

    for number in numbers:
        if not 0 < number < last:
            continue
        pair = {number}
        if has(number, "results") and has(number - 1, "calls"):
            if number == 1:
                continue
            pair.add(number - 1)
        if has(number, "calls") and has(number + 1, "results"):
            if number + 1 == last:
                continue
            pair.add(number + 1)
        going |= pair
    return sorted(going)


_REPOSITORY_URL = "https://github.com/strands-agents/harness-sdk/blob/python/v1.62.0"
_OFFLOAD = "strands.context_manager.Offload"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "strands.auto",
        auto(),
        "strands-agents 1.62.0",
        f"{_REPOSITORY_URL}/strands-py/src/strands/_context_manager/context_manager.py",
        "Tool results over 1,500 tokens are cut to 3,000 characters of their beginning and end, and "
        "can be read with a tool. At 0.85 of the window, a summary replaces everything between the "
        "first message and the newest 4. If the messages still do not fit, the oldest fifth is "
        "removed. If nothing more can be reduced, the package raises an error; ctxlab reports this "
        "and sends the request. Results that a recording marks as errors are not shortened. If a "
        "preview of dense text exceeds the threshold, it is shortened again before each call.",
        (
            "model='gpt-5-mini'",
            "threshold=300, preview_tokens=100, model='gpt-5-mini'",
            "utilization=0.5, preserve_recent=0, model='gpt-5-mini'",
            "threshold=200, preview_tokens=150, utilization=0.6, preserve_recent=0.4, "
            "model='gpt-5-mini'",
            "utilization=2.0, model='gpt-5-mini'",
        ),
        settings=(
            *arguments(
                "strands.experimental.context_manager",
                'Offload.truncate("tool_results").when',
                "threshold",
            ),
            Setting(
                "preview_tokens",
                "python",
                "strands.experimental.context_manager",
                "Offload.truncate.config",
                '{"preview_tokens": {value}}',
            ),
            *arguments(
                "strands.experimental.context_manager",
                'Offload.summarize("*").when',
                "utilization",
                "preserve_recent",
            ),
            Setting("model", "python", "strands", "Agent.aux_model", "{value}"),
            *unavailable("tokens", note="of ctxlab"),
        ),
    ),
)
