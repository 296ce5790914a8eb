"""Summaries written by a model within a token budget, in parts if one call cannot hold them.

The prompt of the summary has a budget of its own (after the design note "Robustness", 10.7). The
fallbacks and the extension of a previous summary follow goose, Codex and LangMem.
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

_MAX_WINDOW_SHARE = 0.8
"Share of the model's window that the prompt and the reply may take together."

_MIN_REPLY_TOKENS = 4096  # a reasoning model spends some of it before it writes
_MIN_PART_TOKENS = 32  # minimum tokens for the summary of a part
_JOIN_TOKENS = 3  # extra tokens that a piece may take when it is joined to the next
# Text that compresses better than any prose is repetitive. Whisper's own limit is 2.4.
_MAX_COMPRESSION_RATIO = 8
_THINKING_BLOCK = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_INTERNAL_PROMPTS = ("part", "merge")

_Fallback = Callable[[Sequence[Message], int], str]
"Summarises messages without a model, in at most the given number of tokens."


class SummaryWarning(UserWarning):
    """Warns that a message was too long for one call, so that its middle was left out."""


class SummaryRejected(Exception):
    """A model's reply is not a usable summary; the message says why."""


def summarize_with_model(
    context: Context,
    previous: str,
    messages: Sequence[Message],
    max_tokens: int,
    model: str,
    prompt: str,
    fallback: _Fallback,
) -> str:
    """Extend a summary by new messages, with a model.

    Parts that the model cannot summarise are summarised by ``fallback``.

    Parameters
    ----------
    context : Context
        The context, with the client and the token counter.
    previous : str
        The summary so far; empty if there is none.
    messages : sequence of Message
        Messages to add.
    max_tokens : int
        Maximum tokens of the summary.
    model : str
        Model that writes the summary.
    prompt : str
        Name of a prompt, or the path of a file.
    fallback : callable
        Function ``(messages, tokens) -> str`` that summarises without a model.

    Returns
    -------
    str
        The new summary.

    Raises
    ------
    SummaryRejected
        If the reply is not usable.
    ModelUnavailable
        If the model does not answer.
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
    """Return the text of a prompt; ``{words}`` in it is replaced when a request is built.

    Parameters
    ----------
    name : str
        ``summary``, ``structured``, ``contents``, or the path of a file.

    Returns
    -------
    str
        The text.

    Raises
    ------
    SpecError
        If there is no such file.
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
            f"unknown prompt {name!r} ({error}); pass one of {', '.join(known)} or the path of a file"
        ) from None


class _RequestBuilder:
    """Builds the requests to one model for a summary of ``summary_tokens`` tokens."""

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
        """Build a request for pieces of a kind: ``conversation``, ``part`` or ``merge``."""
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
        """Return the tokens that the pieces of a request may take."""
        return self.max_prompt_tokens - self.counter.count_request(
            self.build_request((), previous, kind).messages
        )

    def piece_tokens(self, piece: str) -> int:
        """Return the tokens of a piece within a request."""
        return self.counter.count_text(piece) + _JOIN_TOKENS

    def fits(self, pieces: Sequence[str], previous: str, kind: str = "conversation") -> bool:
        """Return True if the pieces fit one request."""
        extra = _JOIN_TOKENS * len(pieces) if kind == "merge" else 0  # each piece has a number
        return sum(map(self.piece_tokens, pieces)) + extra <= self.available_tokens(previous, kind)

    def part_summary_tokens(self, previous: str) -> int:
        """Return the tokens for the summary of a part, so that several fit one merging call."""
        share = min(
            self.summary_tokens, self.available_tokens(previous, "merge") // 4 - 2 * _JOIN_TOKENS
        )
        if share < min(_MIN_PART_TOKENS, self.summary_tokens):
            raise SummaryRejected(f"the window of {self.model} is too small for the request")
        return share

    def group_pieces(self, pieces: Sequence[str], kind: str) -> list[range]:
        """Group consecutive pieces that fit one call. Pieces that are too large must be cut first."""
        room, groups, start, used = self.available_tokens(kind=kind), [], 0, 0
        for i, piece in enumerate(pieces):
            size = self.piece_tokens(piece) + (_JOIN_TOKENS if kind == "merge" else 0)
            if used + size > room and i > start:
                groups.append(range(start, i))
                start, used = i, 0
            used += size
        return [*groups, range(start, len(pieces))]

    def cut_piece(self, piece: str) -> str:
        """Cut the middle of a piece so that it fits one call on its own."""
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
    """Return summaries of consecutive parts, asked for concurrently."""
    whole = [builder.cut_piece(piece) for piece in pieces]
    if cut := sum(piece != before for piece, before in zip(whole, pieces, strict=True)):
        what = f"summary input cut: {cut} too long for one call to {builder.model}"
        context.report(what)
        warnings.warn(f"{what}; the middle was left out", SummaryWarning, stacklevel=2)
    groups = builder.group_pieces(whole, "part")
    asked = [builder.build_request([whole[i] for i in group], kind="part") for group in groups]

    def fallback_summary(number: int) -> str:
        said = fallback([messages[i] for i in groups[number]], max_tokens)
        return _cut_to_tokens(said, max_tokens, builder.counter)  # the two counters may differ

    return _collect_summaries(context, builder, asked, max_tokens, fallback_summary)


def _merge_summaries(
    context: Context, builder: _RequestBuilder, summaries: Sequence[str], max_tokens: int
) -> list[str]:
    """Merge neighbouring summaries into fewer ones."""
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
    """Return one summary for each request, with fallbacks for failures unless all failed."""
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
        raise SummaryRejected(f"no part could be summarised; {failures[0]}")
    for failure in failures:
        context.report(f"summary fallback: {failure}")
    return said


def _validate_summary(
    context: Context, reply: Reply, max_tokens: int, source_tokens: int, counter: TokenCounter
) -> str:
    """Return the text of a reply after checking that it is a summary of ``source_tokens`` tokens."""
    text = _THINKING_BLOCK.sub("", reply.text).strip()
    if not text:
        raise SummaryRejected(f"the summary is empty (finish reason {reply.finish})")
    if reply.finish == "content_filter":
        raise SummaryRejected("the provider's content filter stopped the summary")
    if any(_is_repetitive(part) for part in (text, text[len(text) // 2 :])):
        raise SummaryRejected("the summary repeats itself")
    used = counter.count_text(text)
    if used >= source_tokens:
        raise SummaryRejected(
            f"the summary is not shorter than its source ({used} of {source_tokens})"
        )
    if used > max_tokens:
        text = _cut_to_tokens(text, max_tokens, counter)
        if not text:
            raise SummaryRejected(f"the summary cannot be cut to {max_tokens} tokens")
        context.report(f"summary cut: it had {used} tokens, but only {max_tokens} are allowed")
    return text


def _is_repetitive(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return len(data) > 200 and len(data) > _MAX_COMPRESSION_RATIO * len(zlib.compress(data))


def _cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return the whole lines of a text that fit; whole words if lines would lose over half."""
    while text and (used := counter.count_text(text)) > max_tokens:
        text = text[: min(len(text) - 1, len(text) * max_tokens // used)]
        at = text.rfind("\n")
        if at < len(text) // 2:
            at = max(at, text.rfind(" "))
        text = text[: max(at, 0)].rstrip()
    return text
