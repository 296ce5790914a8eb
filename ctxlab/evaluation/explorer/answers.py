"""Data of an explorer: the document that it opens with, and the answers to what a person clicks on.

The document has the leaderboard and the names of recordings. Maps, requests and messages are worked out
when they are asked for, so opening a large run is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ctxlab._utils.humanize import parse_limit
from ctxlab._utils.numbers import describe_limit
from ctxlab._utils.text import clip_line
from ctxlab.context.history import Entry
from ctxlab.errors import CannotReplay, UnknownName
from ctxlab.evaluation.columns import legend_of, short_strategy
from ctxlab.evaluation.frontend.board import Board, make_heat_map
from ctxlab.evaluation.frontend.replay_map import describe_messages, describe_replay
from ctxlab.evaluation.replay import MESSAGE_STATES, Replay
from ctxlab.evaluation.replayer import RunReplayer
from ctxlab.evaluation.sent import SentRequest
from ctxlab.messages.entities import Entity, EntityKind
from ctxlab.messages.source_lines import message_segments, searchable_text
from ctxlab.messages.types import Message
from ctxlab.strategies import Strategy

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.messages.types import Recording

MAX_RECORDINGS = 500
"maximum number of recordings that the explorer lists"
_BOUNDS = ("_low", "_high")
"suffixes of columns with intervals, which one recording does not have"
_LINE, _TEXT = 160, 20_000
"maximum lengths of the beginning of a message and of its whole text"


class Selection(NamedTuple):
    """Recording and configurations that an explorer shows."""

    recording: str
    "name of the recording in the run"
    row: int
    "number of the row of the leaderboard"
    against: int | None = None
    "number of the row that it is compared with; None for none"


class ExplorerAnswers:
    """Data of an explorer.

    Parameters
    ----------
    results : Results
        Results of a run.
    recordings : iterable of Recording, optional
        Recordings of the run that are in memory. Others are read from their files.
    strategies : sequence of Strategy, optional
        Strategies of the run that are not part of ctxlab.
    """

    def __init__(
        self,
        results: Results,
        recordings: Iterable[Recording] = (),
        strategies: Sequence[Strategy] = (),
    ) -> None:
        self.results = results
        self.board = Board(results)
        self._replayer = RunReplayer(results, recordings, strategies)
        self._requests = {e["recording"]: e["requests"] for e in results.recordings}
        self._sent_entries = lru_cache(4)(self._replay_entries)

    def choose(
        self,
        recording: str | None = None,
        strategy: str | None = None,
        against: str | None = None,
        limit: float | str | None = None,
    ) -> Selection:
        """Find what to show first: by default the reference in the recording where it misses most.

        Parameters
        ----------
        recording, strategy, against : str, optional
            Name of a recording, and text forms of strategies.
        limit : float or str, optional
            Limit, such as ``8000`` or ``"50%"``.

        Returns
        -------
        Selection
            Recording and rows of the leaderboard.

        Raises
        ------
        UnknownName
            If the results have no such recording, strategy or limit.
        """
        replayed = [name for name, count in self._requests.items() if count]
        if recording is not None and recording not in replayed:
            raise UnknownName("recording", recording, replayed)
        name = recording or next(iter(self.board.recordings_by_loss), replayed[0])
        frame, reference = self.board.frame, self.board.first_row
        wanted = frame["limit"][reference] if limit is None else parse_limit(limit)
        here = frame.index[frame["limit"] == wanted]
        if here.empty:
            raise UnknownName("limit", f"{wanted:g}", [f"{each:g}" for each in self.board.limits])
        rows = {str(frame["strategy"][row]): int(row) for row in here}
        rows |= {short_strategy(text): row for text, row in rows.items()}
        for each in (strategy, against):
            if each is not None and each not in rows:
                raise UnknownName("strategy", each, list(rows))
        first = reference if reference in here else next(iter(rows.values()))
        row = rows[strategy] if strategy else first
        return Selection(name, row, rows[against] if against else None)

    def document(self) -> dict[str, Any]:
        """Return what the explorer shows before anything is clicked on.

        Returns
        -------
        dict
            Leaderboard, frontier, heat map and recordings, as JSON.
        """
        board = self.board
        by_loss = board.recordings_by_loss
        others = [name for name in self._requests if name not in set(by_loss)]
        names = [name for name in [*by_loss, *others] if self._requests[name]]
        return {
            "columns": board.columns,
            "rows": board.rows,
            "limits": [{"value": each, "text": describe_limit(each)} for each in board.limits],
            "legend": legend_of(figure.column(board.frame) for figure in board.figures),
            "frontier": {"xLabel": board.x_label, "isUsd": board.x == "cost_usd"},
            "heat": make_heat_map(board),
            "recordings": [
                {"name": name, "requests": self._requests[name]} for name in names[:MAX_RECORDINGS]
            ],
            "recordingCount": len(names),
            "states": list(MESSAGE_STATES),
            "verdict": self.results.verdict() if board.has_recall else "",
        }

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question of the front end.

        Parameters
        ----------
        question : mapping
            ``ask`` names the question: ``open``, ``sent``, ``entry``, ``message`` or ``pair``. The
            other keys are its arguments.

        Returns
        -------
        dict
            Answer as JSON; ``error`` is a sentence if there is none.
        """
        known: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self._open,
            "sent": self._sent,
            "entry": self._entry,
            "message": self._message,
            "pair": self._pair,
        }
        arguments = {key: value for key, value in question.items() if key not in ("ask", "id")}
        try:
            return known[question["ask"]](**arguments)
        except CannotReplay as error:
            return {"error": f"This cannot be shown, because {error}."}

    def replay(self, selection: Selection) -> Replay:
        """Replay what is shown.

        Parameters
        ----------
        selection : Selection
            Recording and row.

        Returns
        -------
        Replay
            Replay of the recording through the strategy of the row.
        """
        limit, strategy = self.board.key(selection.row)
        return self._replayer.replay(selection.recording, strategy, limit)

    def _open(self, recording: str, row: int, against: int | None = None) -> dict[str, Any]:
        replays = {row: self.replay(Selection(recording, row))}
        if against is not None:
            replays[against] = self.replay(Selection(recording, against))
        prepared = replays[row].prepared
        recorded = zip(describe_messages(prepared), prepared.recording.messages, strict=True)
        return {
            "maps": [describe_replay(each, with_text=True) for each in replays.values()],
            "messages": [
                {**about, "role": message.role, "text": _beginning(message)}
                for about, message in recorded
            ],
            "figures": self._figures(recording, list(replays)),
        }

    def _figures(self, recording: str, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return the cells of a table: the figures of this recording, and those of the whole run."""
        runs = self.results.runs
        runs = runs[runs["recording"] == recording]
        found = []
        for row in rows:
            limit, strategy = self.board.key(row)
            here = runs[(runs["limit"] == limit) & (runs["strategy"] == strategy)]
            missing = {
                f"{figure.name}_{end}" for figure in self.board.figures for end in ("low", "high")
            }
            mine = here.assign(**dict.fromkeys(missing - {*here.columns}, float("nan")))
            cells = [
                figure.column(mine).cells[0] if figure.name in mine else "–"
                for figure in self.board.figures
            ]
            label = self.board.rows[row]["label"]
            found.append({"label": label, "what": "this recording", "texts": cells})
            whole = self.board.rows[row]["texts"]
            found.append({"label": label, "what": "whole run", "texts": whole})
        return found

    def _replay_entries(self, selection: Selection) -> list[tuple[Entry, ...]]:
        return self.replay(selection).sent_entries()

    def _request(self, recording: str, row: int, request: int) -> SentRequest:
        selection = Selection(recording, row)
        entries = self._sent_entries(selection)[request]
        return self.replay(selection).make_sent(request, entries)

    def _sent(
        self, recording: str, row: int, request: int, against: int | None = None
    ) -> dict[str, Any]:
        sent = self._request(recording, row, request)
        history = self.replay(Selection(recording, row)).prepared.history.entries
        answer: dict[str, Any] = {"rows": _describe_entries(sent, history)}
        if against is not None:
            differences = sent.diff(self._request(recording, against, request))
            answer["differences"] = _describe_differences(differences)
        return answer

    def _entry(self, recording: str, row: int, request: int, index: int) -> dict[str, Any]:
        entry = self._request(recording, row, request).entries[index]
        return {"parts": _split_text(_text_of(entry.message), None)}

    def _message(
        self, recording: str, position: int, entity: str | None = None, kind: EntityKind = "path"
    ) -> dict[str, Any]:
        """Return the text of a recorded message, in which the line with an entity is marked."""
        prepared = self._replayer.prepare(recording)
        text = _text_of(prepared.recording.messages[position])
        at = -1 if entity is None else prepared.needs.find_offset(Entity(kind, entity), text)
        found = (at, at + len(entity)) if entity is not None and at >= 0 else None
        return {"parts": _split_text(text, found)}

    def _pair(self, a: int, b: int) -> dict[str, Any]:
        if self.board.key(a)[0] != self.board.key(b)[0]:
            return {"text": "These rows have different limits. Pick two rows of one limit."}
        if not self.board.has_recall:
            return {"text": "Recall was not measured, so these rows cannot be compared."}
        return {"text": self.board.describe_pair(a, b)}


def _beginning(message: Message) -> str:
    return clip_line(_text_of(message)[: 8 * _LINE], _LINE)


def _text_of(message: Message) -> str:
    return searchable_text(message_segments(message))


def _describe_entries(sent: SentRequest, history: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the messages of a request in order, with rows for messages that were left out.

    Unchanged messages that follow each other have one row, which the front end unfolds: a step of the
    slider then needs little to be sent.
    """
    covered = bytearray(sent.position)
    for entry in sent.entries:
        covered[entry.start : entry.stop] = b"\x01" * (entry.stop - entry.start)
    gaps = _find_gaps(covered)
    rows: list[dict[str, Any]] = []

    def add_gaps(before: int) -> None:
        while gaps and gaps[0][0] < before:
            start, stop = gaps.pop(0)
            tokens = sum(each.tokens for each in history[start:stop])
            gap = {"form": "dropped", "role": "", "first": start, "last": stop - 1}
            rows.append({**gap, "tokens": tokens, "index": -1, "text": ""})

    for index, entry in enumerate(sent.entries):
        is_added = entry.start == entry.stop
        if not is_added:
            add_gaps(entry.start)
        if entry.is_verbatim and not entry.is_aggregate:
            before = rows[-1] if rows else {}
            if before.get("form") == "verbatim" and before["last"] == entry.start - 1:
                before["last"] = entry.start
            else:
                rows.append(
                    {"form": "verbatim", "first": entry.start, "last": entry.start, "index": index}
                )
            continue
        rows.append({
            "form": entry.form.value, "role": entry.message.role, "tokens": entry.tokens, "index": index,
            "first": None if is_added else entry.start, "last": None if is_added else entry.stop - 1,
            "text": _beginning(entry.message),
        })  # fmt: skip
    add_gaps(sent.position)
    return rows


def _find_gaps(covered: bytearray) -> list[tuple[int, int]]:
    """Return the runs of positions that no message of a request stands for."""
    found, start = [], covered.find(0)
    while start >= 0:
        stop = covered.find(1, start)
        stop = len(covered) if stop < 0 else stop
        found.append((start, stop))
        start = covered.find(0, stop)
    return found


def _describe_differences(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.astype({"first": object, "last": object}).to_dict("records")
    return [
        {
            "first": None if pd.isna(row["first"]) else int(row["first"]),
            "last": None if pd.isna(row["last"]) else int(row["last"]),
            "role": row["role"],
            "forms": [row["form"], row["other_form"]],
            "tokens": [int(row["tokens"]), int(row["other_tokens"])],
            "text": clip_line(row["text"] or row["other_text"], _LINE),
        }
        for row in rows
    ]


def _split_text(text: str, found: tuple[int, int] | None) -> list[dict[str, str]]:
    """Split a text into parts: before the line of a mention, the line, the mention, and after.

    Of a long text, only the neighbourhood of the mention is kept, and the parts say how much was cut.
    """
    start, stop = found or (0, 0)
    low = max(0, min(start - _TEXT // 2, len(text) - _TEXT))
    high = min(len(text), low + _TEXT)
    line_start = max(text.rfind("\n", 0, start) + 1, low)
    line_end = text.find("\n", stop)
    line_end = min(line_end if line_end >= 0 else len(text), high)
    cuts = [("note", f"[{low:,} characters before]\n" if low else "")]
    if found is None:
        cuts += [("", text[low:high])]
    else:
        cuts += [("", text[low:line_start]), ("line", text[line_start:start])]
        cuts += [("mention", text[start:stop]), ("line", text[stop:line_end])]
        cuts += [("", text[line_end:high])]
    cuts += [("note", f"\n[{len(text) - high:,} characters after]" if high < len(text) else "")]
    return [{"kind": kind, "text": part} for kind, part in cuts if part]
