"""Let a model write a summary of at most a given number of tokens.

If the messages do not fit one call, they are summarised in parts, and the summaries of the parts
are merged. The prompt is limited to a share of the model's context window, as described in the
design note "Robustness", 10.7. Fallbacks and the extension of a previous summary follow goose,
Codex and LangMem.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from ctxlab.context.context import Context
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.transcript import cut_middle, format_transcript
from ctxlab.tokens.counter import TokenCounter, get_counter
from ctxlab.tokens.models import find_model

_MAX_WINDOW_SHARE = 0.8
"Maximum share of the model's context window for the prompt and the reply together."

_MIN_REPLY_TOKENS = 4096  # includes hidden reasoning, which a reasoning model writes first
_MIN_PART_TOKENS = 32  # minimum tokens for the summary of a part
_JOIN_TOKENS = 3  # maximum extra tokens when a piece is joined to the next
# Text with a higher compression ratio is considered repetitive. Whisper uses a limit of 2.4.
_MAX_COMPRESSION_RATIO = 8
_THINKING_BLOCK = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_INTERNAL_PROMPTS = frozenset({"part", "merge"})

_Texts: TypeAlias = Sequence[str]
Fallback: TypeAlias = Callable[[Sequence[Message], int], str]
"Function ``(messages, max_tokens) -> str`` that summarises messages without a model."


class SummaryWarning(UserWarning):
    """Warning that the middle of a message was cut out, because it was too long for one model call."""


class SummaryRejected(Exception):
    """Raised if a model cannot write a usable summary. The message states the reason."""


@lru_cache(maxsize=32)
def load_prompt(name: str) -> str:
    """Read the text of a built-in prompt or of a file.

    The text may contain the placeholder ``{words}``. When a request is built, the placeholder is
    replaced by the maximum number of words of the summary.

    Parameters
    ----------
    name : str
        ``summary``, ``structured``, ``contents``, or the path of a file.

    Returns
    -------
    str
        Text of the prompt.

    Raises
    ------
    SpecError
        If no built-in prompt has this name and the file cannot be read.
    """
    folder = files("ctxlab.strategies.summaries").joinpath("prompts")
    if (ours := folder.joinpath(f"{name}.md")).is_file():
        return ours.read_text(encoding="utf-8")
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = ", ".join(sorted({f.name[:-3] for f in folder.iterdir()} - _INTERNAL_PROMPTS))
        hint = f"choose one of {known} or the path of a file"
        raise SpecError(f"unknown prompt {name!r} ({error}); {hint}") from None


class SummaryWriter:
    """Writer that asks a model for a summary, in several calls if the messages do not fit one call.

    Parameters
    ----------
    context : Context
        Context with the model client and the token counter. Calls are recorded in it.
    model : str
        Model that writes the summary.
    prompt : str
        Name of a built-in prompt or path of a file, as accepted by ``load_prompt``.
    summary_tokens : int
        Maximum tokens of the summary.
    """

    def __init__(self, context: Context, model: str, prompt: str, summary_tokens: int) -> None:
        known, counter = find_model(model), context.history.counter
        self.context, self.model, self.summary_tokens = context, model, summary_tokens
        self.counter = counter if counter.model == model else get_counter(model)
        wanted = max(2 * summary_tokens, _MIN_REPLY_TOKENS)
        self.reply_tokens = max(1, min(wanted, known.max_output, known.limit // 4))
        self.max_prompt_tokens = int(_MAX_WINDOW_SHARE * known.limit) - self.reply_tokens
        self.instructions = load_prompt(prompt)

    def summarize(self, previous: str, messages: Sequence[Message], fallback: Fallback) -> str:
        """Extend a summary by new messages.

        If the messages are summarised in parts and the model fails on some of them, these parts are
        summarised by ``fallback``.

        Parameters
        ----------
        previous : str
            Summary to extend; empty to start a new summary.
        messages : sequence of Message
            Messages to add to the summary.
        fallback : callable
            Function ``(messages, max_tokens) -> str`` that summarises without a model.

        Returns
        -------
        str
            The extended summary.

        Raises
        ------
        SummaryRejected
            If the final reply is not a usable summary, if no part could be summarised by the model,
            or if the model's context window is too small.
        ModelUnavailable
            If the model does not answer the final request.
        """
        pieces, kind = format_transcript(messages), "whole"
        if not self._fits(pieces, previous):
            pieces, kind = self._summarize_parts(pieces, messages, previous, fallback), "merge"
            while not self._fits(pieces, previous, kind):
                pieces = self._merge_summaries(pieces, previous)
        reply = self.context.ask(self._build_request(pieces, previous, kind))
        count = self.context.history.counter
        worth = count.count_text(previous) + sum(map(count.count_message, messages))
        return self._validate(reply, self.summary_tokens, worth, count)

    def _build_request(self, pieces: _Texts, previous: str = "", kind: str = "whole") -> Request:
        """Build the request to summarise pieces of text.

        Kind ``whole`` summarises all messages, ``part`` summarises some of them, and ``merge``
        merges summaries of parts.
        """
        rules, tokens = self.instructions, self.summary_tokens
        if kind != "whole":
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

    def _available_tokens(self, previous: str = "", kind: str = "whole") -> int:
        """Return the tokens left in a request for text, besides the instructions and ``previous``."""
        empty = self._build_request((), previous, kind).messages
        return self.max_prompt_tokens - self.counter.count_request(empty)

    def _piece_tokens(self, piece: str) -> int:
        """Return the number of tokens that a piece of text takes in a request."""
        return self.counter.count_text(piece) + _JOIN_TOKENS

    def _fits(self, pieces: _Texts, previous: str, kind: str = "whole") -> bool:
        """Return True if the pieces of text fit one request."""
        extra = _JOIN_TOKENS * len(pieces) if kind == "merge" else 0  # each piece has a number
        used = sum(map(self._piece_tokens, pieces)) + extra
        return used <= self._available_tokens(previous, kind)

    def _part_summary_tokens(self, previous: str) -> int:
        """Return the maximum tokens of the summary of a part.

        The request that merges the summaries must have room for several of them.
        """
        room = self._available_tokens(previous, "merge") // 4 - 2 * _JOIN_TOKENS
        share = min(self.summary_tokens, room)
        if share < min(_MIN_PART_TOKENS, self.summary_tokens):
            raise SummaryRejected(f"the context window of {self.model} is too small for a summary")
        return share

    def _group_pieces(self, pieces: _Texts, kind: str) -> list[range]:
        """Group consecutive pieces into ranges that fit one call.

        Each piece must fit one call on its own: see ``_cut_piece``.
        """
        room, groups, start, used = self._available_tokens(kind=kind), [], 0, 0
        for i, piece in enumerate(pieces):
            size = self._piece_tokens(piece) + (_JOIN_TOKENS if kind == "merge" else 0)
            if used + size > room and i > start:
                groups.append(range(start, i))
                start, used = i, 0
            used += size
        return [*groups, range(start, len(pieces))]

    def _cut_piece(self, piece: str) -> str:
        """Cut out the middle of a piece of text if it does not fit one call on its own."""
        room, chars = self._available_tokens(kind="part"), len(piece)
        cut = piece
        while chars > 1 and (used := self._piece_tokens(cut)) > room:
            chars = min(chars - 1, chars * room // used)
            cut = cut_middle(piece, chars)
        return cut

    def _summarize_parts(
        self, pieces: _Texts, messages: Sequence[Message], previous: str, fallback: Fallback
    ) -> list[str]:
        """Let the model summarise consecutive groups of messages, in concurrent calls."""
        max_tokens = self._part_summary_tokens(previous)
        whole = [self._cut_piece(piece) for piece in pieces]
        if cut := sum(piece != before for piece, before in zip(whole, pieces, strict=True)):
            what = f"summary input cut: {cut} of {len(pieces)} messages too long for {self.model}"
            self.context.report(what)
            warnings.warn(f"{what}; their middle was left out", SummaryWarning, stacklevel=2)

        def fall_back(group: range) -> str:
            said = fallback([messages[i] for i in group], max_tokens)
            return _cut_to_tokens(said, max_tokens, self.counter)  # the two counters may differ

        return self._ask_for_groups(whole, "part", max_tokens, fall_back)

    def _merge_summaries(self, summaries: _Texts, previous: str) -> list[str]:
        """Let the model merge groups of consecutive summaries into one summary each."""
        max_tokens = self._part_summary_tokens(previous)

        def fall_back(group: range) -> str:
            own = max_tokens // len(group)
            return "\n".join(_cut_to_tokens(summaries[i], own, self.counter) for i in group)

        return self._ask_for_groups(summaries, "merge", max_tokens, fall_back)

    def _ask_for_groups(
        self, pieces: _Texts, kind: str, max_tokens: int, fall_back: Callable[[range], str]
    ) -> list[str]:
        """Return one summary for each group of pieces.

        ``fall_back`` summarises the groups on which the model failed. If the model failed on all
        groups, SummaryRejected is raised.
        """
        groups = self._group_pieces(pieces, kind)
        requests = [self._build_request([pieces[i] for i in group], kind=kind) for group in groups]
        replies = self.context.ask_all(requests)
        said: list[str] = []
        failures: list[str] = []
        for group, request, reply in zip(groups, requests, replies, strict=True):
            worth = self.counter.count_message(request.messages[1])
            try:
                if isinstance(reply, ModelUnavailable):
                    raise reply
                said.append(self._validate(reply, max_tokens, worth, self.counter))
            except (ModelUnavailable, SummaryRejected) as error:
                failures.append(f"part {len(said) + 1} of {len(requests)}: {error}")
                said.append(fall_back(group))
        if len(failures) == len(requests):
            raise SummaryRejected(f"no part could be summarised; {failures[0]}")
        for failure in failures:
            self.context.report(f"summary fallback: {failure}")
        return said

    def _validate(self, reply: Reply, most: int, source: int, counter: TokenCounter) -> str:
        """Return the text of a reply, cut to at most ``most`` tokens.

        Raise SummaryRejected if the text is empty, filtered by the provider, repetitive, or not
        shorter than the summarised messages. These messages have ``source`` tokens.
        """
        text = _THINKING_BLOCK.sub("", reply.text).strip()
        used, problem = counter.count_text(text), None
        if not text:
            problem = f"the summary is empty (finish reason {reply.finish})"
        elif reply.finish == "content_filter":
            problem = "the provider's content filter stopped the summary"
        elif any(_is_repetitive(part) for part in (text, text[len(text) // 2 :])):
            problem = "the summary repeats itself"
        elif used >= source:
            problem = f"the summary is not shorter than its source ({used} of {source})"
        elif used > most and not (text := _cut_to_tokens(text, most, counter)):
            problem = f"the summary cannot be cut to {most} tokens"
        if problem:
            raise SummaryRejected(problem)
        if used > most:
            self.context.report(f"summary cut: it had {used} tokens, but only {most} are allowed")
        return text


def _is_repetitive(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return len(data) > 200 and len(data) > _MAX_COMPRESSION_RATIO * len(zlib.compress(data))


def _cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Cut a string to a maximum number of tokens, at the end of a line.

    If that would remove more than half of the string, it is cut at the end of a word instead.
    """
    while text and (used := counter.count_text(text)) > max_tokens:
        text = text[: min(len(text) - 1, len(text) * max_tokens // used)]
        at = text.rfind("\n")
        if at < len(text) // 2:
            at = max(at, text.rfind(" "))
        text = text[: max(at, 0)].rstrip()
    return text
