"""Search turns by meaning, by comparing embeddings.

References
----------
Design document "Session Table of Contents and Interaction Summaries", section "Future Enhancements"
(see ``tests/SEEDS.md``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from ctxlab.context.turns import headline
from ctxlab.errors import UnknownSession
from ctxlab.llm.base import Embedder
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.table_of_contents import iter_turns
from ctxlab.sessions.text_search import SearchHit

_MAX_TURN_CHARS = 1_500  # characters of a turn that are embedded
_BATCH_TURNS = 256


def search_semantically(
    library: SessionLibrary,
    query: str,
    embedder: Embedder,
    model: str,
    id: str | None = None,
    *,
    limit: int = 20,
) -> list[SearchHit]:
    """Search for the turns that are closest in meaning to a query, closest turn first.

    The embedding of a turn is computed from its one-line summary and its first 1,500 characters.
    Without a cache, each search embeds every turn. Pass a ``CachedClient`` to keep the vectors on
    disk, so that only new turns are embedded. Each hit describes a turn: ``position`` is the position
    of its first message, ``snippet`` is its summary and ``score`` is the cosine similarity.

    Parameters
    ----------
    library : SessionLibrary
        Library whose sessions are searched.
    query : str
        Text whose meaning is compared with the turns.
    embedder : Embedder
        Client that computes embeddings.
    model : str
        Name of the embedding model.
    id : str, optional
        Session to search. By default, search all sessions except archived ones and those that
        programs use internally (``Session.system``).
    limit : int, default 20
        Maximum number of hits.

    Returns
    -------
    list of SearchHit
        Turns found, closest turn first.

    Raises
    ------
    UnknownSession
        If ``id`` is given and no session has this id.
    ModelError
        If the embeddings cannot be computed.
    """
    if not query.strip() or limit < 1:
        return []
    import numpy as np  # lazy: slow to import

    wanted = np.asarray(embedder.embed(model, [query]).vectors[0], dtype=np.float64)
    wanted /= np.linalg.norm(wanted) or 1.0
    if id is None:
        ids = [session.id for session in library.sessions() if not session.system]
    else:
        ids = [library.get(id).id]
    turns = _iter_turns(library, ids)

    def score_all() -> Iterator[tuple[float, SearchHit]]:
        while batch := list(islice(turns, _BATCH_TURNS)):
            made = embedder.embed(model, [text for _, text in batch]).vectors
            vectors = np.asarray(made, dtype=np.float64)
            lengths = np.linalg.norm(vectors, axis=1)
            scores = vectors @ wanted / np.where(lengths, lengths, 1.0)
            yield from zip(scores.tolist(), (hit for hit, _ in batch), strict=True)

    best = heapq.nlargest(limit, score_all(), key=lambda scored: scored[0])
    return [replace(hit, score=round(score, 6)) for score, hit in best]


def _iter_turns(library: SessionLibrary, ids: Iterable[str]) -> Iterator[tuple[SearchHit, str]]:
    """Yield a search hit without a score for each turn of the sessions, and the text to embed."""
    for id in ids:
        with suppress(UnknownSession):  # the session was deleted in the meantime
            lines, position = library.turn_summaries(id), library.read_turn(id, 1)[0]
            for number, messages in iter_turns(library, id, 1, position):
                line, first = lines.get(number) or headline(messages), messages[0]
                hit = SearchHit(id, number, position, first.role, line, time=first.time)
                yield hit, f"{line}\n{_turn_text(messages)}"
                position += len(messages)


def _turn_text(messages: Sequence[Message]) -> str:
    """Return the first 1,500 characters of the text of a turn."""
    said = ""
    for message in messages:
        said += message_text(message)[:_MAX_TURN_CHARS] + "\n"
        if len(said) >= _MAX_TURN_CHARS:
            break
    return said[:_MAX_TURN_CHARS].strip()
