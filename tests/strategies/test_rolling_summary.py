"""Rules of ``rolling_summary``: bounded, extended, counted, and rejected where it saves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from generated import RESULTS, TEXTS, conversations, limits, tape_of
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.conversation import Message
from ctxlab.history import Form
from ctxlab.strategies import rolling_summary
from ctxlab.strategies.extract import extract
from ctxlab.strategies.rolling_summary import HEADER
from ctxlab.tokens import TokenCounter


@given(
    messages=conversations(turns=6),
    limit=limits(),
    target=st.sampled_from([0.1, 0.3, 0.5]),
    keep=st.sampled_from([0, 2, 20]),
)
def test_a_compaction_goes_down_to_its_target_its_own_summary_counted(
    messages: tuple[Message, ...], limit: int, target: float, keep: int, counter: TokenCounter
) -> None:
    strategy = rolling_summary(trigger=0.8, target=target, keep_recent=keep)
    trace, requests = run(tape_of(messages, counter), strategy, limit)
    for turn, event in trace.context.events:
        sent, available = requests[turn], trace.budget.available
        if event == "summary":
            kept = [i for i, e in enumerate(sent.entries) if e.form is Form.SUMMARY]
            assert len(kept) == 1
            recent = len(sent.entries) - kept[0] - 1
            tail = trace_tail(sent.messages)
            assert recent <= max(keep, len(sent.entries) - tail)
            # The task and the newest unit stay even where they alone are above the target.
            fixed = [e.tokens for e in (*sent.entries[: kept[0]], *sent.entries[tail:])]
            summary = sent.entries[kept[0]].tokens
            if sum(fixed) + summary <= target * available:
                assert sum(e.tokens for e in sent.entries) <= target * available


@pytest.mark.parametrize("letter", ["word ", "語", "🙂", "\ud800", "0x1F"])
def test_the_target_holds_in_every_script(letter: str, counter: TokenCounter) -> None:
    talk = [
        Message(role, f"{i} " + letter * 90) for i in range(99) for role in ("user", "assistant")
    ]
    tape = tape_of(talk, counter)
    trace, requests = run(tape, rolling_summary(keep_recent=99), tape.length // 3)
    compacted = [turn for turn, event in trace.context.events if event == "summary"]
    assert compacted
    for turn in compacted:
        assert requests[turn].context is trace.context
        assert trace.tokens[turn] - tape.fixed <= 0.5 * trace.budget.available
    # A compaction makes room for a while: none follows at the very next request.
    assert all(later - turn > 1 for turn, later in pairwise(compacted))


def trace_tail(messages: Sequence[Message]) -> int:
    """Where the newest unit of a request begins."""
    last = len(messages) - 1
    while messages[last].role == "tool":
        last -= 1
    return last


@given(messages=conversations(turns=6), limit=limits(), chars=st.sampled_from([0, 30, 300, 4000]))
def test_a_summary_is_bounded_in_characters_and_shorter_than_what_it_stands_for(
    messages: tuple[Message, ...], limit: int, chars: int, counter: TokenCounter
) -> None:
    trace, requests = run(tape_of(messages, counter), rolling_summary(chars=chars), limit)
    for entry in trace.context.edited:
        assert len(entry.message.text.removeprefix(HEADER)) <= chars
        assert entry.message.text.startswith(HEADER)
        assert entry.tokens < sum(map(counter.message, messages[entry.start : entry.stop]))
    for sent in requests:
        assert sum(e.form is Form.SUMMARY for e in sent.entries) <= 1


def test_nothing_happens_below_the_trigger(counter: TokenCounter) -> None:
    talk = [Message(role, "words " * 40) for _ in range(9) for role in ("user", "assistant")]
    tape = tape_of(talk, counter)
    trace, requests = run(tape, rolling_summary(trigger=0.8), int(tape.length / 0.8) + 20)
    assert trace.context.edited == []
    assert requests[-1].messages == talk[:-1]


def test_the_next_summary_extends_the_one_before(counter: TokenCounter) -> None:
    asked: list[tuple[str, list[str]]] = []

    def scribe(previous: str, messages: Sequence[Message], limit: int) -> str:
        asked.append((previous, [m.text.split()[0] for m in messages]))
        return f"{previous} {len(messages)}".strip()

    talk = [
        Message(role, f"{i}{role} " + "word " * 50)
        for i in range(12)
        for role in ("user", "assistant")
    ]
    trace, _ = run(tape_of(talk, counter), rolling_summary(keep_recent=2, summarizer=scribe), 600)
    assert len(asked) > 2
    said = [text for _, texts in asked for text in texts]
    assert said == [m.text.split()[0] for m in talk[1 : 1 + len(said)]]
    for (before, added), (after, _) in pairwise(asked):
        assert after == f"{before} {len(added)}".strip()
    spans = [(e.start, e.stop) for e in trace.context.edited]
    assert all(start == 1 for start, _ in spans)
    assert [stop for _, stop in spans] == sorted(stop for _, stop in spans)


def test_a_summary_that_saves_nothing_is_rejected_and_reported(counter: TokenCounter) -> None:
    def chatty(previous: str, messages: Sequence[Message], limit: int) -> str:
        return "word " * 2000

    talk = [Message(role, "word " * 50) for _ in range(9) for role in ("user", "assistant")]
    trace, requests = run(tape_of(talk, counter), rolling_summary(summarizer=chatty), 500)
    assert trace.context.edited == []
    assert {event for _, event in trace.context.events} == {
        "summary rejected: longer than what it stands for"
    }
    assert requests[-1].messages == talk[:-1]


SAYS = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from(TEXTS + RESULTS[:80]),
    )
)


@given(SAYS, SAYS, st.sampled_from([0, 10, 27, 28, 29, 60, 200, 1000]))
def test_an_extract_is_never_longer_than_allowed_and_is_deterministic(
    first: list[Message], then: list[Message], limit: int
) -> None:
    summary = extract(extract("", first, limit), then, limit)
    assert len(summary) <= limit
    assert summary == extract(extract("", first, limit), then, limit)


def test_an_extract_counts_what_it_left_out_in_earlier_rounds_too() -> None:
    talk = [Message("user", f"question number {i} of the conversation") for i in range(90)]
    summary = ""
    for start in range(0, 90, 10):
        summary = extract(summary, talk[start : start + 10], 900)
    kept = [line for line in summary.splitlines() if line.startswith("- user: ")]
    assert f"[… {90 - len(kept)} lines left out]" in summary
    assert kept[-1].endswith("number 89 of the conversation")
    assert kept[0].endswith("number 0 of the conversation")


@pytest.mark.parametrize("text", ["", " \n ", None])
def test_an_extract_has_no_line_for_what_says_nothing(text: str | None) -> None:
    assert extract("", [Message("user", text), Message("tool", text)], 400) == ""
