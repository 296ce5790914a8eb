"""Convert the stored history of a task to messages and compactions.

A history row is a message in Anthropic's format with additional keys. Rows that replace other rows
(summaries and truncation markers) become compactions. The other rows become messages:

- The tool results of a user row become tool messages, and the rest of the row becomes a user
  message after them. Results that the agent sent as text keep their header. They are paired with
  calls in XML and with native calls that have no ``tool_result``.
- A call that was written as XML becomes a tool call if the next row has its result, or if there is
  no next row. Otherwise its XML stays in the text. It gets the id ``xml-1``, ``xml-2`` and so on.
- The model and usage of an answer come from the row, from the log of the user interface, from the
  metadata of the task, or from the environment details that the agent sent.

The products tag the rows that a compaction replaced (``condenseParent``, ``truncationParent``), or
log their range. The row of a summary or marker stands before the rows that were kept, so its place is
not the time of the compaction. The log of the user interface has this time. Without it, the position
is computed from the rule of the product: a summary in an assistant row was followed by 3 kept rows.
A truncation kept as many rows as it removed, or two more; the smaller number is assumed.

A summary or marker is sent until a later compaction removes it, so a compaction may have the texts of
several. An answer and its tool results are kept together: if a result was kept, so is its answer, and
an answer whose results were removed does not count as kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.cline import xml_calls
from ctxlab.formats.cline.context_edits import ContextEdits
from ctxlab.formats.cline.ui_log import UiLog, UiRequest, includes_cached
from ctxlab.formats.common.api_messages import parse_message
from ctxlab.formats.common.chat_format import make_call, text_part
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    get_count,
    get_in,
    get_number,
    get_objects,
    get_text,
    require_object,
)
from ctxlab.messages.types import Compaction, Message, ToolCall, Usage

_Row: TypeAlias = dict[str, Any]

_ROLES = ("user", "assistant", "tool")
_KEPT_AFTER_SUMMARY = 3
_ENVIRONMENT_MODEL = re.compile(r"<model>([^<>]+)</model>")
_TOKEN_KEYS = ("tokens.prompt", "tokens.completion", "tokens.cached")
_SDK_SHAPE = UsageShape("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


class _Event(NamedTuple):
    """A change of the rows that are sent to the model."""

    row: int
    "index of the first row after the change"
    hidden: frozenset[int]
    "indices of the rows that are no longer sent"
    tokens_before: int | None = None
    "number of tokens before the change"
    shown: int | None = None
    "index of the row with the text that replaces the hidden rows; None if there is none"
    note: str | None = None
    "text that replaces the hidden rows, if no row contains it"


@dataclass
class ConversationBuilder:
    """Builder that converts the rows of one history. The rows are added in order."""

    skip: SkipCallback
    "called with a description of each skipped row or block"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    messages: list[Message] = field(default_factory=list, init=False)
    "the messages of the rows so far"
    _rows: list[_Row] = field(default_factory=list, init=False)
    _starts: list[int] = field(default_factory=list, init=False)
    _answers: dict[int, int] = field(default_factory=dict, init=False)
    _environment_model: str | None = field(default=None, init=False)
    _models_in_use: dict[int, str] = field(default_factory=dict, init=False)
    _reasoning: list[str] = field(default_factory=list, init=False)
    _open_calls: list[ToolCall] = field(default_factory=list, init=False)
    _call_count: int = field(default=0, init=False)

    def add_row(self, row: Any, next_row: Any) -> None:
        """Add the next row of the history.

        Parameters
        ----------
        row : Any
            The stored row.
        next_row : Any
            The next row that is a message; None if there is none.

        Raises
        ------
        ValueError
            If the row is malformed. It then counts as a row without messages.
        """
        self._starts.append(len(self.messages))
        self._rows.append(row if isinstance(row, dict) else {})
        row = require_object(row, "a message")
        if is_replacement(row):
            return
        if row.get("type") == "reasoning" and "content" not in row:
            self._add_reasoning_row(row)
        elif row.get("role") not in _ROLES:
            raise ValueError(f"expected the role user, assistant or tool, got {row.get('role')!r}")
        elif get_in(row, "metadata", "displayOnly"):
            self.skip("message that was only displayed")
        else:
            self._add_message_row(row, next_row)

    def add_usage(self, log: UiLog, model_at: Callable[[float], str | None]) -> None:
        """Add usage, cost and model to the answers.

        Parameters
        ----------
        log : UiLog
            The log of the user interface; empty if there is none.
        model_at : callable
            Function that takes a time and returns the model that the task used at this time.
        """
        requests = self._match_requests(log.requests)
        for row, position in self._answers.items():
            stored, request = self._rows[row], requests.get(row)
            message = self.messages[position]
            usage, cost = _parse_metrics(stored)
            time = message.time
            if request:
                usage, time = request.usage or usage, request.time if time is None else time
                cost = cost if request.cost is None else request.cost
            extra = message.extra | ({} if cost is None else {"cost": cost})
            self.messages[position] = message.replace(usage=usage, time=time, extra=extra)
            named = _model_of(stored) or (request.model if request else None)
            named = named or (model_at(time) if time is not None else None)
            if model := named or self._models_in_use.get(row):
                self.models[model] += 1

    def build_compactions(self, log: UiLog, edits: ContextEdits) -> list[Compaction]:
        """Return the compactions of the history.

        Changes of the rows without an answer between them are one compaction.

        Parameters
        ----------
        log : UiLog
            The log of the user interface; empty if there is none.
        edits : ContextEdits
            The edits of messages; empty if there are none.

        Returns
        -------
        list of Compaction
            The compactions, in order.
        """
        events = [*self._stored_events(log), *self._range_events(log, edits.notice)]
        hidden: frozenset[int] = frozenset()
        shown: set[int] = set()
        removals: dict[int, tuple[str | None, tuple[int, ...], int | None]] = {}
        for event in sorted(events, key=lambda event: event.row):
            hidden |= event.hidden
            shown |= set() if event.shown is None else {event.shown}
            seen = [row for row in range(event.row) if row not in hidden]
            texts = [_stored_text(self._rows[row]) for row in sorted(shown - hidden)]
            texts.append(event.note)
            position = self._start_of(event.row)
            kept = (p for row in seen for p in range(self._start_of(row), self._start_of(row + 1)))
            summary = "\n\n".join(filter(None, texts)) or None
            before = max(removals, default=None)
            if before is not None and not any(
                before <= p < position for p in self._answers.values()
            ):
                del removals[before]
            removals[position] = summary, self._keep_units(kept), event.tokens_before
        clearings = self._clearings(log, edits)
        built = CompactionBuilder(self.messages, self.skip)
        for position in sorted({*clearings, *removals}):
            if position in clearings:  # Cline clears results before it removes messages
                built.add_clearing(position, clearings[position])
            if position in removals:
                summary, stayed, tokens = removals[position]
                built.add_summary(position, summary, stayed, tokens_before=tokens)
        return built.compactions

    def _add_reasoning_row(self, row: _Row) -> None:
        """Store the summary of an encrypted reasoning row for the next answer."""
        texts = [*_texts_of(row.get("summary")), *filter(None, [get_text(row, "text")])]
        self._reasoning += texts
        if not texts:
            self.skip("encrypted reasoning")

    def _add_message_row(self, row: _Row, next_row: Any) -> None:
        content = row.get("content")
        blocks = [text_part(content)] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            kind = type(content).__name__
            raise ValueError(f"content must be a string or a list of objects, got {kind}")
        blocks = [_convert_block(require_object(each, "a content block")) for each in blocks]
        blocks = [each for each in blocks if self._is_read(each)]
        if not blocks or content == "":
            self.skip("message without content")
            return
        if row["role"] == "assistant":
            self._add_answer(row, blocks, next_row)
            return
        for each in blocks:
            if is_environment_block(each) and (named := _ENVIRONMENT_MODEL.search(each["text"])):
                self._environment_model = named[1].strip()
        answered = {get_text(each, "tool_use_id") for each in blocks}
        calls = [call for call in self._open_calls if call.id not in answered]
        self._open_calls = []
        results, rest = xml_calls.pair_results([call.name for call in calls], blocks)
        for index, parts in results.items():
            result = {"type": "tool_result", "content": parts}
            result |= {"tool_use_id": calls[index].id, "name": calls[index].name}
            self._parse({"role": "user", "content": [result]}, row)
        if rest or not results:
            self._parse({"role": row["role"], "content": rest}, row)

    def _add_answer(self, row: _Row, blocks: list[_Row], next_row: Any) -> None:
        self._open_calls = []
        start = len(self.messages)
        self._parse({"role": "assistant", "content": blocks}, row)
        place = next(
            (p for p in range(start, len(self.messages)) if self.messages[p].role == "assistant"),
            None,
        )
        if place is None:
            return
        said = self.messages[place]
        hidden = [*self._reasoning, *filter(None, [said.reasoning or _row_reasoning(row)])]
        said = said.replace(reasoning="\n".join(hidden) or None)
        self._reasoning = []
        if isinstance(said.content, str) and not said.tool_calls:
            said = self._with_xml_calls(said, said.content, next_row)
        self.messages[place] = said
        self._open_calls = list(said.tool_calls)
        self._answers[len(self._rows) - 1] = place
        if self._environment_model:
            self._models_in_use[len(self._rows) - 1] = self._environment_model

    def _with_xml_calls(self, said: Message, text: str, next_row: Any) -> Message:
        calls = xml_calls.find_calls(text)
        if next_row is not None:
            content = get_in(next_row, "content") if get_in(next_row, "role") == "user" else None
            blocks = [text_part(content)] if isinstance(content, str) else get_objects(content)
            answered = xml_calls.pair_results([call.name for call in calls], blocks)[0]
            calls = [call for index, call in enumerate(calls) if index in answered]
        if not calls:
            return said
        made = []
        for call in calls:
            self._call_count += 1
            made.append(make_call(f"xml-{self._call_count}", call.name, call.arguments))
        return said.replace(content=xml_calls.remove_calls(text, calls), tool_calls=tuple(made))

    def _is_read(self, block: _Row) -> bool:
        """Check whether a block has content, and count it if it is encrypted reasoning."""
        if block.get("type") != "reasoning" or get_text(block, "text"):
            return True
        if _texts_of(block.get("summary")):
            return True
        self.skip("encrypted reasoning")
        return False

    def _parse(self, message: _Row, row: _Row) -> None:
        milliseconds = get_number(row, "ts")
        time = None if milliseconds is None else milliseconds / 1000
        for each in parse_message(message, self.skip):
            self.messages.append(each.replace(time=time))

    def _match_requests(self, requests: Sequence[UiRequest]) -> dict[int, UiRequest]:
        """Return the billed request of each answer, by the index of its row.

        A request belongs to the first answer after the history message that was the newest when it
        started, or after the time at which it started. If the log has neither, and as many requests as
        answers, requests and answers are in the same order.
        """
        found: dict[int, UiRequest] = {}
        times = {row: self.messages[position].time for row, position in self._answers.items()}
        answers = list(times)
        placed = any(each.newest_row is not None for each in requests)
        if not placed and len(requests) == len(times) and not any(times.values()):
            return dict(zip(times, requests, strict=True))
        for number, request in enumerate(requests):
            if request.usage is None:
                continue
            if request.newest_row is not None:
                place = bisect_right(answers, request.newest_row)
                row = answers[place] if place < len(answers) else None
            else:
                end = requests[number + 1].time if number + 1 < len(requests) else None
                rows = (r for r in answers if _is_between(request.time, times[r], end))
                row = next(rows, None)
            if row is None or row in found:
                self.skip("billed request without an answer")
            if row is not None:
                found[row] = request
        return found

    def _stored_events(self, log: UiLog) -> list[_Event]:
        """Return the changes that the rows of summaries and truncation markers describe."""
        events = []
        for row, stored in enumerate(self._rows):
            if not self._replaces(row):
                continue
            id = get_text(stored, "condenseId") or get_text(stored, "truncationId")
            known = log.compactions.get(id or "")
            time, tokens = (known.time, known.tokens_before) if known else (None, None)
            if get_in(stored, "metadata", "kind") == "compaction_summary":
                hidden = frozenset(range(row))
                milliseconds = get_number(stored, "metadata", "generatedAt")
                time = None if milliseconds is None else milliseconds / 1000
                tokens = get_count(stored, "metadata", "tokensBefore") or None
            else:
                tagged = (i for i, each in enumerate(self._rows) if id and id in _parents(each))
                hidden = frozenset(tagged)
            after = self._find_row_after(row, time, len(hidden))
            events.append(_Event(after, hidden, tokens, shown=row))
        return events

    def _range_events(self, log: UiLog, note: str | None) -> list[_Event]:
        """Return the changes of the range that Cline deleted. A note replaces the first answer."""
        events = []
        for each in log.ranges:
            end = min(each.last, each.newest_row, len(self._rows) - 1) + 1
            hidden = frozenset([*range(each.first, end), *([] if note is None else [1])])
            events.append(_Event(min(each.newest_row + 1, len(self._rows)), hidden, note=note))
        return events

    def _clearings(self, log: UiLog, edits: ContextEdits) -> dict[int, list[str]]:
        """Return the ids of the calls whose results were replaced by a note.

        They are grouped by the position of the first answer without the results. The time of an edit
        is the start of a request; the next request was the first without the results.
        """
        times = [request.time for request in log.requests]
        ids: dict[int, list[str]] = {}
        for time, row in edits.cleared:
            later = log.requests[times.index(time) + 1 :] if time in times else ()
            newest = next((each.newest_row for each in later), None)
            answers = (p for r, p in self._answers.items() if newest is not None and r > newest)
            position = next(answers, None)
            held = range(self._start_of(row), self._start_of(row + 1))
            results = (self.messages[p].tool_call_id for p in held)
            id = next(filter(None, results), None)
            if position is None or id is None:
                self.skip("replaced result of an unknown request or call")
            else:
                ids.setdefault(position, []).append(id)
        return ids

    def _find_row_after(self, row: int, time: float | None, hidden: int) -> int:
        """Return the index of the first row after the compaction that a row describes."""
        stored, end = self._rows[row], len(self._rows)
        later = [index for index in range(row + 1, end) if not self._replaces(index)]
        if time is not None:
            stamps = ((index, get_number(self._rows[index], "ts")) for index in later)
            return next((i for i, stamp in stamps if stamp and stamp / 1000 > time), end)
        if stored.get("isTruncationMarker") is True:
            kept = hidden
        else:
            kept = _KEPT_AFTER_SUMMARY if stored.get("role") == "assistant" else 0
        return later[kept] if kept < len(later) else end

    def _keep_units(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Add the answers of kept results, and remove answers whose results were not kept."""
        kept = set(positions)
        for answer in self._answers.values():
            end = answer + 1
            while end < len(self.messages) and self.messages[end].role == "tool":
                end += 1
            results = range(answer + 1, end)
            if not kept.isdisjoint(results):
                kept |= {answer, *results}
            elif results:
                kept.discard(answer)
        return tuple(sorted(kept))

    def _replaces(self, row: int) -> bool:
        return is_replacement(self._rows[row])

    def _start_of(self, row: int) -> int:
        return self._starts[row] if row < len(self._starts) else len(self.messages)


