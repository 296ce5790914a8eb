"""Replay a recording in a closed loop: the agent fetches again what it needs and no longer holds.

In an open loop, the recorded agent acts as recorded, whatever a strategy removed. In a closed loop, it
first repeats tool calls. Before each recorded action, the needs that the request does not hold are
looked up (see ``ctxlab.evaluation.metrics.recall``). If an earlier result of a repeatable call mentions
a need, the agent repeats the newest such call instead of its action: this costs one more request, and
the call and its recorded result are appended. The strategy then builds the next request, which may
hold the need, or may have dropped the result again. This ends after ``max_refetches`` calls per action.
If the request contains a pointer to an offloaded result, the agent instead reads the page of it that
contains the need.

The model of the agent is simple, and its assumptions are these:

- The agent knows what it lacks and which call returns it. Real agents guess, or do without.
- It repeats one call at a time. Agents that call several tools at once send fewer requests.
- A repeated call returns what it returned when it was recorded, also if files have changed since.
- A need that no repeatable call returned is *irrecoverable*: the user or the agent wrote it, or a call
  that writes, sends or books returned it. It costs nothing here, although the agent fails without it.
  Only if the result is offloaded, and its pointer is in the request, can it be read back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from ctxlab.context.context import Budget, Context
from ctxlab.context.extended_history import ADDED, ExtendedHistory
from ctxlab.context.history import NEVER, Entry, Form
from ctxlab.context.stored_results import (
    Page,
    message_number,
    read_call,
    read_page,
    split_pages,
)
from ctxlab.evaluation.edited_texts import AGGREGATE, EditedTexts
from ctxlab.evaluation.engine import PreparedRecording, Trace, apply_strategy
from ctxlab.evaluation.references import ORIGINS
from ctxlab.messages.file_access import is_tool_error, parse_file_access
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.messages.types import Message
from ctxlab.strategies.base import Strategy

Observer: TypeAlias = Callable[[Context], object]
"""Function that is called with each request of a closed loop."""


class RequestNeed(NamedTuple):
    """A need of one request: an entity that the recorded action uses, with its earlier mentions."""

    entity: int
    "index of the entity in ``NeedIndex.entities``"
    last_row: int
    "index in ``NeedIndex.mentions`` of the last mention before the request"
    source: int
    """position of the newest earlier result of a repeatable call that mentions the entity; -1 if there
    is none"""
    by_agent: bool
    "True if the agent was the first to mention the entity"


class Source(NamedTuple):
    """What an agent can fetch: a recorded result by its call, or a page of an offloaded result."""

    result: int
    "position of the recorded result"
    page: int = -1
    "index of the page to read; -1 repeats the call"
    number: int = 0
    "for a page: number of the offloaded result, which is the argument of the tool that reads it"

    @property
    def key(self) -> tuple[int, int]:
        """Result and page. Copies of an offloaded result, which have other numbers, are the same."""
        return self.result, self.page

    @property
    def is_page(self) -> bool:
        """True for a page of an offloaded result."""
        return self.page >= 0


class Refetch(NamedTuple):
    """A tool call that fetches something again, with its result, as messages to append.

    The ids of the call and the result are those of ``with_id``, because a provider chooses a new one
    each time.
    """

    call: Message
    "assistant message with only this call"
    call_tokens: int
    "tokens of ``call``"
    result: Message
    "result of the call"
    result_tokens: int
    "tokens of ``result``"
    named: frozenset[int]
    "indices of the needed entities that the call itself mentions"
    shown: frozenset[int] = frozenset()
    "for a page: indices of the needed entities that it contains"

    def with_id(self, call_id: str) -> tuple[Message, Message]:
        """Return the call and the result with an id.

        Parameters
        ----------
        call_id : str
            Id of the repeated call.

        Returns
        -------
        tuple of (Message, Message)
            Messages to append.
        """
        call = structs.replace(self.call.tool_calls[0], id=call_id)
        asked = structs.replace(self.call, tool_calls=(call,))
        return asked, structs.replace(self.result, tool_call_id=call_id)


class RefetchIndex:
    """Needs of a recording and the calls that return them, shared by all closed loops of a recording.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording to replay.
    repeatable : RepeatableCalls
        Decides which calls an agent can repeat.
    """

    def __init__(self, prepared: PreparedRecording, repeatable: RepeatableCalls) -> None:
        self.needs = prepared.needs
        self.texts = EditedTexts(prepared.needs)
        self.first_rows: list[int] = self.needs.mention_offsets.tolist()
        self._history = prepared.history
        self._refetches: dict[Source, Refetch] = {}
        self._pages: dict[int, list[Page]] = {}
        self._mentioned: dict[int, frozenset[int]] = {}
        self._edits, self._writes = self._file_changes()
        sources = [
            position
            for position, call in self._history.calls_by_result.items()
            if not is_tool_error(self._history[position]) and repeatable.is_repeatable(call)
            if self._history[self._history.unit_starts[position]].role == "assistant"
        ]
        self.request_needs = self._list_needs(sources)
        "distinct needs of each request, by request number"

    def _list_needs(self, sources: Sequence[int]) -> list[list[RequestNeed]]:
        needs = self.needs
        is_source = np.zeros(len(self._history), dtype=bool)
        is_source[list(sources)] = True
        rows = np.arange(len(needs.mentions))
        newest = np.maximum.accumulate(np.where(is_source[needs.mentions], rows, -1))
        found: list[list[RequestNeed]] = [[] for _ in needs.request_positions]
        seen: set[tuple[int, int]] = set()
        agent = ORIGINS.index("assistant")
        columns = (needs.request, needs.entity, needs.last_mention_row, needs.origin)
        for request, entity, last, origin in zip(*(c.tolist() for c in columns), strict=True):
            if (request, entity) in seen:
                continue
            seen.add((request, entity))
            row = int(newest[last])
            source = int(needs.mentions[row]) if row >= self.first_rows[entity] else -1
            found[request].append(RequestNeed(entity, last, source, origin == agent))
        return found

    def _file_changes(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return the positions of the recorded edits of each file, and of its complete rewrites.

        Calls whose result reports an error changed nothing and are left out.
        """
        edits: dict[str, list[int]] = {}
        writes: dict[str, list[int]] = {}
        answers = self._history.calls_by_result.items()
        failed = {id(call) for place, call in answers if is_tool_error(self._history[place])}
        for position, message in enumerate(self._history):
            for call in message.tool_calls:
                access = None if id(call) in failed else parse_file_access(call)
                if access is not None and access.operation in ("edit", "write"):
                    edits.setdefault(access.path, []).append(position)
                    if access.operation == "write":
                        writes.setdefault(access.path, []).append(position)
        return edits, writes

    def is_changed(self, source: int, position: int) -> bool:
        """Return whether the file that a call read was edited between its result and a position.

        Parameters
        ----------
        source : int
            Position of the result.
        position : int
            Position of a later message.

        Returns
        -------
        bool
            True if a recorded call between them edited or wrote the file.
        """
        return self._has_change(self._edits, source, position)

    def is_rewritten(self, source: int, position: int) -> bool:
        """Return whether the file that a call read was written anew, so that its content is unknown.

        Parameters
        ----------
        source : int
            Position of the result.
        position : int
            Position of a later message.

        Returns
        -------
        bool
            True if a recorded call between them wrote the whole file.
        """
        return self._has_change(self._writes, source, position)

    def _has_change(self, changes: dict[str, list[int]], source: int, position: int) -> bool:
        access = parse_file_access(self._history.calls_by_result[source])
        if access is None:
            return False
        places = changes.get(access.path, ())
        return bisect_left(places, position) > bisect_right(places, source)

    def find_page(self, result: int, number: int, need: RequestNeed) -> Source | None:
        """Return the first page of an offloaded result that contains a need.

        Parameters
        ----------
        result : int
            Position of the recorded result.
        number : int
            Number of the offloaded result.
        need : RequestNeed
            Need that a request does not hold.

        Returns
        -------
        Source or None
            The page; None if the result does not mention the need, or no page contains it.
        """
        if result not in self._mentioned:
            rows = self.texts.rows_by_position.get(result, ())
            self._mentioned[result] = frozenset(self.texts.mention_entity[row] for row in rows)
        if need.entity not in self._mentioned[result]:
            return None
        for page in range(len(self._pages_of(result))):
            source = Source(result, page, number)
            if need.entity in self.refetch(source).shown:
                return source
        return None

    def _pages_of(self, result: int) -> list[Page]:
        if result not in self._pages:
            self._pages[result] = split_pages(self._history[result].text)
        return self._pages[result]

    def choose_call(
        self, sources: Sequence[Source], position: int, fetched: Collection[tuple[int, int]]
    ) -> Source | None:
        """Return the source of most missing needs; of several, that of the newest result.

        Parameters
        ----------
        sources : sequence of Source
            Source of each need that the request does not hold and that has a source.
        position : int
            Position of the recorded action. Calls whose file was rewritten before it are left out.
        fetched : collection of (int, int)
            Keys of the sources that were fetched for this action already; they are left out.

        Returns
        -------
        Source or None
            The source to fetch; None if there is none.
        """
        counts = Counter(sources)

        def rank(source: Source) -> tuple[int, int, bool, int]:
            return -counts[source], -source.result, not source.is_page, source.page

        for source in sorted(counts, key=rank):
            known = source.is_page or not self.is_rewritten(source.result, position)
            if source.key not in fetched and known:
                return source
        return None

    def refetch(self, source: Source) -> Refetch:
        """Return the messages that fetch a source: the recorded call, or a call that reads a page.

        Parameters
        ----------
        source : Source
            Recorded result, or page of an offloaded result.

        Returns
        -------
        Refetch
            Call and result, with their tokens.
        """
        if source not in self._refetches:
            self._refetches[source] = self._make_refetch(source)
        return self._refetches[source]

    def _make_refetch(self, source: Source) -> Refetch:
        recorded = self._history.entries[source.result]
        count, find = self._history.counter.count_message, self.texts.entities_in
        if not source.is_page:
            call = self._history.calls_by_result[source.result]
            asked = Message("assistant", tool_calls=(call,))
            named = find(asked, AGGREGATE)
            return Refetch(asked, count(asked), recorded.message, recorded.tokens, named)
        start = self._pages_of(source.result)[source.page].start
        call = read_call(source.number, start)
        asked = Message("assistant", tool_calls=(call,))
        text = read_page(source.number, recorded.message.text, start)
        page = Message("tool", text, tool_call_id=call.id, name=call.name)
        shown = find(page, AGGREGATE)
        return Refetch(asked, count(asked), page, count(page), find(asked, AGGREGATE), shown)


