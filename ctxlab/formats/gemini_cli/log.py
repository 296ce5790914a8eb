"""Apply the records of a Gemini CLI log one after another, to restore the conversation.

A record has one of these forms:

- A message. It replaces an earlier message with the same ``id``.
- ``{"$rewindTo": id}``. The user removed the message with this id and all later messages.
- ``{"$set": …}`` with changed metadata.

``$set.messages`` is the history that Gemini CLI sends to the model from this record on. It is
written at the start of a session, after a compression, after old tool results were masked, and after
a turn was cancelled. Most of its messages repeat earlier ones. They may have new ids, and adjacent
messages of one role may be joined, so repeated messages are matched by content. Earlier messages
that are missing from ``$set.messages`` were compacted. There is one exception: if only the newest
messages are missing and no new text replaces them, the user removed them.

References
----------
github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingService.ts``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.stitch import match_repeated
from ctxlab.formats.fields import get_in, get_list, get_text, require_object
from ctxlab.formats.gemini_cli.messages import part_texts, result_text, to_parts

_Row: TypeAlias = dict[str, Any]
_MODEL_TYPES = ("user", "gemini")


class HistoryChange(NamedTuple):
    """A change of the history that Gemini CLI sends to the model."""

    row: int
    "index of the first row after the change"
    kept: frozenset[int]
    "indices of the rows that are still sent"
    summary: str | None
    "user text that replaces the removed rows; None if there is none"
    dropped: bool
    "True if rows were removed, or if user text was inserted before the kept rows"
    cleared: tuple[str, ...]
    "ids of the tool calls whose results changed"


@dataclass
class SessionLog:
    """Messages and metadata of a session, updated by each record of its log."""

    skip: SkipCallback
    "called with a description of each removed message and each skipped record"
    meta: _Row = field(default_factory=dict, init=False)
    "metadata of the session"
    rows: list[_Row | None] = field(default_factory=list, init=False)
    """the messages, in the order in which they were first logged. None: a message that was removed, or
    that only repeats earlier messages"""
    changes: list[HistoryChange] = field(default_factory=list, init=False)
    "changes of the history that was sent to the model, in order"
    _places_by_id: dict[str, int] = field(default_factory=dict, init=False)
    _active: list[int] = field(default_factory=list, init=False)
    _visible: list[int] = field(default_factory=list, init=False)
    _results_by_call: dict[str, str] = field(default_factory=dict, init=False)

    def apply_record(self, record: Any) -> None:
        """Apply the next record of the log.

        Parameters
        ----------
        record : Any
            JSON value of the record.

        Raises
        ------
        ValueError
            If the record is malformed.
        """
        record = require_object(record, "a record")
        if "$rewindTo" in record:
            self._rewind(get_text(record["$rewindTo"]) or "")
        elif isinstance(record.get("$set"), dict):
            self._apply_changes(record["$set"])
        elif "type" in record:
            self._add_row(record)
        elif "sessionId" in record:
            self._apply_changes(record)
        else:
            self.skip("record of unknown type")

    def _apply_changes(self, changes: _Row) -> None:
        self.meta |= {key: value for key, value in changes.items() if key != "messages"}
        messages = changes.get("messages")
        if isinstance(messages, list):
            if not all(isinstance(row, dict) for row in messages):
                raise ValueError(f"messages must be a list of objects, got {messages!r:.80}")
            self._replace_history(messages)

    def _add_row(self, row: _Row) -> None:
        self._results_by_call |= _recorded_results(row)
        for call, said in _sent_results(row).items():
            self._results_by_call.setdefault(call, said)
        place = self._places_by_id.get(get_text(row, "id") or "")
        if place is not None and self.rows[place] is not None:
            self.rows[place] = row
            return
        if id := get_text(row, "id"):
            self._places_by_id[id] = len(self.rows)
        self._active.append(len(self.rows))
        if row.get("type") in _MODEL_TYPES:
            self._visible.append(len(self.rows))
        self.rows.append(row)

    def _rewind(self, id: str) -> None:
        place = self._places_by_id.get(id)
        if place is None:
            self.skip("rewind to an unknown message")
            return
        while self._active and self._active[-1] >= place:
            self._remove_row(self._active.pop())
        while self._visible and self._visible[-1] >= place:
            self._visible.pop()

    def _remove_row(self, place: int) -> None:
        if self.rows[place] is not None:
            self.skip("message taken back")
            self.rows[place] = None

    def _replace_history(self, messages: list[_Row]) -> None:
        """Make ``messages`` the history that Gemini CLI sends to the model."""
        said = [_part_keys(row) for row in messages]
        if not self._visible:
            for row in messages:
                self._add_row(row)
            return
        self._drop_copies(messages)
        again = self._match_rows(messages, said)
        for index, places in again.items():
            if id := get_text(messages[index], "id"):
                self._places_by_id[id] = min(places)
        held = frozenset(place for places in again.values() for place in places)
        keyed = [place for place in self._visible if _part_keys(self.rows[place])]
        gone = [place for place in keyed if place not in held]
        end = max(again, default=-1) + 1
        new = [row for i, row in enumerate(messages if gone else messages[:end]) if i not in again]
        sent = (to_parts(row.get("content")) for row in new if row.get("type") == "user")
        stands_in = [text for parts in sent for text in part_texts(parts)]
        if gone and not stands_in and gone == keyed[-len(gone) :]:
            for place in self._visible:
                if place >= gone[0]:
                    self._remove_row(place)
            gone = []
        cleared = tuple(self._find_cleared(messages))
        self._visible = [place for place in self._visible if place in held]
        if gone or stands_in or cleared:
            summary, went = "\n\n".join(stands_in) or None, bool(gone or stands_in)
            self.changes.append(HistoryChange(len(self.rows), held, summary, went, cleared))
        if not gone:
            for row in messages[end:]:
                self._add_row(row)

    def _match_rows(
        self, messages: Sequence[_Row], part_keys: Sequence[list[Hashable]]
    ) -> dict[int, set[int]]:
        """Find the rows of the current history that each message repeats, by id or by equal parts.

        Returns a dict: index in ``messages`` → indices of the repeated rows.
        """
        in_view = frozenset(self._visible)
        known = (self._places_by_id.get(get_text(row, "id") or "", -1) for row in messages)
        same = {index: place for index, place in enumerate(known) if place in in_view}
        taken = {place: frozenset(_part_keys(self.rows[place])) for place in same.values()}
        others = (place for place in self._visible if place not in taken)
        before = [(place, key) for place in others for key in _part_keys(self.rows[place])]
        every = ((index, key) for index, keys in enumerate(part_keys) for key in keys)
        parts = [(i, key) for i, key in every if i not in same or key not in taken[same[i]]]
        again = {index: {place} for index, place in same.items()}
        found = match_repeated([key for _, key in before], [key for _, key in parts])
        for new, old in found.items():
            again.setdefault(parts[new][0], set()).add(before[old][0])
        return again

    def _drop_copies(self, messages: list[_Row]) -> None:
        """Remove rows that Gemini CLI logged only to build a new history.

        Before Gemini CLI sets ``messages`` as the new history, it may log them one by one. The log then
        ends with copies of earlier rows. They are removed if their ids are those of ``messages`` and
        all their parts occur in earlier rows.
        """
        ids = [get_text(row, "id") for row in messages]
        end = self._visible[-len(messages) :] if messages else []
        before = self._visible[: len(self._visible) - len(end)]
        if not before or [get_text((self.rows[place] or {}).get("id")) for place in end] != ids:
            return
        old = [key for place in before for key in _part_keys(self.rows[place])]
        new = [key for place in end for key in _part_keys(self.rows[place])]
        if new and len(match_repeated(old, new)) == len(new):
            for place in end:
                self.rows[place] = None
            self._visible = before

    def _find_cleared(self, messages: list[_Row]) -> Iterator[str]:
        for row in messages:
            for call, said in (_recorded_results(row) | _sent_results(row)).items():
                if call in self._results_by_call and self._results_by_call[call] != said:
                    yield call
                self._results_by_call[call] = said


def _part_keys(row: _Row | None) -> list[Hashable]:
    """Return one key per part of a message, to find repetitions of the message.

    Tool results have no keys, because they are kept or removed together with their calls.
    """
    if row is None:
        return []
    parts, role = to_parts(row.get("content")), row.get("type")
    texts = (said.strip() for said in part_texts(parts))
    keys: dict[Hashable, None] = {(role, said): None for said in texts if said}
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    for call in [*calls, *get_list(row, "toolCalls")]:
        id = get_text(call, "id")
        keys[("call", id or dump_json([get_in(call, "name"), get_in(call, "args")]))] = None
    return list(keys)


def _recorded_results(row: _Row) -> dict[str, str]:
    """Return the texts of tool results that are logged with the calls of an answer, by call id."""
    calls = get_list(row, "toolCalls")
    named = ((get_text(call, "id"), get_in(call, "result")) for call in calls)
    return {id: result_text(value) for id, value in named if id and value}


def _sent_results(row: _Row) -> dict[str, str]:
    """Return the texts of tool results as sent to the model, by call id. They may be shortened."""
    parts = to_parts(row.get("content"))
    named = ((get_text(part, "functionResponse", "id"), part) for part in parts)
    return {id: result_text(part) for id, part in named if id}