def is_replacement(row: Any) -> bool:
    """Check whether a row stands for other rows: a summary or a truncation marker.

    Parameters
    ----------
    row : Any
        A row of the history.

    Returns
    -------
    bool
        True if the row was written by a compaction.
    """
    if not isinstance(row, dict):
        return False
    stored = row.get("isSummary") is True or row.get("isTruncationMarker") is True
    return stored or get_in(row, "metadata", "kind") == "compaction_summary"


def is_environment_block(block: Any) -> bool:
    """Check whether a content block contains the environment details of a request.

    Parameters
    ----------
    block : Any
        A content block of a user message.

    Returns
    -------
    bool
        True if the block is a text that begins with the tag of the environment details.
    """
    return (get_text(block, "text") or "").lstrip().startswith("<environment_details>")


def _convert_block(block: _Row) -> _Row:
    """Convert blocks that differ from Anthropic's blocks.

    In Cline's SDK, the text of a file has its own block type. In Cline, ``call_id`` of a call is an id
    of the provider; results name ``id``.
    """
    if block.get("type") == "tool_use":
        return {key: block[key] for key in ("type", "id", "name", "input") if key in block}
    if block.get("type") == "file" and isinstance(block.get("content"), str):
        path = get_text(block, "path") or ""
        return text_part(f'<file path="{path}">\n{block["content"]}\n</file>')
    if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        parts = [_convert_block(e) if isinstance(e, dict) else e for e in block["content"]]
        return block | {"content": parts}
    return block