@dataclass
class ClosedTrace:
    """Result of replaying one recording in a closed loop, under one configuration."""

    trace: Trace
    "measurements of all requests, also of those that only repeat a call"
    history: ExtendedHistory
    "recorded messages and repeated calls"
    request_positions: list[int] = field(default_factory=list)
    "number of messages of ``history`` before each request"
    recorded_requests: list[int] = field(default_factory=list)
    "number of the recorded request before whose action each request was sent"
    call_tokens: list[int] = field(default_factory=list)
    "tokens of the repeated call that answers each request; 0 if the recorded action answers it"
    changed: list[int] = field(default_factory=list)
    "for each recorded request: number of repeated calls whose file was edited since"
    irrecoverable: list[int] = field(default_factory=list)
    """for each recorded request: number of needs that it does not hold and that neither a repeatable
    call nor an offloaded result in the request contains; without those that the agent mentioned first"""
    irrecoverable_agent: list[int] = field(default_factory=list)
    "the same, only needs that the agent mentioned first"
    unrecovered: list[int] = field(default_factory=list)
    """for each recorded request: number of needs that it does not hold although a repeatable call
    returned them: the file was rewritten since, the result was cut again, or there were too many
    calls"""
    names_matter: bool = False
    "True if a request named a need that it did not hold"


