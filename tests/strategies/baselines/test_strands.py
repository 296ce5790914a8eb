"""Tests of the Strands baselines."""

from __future__ import annotations

from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import run
from small_talk import firsts, last, played, said, steps, task

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.strands.conversation_managers import shorten_result
from ctxlab.tokens.counter import TokenCounter

PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def test_the_window_waits_for_the_end_of_the_turn() -> None:
    assert len(last("strands.sliding(window_size=4)", task(20), 10**6)) == 42
    after = [*task(20), Message("assistant", "ready"), Message("user", "next")]
    assert firsts(last("strands.sliding(window_size=4)", after, 10**6)) == [
        *("Be brief.", "step 19", "result 19", "ready", "next")
    ]


def test_per_turn_applies_it_before_every_call() -> None:
    _, sent = played("strands.sliding(window_size=4, per_turn=True)", task(20), 10**6)
    assert max(len(s.messages) for s in sent) == 1 + 4
    _, sent = played("strands.sliding(window_size=4, per_turn=3)", task(20), 10**6)
    assert max(len(s.messages) for s in sent) > 1 + 4


def test_after_a_turn_it_goes_on_at_a_users_message() -> None:
    messages = [*said(6), Message("user", "next")]
    assert firsts(last("strands.sliding(window_size=3)", messages, 10**6)) == [
        *("user 5", "assistant 5", "next")
    ]


def test_where_it_does_not_fit_the_oldest_result_keeps_its_ends() -> None:
    messages = task(3, lines=100)
    whole, _ = played("full", messages, 10**6)
    trace, sent = played("strands.sliding", messages, whole.tokens[-1] - 1)
    shortened = [m for m in sent[-1].messages if "truncated: " in m.text]
    assert [m.tool_call_id for m in shortened] == ["c0a"]
    text = messages[3].text
    assert shortened[0].text.startswith(text[:200] + "...")
    assert shortened[0].text.endswith("..." + text[-200:])
    assert f"truncated: {len(text) - 400} chars removed" in shortened[0].text
    assert not any(trace.violation_counts)


def test_then_the_oldest_messages_go_the_task_among_them() -> None:
    trace, sent = played("strands.sliding", task(20), 800)
    assert max(trace.tokens) <= 800
    assert sent[-1].messages[1].role == "assistant"
    assert trace.violation_counts[-1]
    assert "Fix the bug" in sent[0].texts


def test_what_cannot_be_reduced_is_sent_and_reported() -> None:
    trace, sent = played("strands.sliding", [Message("user", "word " * 500)], 100)
    assert len(sent[-1].messages) == 1
    assert "package would raise an error" in trace.context.events[-1][1]


def test_a_short_result_and_one_that_was_cut_stay() -> None:
    result = Message("tool", "x" * 1000, tool_call_id="c")
    cut = shorten_result(result, None)
    assert cut is not None
    assert shorten_result(cut, None) is None
    assert shorten_result(result.replace(content="x" * 400), None) is None


def test_an_image_in_a_result_becomes_a_line() -> None:
    made = shorten_result(Message("tool", (PIXEL,), tool_call_id="c"), None)
    assert made is not None
    assert made.text == "[image: png, 3 bytes]"


def test_a_summary_of_the_oldest_third_stands_as_the_users_message() -> None:
    messages = said(10)
    whole, _ = played("full", messages, 10**6)
    trace, sent = played("strands.summarizing", messages, whole.tokens[-1] - 1)
    assert [m.role for m in sent[-1].messages[:3]] == ["user", "user", "assistant"]
    assert "user 0" in sent[-1].texts[0]
    assert len(sent[-1].messages) == 20 - 6 + 1
    assert not any(trace.violation_counts)


def test_the_newest_messages_are_not_summarised() -> None:
    trace, sent = played("strands.summarizing(preserve_recent_messages=10)", said(5), 300)
    assert sent[-1].messages == said(5)
    assert trace.tokens[-1] > 300


