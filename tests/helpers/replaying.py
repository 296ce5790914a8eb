"""Replay recordings and keep all requests, and search the requests for needs without an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace
from ctxlab.evaluation.references import NeedIndex
from ctxlab.messages.entities import Entity, folder_and_name
from ctxlab.messages.request_times import request_time
from ctxlab.messages.source_lines import (
    SourceLine,
    find_source_lines,
    message_segments,
    searchable_text,
)
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies import Strategy, as_strategy, parse_strategy
from ctxlab.strategies.registry import DEFAULT_LINEUP

SPECS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *DEFAULT_LINEUP,
            *(
                "sliding_window(tokens=200)",
                "sliding_window(messages=3)",
                "sliding_window(messages=0)",
            ),
            *(
                "chunked_window(max_history=1)",
                "chunked_window(max_history=5)",
                "tool_result_cap(0)",
            ),
            *("offload()", "offload(tokens=30, preview=40)", "offload(20, 0) | panic()"),
            "offload(tokens=60, preview=60) | tool_stubs(keep=2) | sliding_window()",
            *(
                "tool_result_cap(chars=60)",
                "tool_stubs()",
                "tool_stubs(keep=0)",
                "tool_stubs(keep=2)",
            ),
            *("observation_mask(keep=0)", "observation_mask(keep=2)", "rolling_summary()"),
            *("rolling_summary(keep_recent=2, tokens=100)", "rolling_summary(0.3, 0.1)"),
            *(
                "panic(protect=1)",
                "panic(protect=0, large=100, begin=30, end=20)",
                "random_drop(3)",
                "random_decay(3)",
            ),
            *("name_list()", "word_list(separator='\\n')", "base64_text()", "line_list()"),
            *("names_in_place()", "names_in_place(keep=3)", "tool_stubs(keep=2) | random_drop()"),
            "tool_result_cap(chars=60) | tool_stubs(keep=2)",
            "tool_stubs(keep=2) | observation_mask(keep=5) | sliding_window()",
            "rolling_summary(trigger=0.5, target=0.2, keep_recent=3) | panic(protect=2)",
            "chunked_window(max_history=6) | rolling_summary() | panic()",
            "rolling_summary(0.5, 0.3, 4, tokens=150, prompt='structured') | panic()",
            *("contents()", "contents(0.3, 0.2, 0.1)", "contents(0.3, 0.3, 0.2) | panic()"),
            *("excerpt_memory()", "excerpt_memory(0.5, 0.4, 0.3) | panic(protect=1)"),
            "file_sessions() | excerpt_memory(0.6, 0.5, 0.2, said=0.5) | panic()",
            *("retrieval()", "retrieval(k=2, share=0.5, keep=1.0, chars=40, look_back=5)"),
            "contents(0.4, 0.3) | retrieval(k=3, share=0.4) | panic()",
            *("stale_results()", "stale_results(edits=False) | panic()", "recent_images(keep=1)"),
            *("recent_images(keep=0, chunk=2)", "shorten_arguments(keep=2, limit=20, chars=5)"),
            "shorten_arguments(0, 0, 3, ('read',), '…') | stale_results() | panic()",
            *("in_batches(observation_mask(keep=1), 0.4, 0.2)", "in_batches(panic()) | panic()"),
            "in_batches(stale_results() | sliding_window(), trigger=0.5, target=0.3)",
            "in_batches(rolling_summary(), trigger=0.9, target=0.6) | panic()",
            "in_batches(observation_mask(keep=1), trigger=0, tokens=30)",
            *("in_batches(panic(), 0, 1.0, 5)", "in_batches(sliding_window(), headroom=100)"),
            "in_batches(tool_stubs(keep=0) | sliding_window(messages=3), 0, tokens=100) | panic()",
            "in_batches(rolling_summary(0.3, 0.1), trigger=200, target=90, tokens=20) | panic()",
            *("idle(observation_mask(keep=1))", "idle(sliding_window(messages=2), 0) | panic()"),
            *("on_expiry(observation_mask(keep=0), trigger=0)", "on_expiry(sliding_window())"),
            "tool_stubs(keep=2) | on_expiry(rolling_summary(0.3), ttl=1, target=0.3) | panic()",
            *("background(sliding_window())", "background(tool_stubs(keep=0), 0.1, 0.2, 0.1, 0)"),
            "tool_stubs(keep=2) | background(rolling_summary(0.3), 0.4, target=0.3) | panic()",
            "background(panic() | observation_mask(keep=1), 50, 400, 40, requests=3) | panic()",
            "file_sessions() | background(chunked_window(2), 0.2, 0.5, 0.1) | sliding_window()",
            "background(names_in_place(keep=1), 0.3, 0.6, 0.3, 2) | first_and_last(3, 4)",
            *(
                "when_it_pays(observation_mask(keep=1))",
                "when_it_pays(sliding_window(messages=2), 3)",
            ),
            "when_it_pays(rolling_summary(0.3, 0.1), remaining=50, read=0.25, write=1.0) | panic()",
            *("file_sessions()", "file_sessions(carry=0)"),
            "tool_result_cap(60) | file_sessions(1)",
            "file_sessions() | tool_stubs() | sliding_window() | panic()",
            "file_sessions(follow=False) | tool_stubs() | rolling_summary() | panic()",
            "file_sessions(0) | observation_mask(keep=1) | rolling_summary(0.3, 0.1) | panic()",
            "file_sessions(0) | chunked_window(2) | contents(0.4, 0.3) | retrieval(k=3, share=0.4)",
            *("first_and_last()", "first_and_last(3, 2)", "middle_out()", "middle_out(tokens=150)"),
            "first_and_last(first=4, last=3) | panic()",
            "tool_stubs(keep=1) | middle_out() | panic()",
            "recorded",
            "pinned(tool_stubs(keep=1), False, False, 'never said') | panic()",
            *("oracle | panic()", "tool_stubs(keep=2) | message_oracle()"),
            "panic(large=100, begin=10, end=10) | tool_result_cap(chars=30)",
        )
    )
)
"""All strategies with several parameters, alone and in pipelines, and the default strategies."""

STRATEGIES: dict[str, Strategy] = {spec: parse_strategy(spec) for spec in SPECS}


def strategies() -> st.SearchStrategy[Strategy]:
    return st.sampled_from(list(STRATEGIES.values()))


@dataclass
class Sent:
    """A request of a replay: its messages, the entries of its context, and the context."""

    position: int
    messages: list[Message]
    entries: list[Entry]
    context: Context

    @property
    def texts(self) -> list[str]:
        return [message_text(message) for message in self.messages]


def run(
    prepared: PreparedRecording, strategy: Strategy | str | Callable[..., Any], limit: int | Budget
) -> tuple[Trace, list[Sent]]:
    """Replay a prepared recording and return the trace and all requests."""
    if isinstance(strategy, str):
        strategy = parse_strategy(strategy)
    budget = limit if isinstance(limit, Budget) else prepared.make_budget(limit)

    def look(context: Context) -> Sent:
        return Sent(context.history_length, list(context.messages), list(context.entries), context)

    trace = replay_trace(prepared, as_strategy(strategy), budget, {"sent": look})
    return trace, trace.observations["sent"]


def pauses(messages: Sequence[Message], sent: Sequence[Sent]) -> list[float | None]:
    """Return the seconds before each request; None if one of the two times is unknown."""
    times = [request_time(messages, each.position) for each in sent]
    found: list[float | None] = [None]
    for before, now in pairwise(times):
        known = before is not None and now is not None
        found.append((now - before).total_seconds() if known else None)  # type: ignore[operator]
    return found[: len(sent)]


def text_of(message: Message) -> str:
    return searchable_text(message_segments(message))


def seen_by_eye(prepared: PreparedRecording, sent: Sequence[Sent]) -> np.ndarray[Any, Any]:
    """Find the needs that are in view by searching every text of the request for every need.

    An edited version of a single message counts only if the original message contains the need: the
    stub "[output left out: 4567 lines]" does not show a need "4567".
    """
    needs = prepared.needs
    entities = [needs.get_need(i).entity for i in range(len(needs))]
    return np.array(
        [_shown(prepared, sent, i, each) for i, each in enumerate(entities)], dtype=bool
    )


def similar_by_eye(prepared: PreparedRecording, sent: Sequence[Sent]) -> np.ndarray[Any, Any]:
    """Find the paths whose folder and name are in view, by searching every text of the request."""
    found = []
    for i in range(len(prepared.needs)):
        entity = prepared.needs.get_need(i).entity
        short = folder_and_name(entity.text) if entity.kind == "path" else None
        found.append(short is not None and _shown(prepared, sent, i, Entity("identifier", short)))
    return np.array(found, dtype=bool)


def _shown(prepared: PreparedRecording, sent: Sequence[Sent], i: int, entity: Entity) -> bool:
    needs, request = prepared.needs, sent[prepared.needs.request[i]]
    return any(
        needs.find_offset(entity, text_of(message)) >= 0
        and (
            entry.is_aggregate
            or needs.find_offset(entity, text_of(prepared.history[entry.start])) >= 0
        )
        for message, entry in zip(request.messages, request.entries, strict=True)
    )


def held_by_eye(prepared: PreparedRecording, sent: Sequence[Sent]) -> np.ndarray[Any, Any]:
    """Find the needs whose message stands unchanged, or of which a text quotes a line.

    An edited version of a single message is compared with the lines of this message only.
    """
    needs, found = prepared.needs, []
    for i in range(len(needs)):
        entity, places = needs.get_need(i).entity, mention_positions(needs, i)
        find = partial(needs.find_offset, entity)
        lines = {
            place: list(
                find_source_lines(message_segments(prepared.history[place]), entity.text, find)
            )
            for place in places
        }

        def quotes(text: str, sources: Sequence[SourceLine], find: Any, entity: Entity) -> bool:
            at = [k for k in range(len(text)) if find(text, k) == k]
            return any(line.held_in(text, k, entity.text) for line in sources for k in at)

        found.append(
            any(
                entry.start in places
                if entry.form is Form.VERBATIM
                else quotes(
                    text_of(entry.message),
                    [line for found in lines.values() for line in found]
                    if entry.is_aggregate
                    else lines.get(entry.start, []),
                    find,
                    entity,
                )
                for entry in sent[needs.request[i]].entries
            )
        )
    return np.array(found, dtype=bool)


def mention_positions(needs: NeedIndex, need: int) -> list[int]:
    """Return the positions, in order, at which the entity of a need is mentioned before its use."""
    first = needs.mention_offsets[needs.entity[need]]
    return [int(place) for place in needs.mentions[first : needs.last_mention_row[need] + 1]]


def fetchable_by_eye(prepared: PreparedRecording, sent: Sequence[Sent]) -> np.ndarray[Any, Any]:
    """Find the needs for which the request has a stub or a line in a table of contents."""
    needs = prepared.needs
    found = []
    for i in range(len(needs)):
        places = set(mention_positions(needs, i))
        found.append(
            any(
                entry.form.fetchable and places & set(range(entry.start, entry.stop))
                for entry in sent[needs.request[i]].entries
            )
        )
    return np.array(found, dtype=bool)
