"""Strategy that inserts excerpts of older messages that are relevant to the newest messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.turns import step_at
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.llm.base import Embedder, Reply
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies.base import BaseStrategy, summaries_end
from ctxlab.strategies.helpers.ranking import BM25Index, VectorIndex, best_excerpt, query_terms
from ctxlab.strategies.helpers.text import clip_text

_HEADER = "Earlier messages that may matter now, quoted:"
_MAX_EMBEDDED_CHARS = 8000
"""Maximum number of characters of a message to embed. All common embedding models accept texts of
this length."""


@dataclass(frozen=True, repr=False)
class retrieval(BaseStrategy):
    """Keeps a recent window and inserts excerpts of relevant older messages before the newest step.

    The newest step is the newest message, or the newest tool call with its results. Relevance is
    the BM25 score of an older message for the words of the newest step and the newest user message.
    With ``embedding``, it is the cosine similarity of embedding vectors. The excerpts form one
    message, which is inserted for one request only. The messages before it do not change until the
    next cut of the window, so an automatic prompt cache can serve them. A cache with explicit
    breakpoints, such as Claude's, serves only the system prompt.

    Source: BM25 as in Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009);
    retrieval of old messages as in MemGPT's recall storage (Packer et al., 2023).

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", "Hello"), Message("user", "The key of HAT136 is 4711.")]
    >>> talk += [Message("user", f"And what about number {i}?") for i in range(30)]
    >>> talk += [Message("user", "So what was it for HAT136?")]
    >>> context = Context(Budget(300), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> print(retrieval(k=1)(context).messages[-2].content)
    Earlier messages that may matter now, quoted:
    [step 2.1, user] The key of HAT136 is 4711.
    """

    k: int = 20
    "maximum number of excerpts, each from one message"
    share: float = 0.15
    """maximum share of the available tokens for the excerpts; tokens of the system prompt and the
    first user message do not count as available"""
    keep: float = 0.8
    """share of the window's tokens that remain after a cut; 1: the window stays full and is cut
    before every request"""
    chars: int = 300
    "maximum characters of one excerpt; a longer message is clipped around the matching words"
    look_back: int = 1000
    "number of messages before the window that are searched; a smaller number is faster"
    embedding: str | None = None
    "embedding model; None: messages are ranked by BM25 and no model is called"

    def __call__(self, context: Context, /) -> Context:
        """Cut the window if necessary, and return a copy of the context with the excerpts."""
        window_start = summaries_end(context)
        if not self._older_positions(context, window_start) and context.excess <= 0:
            return context
        self._cut_window(context, window_start)
        tail, older = context.last_unit_start, self._older_positions(context, window_start)
        if not older or tail < window_start:
            return context
        newest, users = [e.message for e in context.entries[tail:]], context.history.user_positions
        asked = bisect_left(users, context.history_length)
        question = context.history[users[asked - 1]] if asked else None
        terms = query_terms(newest, question)
        asking = [question, *newest] if question else newest
        found = self._find_nearest(context, older, asking, terms)
        room = self._quote_tokens(context, window_start)
        message = self._quote_messages(context, found, terms, room)
        if message is None:
            return context
        fork = context.fork()
        fork.insert(tail, message)
        return fork

    def _older_positions(self, context: Context, window_start: int) -> range:
        """Return the history positions of up to ``look_back`` messages directly before the window."""
        in_window = context.entries[window_start : window_start + 1]
        first = in_window[0].start if in_window else context.history_length
        return range(max(context.history.head_length, first - self.look_back), first)

    def _cut_window(self, context: Context, window_start: int) -> None:
        """Drop the oldest messages of the window if there is no room for the excerpts.

        After the cut, about a share ``keep`` of the window's tokens remains.
        """
        entries = context.entries
        excess = context.excess + self._quote_tokens(context, window_start)
        if excess <= 0:
            return
        tail, stop = context.last_unit_start, window_start
        window = context.tokens - excess - sum([entry.tokens for entry in entries[:window_start]])
        excess += int((1 - self.keep) * max(0, window))
        while excess > 0 and stop < tail:
            excess -= entries[stop].tokens
            stop += 1
        stop = context.next_safe_cut(stop)
        if stop > window_start:
            context.drop(window_start, stop)

    def _quote_tokens(self, context: Context, window_start: int) -> int:
        """Return the maximum number of tokens for the excerpts."""
        fixed = sum([entry.tokens for entry in context.entries[:window_start]])
        return int(self.share * max(0, context.available - fixed))

    def _quote_messages(
        self, context: Context, found: Sequence[int], terms: Sequence[str], room: int
    ) -> Message | None:
        """Return a message with the excerpts that fit, oldest first; None if none of them fits."""
        count = context.history.counter.count_text
        room = min(room, -context.excess) - count(_HEADER) - 8
        quotes: dict[int, str] = {}
        for position in found:
            message, step = context.history[position], step_at(context.history, position)
            said = best_excerpt(message_text(message).strip(), terms, self.chars)
            quote = f"[step {step}, {message.role}] {said}"
            room -= count(quote) + 1
            if room < 0:
                break
            quotes[position] = quote
        shown = [quotes[position] for position in sorted(quotes)]
        return Message("user", "\n".join([_HEADER, *shown])) if shown else None

    # --- search ---------------------------------------------------------------------------------

    def _find_nearest(
        self, context: Context, older: range, asking: Sequence[Message], terms: Sequence[str]
    ) -> list[int]:
        """Return the history positions of the most relevant older messages, best match first."""
        if self.embedding is not None:
            texts = map(message_text, asking)
            query = "\n".join(clip_text(text, _MAX_EMBEDDED_CHARS // 4) for text in texts)
            query = clip_text(query, _MAX_EMBEDDED_CHARS)
            try:
                return self._search_vectors(context, self.embedding, older, query)
            except ModelUnavailable as error:
                context.report(f"retrieval fallback: {error}")
        index: BM25Index = context.strategy_state.get((self, "words")) or BM25Index()
        context.strategy_state[self, "words"] = index
        index.add((p, message_text(context.history[p])) for p in index.new_positions(older))
        index.mark_indexed(older)
        return index.search(terms, self.k)

    def _search_vectors(self, context: Context, model: str, older: range, query: str) -> list[int]:
        client: object = context.history.client
        if not isinstance(client, Embedder):
            raise SpecError(f"{self!r} embeds messages with {model}; pass a client that can embed")
        index: VectorIndex = context.strategy_state.get((self, "vectors")) or VectorIndex()
        context.strategy_state[self, "vectors"] = index
        texts = ((p, message_text(context.history[p])) for p in index.new_positions(older))
        said = [(p, clip_text(t, _MAX_EMBEDDED_CHARS)) for p, t in texts]
        said = [(p, text) for p, text in said if text.strip()]
        if not query.strip():
            return []
        try:
            made = client.embed(model, [*(text for _, text in said), query])
        except ModelUnavailable as error:
            context.record_call(model, error)
            raise
        message = Message("assistant", "")
        reply = Reply(message, made.usage, made.usd, None, made.attempts, made.cached)
        context.record_call(model, reply)
        *vectors, asked = made.vectors
        index.add(zip((p for p, _ in said), vectors, strict=True))
        index.mark_indexed(older)
        return index.search(asked, self.k)
