"""HTML in which a replay and one of its requests show themselves in a notebook.

A replay shows a map of the states of its messages, with the needs that were not in view, and a table
of the worst of these needs. A long recording is shown in a fixed number of rows and columns, so that
the HTML stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ctxlab._utils.html import (
    drawing,
    escape_text,
    fold,
    paragraph,
    svg_boxes,
    svg_lines,
    table_html,
    title,
    wrap_html,
)
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_count, format_share, format_usd
from ctxlab._utils.tables import Column
from ctxlab._utils.text import clip_line
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import FAR_TOKENS, HEADLINE_LABEL
from ctxlab.evaluation.plots.colors import STATE_COLORS
from ctxlab.evaluation.plots.context_map import MAX_COMPACTION_SHARE
from ctxlab.evaluation.replay import MESSAGE_STATES

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.replay import Replay
    from ctxlab.evaluation.sent import SentRequest

_MAP_SIZES = ((36, 180), (36, 90), (24, 60), (18, 45))
"rows and columns of the map; the first size is taken that does not need too many boxes"
_MAX_BOXES = 810
_TEXT_ROWS, _TEXT_COLUMNS = 24, 90
_MAX_NEEDS = 10
_MAX_MARKS = 400
_MAX_MESSAGES = 40
"if a request has more messages, the middle ones are left out"
_MAX_TEXTS, _TEXT_CHARS, _LINE_CHARS = 5, 3_000, 110

TIER_MARKS = {"held": "●", "named": "◐", "pointer": "○", "lost": "×"}
"""Mark of each tier of a need. The marks differ in shape, so they can be read without colour."""

_HEIGHTS = {
    "verbatim": 1.0, "truncated": 0.75, "rewritten": 0.75, "summary": 0.5, "stub": 0.35,
    "pointer": 0.35, "dropped": 0.1,
}  # fmt: skip
"height of a message in its row, so that the states can be told apart without colour"
_LETTERS = {
    "verbatim": "█", "truncated": "▓", "rewritten": "▒", "summary": "≡", "stub": "s",
    "pointer": "p", "dropped": "·", "absent": " ",
}  # fmt: skip
_DROPPED_OPACITY = 0.5


def replay_html(replay: Replay) -> str:
    """Return a replay as HTML: a summary, the context map, and the worst of the missing needs.

    Parameters
    ----------
    replay : Replay
        Replay of one recording.

    Returns
    -------
    str
        HTML of at most 50 kB, whatever the length of the recording. All text is escaped.
    """
    limit = replay.trace.budget.limit
    name = clip_line(replay.prepared.recording.id, 120)
    strategy = clip_line(short_strategy(repr(replay.trace.strategy)), 300)
    head = title(f"{name} through {strategy}, limit {limit:,} tokens")
    if not len(replay.prepared.request_positions):
        nothing = "The recording contains no model call, so there is nothing to replay."
        return wrap_html(head, paragraph(nothing))
    maps = (ContextMap(replay, *size) for size in _MAP_SIZES)
    picture = next(each for each in maps if each.box_count <= _MAX_BOXES)
    as_text = ContextMap(replay, _TEXT_ROWS, _TEXT_COLUMNS)
    return wrap_html(
        head,
        *map(paragraph, _summary(replay)),
        paragraph(picture.axes, is_note=True),
        picture.draw(),
        *(paragraph(text, is_note=True) for text in picture.notes()),
        _need_table(replay),
        fold("The map as text", as_text.as_text()),
    )


def _summary(replay: Replay) -> Iterator[str]:
    """Yield sentences with the sizes and costs of the requests, and with the tiers of the needs."""
    frame = replay.requests
    over, invalid = int(frame["overflow"].sum()), int(frame["newly_invalid"].sum())
    mean, peak = frame["tokens"].mean(), frame["tokens"].max()
    parts = [
        pluralize(len(frame), "request"),
        f"{format_count(mean)} tokens on average, {format_count(peak)} at most",
        f"{over:,} over the limit" if over else "none over the limit",
        pluralize(len(replay.compactions), "compaction"),
    ]
    cost = frame["cost_usd"].sum(skipna=False)
    parts += [f"input cost ${format_usd(cost)}"] if cost == cost else []
    parts += [f"{invalid:,} that only the strategy makes invalid"] if invalid else []
    far_arguments = frame["far_arguments"].sum()
    if far_arguments:
        share = format_share(frame["far_held"].sum() / far_arguments)
        parts.append(f"{HEADLINE_LABEL} {share}")
    yield f"{'; '.join(parts)}."
    needs = replay.needs
    if needs.empty:
        yield "No tool call uses a value of an earlier message, so nothing could be missing."
        return
    far = needs[needs["far"]]
    for name, some in (("Far needs", far), ("All needs", needs)):
        counts = some["tier"].value_counts()
        said = ", ".join(f"{counts.get(t, 0):,} {t} {mark}" for t, mark in TIER_MARKS.items())
        yield f"{name} ({len(some):,}): {said}." if len(some) else "There are no far needs."


class ContextMap:
    """States of a replay in some rows and columns, each of which stands for neighbouring ones.

    Parameters
    ----------
    replay : Replay
        Replay with at least one request.
    rows, columns : int
        Largest numbers of rows and of columns.
    """

    def __init__(self, replay: Replay, rows: int, columns: int) -> None:
        self.replay = replay
        states = replay.states
        # The last request decides how many messages were ever sent.
        count = max(replay.prepared.request_positions[-1], 1)
        requests = len(states)
        self.requests = np.unique(np.linspace(0, requests - 1, min(rows, requests)).round())
        self.requests = self.requests.astype(int)
        self.edges = np.linspace(0, count, min(columns, count) + 1).round().astype(int)
        some = states[self.requests, :count]
        counts = [
            np.add.reduceat((some == code).astype(np.int32), self.edges[:-1], axis=1)
            for code in range(len(MESSAGE_STATES))
        ]
        self.codes: npt.NDArray[np.intp] = np.argmax(counts, axis=0)

    @property
    def box_count(self) -> int:
        """Number of boxes that the drawing needs: runs of columns with the same state."""
        return int((np.diff(self.codes, axis=1) != 0).sum()) + len(self.codes)

    def row_of(self, requests: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return the rows of requests: the first row that shows the request or a later one.

        Parameters
        ----------
        requests : array_like of int
            Numbers of requests.

        Returns
        -------
        numpy.ndarray of int
            Row of each request.
        """
        return np.searchsorted(self.requests, requests)

    @property
    def axes(self) -> str:
        """Sentences that say what the rows and the columns are."""
        return (
            f"From top to bottom: requests {self.requests[0]:,} to {self.requests[-1]:,}. From left to "
            f"right: messages 0 to {self.edges[-1] - 1:,}. At the right: tokens of each request; the "
            "dashed line is the budget."
        )

    def missing(self) -> pd.DataFrame:
        """Return the needs that were not in view, by their place in the map.

        Returns
        -------
        pandas.DataFrame
            The columns ``row``, ``column`` and ``tier`` of each mark; lost needs come last.
        """
        needs = self.replay.needs
        some = needs[needs["tier"].isin(["pointer", "lost"])]
        found = some.assign(
            row=self.row_of(some["request"]),
            column=np.searchsorted(self.edges, some["last"], side="right") - 1,
        )
        found = found.sort_values("tier", ascending=False)[["row", "column", "tier"]]
        return found.drop_duplicates(["row", "column"], keep="last")

    def draw(self) -> str:
        """Draw one row per request: the messages from left to right, and the size at the right edge.

        Returns
        -------
        str
            HTML.
        """
        width, left, right, top = 760, 0, 120, 2
        rows, columns = self.codes.shape
        step = (width - left - right) / columns
        pitch = float(np.clip(320 / rows, 7, 18))
        height = pitch * rows
        boxes: dict[str, list[tuple[float, float, float, float]]] = {}
        for row, codes in enumerate(self.codes):
            bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), columns]
            for start, stop in pairwise(bounds):
                state = MESSAGE_STATES[codes[start]]
                if state == "absent":
                    continue
                tall = _HEIGHTS[state] * (pitch - 1)
                y = top + (row + 1) * pitch - tall - 0.5
                box = (left + start * step, y, (stop - start) * step, tall)
                boxes.setdefault(state, []).append(box)
        parts = [
            svg_boxes(boxes.get(state, ()), "" if state == "dropped" else STATE_COLORS[state],
                      _DROPPED_OPACITY if state == "dropped" else 1)
            for state in _HEIGHTS
        ]  # fmt: skip
        parts += self._draw_marks(left, top, step, pitch)
        parts += self._draw_sizes(width - right + 16, right - 26, top, pitch)
        label = "Context map: state of each message in each request; the fold below has it as text"
        return drawing(width, round(top + height + 2), label, *parts)

    def _draw_marks(self, left: float, top: float, step: float, pitch: float) -> Iterator[str]:
        """Draw crosses for lost needs, and rings for needs that can be fetched again."""
        paths = {"lost": "", "pointer": ""}
        for row, column, tier in self.missing().tail(_MAX_MARKS).itertuples(index=False):
            x, y = left + (column + 0.5) * step, top + (row + 0.5) * pitch
            if tier == "lost":
                paths[tier] += f"M{x - 3:.0f} {y - 3:.0f}l6 6m0-6l-6 6"
            else:
                paths[tier] += f"M{x - 3:.0f} {y:.0f}a3 3 0 1 0 6 0a3 3 0 1 0-6 0"
        yield svg_lines(paths["pointer"], 1)
        yield svg_lines(paths["lost"], 1.6)

    def _draw_sizes(self, x: float, room: float, top: float, pitch: float) -> Iterator[str]:
        """Draw the tokens of each shown request, a line at the budget, and ticks at compactions."""
        replay = self.replay
        tokens = np.array(replay.trace.tokens)[self.requests]
        budget = max(replay.trace.budget.room, 1)
        scale = room / max(int(tokens.max()), budget)
        boxes = [
            (x, top + row * pitch + 1, float(size * scale), pitch - 2)
            for row, size in enumerate(tokens)
        ]
        yield svg_boxes(boxes, opacity=0.5)
        line = x + budget * scale
        yield svg_lines(f"M{line:.1f} {top}V{top + pitch * len(tokens):.1f}", 1, "3 2")
        changed = replay.compactions["request"].to_numpy()
        if 0 < len(changed) <= MAX_COMPACTION_SHARE * len(replay.trace.tokens):
            rows = np.unique(self.row_of(changed))
            yield svg_lines(
                "".join(f"M{x - 10:g} {top + (r + 0.5) * pitch:.1f}h7" for r in rows), 2
            )

    def notes(self) -> Iterator[str]:
        """Yield the legend, and how many requests and messages a row and a column stand for.

        Yields
        ------
        str
            Next note.
        """
        found = [MESSAGE_STATES[code] for code in np.unique(self.codes)]
        names = {
            "verbatim": "full height, sky blue: verbatim",
            "truncated": "three quarters, dark blue: truncated",
            "rewritten": "three quarters, purple: rewritten",
            "summary": "half, green: covered by a summary",
            "stub": "a third, orange: stub",
            "pointer": "a third, yellow: pointer",
            "dropped": "line: dropped",
        }
        legend = [text for state, text in names.items() if state in found]
        legend += ["×: a need that was lost", "○: a need that can be fetched again"]
        legend += ["dash: compaction"]
        yield f"Height and colour of a message: {'; '.join(legend)}."
        requests, messages = len(self.replay.trace.tokens), self.edges[-1]
        if len(self.requests) < requests or len(self.edges) <= messages:
            yield (
                f"The map shows {len(self.requests):,} of {requests:,} requests, and {messages:,} "
                f"messages in {len(self.edges) - 1:,} columns with the most frequent state of each. A "
                "mark is in the row of its request or of the next one shown. "
                "ctxlab.plot_context_map draws all."
            )

    def as_text(self) -> str:
        """Return the map as text, with one line per row.

        Returns
        -------
        str
            HTML.
        """
        lines = [[_LETTERS[MESSAGE_STATES[code]] for code in row] for row in self.codes]
        for row, column, tier in self.missing().itertuples(index=False):
            lines[row][column] = TIER_MARKS[tier]
        digits = len(f"{self.requests[-1]:,}")
        text = "\n".join(
            f"{request:>{digits},} {''.join(line).rstrip()}"
            for request, line in zip(self.requests.tolist(), lines, strict=True)
        )
        found = [MESSAGE_STATES[code] for code in np.unique(self.codes)]
        legend = ", ".join(f"{_LETTERS[s]} {s}" for s in found if s != "absent")
        return f"<pre>{text}</pre>{paragraph(f'{legend}, × lost need, ○ pointer.', is_note=True)}"


