"""The closed loop, computed from ``docs/closed-loop.md`` alone.

This file shares no code with ctxlab's closed loop. It runs each strategy as in a live conversation: it
appends every message to a context whose history knows nothing of later messages. Needs and tiers are
those of ``independent_recall``. It is meant to be read, not to be fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from math import floor, nan

from recall import Call, Need, Recall, Said, Sent

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form, History
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.messages.file_access import FileAccess, is_tool_error, parse_file_access
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import Strategy

MAX_REFETCHES = 5


@dataclass
class Row:
    """What the closed loop costs before one recorded action, and what is still missing then."""

    refetches: int = 0
    refetches_changed: int = 0
    irrecoverable: int = 0
    irrecoverable_agent: int = 0
    unrecovered: int = 0
    tokens: float = 0.0
    priced: float = 0.0
    cached: float = 0.0
    usd: float = 0.0


# ------------------------------------------------------------------------------------ what is recorded


class Recorded:
    """The needs of a recording, their sources, and the files that its calls read and write.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording with its token counts.
    repeatable : RepeatableCalls, optional
        Decides which calls only read.
    """

    def __init__(
        self, prepared: PreparedRecording, repeatable: RepeatableCalls | None = None
    ) -> None:
        self.prepared = prepared
        self.repeatable = repeatable or RepeatableCalls.default()
        self.messages = prepared.recording.messages
        folder = prepared.recording.meta.get("cwd")
        said = [plain(entry.message, entry.tokens) for entry in prepared.history.entries]
        tools = "\n".join(strings(list(prepared.recording.tools)))
        self.recall = Recall(said, tools, folder if isinstance(folder, str) else None)
        self.callers, self.calls = answered_calls(self.messages)
        failed = {id(call) for place, call in self.calls.items() if self.is_error(place)}
        self.accesses = list(file_accesses(self.messages, failed))
        self.needs: dict[int, list[Need]] = defaultdict(list)
        "position of an action → its needs, one for each distinct entity"
        for need in self.recall.needs():
            if all(need.entity != other.entity for other in self.needs[need.request]):
                self.needs[need.request].append(need)

    def source(self, need: Need) -> int | None:
        """Return the position of the newest repeatable result that mentions the entity of a need."""
        mentions = self.recall.earlier_mentions(need.entity, need.request)
        return max((place for place in mentions if self.is_repeatable_result(place)), default=None)

    def is_repeatable_result(self, place: int) -> bool:
        """Check if a message is the result of an assistant's call that only reads, and no error."""
        return (
            place in self.calls
            and self.messages[self.callers[place]].role == "assistant"
            and self.repeatable.is_repeatable(self.calls[place])
            and not self.is_error(place)
        )

    def is_error(self, place: int) -> bool:
        """Check if the result at a position reports an error."""
        return is_tool_error(self.messages[place])

    def was_changed(self, source: int, action: int, operation: str) -> bool:
        """Check if a call between a source and an action wrote or edited the file of the source."""
        read = parse_file_access(self.calls[source])
        if read is None or read.operation != "read":
            return False
        later = (each for place, each in self.accesses if source < place < action)
        return any(each.path == read.path and each.operation == operation for each in later)


def latest_input_time(messages: Sequence[Message]) -> datetime | None:
    """Return the latest time of the messages after the last reply, or else the time of that reply."""
    inputs = list(takewhile(lambda message: message.role != "assistant", reversed(messages)))
    times = [each.time for each in inputs or messages[-1:] if each.time is not None]
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(max(times), UTC) if times else None
    return None


def answered_calls(messages: Sequence[Message]) -> tuple[dict[int, int], dict[int, ToolCall]]:
    """Return the message with the call, and the call itself, of each result, by its position.

    A result answers a call of the newest message with calls before it.
    """
    callers: dict[int, int] = {}
    calls: dict[int, ToolCall] = {}
    waiting: dict[str | None, tuple[int, ToolCall]] = {}
    for place, message in enumerate(messages):
        if message.role == "tool" and message.tool_call_id in waiting:
            callers[place], calls[place] = waiting.pop(message.tool_call_id)
        elif message.tool_calls:
            waiting = {call.id: (place, call) for call in message.tool_calls}
    return callers, calls