def replay_closed_loop(
    prepared: PreparedRecording,
    strategy: Strategy,
    budget: Budget,
    index: RefetchIndex,
    max_refetches: int,
    names_suffice: bool = False,
    observer: Observer | None = None,
) -> ClosedTrace:
    """Replay a recording through a strategy, with repeated calls for needs that a request lacks.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording to replay.
    strategy : Strategy
        Strategy that builds each request.
    budget : Budget
        Budget of each request.
    index : RefetchIndex
        Needs of the recording and the calls that return them.
    max_refetches : int
        Maximum number of repeated calls before one recorded action.
    names_suffice : bool, default False
        If True, a request that only names a need suffices; otherwise it must hold the need.
    observer : callable, optional
        Function that is called with each request.

    Returns
    -------
    ClosedTrace
        Requests, repeated calls, and needs that were not recovered.

    Raises
    ------
    StrategyError
        If the strategy fails.
    """
    history = ExtendedHistory(prepared.history)
    context = Context(budget, history)
    closed = ClosedTrace(Trace(strategy, budget, context), history)
    held = _HeldNeeds(index, history, context, names_suffice)
    for request, position in enumerate(prepared.request_positions):
        history.append_recorded(position)
        history.oracle_info = _TranslatedOracleInfo(prepared, history, position)
        fetched: list[Source] = []
        while True:
            context.advance(len(history))
            context.set_time(prepared.request_times[request])
            sent = apply_strategy(strategy, context, prepared.recording.id)
            closed.trace.add_request(sent, prepared)
            closed.request_positions.append(len(history))
            closed.recorded_requests.append(request)
            if observer is not None:
                observer(sent)
            missing = held.find_missing(sent, index.request_needs[request])
            context.commit_request(sent)
            sources = held.find_sources(sent, missing)
            chosen = None
            if missing and len(fetched) < max_refetches:
                known = [source for source in sources if source is not None]
                chosen = index.choose_call(known, position, {source.key for source in fetched})
            closed.call_tokens.append(0 if chosen is None else index.refetch(chosen).call_tokens)
            if chosen is None:
                break
            fetched.append(chosen)
            held.add(chosen)
        repeated = [source.result for source in fetched if not source.is_page]
        closed.changed.append(sum(index.is_changed(each, position) for each in repeated))
        pairs = zip(missing, sources, strict=True)
        lost = [need.by_agent for need, source in pairs if source is None]
        closed.irrecoverable.append(lost.count(False))
        closed.irrecoverable_agent.append(lost.count(True))
        closed.unrecovered.append(len(missing) - len(lost))
    closed.names_matter = held.names_matter
    return closed