def _need_table(replay: Replay) -> str:
    """Return the worst of the needs that were not in view: lost before pointers, far ones first."""
    needs = replay.needs
    some = needs[needs["tier"].isin(["pointer", "lost"])]
    if some.empty:
        return "" if needs.empty else paragraph("Everything that the agent used was in view.")
    worst = replay.losses.head(_MAX_NEEDS)
    messages, rows = replay.prepared.recording.messages, worst.to_dict("records")
    said = [f"message {row['last']:,} ({messages[row['last']].role})" for row in rows]
    users = [f"{row['tool']}({clip_line(row['argument'], 30)})" for row in rows]
    columns = [
        Column("", [f"{TIER_MARKS[row['tier']]} {row['tier']}" for row in rows], left=True),
        Column("need", [clip_line(row["entity"], 80) for row in rows], left=True),
        Column("used by", [clip_line(user, 60) for user in users], left=True),
        Column("in request", [f"{row['request']:,}" for row in rows]),
        Column("last mentioned in", said, left=True),
        Column("tokens since", [format_count(row["gap"]) for row in rows]),
    ]
    of = f"the worst {len(worst)} of {len(some):,}" if len(some) > len(worst) else f"{len(some):,}"
    far = int(some["far"].sum())
    about = (
        f"Needs that were not in view: {of}, {far:,} of them far (over {FAR_TOKENS:,} tokens). "
        "All are in .needs; .sent(request) shows a request."
    )
    return paragraph(about) + table_html(columns)


