"""A model writes a summary within a budget of its own, in parts where one call cannot hold it all.

Sources: seed design "Robustness", 10.7 (the summary's own prompt is budgeted); goose, Codex and
LangMem for what a product does where a summary fails or must go on from the one before.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ctxlab.context.context import Context
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.transcript import cut_middle, format_transcript
from ctxlab.tokens.counter import TokenCounter, get_counter
from ctxlab.tokens.models import find_model

__all__ = ["SummaryRejected", "SummaryWarning", "load_prompt", "summarize_with_model"]

_MAX_WINDOW_SHARE = 0.8
"""Share of the summarizer's window that its prompt and its reply may take together."""

_MIN_REPLY_TOKENS = 4096  # a model that reasons spends some of it before it writes
_MIN_PART_TOKENS = 32  # tokens in which a part of a conversation can still be summarized
_JOIN_TOKENS = 3  # tokens that a piece may take beyond its own, where it is joined to the next
# A text that can be compressed more often than any prose repeats itself; Whisper's own limit is 2.4.
_MAX_COMPRESSION_RATIO = 8
_THINKING_BLOCK = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_INTERNAL_PROMPTS = ("part", "merge")

_Fallback = Callable[[Sequence[Message], int], str]
"""Summarizes messages without a model, in so many tokens."""


class SummaryWarning(UserWarning):
    """A message was too long to be summarized whole, so that its middle was left out."""


class SummaryRejected(Exception):
    """What a model wrote is no summary; the message says why."""


def summarize_with_model(
    context: Context,
    previous: str,
    messages: Sequence[Message],
    max_tokens: int,
    model: str,
    prompt: str,
    fallback: _Fallback,
) -> str:
    """The summary so far, extended by a model, in at most ``max_tokens`` tokens.

    The context's counter counts them. A part that stays unanswered is summarized by ``fallback``.
    Raises ``SummaryRejected`` or ``ModelUnavailable`` where there is nothing to be used.
    """
    builder = _RequestBuilder(model, prompt, max_tokens, context.history.counter)
    pieces = format_transcript(messages)
    if builder.fits(pieces, previous):
        request = builder.build_request(pieces, previous)
    else:
        said = _summarize_parts(
            context, builder, pieces, messages, builder.part_summary_tokens(previous), fallback
        )
        while not builder.fits(said, previous, "merge"):
            said = _merge_summaries(context, builder, said, builder.part_summary_tokens(previous))
        request = builder.build_request(said, previous, "merge")
    count = context.history.counter
    worth = count.count_text(previous) + sum(map(count.count_message, messages))
    return _validate_summary(context, context.ask(request), max_tokens, worth, count)


def load_prompt(name: str) -> str:
    """The text of a prompt: ``summary``, ``structured``, or a file of one's own.

    Raises ``SpecError`` where there is no such file. ``{words}`` in it is replaced.
    """
    return _read_prompt(name)


@lru_cache(maxsize=32)
def _read_prompt(name: str) -> str:
    folder = files("ctxlab.strategies.summaries").joinpath("prompts")
    if (ours := folder.joinpath(f"{name}.md")).is_file():
        return ours.read_text(encoding="utf-8")
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = sorted(
            f.name[:-3] for f in folder.iterdir() if f.name[:-3] not in _INTERNAL_PROMPTS
        )
        raise SpecError(
            f"no prompt {name!r} ({error}); it is one of {', '.join(known)} or a file"
        ) from None