class _HeldNeeds:
    """Finds the needs that a request of a closed loop does not hold.

    In a context, a mention that was removed never returns, except by a repeated call. For each entity
    it is therefore known up to which mention all are gone, and which one was present last. A request
    that was built on a copy of the context is searched completely.
    """

    def __init__(
        self, index: RefetchIndex, history: ExtendedHistory, context: Context, names_suffice: bool
    ) -> None:
        self._index, self._texts, self._history = index, index.texts, history
        self._context, self._names_suffice = context, names_suffice
        self._present_row: dict[int, int] = {}
        self._gone_until: dict[int, int] = {}
        self._added: dict[int, list[tuple[int, int]]] = {}
        "for each entity: position and mention of each message that was added and mentions it"
        self._aggregates: list[Entry] = []
        self._pointers: list[Entry] = []
        self._edits_seen = 0
        self.names_matter = False
        "True if a request named a need that it did not hold"

    def add(self, source: Source) -> None:
        """Append a call that fetches a source, and its result, to the history."""
        refetch, history = self._index.refetch(source), self._history
        call, result = refetch.with_id(f"refetch_{len(history)}")
        for entity in refetch.named:
            self._added.setdefault(entity, []).append((len(history), AGGREGATE))
        history.add(call, refetch.call_tokens)
        if source.is_page:
            for entity in refetch.shown:
                self._added.setdefault(entity, []).append((len(history), AGGREGATE))
            history.add(result, refetch.result_tokens)
            return
        for row in self._texts.rows_by_position.get(source.result, ()):
            entity = self._texts.mention_entity[row]
            self._added.setdefault(entity, []).append((len(history), row))
        history.add(result, refetch.result_tokens, source.result)

    def find_sources(self, sent: Context, missing: Sequence[RequestNeed]) -> list[Source | None]:
        """Return the source of each missing need: a page, a repeatable call, or None."""
        if not missing:
            return []
        pointers = self._pointers
        if sent is not self._context:
            pointers = [entry for entry in sent.entries if self._is_pointer(entry)]
        pointers = sorted(pointers, key=lambda entry: -entry.start)
        return [self._find_source(need, pointers) for need in missing]

    def _find_source(self, need: RequestNeed, pointers: Sequence[Entry]) -> Source | None:
        for entry in pointers:
            result = self._history.recorded_positions[entry.start]
            number = message_number(self._history, entry.start)
            if (source := self._index.find_page(result, number, need)) is not None:
                return source
        return None if need.source < 0 else Source(need.source)

    def _is_pointer(self, entry: Entry) -> bool:
        """Return whether an entry is a pointer to one recorded result or a copy of it."""
        return (
            entry.form is Form.POINTER
            and not entry.is_aggregate
            and entry.message.role == "tool"
            and self._history.recorded_positions[entry.start] != ADDED
        )

    def find_missing(self, sent: Context, needs: Sequence[RequestNeed]) -> list[RequestNeed]:
        """Return the needs that a request does not hold."""
        if not needs:
            return []
        if sent is self._context:
            self._collect_edits()
            return [need for need in needs if not self._context_holds(need)]
        copy = _SentCopy(sent)
        return [need for need in needs if not self._copy_holds(need, copy)]

    def _collect_edits(self) -> None:
        """Keep the summaries, inserted messages and pointers that are in the context."""
        edited = self._context.edited_entries
        new = edited[self._edits_seen :]
        self._edits_seen = len(edited)
        texts = [*self._aggregates, *filter(self._is_text, new)]
        self._aggregates = [entry for entry in texts if entry.until == NEVER]
        pointers = [*self._pointers, *filter(self._is_pointer, new)]
        self._pointers = [entry for entry in pointers if entry.until == NEVER]

    def _is_text(self, entry: Entry) -> bool:
        """Return whether an entry is compared with the source lines of all messages.

        This is the case if it does not stand for one recorded message or its copy.
        """
        return entry.is_aggregate or self._history.recorded_positions[entry.start] == ADDED

    def _context_holds(self, need: RequestNeed) -> bool:
        entity, last = need.entity, need.last_row
        row = self._present_row.get(entity, -1)
        if row >= 0 and self._is_present(self._position_of(row), row):
            return True
        first = max(self._index.first_rows[entity], self._gone_until.get(entity, 0))
        for row in range(last, first - 1, -1):
            if self._is_present(self._position_of(row), row):
                self._present_row[entity] = row
                return True
        self._gone_until[entity] = last + 1
        if added := self._added.get(entity):
            added[:] = [each for each in added if self._is_present(*each)]
            if added:
                return True
        return self._any_text_holds(self._aggregates, need)

    def _copy_holds(self, need: RequestNeed, copy: _SentCopy) -> bool:
        mentions, positions = self._texts.mentions, self._history.positions
        rows = range(need.last_row, self._index.first_rows[need.entity] - 1, -1)
        places = ((positions[mentions[row]], row) for row in rows)
        for position, row in chain(places, self._added.get(need.entity, ())):
            if position in copy.verbatim:
                return True
            entry = copy.edited.get(position)
            if entry is not None and row != AGGREGATE and self._edited_holds(entry, row):
                return True
        return self._any_text_holds(filter(self._is_text, copy.texts), need)

    def _position_of(self, row: int) -> int:
        return self._history.positions[self._texts.mentions[row]]

    def _is_present(self, position: int, row: int) -> bool:
        """Return whether the message at a position of the history shows a mention in the context."""
        context = self._context
        if context.dropped_at[position] == NEVER:
            return True
        index = context.index_at_or_after(position)
        if row == AGGREGATE or index == len(context.entries):
            return False
        entry = context.entries[index]
        is_edited = entry.start == position and not entry.is_aggregate
        return is_edited and self._edited_holds(entry, row)

    def _edited_holds(self, entry: Entry, row: int) -> bool:
        """Return whether an edited message still shows a mention of the original."""
        position = self._texts.mentions[row]
        entity = self._texts.mention_entity[row]
        if entity not in self._texts.entities_in(entry.message, position):
            return False
        if self._texts.holds_own_line(entry.message, row):
            return True
        self.names_matter = True
        return self._names_suffice

    def _any_text_holds(self, texts: Iterator[Entry] | Sequence[Entry], need: RequestNeed) -> bool:
        """Return whether a text of the strategy quotes a line of the entity, or may only name it."""
        for entry in texts:
            if need.entity in self._texts.entities_in(entry.message, AGGREGATE):
                if self._texts.first_quoted_row(entry.message, need.entity) <= need.last_row:
                    return True
                self.names_matter = True
                if self._names_suffice:
                    return True
        return False


class _SentCopy:
    """Messages of a request that was built on a copy of the context."""

    def __init__(self, sent: Context) -> None:
        whole = [e for e in sent.entries if e.is_verbatim and not e.is_aggregate]
        self.verbatim = {entry.start for entry in whole}
        self.texts = [e for e in sent.entries if not e.is_verbatim or e.is_aggregate]
        self.edited = {entry.start: entry for entry in self.texts if not entry.is_aggregate}


class _TranslatedOracleInfo:
    """Oracle information of a recording, with positions of the extended history."""

    def __init__(
        self, prepared: PreparedRecording, history: ExtendedHistory, recorded_position: int
    ) -> None:
        self._prepared, self._places = prepared, history.positions
        self._recorded, self._position = history.recorded_positions, recorded_position

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        found = self._prepared.needed(self._position)
        return [(self._places[place], text) for place, text in found]

    def needed_messages(self, position: int) -> Sequence[tuple[float, Sequence[int]]]:
        found = self._prepared.needed_messages(self._position)
        return [(weight, [self._places[p] for p in places]) for weight, places in found]

    def passage(self, position: int, text: str) -> str:
        return self._prepared.passage(self._recorded[position], text)
