"""Turns are found by what they mean: an embedding model says how near each is to a question.

Source: seed design "Session Table of Contents and Interaction Summaries", "Future Enhancements".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ctxlab.context.turns import headline
from ctxlab.errors import UnknownSession
from ctxlab.llm.base import Embedder
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.base import SearchHit, SessionLibrary
from ctxlab.sessions.table_of_contents import iter_turns

__all__ = ["search_semantically"]

_MAX_TURN_CHARS = 1_500  # characters of a turn that are embedded
_BATCH_TURNS = 256  # turns


class _Turn(NamedTuple):
    id: str
    number: int
    position: int
    first: Message
    summary: str
    text: str


def search_semantically(
    library: SessionLibrary,
    query: str,
    embedder: Embedder,
    model: str,
    id: str | None = None,
    *,
    limit: int = 20,
) -> list[SearchHit]:
    """The turns nearest in meaning to a question, the nearest first; of one session or of all.

    A turn is embedded as its line and its first 1,500 characters. The first search embeds every turn:
    give a ``CachedClient``, which keeps the vectors on disk and asks for new ones alone. A hit stands at
    the first message of its turn, its snippet is the line, and its score is the cosine. Sessions that
    are archived or of a system are searched only where ``id`` names them.

    Raises ``UnknownSession``, and what ``embedder`` raises.
    """
    if not query.strip() or limit < 1:
        return []
    import numpy as np  # only who searches so pays for it

    wanted = np.asarray(embedder.embed(model, [query]).vectors[0], dtype=np.float64)
    wanted /= np.linalg.norm(wanted) or 1.0
    named = [library.get(id)] if id is not None else library.sessions()
    turns = _iter_turns(library, (each.id for each in named if id is not None or not each.system))
    best: list[tuple[float, int, _Turn]] = []
    count = 0
    while batch := list(islice(turns, _BATCH_TURNS)):
        made = embedder.embed(model, [turn.text for turn in batch]).vectors
        vectors = np.asarray(made, dtype=np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        scores = vectors @ wanted / np.where(lengths, lengths, 1.0)
        new = [
            (-float(score), count + n, turn)
            for n, (score, turn) in enumerate(zip(scores, batch, strict=True))
        ]
        best = heapq.nsmallest(limit, [*best, *new])
        count += len(batch)
    return [
        SearchHit(
            at.id,
            at.number,
            at.position,
            at.first.role,
            at.summary,
            round(-score, 6),
            at.first.time,
        )
        for score, _, at in best
    ]


def _iter_turns(library: SessionLibrary, ids: Iterable[str]) -> Iterator[_Turn]:
    for id in ids:
        with suppress(UnknownSession):  # it was deleted meanwhile
            lines, position = library.turn_summaries(id), library.read_turn(id, 1)[0]
            for number, messages in iter_turns(library, id, 1, position):
                line = lines.get(number) or headline(messages)
                yield _Turn(
                    id, number, position, messages[0], line, f"{line}\n{_turn_text(messages)}"
                )
                position += len(messages)


def _turn_text(messages: Sequence[Message]) -> str:
    """The beginning of a turn, without going through all of a long one."""
    said = ""
    for message in messages:
        said += message_text(message)[:_MAX_TURN_CHARS] + "\n"
        if len(said) >= _MAX_TURN_CHARS:
            break
    return said[:_MAX_TURN_CHARS].strip()