def sent_html(sent: SentRequest) -> str:
    """Return one request as HTML: its messages, and the beginnings of the texts that replace others.

    Parameters
    ----------
    sent : SentRequest
        Request to show.

    Returns
    -------
    str
        HTML of at most 50 kB, whatever the length of the request. All text is escaped.
    """
    entries = sent.entries
    strategy = clip_line(short_strategy(sent.strategy), 300)
    head = title(f"Request {sent.request:,} of {strategy}")
    forms: Counter[str] = Counter()
    for each in entries:
        forms[each.form.value] += each.tokens
    sizes = ", ".join(f"{form} {format_count(n)}" for form, n in forms.most_common())
    facts = paragraph(
        f"{pluralize(len(entries), 'message')} before message {sent.position:,} of the recording, "
        f"{sent.tokens:,} tokens ({sizes or 'no messages'})."
    )
    if not entries:
        return wrap_html(head, facts)
    rows = sent.table.to_dict("records")
    columns = [
        Column("", [str(i) for i in range(len(rows))]),
        Column("role", [row["role"] for row in rows], left=True),
        Column("form", [row["form"] for row in rows], left=True),
        Column("stands for", [describe_span(row) for row in rows]),
        Column("tokens", [f"{row['tokens']:,}" for row in rows]),
        Column("tool", [clip_line(row["tool"], 24) for row in rows], left=True),
        Column("text", [clip_line(row["text"], _LINE_CHARS) for row in rows], left=True),
    ]
    shown: list[tuple[int | str, bool]] = [(i, False) for i in range(len(rows))]
    if len(rows) > _MAX_MESSAGES:
        half, hidden = _MAX_MESSAGES // 2, len(rows) - _MAX_MESSAGES
        shown[half : half + hidden] = [(f"… {hidden:,} more (.table)", True)]
    return wrap_html(head, facts, table_html(columns, shown), *_written_texts(rows))


def _written_texts(rows: list[dict[Any, Any]]) -> Iterator[str]:
    """Yield folds with the beginnings of the largest texts that are not recorded messages."""
    edited = [(i, row) for i, row in enumerate(rows) if row["form"] != "verbatim" and row["text"]]
    largest = sorted(edited, key=lambda pair: -pair[1]["tokens"])[:_MAX_TEXTS]
    for i, row in sorted(largest, key=lambda pair: pair[0]):
        text = row["text"]
        cut = text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}…"
        name = f"Text of {i} ({row['form']}, {row['tokens']:,} tokens)"
        yield fold(name, f"<pre class=t>{escape_text(cut)}</pre>")


def describe_span(row: dict[Any, Any]) -> str:
    """Describe which recorded messages a message stands for.

    Parameters
    ----------
    row : dict
        Row of ``SentRequest.table`` or of ``SentRequest.diff``.

    Returns
    -------
    str
        Position or range of positions; ``added`` if it stands for none.
    """
    first, last = row["first"], row["last"]
    if first is None or str(first) == "<NA>":
        return "added"
    return f"{first}" if first == last else f"{first}–{last}"
