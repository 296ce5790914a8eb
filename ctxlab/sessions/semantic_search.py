"""Search steps by meaning, by comparing embeddings.

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

from ctxlab.context.turns import TurnLabel, headline
from ctxlab.errors import UnknownSession
from ctxlab.llm.base import Embedder
from ctxlab.messages.types import Message, message_text
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.table_of_contents import iter_turns, split_steps
from ctxlab.sessions.text_search import SearchHit

_MAX_STEP_CHARS = 1_500  # characters of a step that are embedded
_BATCH_STEPS = 256


def search_semantically(
    library: SessionLibrary,
    query: str,
    embedder: Embedder,
    model: str,
    id: str | None = None,
    *,
    limit: int = 20,
) -> list[SearchHit]:
    """Search for the steps that are closest in meaning to a query, closest step first.

    The embedding of a step is computed from a line that describes it and from its first 1,500
    characters. The line of the first step of a turn is the summary of the turn, if one is stored.
    Without a cache, each search embeds every step. Pass a ``CachedClient`` to keep the vectors on
    disk, so that only new steps are embedded. Each hit describes a step: ``position`` is the position
    of its first message, ``snippet`` is its line and ``score`` is the cosine similarity.

    Parameters
    ----------
    library : SessionLibrary
        Library whose sessions are searched.
    query : str
        Text whose meaning is compared with the steps.
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
        Steps found, closest step first.

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
    steps = _iter_steps(library, ids)

    def score_all() -> Iterator[tuple[float, SearchHit]]:
        while batch := list(islice(steps, _BATCH_STEPS)):
            made = embedder.embed(model, [text for _, text in batch]).vectors
            vectors = np.asarray(made, dtype=np.float64)
            lengths = np.linalg.norm(vectors, axis=1)
            scores = vectors @ wanted / np.where(lengths, lengths, 1.0)
            yield from zip(scores.tolist(), (hit for hit, _ in batch), strict=True)

    best = heapq.nlargest(limit, score_all(), key=lambda scored: scored[0])
    return [replace(hit, score=round(score, 6)) for score, hit in best]


def _iter_steps(library: SessionLibrary, ids: Iterable[str]) -> Iterator[tuple[SearchHit, str]]:
    """Yield a search hit without a score for each step of the sessions, and the text to embed."""
    for id in ids:
        with suppress(UnknownSession):  # the session was deleted in the meantime
            lines, position = library.turn_summaries(id), library.read_turn(id, 1, 1)[0]
            for turn, messages in iter_turns(library, id):
                for number, step in enumerate(split_steps(messages), start=1):
                    line = (lines.get(turn) if number == 1 else None) or headline(step)
                    label, first = str(TurnLabel(turn, number)), step[0]
                    hit = SearchHit(id, turn, label, position, first.role, line, time=first.time)
                    yield hit, f"{line}\n{_step_text(step)}"
                    position += len(step)


def _step_text(messages: Sequence[Message]) -> str:
    """Return the first 1,500 characters of the text of a step."""
    said = ""
    for message in messages:
        said += message_text(message)[:_MAX_STEP_CHARS] + "\n"
        if len(said) >= _MAX_STEP_CHARS:
            break
    return said[:_MAX_STEP_CHARS].strip()
