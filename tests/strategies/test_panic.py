"""Rules of ``panic``, after the seed design "Robustness", 10.8: shorten, then drop, for one request."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.history import Form
from ctxlab.evaluation.engine import replay_trace
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import full, panic, rolling_summary, tool_result_cap
from ctxlab.tokens.counter import TokenCounter, count_tokens

LIMIT = 8192
HUGE = "x" * 50_000
SHORT = HUGE[:1000] + "\n...[truncated]...\n" + HUGE[:500]


def steps(*results: str) -> list[Message]:
    """Return a task, a call for each result, and the final answer of the agent."""
    talk = [Message("system", "You are a test agent."), Message("user", "go")]
    for number, text in enumerate(results):
        talk.append(Message("assistant", None, tool_calls=(ToolCall(f"c{number}", "read"),)))
        talk.append(Message("tool", text, tool_call_id=f"c{number}"))
    return [*talk, Message("assistant", "done")]


def words(tokens: int) -> str:
    return "word " * tokens


def test_ten_results_of_50000_characters_fit_into_a_window_of_8192() -> None:
    trace, sent = run(prepare_messages(steps(*[HUGE] * 10), TokenCounter("gpt-4")), panic(), LIMIT)
    last = sent[-1].messages
    assert count_tokens(last, "gpt-4") < LIMIT
    assert count_tokens(last, "gpt-4") == trace.tokens[-1]
    assert [m.role for m in last[:2]] == ["system", "user"]
    assert last[-1].tool_call_id == "c9"
    assert [m.text for m in last if m.role == "tool"] == [SHORT] * 10
    assert trace.context.events[-1] == (10, "panic")


def test_large_results_in_the_middle_are_shortened_before_anything_is_dropped(
    counter: TokenCounter,
) -> None:
    talk = steps(HUGE, "small", HUGE, "fine", "fine", "fine")
    _, sent = run(prepare_messages(talk, counter), panic(), 6000)
    assert [m.text for m in sent[-1].messages] == [
        m.text if m.text != HUGE else SHORT for m in talk[:-1]
    ]


def test_then_the_oldest_go_with_their_pairs(counter: TokenCounter) -> None:
    talk = steps(*(words(300) + str(i) for i in range(9)))
    trace, sent = run(prepare_messages(talk, counter), panic(), 1500)
    kept = [m.text[-1] for m in sent[-1].messages if m.role == "tool"]
    assert kept == ["5", "6", "7", "8"]
    assert [m.role for m in sent[-1].messages[:2]] == ["system", "user"]
    assert trace.tokens[-1] + 300 > 1500 - 50


def test_the_newest_are_never_dropped_but_shortened_at_last(counter: TokenCounter) -> None:
    _, sent = run(prepare_messages(steps("fine", HUGE, HUGE), counter), panic(protect=4), 2000)
    assert [m.text for m in sent[-1].messages if m.role == "tool"] == ["fine", SHORT, SHORT]


def test_what_is_protected_and_still_too_large_is_reported_as_stuck(counter: TokenCounter) -> None:
    trace, sent = run(
        prepare_messages(steps(words(400), words(400)), counter), panic(protect=4), 500
    )
    assert (2, "stuck") in trace.context.events
    assert len(sent[-1].messages) == 6


def test_a_summary_is_never_dropped(counter: TokenCounter) -> None:
    talk = [
        m
        for i in range(30)
        for m in (Message("user", words(60) + str(i)), Message("assistant", words(60)))
    ]
    trace, sent = run(
        prepare_messages(talk, counter), rolling_summary(0.8, 0.7) | panic(protect=2), 900
    )
    assert any(event == "summary" for _, event in trace.context.events)
    stood = False
    for request in sent:
        forms = [e.form for e in request.entries]
        stood = stood or Form.SUMMARY in forms
        assert not stood or forms[1] is Form.SUMMARY


@given(messages=conversations(), limit=limits(), protect=st.integers(0, 6))
def test_a_panic_lasts_for_one_request_and_protects_both_ends(
    messages: tuple[Message, ...], limit: int, protect: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, panic(protect=protect), limit)
    whole = replay_trace(prepared, full(), prepared.make_budget(limit))
    assert trace.context.edited_entries == []
    assert trace.context.tokens == whole.context.tokens
    assert len(trace.context.entries) == len(messages)
    panicked = {turn for turn, event in trace.context.events if event == "panic"}
    for turn, sent in enumerate(requests):
        recorded = messages[: sent.position]
        if turn not in panicked:
            assert sent.messages == list(recorded)
            continue
        positions = [e.start for e in sent.entries]
        ends = {
            *range(min(prepared.history.head_length, sent.position)),
            *recorded_tail(sent.position, protect),
        }
        assert ends <= set(positions)
        assert positions == sorted(positions)
        dropped = set(range(sent.position)) - set(positions)
        if dropped:  # the oldest that may go, and no more than needed
            assert dropped == set(range(min(dropped), max(dropped) + 1))
            assert min(dropped) == prepared.history.head_length
            first = min(p for p in positions if p >= min(dropped))
            assert prepared.history.unit_starts[first] == first


def recorded_tail(length: int, protect: int) -> range:
    return range(max(0, length - protect), length)


@given(messages=conversations(), limit=limits())
def test_no_more_is_dropped_than_what_makes_it_fit(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    _, requests = run(prepared, panic(protect=1), limit)
    for sent in requests:
        positions = {e.start for e in sent.entries}
        gone = [p for p in range(sent.position) if p not in positions]
        if not gone:
            continue
        # With the newest unit that went put in again, every large result shortened, it would not fit.
        # Results of the last messages are shortened only where these alone are too large.
        start, newest = (
            prepared.history.unit_starts[gone[-1]],
            prepared.history.unit_starts[sent.position - 1],
        )
        ends = [*messages[: prepared.history.head_length], *messages[newest : sent.position]]
        stop = sent.position if counter.count_request(ends) > limit else newest
        back = [
            (p < stop and panic().shorten(message, None)) or message
            for p, message in enumerate(messages[: sent.position])
            if p not in gone or p >= start
        ]
        assert prepared.history.head_length <= start
        assert gone[-1] < newest
        assert counter.count_request(back) > limit


def test_after_a_cap_there_is_nothing_large_left_to_shorten(counter: TokenCounter) -> None:
    prepared = prepare_messages(steps(*[HUGE] * 6), counter)
    trace, sent = run(prepared, tool_result_cap(chars=1500) | panic(), 2000)
    assert all(len(m.text) <= 1600 for m in sent[-1].messages)
    assert trace.tokens[-1] <= 2000
