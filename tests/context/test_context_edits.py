"""Tests that any sequence of edits gives the same context as a simple model of it."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from cutting import safe_cuts
from generated import conversations, history_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import NEVER, Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.tokens.counter import TokenCounter

COUNTER = TokenCounter("gpt-4o")
OTHERS = st.sampled_from(
    [
        Message("user", "a summary that names src/io.py"),
        Message("assistant", None),
        Message("tool", "12 lines", tool_call_id="c0a"),
        Message("system", "语" * 50),
    ]
)
FORMS = st.sampled_from(list(Form)[1:])
PLACES = st.integers(0, 10**6)


def shared(context: Context, sent: list[Entry]) -> int:
    """Return the tokens of the leading messages that two requests have in common."""
    pairs = zip(context.entries, sent, strict=False)
    same = takewhile(lambda pair: pair[0].message == pair[1].message, pairs)
    return sum(mine.tokens for mine, _ in same)


def edit(context: Context, what: str, place: int, width: int, other: Message, form: Form) -> None:
    """Make one edit at a valid position; edits of ranges take ``width`` entries."""
    size = len(context.entries)
    if what == "insert" or not size:
        return context.insert(place % (size + 1), other, form)
    start = place % size
    stop = min(size, start + width)
    if what == "replace":
        return context.replace(start, other, form)
    if what == "rewrite":
        context.rewrite(start, halved, form)
        return None
    return context.drop(start, stop) if what == "drop" else context.fold(start, stop, other, form)


def halved(message: Message, _: ToolCall | None) -> Message | None:
    return message.replace(content=message.text[: len(message.text) // 2]) if message.text else None


EDITS = st.tuples(
    st.sampled_from(["insert", "replace", "rewrite", "drop", "fold"]),
    PLACES, st.integers(1, 4), OTHERS, FORMS,
)  # fmt: skip


class Edits(RuleBasedStateMachine):
    """Random sequences of appends, edits, forks and requests, compared with a simple model."""

    @initialize(messages=conversations(turns=2))
    def begin(self, messages: tuple[Message, ...]) -> None:
        self.context = Context(Budget(10**6), history_of((), COUNTER))
        self.coming = list(messages)
        self.sent: list[Entry] = []
        self.dropped_at: dict[int, int] = {}
        self.until: dict[int, int] = {}
        self.edited: list[Entry] = []

    @rule(many=st.integers(1, 6))
    def append(self, many: int) -> None:
        for message in self.coming[:many]:
            self.context.append(message)
        del self.coming[:many]

    @rule(edits=st.lists(EDITS, min_size=1, max_size=3))
    def edit(self, edits: list[Any]) -> None:
        for one in edits:
            self.edit_one(*one)

    def edit_one(self, what: str, place: int, width: int, other: Message, form: Form) -> None:
        context, before = self.context, list(self.context.entries)
        edit(context, what, place, width, other, form)
        now = {id(entry) for entry in context.entries}
        self.edited += [e for e in context.entries if not any(e is old for old in before)]
        for entry in before:
            if id(entry) not in now and entry.form is not Form.VERBATIM:
                self.until[id(entry)] = context.request_index

    @rule()
    def send(self) -> None:
        self.commit(self.context)

    @rule(edits=st.lists(EDITS, min_size=0, max_size=5), twice=st.booleans())
    def send_a_fork(self, edits: list[Any], twice: bool) -> None:
        context = self.context
        before = self.everything(context)
        fork = context.fork()
        for number, one in enumerate(edits):
            if twice and number == 2:
                fork = fork.fork()
            edit(fork, *one)
        assert self.everything(context) == before
        assert fork.tokens == sum(map(COUNTER.count_message, fork.messages))
        self.check_prefix(fork)
        self.commit(fork)

    @rule(place=PLACES, width=st.integers(0, 6), kept=st.integers(0, 6))
    def send_what_is_left(self, place: int, width: int, kept: int) -> None:
        context, before = self.context, self.everything(self.context)
        start = place % (len(context.entries) + 1)
        stop = min(len(context.entries), start + width)
        kept = min(kept, stop - start)
        fork, other = (
            context.fork_with(start, stop, context.entries[stop - kept : stop]),
            context.fork(),
        )
        if stop - kept > start:
            other.drop(start, stop - kept)
        assert self.everything(context) == before
        assert self.everything(fork)[:3] == self.everything(other)[:3]
        assert fork.maybe_invalid == other.maybe_invalid
        self.check_prefix(fork)
        self.commit(fork)

    def commit(self, sent: Context) -> None:
        self.sent = list(sent.entries)
        self.context.commit_request(sent)

    def everything(self, context: Context) -> Any:
        return [
            list(map(id, context.entries)), context.tokens, context.unchanged_tokens,
            list(context.dropped_at), list(map(id, context.edited_entries)),
            dict(context.strategy_state), context.history_length,
            [e.until for e in context.edited_entries], context.request_index, context.maybe_invalid,
            context.first_droppable,
        ]  # fmt: skip

    def check_prefix(self, context: Context) -> None:
        assert context.unchanged_tokens == shared(context, self.sent)

    @invariant()
    def totals_are_a_fresh_count(self) -> None:
        context = self.context
        assert context.tokens == sum(map(COUNTER.count_message, context.messages))
        assert context.excess == context.tokens - context.budget.available
        assert [e.tokens for e in context.entries] == list(
            map(COUNTER.count_message, context.messages)
        )

    @invariant()
    def the_prefix_is_what_both_requests_begin_with(self) -> None:
        self.check_prefix(self.context)

    @invariant()
    def provenance_is_what_a_model_remembers(self) -> None:
        context = self.context
        verbatim = {e.start for e in context.entries if e.form is Form.VERBATIM}
        for position in range(context.history_length):
            if position not in verbatim:
                self.dropped_at.setdefault(position, context.request_index)
        assert context.dropped_at == [
            self.dropped_at.get(i, NEVER) for i in range(context.history_length)
        ]
        assert list(map(id, context.edited_entries)) == list(map(id, self.edited))
        assert all(e.until == self.until.get(id(e), NEVER) for e in context.edited_entries)

    @invariant()
    def places_are_found_as_a_search_from_the_left_finds_them(self) -> None:
        context = self.context
        entries = context.entries
        assert [e.start for e in entries] == sorted(e.start for e in entries)
        for position in range(context.history_length):
            index = next((i for i, e in enumerate(entries) if e.stop > position), len(entries))
            found = context.index_at_or_after(position)
            # An inserted entry stands before the position or at it.
            assert found <= index
            assert all(e.start == e.stop == position for e in entries[found:index])
            holds = index < len(entries) and entries[index].start <= position
            assert context.find_index(position) == (index if holds else None)

    @precondition(lambda self: self.context.history_length)
    @invariant()
    def cuts_are_those_of_the_history(self) -> None:
        context = self.context
        cuts = set(safe_cuts(list(context.history)))
        for index, entry in enumerate(context.entries):
            safe = entry.start in cuts or entry.start >= context.history_length
            assert context.is_safe_cut(index) == safe
            following = context.next_safe_cut(index)
            assert following >= index
            assert not any(context.is_safe_cut(i) for i in range(index, following))
            assert context.is_safe_cut(following)
        assert context.is_safe_cut(len(context.entries))


Edits.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestEdits = Edits.TestCase
