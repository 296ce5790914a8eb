"""Retrieval puts back what an old message said when the newest messages are about it again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.context.turns import turn_at
from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.llm.base import (
    Embedder,
    Reply,
)
from ctxlab.messages.types import (
    Message,
    text_of,
)
from ctxlab.strategies.base import Base
from ctxlab.strategies.helpers.ranking import (
    Vectors,
    Words,
    excerpt,
    terms_of,
)
from ctxlab.strategies.helpers.text import clip

__all__ = ["retrieval"]

_HEADER = "Earlier messages that may matter now, quoted:"
_EMBEDDED = 8000
"""Characters of a message that are embedded: what models take at the least."""


@dataclass(frozen=True, repr=False)
class retrieval(Base):
    """A recent window, and in front of the newest unit quotes of the older messages nearest to it.

    Near is what shares rare words with the newest unit and the newest user message (BM25), or, with
    ``embedding``, what has a vector near theirs. The quotes stand in one message for one request; what
    is before them stays as it was until the window is cut again, which an automatic prompt cache reads;
    one with breakpoints, as Claude's, reads the system prompt alone.

    Source: BM25 after Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009); quoting
    old turns after MemGPT's recall storage (Packer et al., 2023).

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", "Hello"), Message("user", "The key of HAT136 is 4711.")]
    >>> talk += [Message("user", f"And what about number {i}?") for i in range(30)]
    >>> talk += [Message("user", "So what was it for HAT136?")]
    >>> context = Context(Budget(300), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> print(retrieval(k=1)(context).messages[-2].content)
    Earlier messages that may matter now, quoted:
    [turn 2, user] The key of HAT136 is 4711.
    """

    k: int = 20
    "messages that are quoted at most"
    share: float = 0.15
    "share of the tokens beside the head that the quotes may have"
    keep: float = 0.8
    "share of the window's tokens that a cut leaves; 1: the window is full, and cut before every request"
    chars: int = 300
    "characters of a quote at most; a longer message is clipped around what matched"
    look_back: int = 1000
    "how many messages before the window are looked at; bounds what a request costs"
    embedding: str | None = None
    "model that makes the vectors; None: words are compared and no model is called"

    def __call__(self, context: Context, /) -> Context:
        front = _front(context)
        if not self._older(context, front) and context.excess <= 0:
            return context
        self._cut(context, front)
        tail, older = context.tail, self._older(context, front)
        if not older or tail < front:
            return context
        newest = [entry.message for entry in context.entries[tail:]]
        asked = bisect_left(context.history.users, context.length) - 1
        question = context.history[context.history.users[asked]] if asked >= 0 else None
        terms = terms_of(newest, question)
        found = self._near(context, older, newest, question, terms)
        message = self._quoted(context, found, terms, self._share(context, front))
        if message is None:
            return context
        fork = context.fork()
        fork.insert(tail, message)
        return fork

    def _older(self, context: Context, front: int) -> range:
        """Positions before the window that are looked at."""
        entries, head = context.entries, context.history.head
        first = entries[front].start if front < len(entries) else context.length
        return range(max(head, first - self.look_back), first)

    def _cut(self, context: Context, front: int) -> None:
        """The window is cut where it leaves no room for the quotes, and then deeper than it must be."""
        excess, entries = context.excess + self._share(context, front), context.entries
        if excess <= 0:
            return
        tail, stop = context.tail, front
        window = context.tokens - excess - sum([entry.tokens for entry in entries[:front]])
        excess += int((1 - self.keep) * max(0, window))
        while excess > 0 and stop < tail:
            excess -= entries[stop].tokens
            stop += 1
        stop = context.next_cut(stop)
        if stop > front:
            context.drop(front, stop)

    def _share(self, context: Context, front: int) -> int:
        """Tokens that the quotes may have."""
        fixed = sum([entry.tokens for entry in context.entries[:front]])
        return int(self.share * max(0, context.available - fixed))

    def _quoted(
        self, context: Context, found: Sequence[int], terms: Sequence[str], room: int
    ) -> Message | None:
        """What was found, oldest first, as far as there is room."""
        count = context.history.counter.text
        room = min(room, -context.excess) - count(_HEADER) - 8
        quotes: dict[int, str] = {}
        for position in found:
            message = context.history[position]
            said = excerpt(text_of(message).strip(), terms, self.chars)
            turn = turn_at(context.history, position)
            quote = f"[turn {turn}, {message.role}] {said}"
            room -= count(quote) + 1
            if room < 0:
                break
            quotes[position] = quote
        if not quotes:
            return None
        return Message("user", "\n".join([_HEADER, *(quotes[p] for p in sorted(quotes))]))

    # --- what is near --------------------------------------------------------------------------

    def _near(
        self,
        context: Context,
        older: range,
        newest: Sequence[Message],
        question: Message | None,
        terms: Sequence[str],
    ) -> Sequence[int]:
        """Positions of the nearest older messages, best first."""
        if self.embedding is not None:
            asked = [question] if question else []
            query = "\n".join(clip(text_of(m), _EMBEDDED // 4) for m in [*asked, *newest])
            try:
                return self._by_vector(context, self.embedding, older, clip(query, _EMBEDDED))
            except ModelUnavailable as error:
                context.report(f"retrieval fallback: {error}")
        held: _Held[Words] = context.notes.get((self, "words")) or _Held(Words())
        context.notes[self, "words"] = held
        held.index.add((p, text_of(context.history[p])) for p in held.new(older))
        held.moved(older)
        return held.index.best(terms, self.k)

    def _by_vector(self, context: Context, model: str, older: range, query: str) -> Sequence[int]:
        client: object = context.history.client
        if not isinstance(client, Embedder):
            raise SpecError(f"{self!r} wants vectors of {model}, and no client was given for them")
        held: _Held[Vectors] = context.notes.get((self, "vectors")) or _Held(Vectors())
        context.notes[self, "vectors"] = held
        texts = ((p, clip(text_of(context.history[p]), _EMBEDDED)) for p in held.new(older))
        said = [(position, text) for position, text in texts if text.strip()]
        if not query.strip():
            return []
        try:
            made = client.embed(model, [*(text for _, text in said), query])
        except ModelUnavailable as error:
            context.spend(model, error)
            raise
        message = Message("assistant", "")
        context.spend(
            model, Reply(message, made.usage, made.usd, attempts=made.attempts, cached=made.cached)
        )
        *vectors, asked = made.vectors
        held.index.add(zip((p for p, _ in said), vectors, strict=True))
        held.moved(older)
        return held.index.best(asked, self.k)


def _front(context: Context) -> int:
    """Index behind the head and what stands for old messages there: a summary, contents."""
    entries, index = context.entries, context.head
    while index < len(entries) and entries[index].form in (Form.SUMMARY, Form.POINTER):
        index += 1
    return index


class _Index(Protocol):
    def forget(self, before: int, /) -> None: ...


_I = TypeVar("_I", bound=_Index)


class _Held(Generic[_I]):
    """An index of the older messages, and how far it reaches."""

    def __init__(self, index: _I) -> None:
        self.index, self.upto = index, 0

    def new(self, older: range) -> range:
        """Positions that are not in it yet."""
        return range(max(self.upto, older.start), max(self.upto, older.stop))

    def moved(self, older: range) -> None:
        """They are in it now, and what is too old goes."""
        self.upto = max(self.upto, older.stop)
        self.index.forget(older.start)
