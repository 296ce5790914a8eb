"""HTML in which a recording shows itself in a notebook: its size, a timeline and its turns.

A turn is a user message with all messages up to the next user message. A long recording is shown in a
fixed number of rows and bars, so that the HTML stays small.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from ctxlab._utils.html import (
    drawing,
    fold,
    lane_table,
    paragraph,
    svg_boxes,
    svg_lines,
    table_html,
    title,
    wrap_html,
)
from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_count, to_sentence
from ctxlab._utils.tables import Column, text_columns
from ctxlab._utils.text import clip_line
from ctxlab.messages.types import Message, Recording, count_message_chars

_MAX_ROWS = 12
"if a recording has more turns, neighbouring turns share a row"
_MAX_BARS = 160
"if a recording has more messages, neighbouring messages share a bar"
_MAX_TOOLS = 3
_MAX_SKIP_REASONS = 8
_TEXT_CHARS = 90
_LANES = ("system", "user", "assistant", "tool")
_LANE_HEIGHT, _WIDTH = 22, 620


def recording_html(recording: Recording) -> str:
    """Return a recording as HTML: its size, a timeline of its messages, and a table of its turns.

    Parameters
    ----------
    recording : Recording
        Recording to show.

    Returns
    -------
    str
        HTML of at most 50 kB, whatever the length of the recording. All text is escaped.

    Examples
    --------
    >>> chat = Recording("a", (Message("user", "<b>hi"), Message("assistant", "hello")))
    >>> html = recording_html(chat)
    >>> "2 messages, 1 request" in html, "<b>hi" in html, "&lt;b&gt;hi" in html
    (True, False, True)
    """
    head = title(f"Recording {clip_line(recording.id, 120)}")
    facts = paragraph(to_sentence("; ".join(_facts(recording))))
    if not recording.messages:
        return wrap_html(head, facts, paragraph("It has no messages."))
    note = (
        "A turn is a user message with all messages up to the next one. Sizes are in characters of text "
        "and arguments of tool calls. ctxlab.describe counts tokens."
    )
    if _bills(recording):
        note += " Billed: input tokens of the largest request, as the provider billed them."
    return wrap_html(
        head,
        facts,
        _timeline(recording),
        _turn_table(recording),
        paragraph(note, is_note=True),
        fold("Rows that were not read", _skipped_table(recording)),
    )


def _facts(recording: Recording) -> Iterator[str]:
    """Yield what is known of the whole recording, in a few words each."""
    messages = recording.messages
    sizes = [pluralize(len(messages), "message")]
    sizes.append(pluralize(len(recording.request_positions), "request"))
    sizes.append(f"{format_count(sum(map(count_message_chars, messages)))} characters")
    yield ", ".join(sizes)
    if recording.format:
        yield f"format {recording.format}"
    if recording.model:
        yield f"model {clip_line(recording.model, 60)}"
    if recording.cluster and recording.cluster != recording.id:
        yield f"cluster {clip_line(recording.cluster, 60)}"
    times = [message.time for message in messages if message.time is not None]
    if span := _span(min(times), max(times)) if times else "":
        yield span
    if recording.tools:
        yield pluralize(len(recording.tools), "tool definition")
    if recording.compactions:
        yield pluralize(len(recording.compactions), "compaction")
    if recording.probes:
        yield pluralize(len(recording.probes), "probe")
    if bills := _bills(recording):
        cached = sum(m.usage.cache_read for m in messages if m.usage)
        output = sum(m.usage.output for m in messages if m.usage)
        share = f", {cached / sum(bills.values()):.0%} of it from the cache" if cached else ""
        yield (
            f"billed: {format_count(sum(bills.values()))} tokens of input{share}, "
            f"{format_count(output)} of output"
        )


def _span(start: float, end: float) -> str:
    """Return the days and the duration of a conversation; an empty string if a time is impossible."""
    try:
        days = [datetime.fromtimestamp(time, UTC).date().isoformat() for time in (start, end)]
    except (OverflowError, ValueError, OSError):
        return ""
    hours, minutes = divmod(round((end - start) / 60), 60)
    took = f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours}:{minutes:02d} h"
    return f"{' to '.join(dict.fromkeys(days))} ({took})"


def _bills(recording: Recording) -> dict[int, int]:
    """Return the billed input tokens by position of the reply."""
    return {
        position: message.usage.total_input
        for position, message in enumerate(recording.messages)
        if message.usage and message.usage.total_input
    }


def _edges(count: int, most: int) -> list[int]:
    """Return the bounds of at most ``most`` groups of nearly the same size.

    >>> _edges(10, 4), _edges(2, 4)
    ([0, 2, 5, 7, 10], [0, 1, 2])
    """
    groups = min(count, most)
    return [count * i // groups for i in range(groups + 1)]


def _timeline(recording: Recording) -> str:
    """Return one lane of bars per role and one for bills, with a line at each compaction."""
    messages = recording.messages
    edges = _edges(len(messages), _MAX_BARS)
    roles = [role for role in _LANES if any(message.role == role for message in messages)]
    step = _WIDTH / (len(edges) - 1)
    rows: list[tuple[str, list[float]]] = []
    for role in roles:
        sizes = [
            sum(count_message_chars(m) for m in messages[start:stop] if m.role == role)
            for start, stop in pairwise(edges)
        ]
        rows.append((role, [float(size) for size in sizes]))
    if bills := _bills(recording):
        largest = [
            float(max((bills.get(i, 0) for i in range(start, stop)), default=0))
            for start, stop in pairwise(edges)
        ]
        rows.append(("billed", largest))
    places = [step * _bar_of(c.position, edges) for c in recording.compactions]
    marks = "".join(f"M{max(x, 1):.1f} 0V{_LANE_HEIGHT}" for x in dict.fromkeys(places))
    lanes = []
    for name, values in rows:
        top = max(values) or 1
        boxes = [
            # The root lets small messages be seen beside large ones.
            (i * step, _LANE_HEIGHT - 1 - h, max(step - 0.4, 0.4), h)
            for i, value in enumerate(values)
            if (h := math.sqrt(value / top) * (_LANE_HEIGHT - 4))
        ]
        parts = [svg_boxes(boxes, opacity=0.6), svg_lines(f"M0 {_LANE_HEIGHT - 0.5}H{_WIDTH}", 0.5)]
        parts.append(svg_lines(marks, 1.2, "3 2"))
        lanes.append(
            (name, drawing(_WIDTH, _LANE_HEIGHT, f"sizes: {name}", *parts), format_count(top))
        )
    drawn = f"size of messages 0 to {len(messages) - 1:,} (height: square root)"
    drawn += "; dashed: compaction" if places else ""
    return lane_table(("", drawn, "largest bar"), lanes)


def _bar_of(position: int, edges: Sequence[int]) -> int:
    """Return the number of the bar that a message belongs to."""
    return max(i for i, edge in enumerate(edges) if edge <= position)


def _turn_table(recording: Recording) -> str:
    """Return a table with one row per turn, or per several turns if there are many."""
    messages = recording.messages
    starts = [i for i, message in enumerate(messages) if message.role == "user"]
    if not starts or starts[0] > 0:
        starts = [0, *starts]
    if len(starts) > 1 and all(m.role == "system" for m in messages[: starts[1]]):
        starts = [0, *starts[2:]]  # a system prompt belongs to the first turn
    groups = _edges(len(starts), _MAX_ROWS)
    bounds = [*(starts[i] for i in groups[:-1]), len(messages)]
    bills, compacted = _bills(recording), [c.position for c in recording.compactions]
    rows = []
    for n, (start, stop) in enumerate(pairwise(bounds)):
        some, inside = messages[start:stop], range(start, stop)
        turns = groups[n + 1] - groups[n]
        rows.append((
            f"{start:,}" if stop - start == 1 else f"{start:,}–{stop - 1:,}",
            _first_words(some, turns),
            f"{sum(m.role == 'assistant' for m in some):,}",
            _tools_used(some),
            format_count(sum(map(count_message_chars, some))),
            format_count(max((bills[i] for i in inside if i in bills), default=math.nan)),
            str(sum(position in inside for position in compacted) or ""),
        ))  # fmt: skip
    heads = ("messages", "user", "replies", "tool calls", "characters", "billed", "compactions")
    columns = text_columns(heads, rows)
    is_text = {"user", "tool calls"}
    empty = {"billed": not bills, "compactions": not compacted, "tool calls": not _calls(messages)}
    shown = [
        Column(each.head, each.cells, left=each.head in is_text)
        for each in columns
        if not empty.get(each.head)
    ]
    return table_html(shown)


def _first_words(messages: Sequence[Message], turns: int) -> str:
    """Return the beginning of the first user message, and the number of further turns of the row."""
    said = [message.text.strip() for message in messages if message.role == "user"]
    # Products put messages of their own, in a tag, beside those of the user.
    said.sort(key=lambda text: text.startswith("<") or not text)
    words = clip_line("".join(said[:1]), _TEXT_CHARS) or "(no text)"
    return f"{words} + {pluralize(turns - 1, 'turn')}" if turns > 1 else words


def _calls(messages: Sequence[Message]) -> Counter[str]:
    return Counter(call.name for message in messages for call in message.tool_calls)


def _tools_used(messages: Sequence[Message]) -> str:
    """Return the most frequent tools with their numbers of calls."""
    counts = _calls(messages)
    named = [f"{clip_line(name, 30)} ×{n:,}" for name, n in counts.most_common(_MAX_TOOLS)]
    more = counts.total() - sum(n for _, n in counts.most_common(_MAX_TOOLS))
    return ", ".join([*named, f"others ×{more:,}"] if more else named)


def _skipped_table(recording: Recording) -> str:
    """Return a table of the reasons for which the reader left something out."""
    reasons = Counter(recording.skipped).most_common(_MAX_SKIP_REASONS)
    if not reasons:
        return ""
    return table_html([
        Column("reason", [clip_line(reason, 200) for reason, _ in reasons], left=True),
        Column("rows", [f"{count:,}" for _, count in reasons]),
    ])  # fmt: skip
