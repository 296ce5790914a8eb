"""Reader for LongMemEval: questions about a chat history that consists of dated sessions.

The file is a JSON list of objects ``{question_id, question_type, question, answer, question_date,
haystack_dates, haystack_session_ids, haystack_sessions, answer_session_ids}``. A session is a list
of turns ``{role, content, has_answer?}``. In some variants of the files, an object of the list has
several questions about its history, in the parallel lists ``questions``, ``answers`` and
``answer_session_ids``. Each object of the list becomes one recording.

- Sessions are sorted by date, as in LongMemEval's own code. If one of the dates cannot be parsed,
  the order of the file is kept. LongMemEval describes only some of its files as sorted.
- The date of a session is added as the first line of its first turn, in brackets, because questions
  such as "how many days ago" need it. It is also the ``time`` of all turns of the session
  (interpreted as UTC). The date of a question is added as the first line of the question, in
  brackets.
- The evidence of a question consists of the turns marked with ``has_answer`` in its answer
  sessions. If no turn of an answer session is marked, all turns of the session are evidence. In
  files with several questions per history, only the turns that answer the first question are
  marked, so the evidence of the other questions is usually all turns of their answer sessions.
- ``category`` is the question type. If an object has several questions, only the first has a type,
  because the others were added later. A question with an id that ends with ``_abs`` cannot be
  answered. Its category is ``abstention`` and it has no answers, because its answer field only
  explains why it cannot be answered.
- Some sessions were cut from longer chats and start with the assistant. A history may therefore
  start with the assistant, too.

Recordings of the same question share a cluster, because the files ``longmemeval_s``,
``longmemeval_m`` and ``longmemeval_oracle`` contain the same questions. A question and its ``_abs``
variant also share a cluster.

References
----------
github.com/xiaowu0162/LongMemEval, README, ``run_generation.py`` and ``evaluate_qa.py``. Wu et al.,
2024.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ctxlab.formats import fields
from ctxlab.formats.base import Format, Source
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Probe, Recording

_HISTORY_KEYS = {"haystack_dates", "haystack_session_ids", "haystack_sessions"}
_META_KEYS = ("question_id", "question_type", "question_date")
_UNANSWERABLE_SUFFIX = "_abs"
_WEEKDAY = re.compile(r" \([A-Za-z]{3}\)")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a list of LongMemEval questions with their chat histories.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first elements has ``question_id`` and a ``haystack`` field.
    """
    elements = fields.get_objects(head.value)
    return any("question_id" in each and not _HISTORY_KEYS.isdisjoint(each) for each in elements)


def read(source: Source) -> Iterator[Recording]:
    """Read each element of the file as one recording, named after its ``question_id``.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The messages of a history, with its questions as probes.
    """
    for number, element in source.read_json_array():
        with source.handle_errors(number, "element"):
            yield _parse_element(element, str(number), source)


FORMAT = Format(
    "longmemeval",
    "LongMemEval: chat histories with questions",
    sniff,
    read,
    versions=(
        "longmemeval_s with several questions per history; with one question from "
        "documentation of 2024"
    ),
    not_read=(
        "not in the file: model, usage and, for all but the first question of a history, the "
        "turns that contain the answer"
    ),
)


@dataclass
class _History:
    """The messages of all sessions, and their positions by session id.

    ``turns`` contains the positions of all messages of a session, ``marked`` only those with
    ``has_answer``.
    """

    messages: list[Message] = field(default_factory=list)
    turns: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    marked: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def _parse_element(element: Any, number: str, source: Source) -> Recording:
    element = fields.require_object(element, "an element")
    name = fields.get_text(element, "question_id") or number
    history = _build_history(element, name, source)
    several = "questions" in element
    probes = []
    for place, (question, answer, sessions) in enumerate(_parse_questions(element)):
        with source.handle_errors(place, f"{name} question"):
            question = fields.require_text(question, "a question")
            kind = fields.get_text(element, "question_type") if place == 0 else None
            answerable = place > 0 or not name.endswith(_UNANSWERABLE_SUFFIX)
            evidence = set(_evidence_positions(fields.texts_in(sessions), history, source))
            probe = Probe(
                id=f"{name}/{place}" if several else name,
                question=fields.prepend_date(question, fields.get_text(element, "question_date")),
                answers=fields.texts_in(answer) if answerable else (),
                evidence=tuple(sorted(evidence)),
                category=kind if answerable else "abstention",
            )
            probes.append(probe)
    id, messages = f"{source.name}/{name}", tuple(history.messages)
    cluster = name.removesuffix(_UNANSWERABLE_SUFFIX)
    meta = {key: element[key] for key in _META_KEYS if key in element}
    return Recording(id, messages, probes=tuple(probes), cluster=cluster, meta=meta)


def _parse_questions(element: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return one tuple per question: the question, the answer, and the ids of its answer sessions."""
    if "questions" not in element:
        return [tuple(map(element.get, ("question", "answer", "answer_session_ids")))]
    plural = ("questions", "answers", "answer_session_ids")
    return list(zip_longest(*(_require_list_field(element, key) for key in plural)))


def _build_history(element: dict[str, Any], name: str, source: Source) -> _History:
    sessions = _require_list_field(element, "haystack_sessions")
    beside = (_require_list_field(element, f"haystack_{key}") for key in ("dates", "session_ids"))
    dates, ids = ([fields.get_text(each) for each in listed[: len(sessions)]] for listed in beside)
    history, position = _History(), 0
    found = zip_longest(sessions, dates, ids)
    rows = [(_parse_date(date), date, id, turns) for turns, date, id in found]
    if all(time is not None for time, *_ in rows):
        rows.sort(key=lambda row: row[0] or 0.0)
    for time, date, id, turns in rows:
        if not isinstance(turns, list):
            raise ValueError(f"a session must be a list of turns, got {type(turns).__name__}")
        for index, turn in enumerate(turns):
            with source.handle_errors(position, f"{name} turn"):
                message = _parse_turn(turn, None if index else date, id)
                if id:
                    history.turns[id].append(len(history.messages))
                if id and turn.get("has_answer") is True:
                    history.marked[id].append(len(history.messages))
                history.messages.append(message.replace(time=time))
            position += 1
    return history


def _parse_turn(turn: Any, date: str | None, session: str | None) -> Message:
    if not isinstance(turn, dict) or not isinstance(turn.get("content"), str):
        raise ValueError(f"a turn must be an object with a string content, got {turn!r:.80}")
    said = {"role": turn.get("role"), "content": fields.prepend_date(turn["content"], date)}
    extra = {"session": session, "has_answer": turn.get("has_answer")}
    known = {key: value for key, value in extra.items() if value is not None}
    return message_from_dict(said).replace(extra=known)


def _evidence_positions(
    sessions: Iterable[str], history: _History, source: Source
) -> Iterator[int]:
    for id in sessions:
        if id in history.turns:
            yield from history.marked.get(id) or history.turns[id]
        else:
            source.skip("answer session that is not in the history")


def _parse_date(date: str | None) -> float | None:
    """Parse a date such as ``2023/05/20 (Sat) 02:21``."""
    return fields.parse_clock_time(_WEEKDAY.sub("", date or ""), "%Y/%m/%d %H:%M")


def _require_list_field(element: dict[str, Any], key: str) -> list[Any]:
    """Return the list at a key, or an empty list if the key is missing."""
    value = element.get(key)
    return [] if value is None else fields.require_list(value, key)
