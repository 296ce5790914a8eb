"""Gemini CLI's log says again what changed; played from its beginning it is one conversation.

A record is a message, which replaces the one of its ``id``; ``{"$rewindTo": id}``, by which the user
took back that message and what followed; or ``{"$set": …}`` with changed metadata. ``$set.messages``
is what the model is given from then on: at the start of a session, where it was compressed, where old
results were masked, and where a turn was cancelled. Most of it repeats what was said before, under
new ids and with neighbours of one role made one, so it is recognised by what it says. What is gone
was compacted, or taken back where only the end is gone and nothing stands in its place.

Source: github.com/google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingService.ts``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.compaction_match import found_again
from ctxlab.formats.gemini_cli.parts import (
    parts_of,
    result_text,
    texts,
)
from ctxlab.formats.optional_fields import (
    listed,
    text,
    within,
)
from ctxlab.formats.required_fields import an_object

__all__ = ["Log", "Mark"]

_Row: TypeAlias = dict[str, Any]
_SENT = ("user", "gemini")


class Mark(NamedTuple):
    """A place where the model was given something else than what had been said."""

    row: int
    "it happened before this row"
    kept: frozenset[int]
    "the rows that it still holds"
    summary: str | None
    dropped: bool
    "whether rows went, or something was put before them"
    cleared: tuple[str, ...]
    "the calls whose results changed"


@dataclass
class Log:
    """What the records said so far."""

    leave_out: LeaveOut
    "told of each message that was taken back, and of a record of no known kind"
    meta: _Row = field(default_factory=dict, init=False)
    rows: list[_Row | None] = field(default_factory=list, init=False)
    "each message once, where it was said first; None: taken back, or a copy"
    marks: list[Mark] = field(default_factory=list, init=False)
    _places: dict[str, int] = field(default_factory=dict, init=False)
    _live: list[int] = field(default_factory=list, init=False)
    _view: list[int] = field(default_factory=list, init=False)
    _results: dict[str, str] = field(default_factory=dict, init=False)

    def take(self, record: Any) -> None:
        """The next record; ``ValueError`` says what is wrong with it."""
        record = an_object(record, "a record")
        if "$rewindTo" in record:
            self._rewind(text(record["$rewindTo"]) or "")
        elif isinstance(record.get("$set"), dict):
            self._set(record["$set"])
        elif "type" in record:
            self._put(record)
        elif "sessionId" in record:
            self._set(record)
        else:
            self.leave_out("record of no known kind")

    def _set(self, changes: _Row) -> None:
        self.meta |= {key: value for key, value in changes.items() if key != "messages"}
        messages = changes.get("messages")
        if isinstance(messages, list):
            if not all(isinstance(row, dict) for row in messages):
                raise ValueError("messages are objects")
            self._replace(messages)

    def _put(self, row: _Row) -> None:
        self._results |= _recorded_results(row)
        for call, said in _sent_results(row).items():
            self._results.setdefault(call, said)
        place = self._places.get(text(row.get("id")) or "")
        if place is not None and self.rows[place] is not None:
            self.rows[place] = row
            return
        if id := text(row.get("id")):
            self._places[id] = len(self.rows)
        self._live.append(len(self.rows))
        if row.get("type") in _SENT:
            self._view.append(len(self.rows))
        self.rows.append(row)

    def _rewind(self, id: str) -> None:
        place = self._places.get(id)
        if place is None:
            self.leave_out("rewind to a message that is not there")
            return
        while self._live and self._live[-1] >= place:
            self._take_back(self._live.pop())
        while self._view and self._view[-1] >= place:
            self._view.pop()

    def _take_back(self, place: int) -> None:
        if self.rows[place] is not None:
            self.leave_out("message taken back")
            self.rows[place] = None

    def _replace(self, now: list[_Row]) -> None:
        """The model is given ``now`` in place of what was in view."""
        said = [_keys(row) for row in now]
        if not self._view:
            for row in now:
                self._put(row)
            return
        self._forget_copies(now)
        again = self._recognised(now, said)
        for index, places in again.items():
            if id := text(now[index].get("id")):
                self._places[id] = min(places)
        held = frozenset(place for places in again.values() for place in places)
        keyed = [place for place in self._view if _keys(self.rows[place])]
        gone = [place for place in keyed if place not in held]
        end = max(again, default=-1) + 1
        stands_in = [
            words
            for index, row in enumerate(now if gone else now[:end])
            if index not in again and row.get("type") == "user"
            for words in texts(parts_of(row.get("content")))
        ]
        if gone and not stands_in and gone == keyed[-len(gone) :]:
            for place in self._view:
                if place >= gone[0]:
                    self._take_back(place)
            gone = []
        cleared = tuple(self._cleared(now))
        self._view = [place for place in self._view if place in held]
        if gone or stands_in or cleared:
            summary, went = "\n\n".join(stands_in) or None, bool(gone or stands_in)
            self.marks.append(Mark(len(self.rows), held, summary, went, cleared))
        if not gone:
            for row in now[end:]:
                self._put(row)

    def _recognised(
        self, now: Sequence[_Row], said: Sequence[list[Hashable]]
    ) -> dict[int, set[int]]:
        """Index in ``now`` → the rows in view that it says again: by its id, else part by part."""
        in_view = frozenset(self._view)
        same = {
            index: place
            for index, row in enumerate(now)
            if (place := self._places.get(text(row.get("id")) or "")) in in_view
            and place is not None
        }
        taken = {place: frozenset(_keys(self.rows[place])) for place in same.values()}
        before = [
            (place, key)
            for place in self._view
            if place not in taken
            for key in _keys(self.rows[place])
        ]
        parts = [
            (index, key)
            for index, keys in enumerate(said)
            for key in keys
            if index not in same or key not in taken[same[index]]
        ]
        again = {index: {place} for index, place in same.items()}
        found = found_again([key for _, key in before], [key for _, key in parts])
        for new, old in found.items():
            again.setdefault(parts[new][0], set()).add(before[old][0])
        return again

    def _forget_copies(self, now: list[_Row]) -> None:
        """Turns that were written again one by one, right before they are set, are not said twice."""
        ids = [text(row.get("id")) for row in now]
        end = self._view[-len(now) :] if now else []
        before = self._view[: len(self._view) - len(end)]
        if not before or [text((self.rows[place] or {}).get("id")) for place in end] != ids:
            return
        old = [key for place in before for key in _keys(self.rows[place])]
        new = [key for place in end for key in _keys(self.rows[place])]
        if new and len(found_again(old, new)) == len(new):
            for place in end:
                self.rows[place] = None
            self._view = before

    def _cleared(self, now: list[_Row]) -> Iterator[str]:
        for row in now:
            for call, said in (_recorded_results(row) | _sent_results(row)).items():
                if call in self._results and self._results[call] != said:
                    yield call
                self._results[call] = said


def _keys(row: _Row | None) -> list[Hashable]:
    """What stays the same of a message when it is said again, part by part.

    Results have none: they come and go with their calls.
    """
    if row is None:
        return []
    parts, role = parts_of(row.get("content")), row.get("type")
    keys: dict[Hashable, None] = {
        (role, said.strip()): None for said in texts(parts) if said.strip()
    }
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    for call in [*calls, *listed(row.get("toolCalls"))]:
        id = text(within(call, "id"))
        keys[("call", id or dump_json([within(call, "name"), within(call, "args")]))] = None
    return list(keys)


def _recorded_results(row: _Row) -> dict[str, str]:
    """Call → its result as a text, as the calls of an answer hold it."""
    found = {}
    for call in listed(row.get("toolCalls")):
        id, value = text(within(call, "id")), within(call, "result")
        if id and value:
            found[id] = result_text(value)
    return found


def _sent_results(row: _Row) -> dict[str, str]:
    """The same, as it was sent back; a history that is set may say it shorter than it was."""
    parts = (
        (within(part, "functionResponse", "id"), part) for part in parts_of(row.get("content"))
    )
    return {id: result_text(part) for id, part in parts if text(id)}
