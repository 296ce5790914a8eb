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
from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.llm.base import (
    Reply,
    Request,
)
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.transcript import (
    cut_middle,
    transcript,
)
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

__all__ = ["Rejected", "SummaryWarning", "ask_summary", "find_prompt"]

_WINDOW = 0.8
"""Share of the summarizer's window that its prompt and its reply may take together."""

_REPLY = 4096  # a model that reasons spends some of it before it writes
_LEAST = 32  # tokens in which a part of a conversation can still be summarized
_JOINT = 3  # tokens that a piece may take beyond its own, where it is joined to the next
_REPEATS = 8  # times that a text can be compressed where no prose can; Whisper's own limit is 2.4
_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_OWN = ("part", "merge")

_Plain = Callable[[Sequence[Message], int], str]
"""Summarizes messages without a model, in so many tokens."""


class SummaryWarning(UserWarning):
    """A message was too long to be summarized whole, so that its middle was left out."""


class Rejected(Exception):
    """What a model wrote is no summary; the message says why."""


def ask_summary(
    context: Context,
    previous: str,
    messages: Sequence[Message],
    tokens: int,
    model: str,
    prompt: str,
    plain: _Plain,
) -> str:
    """The summary so far, extended by a model, in at most ``tokens`` tokens of the context's counter.

    A part that stays unanswered is summarized by ``plain``. Raises ``Rejected`` or ``ModelUnavailable``
    where there is nothing to be used.
    """
    desk = _Desk(model, prompt, tokens, context.history.counter)
    pieces = transcript(messages)
    if desk.fit(pieces, previous):
        request = desk.request(pieces, previous)
    else:
        said = _in_parts(context, desk, pieces, messages, desk.share(previous), plain)
        while not desk.fit(said, previous, "merge"):
            said = _merged(context, desk, said, desk.share(previous))
        request = desk.request(said, previous, "merge")
    count = context.history.counter
    worth = count.text(previous) + sum(map(count.message, messages))
    return _judged(context, context.ask(request), tokens, worth, count)


def find_prompt(name: str) -> str:
    """The text of a prompt: ``summary``, ``structured``, or a file of one's own.

    Raises ``SpecError`` where there is no such file. ``{words}`` in it is replaced.
    """
    return _prompt(name)


@lru_cache(maxsize=32)
def _prompt(name: str) -> str:
    folder = files("ctxlab.strategies.summaries").joinpath("prompts")
    if (ours := folder.joinpath(f"{name}.md")).is_file():
        return ours.read_text(encoding="utf-8")
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = sorted(f.name[:-3] for f in folder.iterdir() if f.name[:-3] not in _OWN)
        raise SpecError(
            f"no prompt {name!r} ({error}); it is one of {', '.join(known)} or a file"
        ) from None