def test_a_summary_never_parts_a_call_from_its_results() -> None:
    trace, _ = played("strands.summarizing(preserve_recent_messages=3)", task(20, parallel=2), 900)
    assert any(event == "summary" for _, event in trace.context.events)
    assert not any(trace.violation_counts)


def test_proactive_compression_begins_below_the_budget() -> None:
    messages = [Message("user", "go"), *steps(20)]
    lazy, _ = played("strands.sliding", messages, 1000)
    eager, _ = played("strands.sliding(proactive_compression=0.5)", messages, 1000)
    assert max(eager.tokens) < max(lazy.tokens) <= 1000


def test_a_long_result_keeps_its_ends_and_says_where_the_rest_is() -> None:
    messages = task(2, lines=100)
    spec = "strands.auto(threshold=250, preview_tokens=100)"
    _, sent = played(spec, messages, 10**6)
    text = messages[3].text
    shown = sent[-1].messages[3].text
    assert shown.startswith(f"[Truncated: 1 block, ~{-(-len(text) // 4):,} tokens]")
    assert text[:240] in shown
    assert text[-160:] in shown
    assert shown.endswith("[Stashed] [ref: c0a_0]")
    assert all(m.text == shown for s in sent for m in s.messages if m.tool_call_id == "c0a")


def test_the_result_of_a_failed_call_is_not_shortened() -> None:
    messages = task(2, lines=100)
    messages[3] = messages[3].replace(extra={"is_error": True})
    sent = last("strands.auto(threshold=250, preview_tokens=100)", messages, 10**6)
    assert sent[3] == messages[3]
    assert sent[5] != messages[5]


def test_a_preview_above_the_threshold_is_shortened_again_before_each_call() -> None:
    messages = task(3, lines=100)
    spec = "strands.auto(threshold=110, preview_tokens=100)"
    _, sent = played(spec, messages, 10**6)
    shown = [s.messages[3].text for s in sent if len(s.messages) > 3]
    assert [text.count("[Truncated:") for text in shown] == [2, 3, 4]


def test_a_summary_keeps_the_first_and_the_newest_messages_and_is_the_assistants() -> None:
    messages = said(10)
    whole, _ = played("full", messages, 10**6)
    _, sent = played("strands.auto", messages, round(whole.tokens[-1] / 0.86))
    assert sent[-1].messages[0] == messages[0]
    assert sent[-1].messages[1].role == "assistant"
    assert sent[-1].messages[1].text.startswith("[Summarized: ")
    assert sent[-1].messages[-4:] == messages[: sent[-1].position][-4:]


def test_when_nothing_else_helps_the_oldest_fifth_goes_and_a_note_stays() -> None:
    messages = said(10)
    whole, _ = played("full", messages, 10**6)
    _, sent = played("strands.auto(utilization=2.0)", messages, whole.tokens[-1] - 1)
    assert sent[-1].messages[0] == messages[0]
    note = sent[-1].messages[1]
    assert note.role == "assistant"
    assert "messages elided ...]" in note.text


@given(
    messages=conversations() | strange_conversations(),
    limit=limits(),
    spec=st.sampled_from(
        [
            *("sliding(window_size=3)", "sliding(window_size=0)", "summarizing(0.5, 1)"),
            *("summarizing()", "auto()", "auto(threshold=9, preview_tokens=5, preserve_recent=1)"),
        ]
    ),
)
def test_totals_are_true_and_what_still_overflows_was_reported(
    messages: tuple[Message, ...], limit: int, spec: str, counter: TokenCounter
) -> None:
    spec = spec.replace("(0.5, 1)", "(summary_ratio=0.5, preserve_recent_messages=1)")
    trace, requests = run(prepare_messages(messages, counter), f"strands.{spec}", limit)
    reported = {turn for turn, event in trace.context.events if event.startswith("overflow")}
    for turn, (sent, tokens) in enumerate(zip(requests, trace.tokens, strict=True)):
        assert tokens == counter.count_request(sent.messages)
        if sent.entries:
            assert (tokens > limit) == (turn in reported)