def _row_reasoning(row: _Row) -> str | None:
    """Return the reasoning that is stored beside the content of an answer."""
    details = _texts_of(row.get("reasoning_details"))
    return get_text(row, "reasoning_content") or "\n".join(details) or None


def _texts_of(value: Any) -> list[str]:
    parts = get_objects(value)
    return [text for part in parts if (text := get_text(part, "text") or get_text(part, "summary"))]


def _stored_text(row: _Row) -> str | None:
    content = row.get("content")
    if isinstance(content, str):
        return content or None
    parts = (part for part in get_objects(content) if part.get("type") == "text")
    return "\n".join(filter(None, (get_text(part, "text") for part in parts))) or None


def _parents(row: _Row) -> tuple[str | None, str | None]:
    return get_text(row, "condenseParent"), get_text(row, "truncationParent")


def _model_of(row: _Row) -> str | None:
    return get_text(row, "modelInfo", "modelId") or get_text(row, "modelInfo", "id")


def _parse_metrics(row: _Row) -> tuple[Usage | None, float | None]:
    """Parse the usage and the cost that are stored in an answer."""
    metrics = row.get("metrics")
    cost = get_number(metrics, "cost")
    if isinstance(get_in(metrics, "tokens"), dict):
        counts = (get_count(metrics, "tokens", key) for key in ("prompt", "cached"))
        inclusive = includes_cached(counts, get_text(row, "modelInfo", "providerId"))
        shape = UsageShape(*_TOKEN_KEYS, includes_cache=inclusive)
        return shape.parse_billed(metrics), cost
    return _SDK_SHAPE.parse_billed(metrics), cost


def _is_between(start: float | None, time: float | None, end: float | None) -> bool:
    if start is None or time is None:
        return False
    return start <= time and (end is None or time < end)
