"""Reader for LoCoMo: long chats between two people over many dated sessions, with questions.

The file is a JSON list of samples ``{qa, conversation, …, sample_id}``. ``conversation`` holds
``speaker_a``, ``speaker_b`` and, for each N, ``session_N`` (turns ``{speaker, dia_id, text,
blip_caption?, …}``) with ``session_N_date_time``. A sample becomes one recording of all its turns,
in the order of session numbers.

- Both speakers are people. The one who speaks first becomes the user and the other the assistant,
  so that a chat begins with the user. ``name`` holds the speaker. One side may speak twice in a
  row.
- The date of a session is put in brackets above the text of its first turn, because many questions
  need it. It is also the ``time`` of all turns of the session (taken as UTC). It is not a message
  of its own, which would shift every position and be rejected as a late system prompt.
- A picture becomes text below the turn: ``[shares a picture: caption]``, with the caption by BLIP.
  Its URL and search query stay in ``extra`` with ``dia_id``.
- Questions are asked after the last turn. Their evidence is the position of each turn id listed.
  Ids that are written together (``D8:6; D9:17``) are split, and ``D:11:26`` is read as ``D11:26``.
  Ids that match no turn are counted.
- Categories have the names used in the project's scoring: multi-hop (1), temporal (2), open-domain
  (3), single-hop (4), adversarial (5). As in that scoring, the answer of an open-domain question
  ends at the first ``;``, because its reasons follow. An adversarial question has no answer. Its
  ``adversarial_answer`` is a wrong answer and is not read.
- ``observation``, ``session_summary`` and ``event_summary`` repeat the conversation and are not
  read. Dates of sessions without turns are not read either.

References
----------
github.com/snap-research/locomo, ``data/locomo10.json`` and ``task_eval``. Maharana et al., 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ctxlab.formats import fields
from ctxlab.formats.base import Format, Source
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Probe, Recording

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TIME_FORMAT = "%I:%M %p on %d %B, %Y"
_SESSION_KEY = re.compile(r"session_([0-9]{1,6})")
_TURN_ID = re.compile(r"D:?([0-9]{1,6}):([0-9]{1,6})")
_NON_EXTRA_KEYS = ("speaker", "text", "blip_caption")
_META_KEYS = ("sample_id", "speaker_a", "speaker_b")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a list of samples with speakers and sessions.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if the file looks like this format.
    """
    if not isinstance(head.value, list):
        return False
    chats = (fields.get_object(sample, "conversation") for sample in head.value)
    return any("speaker_a" in chat or "session_1" in chat for chat in chats)


def read(source: Source) -> Iterator[Recording]:
    """Read one recording per sample.

    Parameters
    ----------
    source : Source
        The file. What is left out of it is counted there.

    Yields
    ------
    Recording
        The conversation of a sample, with its questions as probes.
    """
    for number, sample in source.read_json_array():
        with source.handle_errors(number, "element"):
            yield _parse_sample(sample, str(number), source)


FORMAT = Format("locomo", "LoCoMo: two-person chats with questions", sniff, read)


def _parse_sample(sample: Any, number: str, source: Source) -> Recording:
    conversation = fields.get_in(sample, "conversation")
    if not isinstance(conversation, dict):
        raise ValueError("a sample must have an object under conversation")
    name = fields.get_text(sample, "sample_id") or number
    messages: list[Message] = []
    places: dict[str, int] = {}
    for position, (turn, date, opens) in enumerate(_iter_turns(conversation)):
        with source.handle_errors(position, f"{name} turn"):
            first = messages[0].name if messages else None
            message = _parse_turn(turn, first, date, opens)
            if id := fields.get_text(turn, "dia_id"):
                places.setdefault(id, len(messages))
            messages.append(message)
    probes = []
    for place, asked in enumerate(fields.get_list(sample, "qa")):
        with source.handle_errors(place, f"{name} question"):
            probes.append(_parse_probe(asked, f"{name}/{place}", places, source))
    known = {key: sample.get(key) or conversation.get(key) for key in _META_KEYS}
    meta = {key: value for key, value in known.items() if value is not None}
    id = f"{source.name}/{name}"
    return Recording(id, tuple(messages), probes=tuple(probes), meta=meta)


def _iter_turns(conversation: dict[str, Any]) -> Iterator[tuple[Any, str | None, bool]]:
    """Yield each turn, the date of its session, and whether it is the first of the session."""
    numbers = (_SESSION_KEY.fullmatch(key) for key in conversation)
    for found in sorted((found for found in numbers if found), key=lambda found: int(found[1])):
        turns = conversation[found[0]]
        if not isinstance(turns, list):
            raise ValueError(f"{found[0]} must be a list of turns, got {type(turns).__name__}")
        date = fields.get_text(conversation, f"{found[0]}_date_time")
        for index, turn in enumerate(turns):
            yield turn, date, index == 0


def _parse_turn(turn: Any, first: str | None, date: str | None, opens: bool) -> Message:
    turn = fields.require_object(turn, "a turn")
    speaker, said, shown = turn["speaker"], turn["text"], fields.get_text(turn, "blip_caption")
    if not isinstance(speaker, str) or not isinstance(said, str):
        raise ValueError("a turn must have a speaker and a text")
    content = f"{said}\n[shares a picture: {shown}]" if shown else said
    return Message(
        "user" if first in (None, speaker) else "assistant",
        fields.prepend_date(content, date) if opens else content,
        name=speaker,
        time=fields.parse_clock_time(date, _TIME_FORMAT),
        extra={key: value for key, value in turn.items() if key not in _NON_EXTRA_KEYS},
    )


def _parse_probe(asked: Any, id: str, places: dict[str, int], source: Source) -> Probe:
    question, category = fields.require_text(asked["question"], "a question"), asked.get("category")
    answers = fields.texts_in(asked.get("answer")) if category != 5 else ()
    if category == 3:
        answers = tuple(answer.partition(";")[0].strip() for answer in answers)
    evidence = sorted(set(_evidence_positions(asked.get("evidence"), places, source)))
    return Probe(id, question, answers, tuple(evidence), category=_CATEGORIES.get(category))


def _evidence_positions(written: Any, places: dict[str, int], source: Source) -> Iterator[int]:
    for each in fields.texts_in(written):
        named = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(each)]
        for id in [each] if each in places else named or [each]:
            if id in places:
                yield places[id]
            else:
                source.skip("evidence that names no turn")