class _RequestBuilder:
    """What one model can be asked at once for a summary of so many tokens."""

    def __init__(self, model: str, prompt: str, summary_tokens: int, counter: TokenCounter) -> None:
        known = find_model(model)
        self.model, self.summary_tokens = model, summary_tokens
        self.counter = counter if counter.model == model else get_counter(model)
        self.reply_tokens = max(
            1, min(max(2 * summary_tokens, _MIN_REPLY_TOKENS), known.max_output, known.limit // 4)
        )
        self.max_prompt_tokens = int(_MAX_WINDOW_SHARE * known.limit) - self.reply_tokens
        self.instructions = load_prompt(prompt)

    def build_request(
        self, pieces: Sequence[str], previous: str = "", kind: str = "conversation"
    ) -> Request:
        """``kind`` is what the pieces are: the ``conversation``, a ``part`` of it, or to ``merge``."""
        rules, tokens = self.instructions, self.summary_tokens
        if kind != "conversation":
            rules = f"{rules}\n{load_prompt(kind)}"
        told = rules.replace("{words}", str(max(1, tokens * 3 // 4)))
        tag = "summaries" if kind == "merge" else "conversation"
        if kind == "merge":
            pieces = [f"[part {i}]\n{piece}" for i, piece in enumerate(pieces, 1)]
        body = "\n".join((f"<{tag}>", *pieces, f"</{tag}>"))
        if previous:
            body = f"<summary_so_far>\n{previous}\n</summary_so_far>\n{body}"
        asked = (Message("system", told), Message("user", body))
        return Request(self.model, asked, max_tokens=self.reply_tokens)

    def available_tokens(self, previous: str = "", kind: str = "conversation") -> int:
        """Tokens that the pieces of a request may have."""
        return self.max_prompt_tokens - self.counter.count_request(
            self.build_request((), previous, kind).messages
        )

    def piece_tokens(self, piece: str) -> int:
        return self.counter.count_text(piece) + _JOIN_TOKENS

    def fits(self, pieces: Sequence[str], previous: str, kind: str = "conversation") -> bool:
        extra = _JOIN_TOKENS * len(pieces) if kind == "merge" else 0  # each has its number
        return sum(map(self.piece_tokens, pieces)) + extra <= self.available_tokens(previous, kind)

    def part_summary_tokens(self, previous: str) -> int:
        """Tokens of the summary of a part, so that several can be merged in one call."""
        share = min(
            self.summary_tokens, self.available_tokens(previous, "merge") // 4 - 2 * _JOIN_TOKENS
        )
        if share < min(_MIN_PART_TOKENS, self.summary_tokens):
            raise SummaryRejected(f"the window of {self.model} is too small to be asked for one")
        return share

    def group_pieces(self, pieces: Sequence[str], kind: str) -> list[range]:
        """Neighbours that one call can hold; a piece that is too large has been cut."""
        room, groups, start, used = self.available_tokens(kind=kind), [], 0, 0
        for i, piece in enumerate(pieces):
            size = self.piece_tokens(piece) + (_JOIN_TOKENS if kind == "merge" else 0)
            if used + size > room and i > start:
                groups.append(range(start, i))
                start, used = i, 0
            used += size
        return [*groups, range(start, len(pieces))]

    def cut_piece(self, piece: str) -> str:
        """A piece of which one call can hold nothing else."""
        room, chars = self.available_tokens(kind="part"), len(piece)
        cut = piece
        while chars > 1 and (used := self.piece_tokens(cut)) > room:
            chars = min(chars - 1, chars * room // used)
            cut = cut_middle(piece, chars)
        return cut


def _summarize_parts(
    context: Context,
    builder: _RequestBuilder,
    pieces: Sequence[str],
    messages: Sequence[Message],
    max_tokens: int,
    fallback: _Fallback,
) -> list[str]:
    """Summaries of neighbouring messages, asked for several at a time."""
    whole = [builder.cut_piece(piece) for piece in pieces]
    if cut := sum(piece != before for piece, before in zip(whole, pieces, strict=True)):
        what = f"summary input cut: {cut} too long for one call to {builder.model}"
        context.report(what)
        warnings.warn(f"{what}; the middle was left out", SummaryWarning, stacklevel=2)
    groups = builder.group_pieces(whole, "part")
    asked = [builder.build_request([whole[i] for i in group], kind="part") for group in groups]

    def fallback_summary(number: int) -> str:
        said = fallback([messages[i] for i in groups[number]], max_tokens)
        return _cut_to_tokens(said, max_tokens, builder.counter)  # where the two count differently

    return _collect_summaries(context, builder, asked, max_tokens, fallback_summary)


def _merge_summaries(
    context: Context, builder: _RequestBuilder, summaries: Sequence[str], max_tokens: int
) -> list[str]:
    """Fewer summaries, each of several that stood beside each other."""
    groups = builder.group_pieces(summaries, "merge")
    asked = [builder.build_request([summaries[i] for i in group], kind="merge") for group in groups]

    def fallback_summary(number: int) -> str:
        own = max_tokens // len(groups[number])
        return "\n".join(_cut_to_tokens(summaries[i], own, builder.counter) for i in groups[number])

    return _collect_summaries(context, builder, asked, max_tokens, fallback_summary)


def _collect_summaries(
    context: Context,
    builder: _RequestBuilder,
    requests: Sequence[Request],
    max_tokens: int,
    fallback_summary: Callable[[int], str],
) -> list[str]:
    """What was answered to each request; something instead of what was not, unless that is all."""
    said: list[str] = []
    failures: list[str] = []
    for number, (request, reply) in enumerate(
        zip(requests, context.ask_all(requests), strict=True)
    ):
        worth = builder.counter.count_message(request.messages[1])
        try:
            if isinstance(reply, ModelUnavailable):
                raise reply
            said.append(_validate_summary(context, reply, max_tokens, worth, builder.counter))
        except (ModelUnavailable, SummaryRejected) as error:
            failures.append(f"part {number + 1} of {len(requests)}: {error}")
            said.append(fallback_summary(number))
    if len(failures) == len(requests):
        raise SummaryRejected(f"no part of it was summarized; {failures[0]}")
    for failure in failures:
        context.report(f"summary fallback: {failure}")
    return said


def _validate_summary(
    context: Context, reply: Reply, max_tokens: int, source_tokens: int, counter: TokenCounter
) -> str:
    """What a model wrote, if it is a summary of what is ``source_tokens`` tokens."""
    text = _THINKING_BLOCK.sub("", reply.text).strip()
    if not text:
        raise SummaryRejected(f"the summary is empty (it ended by {reply.finish})")
    if reply.finish == "content_filter":
        raise SummaryRejected("the provider's filter ended the summary")
    if any(_is_repetitive(part) for part in (text, text[len(text) // 2 :])):
        raise SummaryRejected("the summary repeats itself")
    used = counter.count_text(text)
    if used >= source_tokens:
        raise SummaryRejected(
            f"the summary is no shorter than what it stands for ({used} of {source_tokens})"
        )
    if used > max_tokens:
        text = _cut_to_tokens(text, max_tokens, counter)
        if not text:
            raise SummaryRejected(f"the summary cannot be cut to {max_tokens} tokens")
        context.report(f"summary cut: it had {used} tokens, and {max_tokens} are allowed")
    return text


def _is_repetitive(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return len(data) > 200 and len(data) > _MAX_COMPRESSION_RATIO * len(zlib.compress(data))


def _cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """The lines of a text that fit; the words where not even half of it is whole lines."""
    while text and (used := counter.count_text(text)) > max_tokens:
        text = text[: min(len(text) - 1, len(text) * max_tokens // used)]
        at = text.rfind("\n")
        if at < len(text) // 2:
            at = max(at, text.rfind(" "))
        text = text[: max(at, 0)].rstrip()
    return text