class _Desk:
    """What one model can be asked at once for a summary of so many tokens."""

    def __init__(self, model: str, prompt: str, tokens: int, counter: TokenCounter) -> None:
        known = find_model(model)
        self.model, self.tokens = model, tokens
        self.counter = counter if counter.model == model else _counter(model)
        self.reply = max(1, min(max(2 * tokens, _REPLY), known.max_output, known.limit // 4))
        self.most = int(_WINDOW * known.limit) - self.reply
        self.rules = find_prompt(prompt)

    def request(
        self, pieces: Sequence[str], previous: str = "", kind: str = "conversation"
    ) -> Request:
        """``kind`` is what the pieces are: the ``conversation``, a ``part`` of it, or to ``merge``."""
        rules, tokens = self.rules, self.tokens
        if kind != "conversation":
            rules = f"{rules}\n{find_prompt(kind)}"
        told = rules.replace("{words}", str(max(1, tokens * 3 // 4)))
        tag = "summaries" if kind == "merge" else "conversation"
        if kind == "merge":
            pieces = [f"[part {i}]\n{piece}" for i, piece in enumerate(pieces, 1)]
        body = "\n".join((f"<{tag}>", *pieces, f"</{tag}>"))
        if previous:
            body = f"<summary_so_far>\n{previous}\n</summary_so_far>\n{body}"
        asked = (Message("system", told), Message("user", body))
        return Request(self.model, asked, max_tokens=self.reply)

    def room(self, previous: str = "", kind: str = "conversation") -> int:
        """Tokens that the pieces of a request may have."""
        return self.most - self.counter.request(self.request((), previous, kind).messages)

    def size(self, piece: str) -> int:
        return self.counter.text(piece) + _JOINT

    def fit(self, pieces: Sequence[str], previous: str, kind: str = "conversation") -> bool:
        extra = _JOINT * len(pieces) if kind == "merge" else 0  # each has its number
        return sum(map(self.size, pieces)) + extra <= self.room(previous, kind)

    def share(self, previous: str) -> int:
        """Tokens of the summary of a part, so that several can be merged in one call."""
        share = min(self.tokens, self.room(previous, "merge") // 4 - 2 * _JOINT)
        if share < min(_LEAST, self.tokens):
            raise Rejected(f"the window of {self.model} is too small to be asked for one")
        return share

    def groups(self, pieces: Sequence[str], kind: str) -> list[range]:
        """Neighbours that one call can hold; a piece that is too large has been cut."""
        room, groups, start, used = self.room(kind=kind), [], 0, 0
        for i, piece in enumerate(pieces):
            size = self.size(piece) + (_JOINT if kind == "merge" else 0)
            if used + size > room and i > start:
                groups.append(range(start, i))
                start, used = i, 0
            used += size
        return [*groups, range(start, len(pieces))]

    def cut(self, piece: str) -> str:
        """A piece of which one call can hold nothing else."""
        room, chars = self.room(kind="part"), len(piece)
        cut = piece
        while chars > 1 and (used := self.size(cut)) > room:
            chars = min(chars - 1, chars * room // used)
            cut = cut_middle(piece, chars)
        return cut


@lru_cache(maxsize=8)
def _counter(model: str) -> TokenCounter:
    return TokenCounter(model)


def _in_parts(
    context: Context,
    desk: _Desk,
    pieces: Sequence[str],
    messages: Sequence[Message],
    share: int,
    plain: _Plain,
) -> list[str]:
    """Summaries of neighbouring messages, asked for several at a time."""
    whole = [desk.cut(piece) for piece in pieces]
    if cut := sum(piece != before for piece, before in zip(whole, pieces, strict=True)):
        what = f"summary input cut: {cut} too long for one call to {desk.model}"
        context.report(what)
        warnings.warn(f"{what}; the middle was left out", SummaryWarning, stacklevel=2)
    groups = desk.groups(whole, "part")
    asked = [desk.request([whole[i] for i in group], kind="part") for group in groups]

    def instead(number: int) -> str:
        said = plain([messages[i] for i in groups[number]], share)
        return _cut(said, share, desk.counter)  # where the two count differently

    return _answers(context, desk, asked, share, instead)


def _merged(context: Context, desk: _Desk, said: Sequence[str], share: int) -> list[str]:
    """Fewer summaries, each of several that stood beside each other."""
    groups = desk.groups(said, "merge")
    asked = [desk.request([said[i] for i in group], kind="merge") for group in groups]

    def instead(number: int) -> str:
        own = share // len(groups[number])
        return "\n".join(_cut(said[i], own, desk.counter) for i in groups[number])

    return _answers(context, desk, asked, share, instead)


def _answers(
    context: Context,
    desk: _Desk,
    asked: Sequence[Request],
    share: int,
    instead: Callable[[int], str],
) -> list[str]:
    """What was answered to each request; something instead of what was not, unless that is all."""
    said: list[str] = []
    failures: list[str] = []
    for number, (request, reply) in enumerate(zip(asked, context.ask_all(asked), strict=True)):
        worth = desk.counter.message(request.messages[1])
        try:
            if isinstance(reply, ModelUnavailable):
                raise reply
            said.append(_judged(context, reply, share, worth, desk.counter))
        except (ModelUnavailable, Rejected) as error:
            failures.append(f"part {number + 1} of {len(asked)}: {error}")
            said.append(instead(number))
    if len(failures) == len(asked):
        raise Rejected(f"no part of it was summarized; {failures[0]}")
    for failure in failures:
        context.report(f"summary fallback: {failure}")
    return said


def _judged(context: Context, reply: Reply, allowed: int, worth: int, counter: TokenCounter) -> str:
    """What a model wrote, if it is a summary of what is ``worth`` tokens."""
    text = _THOUGHT.sub("", reply.text).strip()
    if not text:
        raise Rejected(f"the summary is empty (it ended by {reply.finish})")
    if reply.finish == "content_filter":
        raise Rejected("the provider's filter ended the summary")
    if any(_repeats(part) for part in (text, text[len(text) // 2 :])):
        raise Rejected("the summary repeats itself")
    used = counter.text(text)
    if used >= worth:
        raise Rejected(f"the summary is no shorter than what it stands for ({used} of {worth})")
    if used > allowed:
        text = _cut(text, allowed, counter)
        if not text:
            raise Rejected(f"the summary cannot be cut to {allowed} tokens")
        context.report(f"summary cut: it had {used} tokens, and {allowed} are allowed")
    return text


def _repeats(text: str) -> bool:
    data = text.encode("utf-8", "replace")
    return len(data) > 200 and len(data) > _REPEATS * len(zlib.compress(data))


def _cut(text: str, tokens: int, counter: TokenCounter) -> str:
    """The lines of a text that fit; the words where not even half of it is whole lines."""
    while text and (used := counter.text(text)) > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // used)]
        at = text.rfind("\n")
        if at < len(text) // 2:
            at = max(at, text.rfind(" "))
        text = text[: max(at, 0)].rstrip()
    return text