def file_accesses(
    messages: Sequence[Message], failed: set[int]
) -> Iterator[tuple[int, FileAccess]]:
    """Return the accesses to files by calls that did not fail, with the position of each call."""
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            access = parse_file_access(call)
            if access is not None and id(call) not in failed:
                yield place, access


def plain(message: Message, tokens: int = 0) -> Said:
    """Convert a message for the independent recall."""
    calls = [Call(call.name, call.arguments) for call in message.tool_calls]
    return Said(message.role, message.text, calls, tokens)


def strings(value: object) -> Iterator[str]:
    """List the names and texts of tool definitions."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    else:
        yield str(value)


# ------------------------------------------------------------------------------------- offloaded results

PAGE = 6000


@dataclass(frozen=True)
class Source:
    """A recorded result to fetch by its call, or a page of it to read where it is offloaded."""

    place: int
    page: int | None = None
    number: int = 0


def page_starts(text: str) -> list[tuple[int, int]]:
    """Return the numbers of the first and the last line of each page."""
    pages, start, size = [], 0, 0
    lines = page_lines(text)
    for number, line in enumerate(lines):
        if number > start and size + len(line) > PAGE:
            pages.append((start + 1, number))
            start, size = number, 0
        size += len(line)
    return [*pages, (start + 1, len(lines))]


def page_text(text: str, number: int, page: int) -> str:
    """Return what the tool ``read_result`` answers for a page."""
    lines, (first, last) = page_lines(text), page_starts(text)[page]
    more = f"; continue with start={last + 1}" if last < len(lines) else ""
    head = f"[Result {number}, lines {first}-{last} of {len(lines)}{more}]\n"
    return head + "".join(lines[first - 1 : last])


def page_lines(text: str) -> list[str]:
    """Return the lines of a text with their line breaks; a line longer than a page is divided."""
    parts = text.split("\n")
    whole = [*(f"{line}\n" for line in parts[:-1]), parts[-1]]
    return [line[at : at + PAGE] for line in whole for at in range(0, len(line), PAGE)]


# ------------------------------------------------------------------------------------------- the replay


class ClosedLoop:
    """One replay of a recording through one strategy, whose agent fetches again what it lacks.

    Parameters
    ----------
    recorded : Recorded
        Recording with its needs and sources.
    strategy : Strategy
        Strategy that builds the requests.
    limit : float
        Limit of each request.
    name_suffices : bool, default False
        True for the lower bound: a need is missing only if the request does not even name it.
    max_refetches : int, default 5
        Maximum number of repeated calls before each action.
    """

    def __init__(
        self,
        recorded: Recorded,
        strategy: Strategy,
        limit: float,
        name_suffices: bool = False,
        max_refetches: int = MAX_REFETCHES,
    ) -> None:
        prepared = recorded.prepared
        self.recorded, self.strategy, self.max_refetches = recorded, strategy, max_refetches
        self.sufficient = {"held", "named"} if name_suffices else {"held"}
        self.history = History(prepared.counter, model=prepared.model)
        self.context = Context(prepared.make_budget(limit), self.history)
        self.origins: list[int | None] = []
        """for each message of the history: position of the recorded message that it is or copies; None
        for an added call"""
        self.price = Price(prepared)
        self.known: dict[int, tuple[Entry, Said]] = {}

    def run(self) -> list[Row]:
        """Replay the recording and return one row for each recorded action."""
        rows, said = [], 0
        for number, action in enumerate(self.recorded.prepared.request_positions):
            for place in range(said, action):
                self.append(self.recorded.messages[place], place)
            said = action
            rows.append(self.before_action(number, action))
        return rows

    def append(self, message: Message, origin: int | None) -> None:
        """Append a message to the history."""
        self.context.append(message)
        self.origins.append(origin)

    def before_action(self, number: int, action: int) -> Row:
        """Build requests and repeat calls until nothing more can be fetched for an action."""
        row, fetched = Row(), set[tuple[int, int | None]]()
        while True:
            self.context.set_time(latest_input_time(self.recorded.messages[:action]))
            sent = self.strategy(self.context)
            entries = list(sent.entries)
            self.context.commit_request(sent)
            rate = self.price.add(row, entries, self.origins, number, is_first=not fetched)
            missing = self.missing(action, entries)
            source = self.choose(action, missing, fetched, entries)
            if source is None or len(fetched) == self.max_refetches:
                self.count(row, missing, entries)
                return row
            fetched.add((source.place, source.page))
            row.refetches += 1
            if source.page is None:
                row.refetches_changed += self.recorded.was_changed(source.place, action, "edit")
                self.repeat(source.place)
            else:
                self.read(source, source.page)
            row.usd += self.history.entries[-2].tokens * rate

    def missing(self, action: int, entries: Sequence[Entry]) -> list[Need]:
        """Return the needs of an action that a request does not hold."""
        needs = self.recorded.needs[action]
        return [need for need in needs if self.tier(need, entries) not in self.sufficient]

    def choose(
        self,
        action: int,
        missing: Sequence[Need],
        fetched: set[tuple[int, int | None]],
        entries: Sequence[Entry],
    ) -> Source | None:
        """Return the source of most missing needs, of several the newest; None if there is none."""
        served: dict[Source, int] = defaultdict(int)
        for need in missing:
            source = self.source(need, entries)
            if source is None or (source.place, source.page) in fetched:
                continue
            is_page = source.page is not None
            if is_page or not self.recorded.was_changed(source.place, action, "write"):
                served[source] += 1

        def rank(source: Source) -> tuple[int, int, bool, int]:
            page = source.page
            return served[source], source.place, page is not None, -(page or 0)

        return max(served, key=rank, default=None)

    def source(self, need: Need, entries: Sequence[Entry]) -> Source | None:
        """Return where a need can be fetched: a page of an offloaded result, or a repeatable call."""
        recall = self.recorded.recall
        for entry in reversed(entries):
            is_one = entry.stop - entry.start == 1 and entry.message.role == "tool"
            origin = self.origins[entry.start] if is_one and entry.form is Form.POINTER else None
            if origin is None or origin not in recall.earlier_mentions(need.entity, need.request):
                continue
            text, number = self.recorded.messages[origin].text, entry.start + 1
            for page in range(len(page_starts(text))):
                answer = Message("tool", page_text(text, number, page))
                if recall.mentions(need.entity, plain(answer).parts[0]):
                    return Source(origin, page, number)
        place = self.recorded.source(need)
        return None if place is None else Source(place)

    def read(self, source: Source, page: int) -> None:
        """Add a call that reads a page of an offloaded result, and the page."""
        text = self.recorded.messages[source.place].text
        start = page_starts(text)[page][0]
        id = f"again-{len(self.origins)}"
        call = ToolCall(id, "read_result", f'{{"number":{source.number},"start":{start}}}')
        self.append(Message("assistant", tool_calls=(call,)), None)
        answer = page_text(text, source.number, page)
        self.append(Message("tool", answer, tool_call_id=id, name="read_result"), None)

    def repeat(self, source: int) -> None:
        """Add a call and a copy of its recorded result to the history."""
        call = self.recorded.calls[source]
        new = ToolCall(f"again-{len(self.origins)}", call.name, call.arguments)
        self.append(Message("assistant", tool_calls=(new,)), None)
        result = self.recorded.messages[source]
        self.append(result.replace(tool_call_id=new.id), source)

    def count(self, row: Row, missing: Sequence[Need], entries: Sequence[Entry]) -> None:
        """Count what is missing when the recorded action follows."""
        for need in missing:
            if self.source(need, entries) is not None:
                row.unrecovered += 1
            elif need.origin == "agent":
                row.irrecoverable_agent += 1
            else:
                row.irrecoverable += 1

    # ------------------------------------------------------------------------------------------- tiers

    def tier(self, need: Need, entries: Sequence[Entry]) -> str:
        """Return the tier of a need in a request that may contain added messages."""
        sent, recall = [], self.recorded.recall
        for entry in entries:
            message, form = self.said(entry), entry.form.value
            is_one = entry.stop - entry.start == 1
            origin = self.origins[entry.start] if is_one else None
            if origin is not None:  # a recorded message or a copy, verbatim or shortened
                sent.append(Sent(origin, origin + 1, form, message))
            elif entry.form is not Form.VERBATIM:  # a summary, or a shortened added call
                sent.append(Sent(0, 0, Form.SUMMARY.value, message))
            elif recall.mentions(need.entity, message.parts[0]):  # an added call or page
                return "held"
        return recall.tier(need, sent)

    def said(self, entry: Entry) -> Said:
        """Convert the message of an entry; keep the entry alive, so that its id is not reused."""
        if id(entry) not in self.known:
            self.known[id(entry)] = entry, plain(entry.message)
        return self.known[id(entry)][1]


# ------------------------------------------------------------------------------------------- the price


@dataclass
class Price:
    """Prices of the requests of one replay, each with the request before it in the prompt cache."""

    prepared: PreparedRecording
    before: list[Entry] | None = None
    "messages of the previous request; None before the first one"
    reasoning_before: float = 0.0
    "hidden reasoning of the previous request, in tokens"

    def add(
        self,
        row: Row,
        entries: list[Entry],
        origins: Sequence[int | None],
        number: int,
        is_first: bool,
    ) -> float:
        """Add the tokens and the price of a request to a row; return the price of an output token."""
        prepared = self.prepared
        cache, prices = prepared.model.cache, prepared.model.prices
        tokens = total(entries) + prepared.fixed_tokens
        reasoning = self.reasoning(entries, origins)
        paid = tokens + prepared.priced_fixed_tokens + reasoning
        cached = self.cached(entries, number, is_first)
        rates = prices.rates_for(paid)
        rest = paid - cached
        input_price = rates.input
        if paid >= cache.minimum and rates.cache_write > rates.input:
            long = float(prepared.cache_timeline.long_share[number])
            input_price = long * rates.cache_write_1h + (1 - long) * rates.cache_write
        row.tokens += tokens
        row.priced += paid
        row.cached += cached
        row.usd += cached * rates.cache_read + rest * input_price if prices.known else nan
        self.before, self.reasoning_before = entries, reasoning
        return rates.output

    def cached(self, entries: list[Entry], number: int, is_first: bool) -> float:
        """Return the tokens of a request that are read from the cache."""
        prepared, timeline = self.prepared, self.prepared.cache_timeline
        cache = prepared.model.cache
        # The unlogged tokens and the tool definitions stand before the messages.
        head = prepared.priced_fixed_tokens + prepared.fixed_tokens - prepared.counter.REPLY_TOKENS
        if is_first and not timeline.warm[number]:
            system = total(entries[: leading_systems(entries)])
            prefix = min(float(timeline.shared[number]), head + system)
        elif self.before is None:
            prefix = 0.0
        else:
            same = total(entries[: self.readable(entries)])
            # The reasoning is spread evenly over the messages of the previous request.
            density = self.reasoning_before / max(total(self.before), 1)
            prefix = head + floor(same * (1 + density))
        if cache.kind == "none" or prefix < cache.minimum:
            return 0.0
        return prefix - prefix % cache.granularity

    def readable(self, entries: list[Entry]) -> int:
        """Return the number of leading messages that the cache can serve."""
        before = self.before or []
        same = 0
        while same < min(len(before), len(entries)):
            if before[same].message != entries[same].message:
                break
            same += 1
        if self.prepared.model.cache.kind != "explicit":
            return same
        marks = (0, leading_systems(before), max(len(before) - 1, 0), len(before))
        return max(mark for mark in marks if mark <= same)

    def reasoning(self, entries: list[Entry], origins: Sequence[int | None]) -> float:
        """Return the tokens of hidden reasoning of the messages that are verbatim in a request."""
        known = self.prepared.priced_reasoning_tokens
        places = (origins[entry.start] for entry in entries if entry.form is Form.VERBATIM)
        return sum(known.get(place, 0) for place in places if place is not None)


def total(entries: Sequence[Entry]) -> int:
    """Return the tokens of messages."""
    return sum(entry.tokens for entry in entries)


def leading_systems(entries: Sequence[Entry]) -> int:
    """Return the number of system messages at the beginning of a request."""
    roles = [entry.message.role for entry in entries]
    return next((i for i, role in enumerate(roles) if role != "system"), len(roles))
