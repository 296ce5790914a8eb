"""Tests of ``rolling_summary``: bounded, extended, counted, and rejected if it saves nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from generated import RESULTS, TEXTS, conversations, history_of, limits, prepare_messages
from hypothesis import given
from hypothesis import strategies as st
from replaying import run

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.llm.base import Request
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies import rolling_summary
from ctxlab.strategies.summaries.extractive import extract_summary
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER
from ctxlab.tokens.counter import TokenCounter


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
    trace, requests = run(prepare_messages(messages, counter), strategy, limit)
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
    prepared = prepare_messages(talk, counter)
    trace, requests = run(
        prepared, rolling_summary(keep_recent=99), prepared.longest_request_tokens // 3
    )
    compacted = [turn for turn, event in trace.context.events if event == "summary"]
    assert compacted
    for turn in compacted:
        assert requests[turn].context is trace.context
        assert trace.tokens[turn] - prepared.fixed_tokens <= 0.5 * trace.budget.available
    # A compaction makes room for a while: none follows at the very next request.
    assert all(later - turn > 1 for turn, later in pairwise(compacted))


def trace_tail(messages: Sequence[Message]) -> int:
    """Return the index at which the newest unit of a request begins."""
    last = len(messages) - 1
    while messages[last].role == "tool":
        last -= 1
    return last


@given(
    messages=conversations(turns=6),
    limit=limits(),
    tokens=st.sampled_from([0, 10, 100, 2000]),
    prompt=st.sampled_from(["summary", "structured"]),
)
def test_a_summary_is_bounded_and_shorter_than_what_it_stands_for(
    messages: tuple[Message, ...], limit: int, tokens: int, prompt: str, counter: TokenCounter
) -> None:
    strategy = rolling_summary(tokens=tokens, prompt=prompt)
    trace, requests = run(prepare_messages(messages, counter), strategy, limit)
    for entry in trace.context.edited_entries:
        assert counter.count_text(entry.message.text.removeprefix(SUMMARY_HEADER)) <= tokens
        assert entry.message.text.startswith(SUMMARY_HEADER)
        assert entry.tokens < sum(map(counter.count_message, messages[entry.start : entry.stop]))
    for sent in requests:
        assert sum(e.form is Form.SUMMARY for e in sent.entries) <= 1


def test_nothing_happens_below_the_trigger(counter: TokenCounter) -> None:
    talk = [Message(role, "words " * 40) for _ in range(9) for role in ("user", "assistant")]
    prepared = prepare_messages(talk, counter)
    trace, requests = run(
        prepared, rolling_summary(trigger=0.8), int(prepared.longest_request_tokens / 0.8) + 20
    )
    assert trace.context.edited_entries == []
    assert requests[-1].messages == talk[:-1]


def test_the_next_summary_extends_the_one_before(counter: TokenCounter) -> None:
    def write_summary(request: Request) -> str:
        body = request.messages[1].text
        return " ".join(re.findall(r"marker\d+", body))

    talk = [
        Message(role, f"marker{i}{role[0]} " + f"word{i} is here " * 20)
        for i in range(12)
        for role in ("user", "assistant")
    ]
    client = ScriptedClient(write_summary)
    strategy = rolling_summary(keep_recent=2, model="gpt-4o")
    prepared = PreparedRecording(Recording("r", tuple(talk)), counter, client)
    trace, _ = run(prepared, strategy, 600)
    assert len(client.requests) > 2
    bodies = [request.messages[1].text for request in client.requests]
    said = [m for body in bodies for m in re.findall(r"marker\d+[ua]", body)]
    assert said == [m.text.split()[0] for m in talk[1 : 1 + len(said)]]
    summaries = [
        entry.message.text.removeprefix(SUMMARY_HEADER) for entry in trace.context.edited_entries
    ]
    for before, body in zip(summaries, bodies[1:], strict=False):
        assert body.startswith(f"<summary_so_far>\n{before}\n</summary_so_far>\n")
    spans = [(e.start, e.stop) for e in trace.context.edited_entries]
    assert all(start == 1 for start, _ in spans)
    assert [stop for _, stop in spans] == sorted(stop for _, stop in spans)
    assert len(trace.context.model_calls) == len(client.requests)


def test_a_summary_that_saves_nothing_is_rejected_and_reported(counter: TokenCounter) -> None:
    said = [("user", "word " * 90), ("assistant", "hi"), ("user", "yes"), ("assistant", "ok")]
    talk = [Message(role, text) for role, text in said]  # type: ignore[arg-type]
    trace, requests = run(prepare_messages(talk, counter), rolling_summary(), 110)
    assert trace.context.edited_entries == []
    assert trace.context.events == [
        (1, "summary rejected: not shorter than the messages it replaces")
    ]
    assert requests[-1].messages == talk[:-1]


def test_what_was_rejected_is_not_asked_for_again_until_there_is_twice_as_much(
    counter: TokenCounter,
) -> None:
    client = ScriptedClient(lambda _: "word " * 2000)
    talk = [Message(role, "hi") for _ in range(20) for role in ("user", "assistant")]
    strategy = rolling_summary(0.1, 0.05, keep_recent=0, tokens=500, model="gpt-4o")
    context = Context(Budget(4000), history_of(talk, counter))
    context.history.client = client
    context.advance(2)
    context._available = 10  # so little that it compacts what is too small to be worth it
    for length in range(3, 12):
        context.advance(length)
        strategy(context)
    rejected = [event for _, event in context.events if event.startswith("summary rejected")]
    assert len(client.requests) < 4
    assert len(rejected) < 4


def test_seed_004_a_summary_is_capped_and_condensed_when_it_grows_beyond_the_cap(
    counter: TokenCounter,
) -> None:
    """Seed 004, summary."""
    talk = [
        Message(role, f"marker{i}{role[0]} " + "and so on " * 40)
        for i in range(60)
        for role in ("user", "assistant")
    ]
    for prompt in ("summary", "structured"):
        strategy = rolling_summary(tokens=150, keep_recent=4, prompt=prompt)
        trace, _ = run(prepare_messages(talk, counter), strategy, 1500)
        summaries = [
            e.message.text.removeprefix(SUMMARY_HEADER) for e in trace.context.edited_entries
        ]
        assert len(summaries) > 5
        assert all(counter.count_text(summary) <= 150 for summary in summaries)
        # It says how much it left out, and that grows.
        left = [sum(map(int, re.findall(r"… (\d+) ", summary))) for summary in summaries]
        assert left[-1] > left[2] > 0
        assert left == sorted(left)


def test_a_prompt_that_is_nowhere_is_said_at_once() -> None:
    with pytest.raises(SpecError, match="unknown prompt 'short'"):
        rolling_summary(prompt="short")


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
    summary = extract_summary(extract_summary("", first, limit), then, limit)
    assert len(summary) <= limit
    assert summary == extract_summary(extract_summary("", first, limit), then, limit)


SHORT_AND_LONG = st.sampled_from(["b", "four words of it", "x" * 112, "y" * 40])


@given(
    texts=st.lists(SHORT_AND_LONG, min_size=3, max_size=9),
    cut=st.integers(1, 8),
    limit=st.sampled_from([60, 120, 300]),
)
def test_an_extract_that_is_continued_equals_one_of_all_messages(
    texts: list[str], cut: int, limit: int
) -> None:
    messages = [Message("user", text) for text in texts]
    summary = extract_summary("", messages[:cut], limit)
    assert extract_summary(summary, messages[cut:], limit) == extract_summary("", messages, limit)


def test_an_extract_counts_what_it_left_out_in_earlier_rounds_too() -> None:
    talk = [Message("user", f"question number {i} of the conversation") for i in range(90)]
    summary = ""
    for start in range(0, 90, 10):
        summary = extract_summary(summary, talk[start : start + 10], 900)
    kept = [line for line in summary.splitlines() if line.startswith("- user: ")]
    assert f"[… {90 - len(kept)} lines left out]" in summary
    assert kept[-1].endswith("number 89 of the conversation")
    assert kept[0].endswith("number 0 of the conversation")


@pytest.mark.parametrize("text", ["", " \n ", None])
def test_an_extract_has_no_line_for_what_says_nothing(text: str | None) -> None:
    assert extract_summary("", [Message("user", text), Message("tool", text)], 400) == ""
