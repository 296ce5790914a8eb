"""Tests of the baselines of DeepSeek Harness."""

from __future__ import annotations

from small_talk import firsts, played, steps, task


def first_turn(spec: str, limit: int, event: str = "summary") -> int:
    trace, _ = played(spec, task(30), limit)
    assert not any(trace.violation_counts)
    return next(turn for turn, name in trace.context.events if name == event)


def test_it_compacts_at_a_share_of_the_window_or_when_the_headroom_is_used() -> None:
    whole, _ = played("full", task(30), 1000)
    for spec, limit in (
        ("deepseek(headroom_tokens=100)", 800),
        ("deepseek(headroom_tokens=300)", 700),
        ("deepseek(headroom_tokens=300, max_tokens=100)", 600),
        ("deepseek.v0_1", 800),
    ):
        turn = first_turn(spec, 1000)
        assert whole.tokens[turn] >= limit > whole.tokens[turn - 1]


def test_at_least_a_sixth_of_the_window_stays() -> None:
    trace, sent = played("deepseek(headroom_tokens=100)", task(30), 1000)
    turn = next(turn for turn, event in trace.context.events if event == "summary")
    kept = sent[turn].entries[2:]
    tokens = sum(entry.tokens for entry in kept)
    assert tokens >= 160 > tokens - kept[0].tokens - kept[1].tokens


def test_a_small_window_leaves_no_room_so_only_an_overflow_is_compacted() -> None:
    whole, _ = played("full", task(30), 1000)
    trace, sent = played("deepseek", task(30), 1000)
    turn = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[turn] > 1000 >= whole.tokens[turn - 1]
    assert [text.split()[0] for text in firsts(sent[turn].messages)[1:]] == [
        "Summary",
        "step",
        "result",
    ]


def test_long_results_are_cut_first_and_a_summary_is_made_only_if_that_is_not_enough() -> None:
    messages = [*task(0), *steps(4, lines=800)]  # 12,000 characters each
    trace, sent = played("deepseek(headroom_tokens=100)", messages, 14_000)
    assert trace.context.events == []
    texts = [m.text for m in sent[-1].messages if m.role == "tool"]
    assert [len(text) < 5_200 for text in texts] == [True, True, True, False]
    trace, sent = played("deepseek(headroom_tokens=100, prune=False)", messages, 14_000)
    assert [event for _, event in trace.context.events] == ["summary"]
    assert max(len(m.text) for m in sent[-1].messages) > 8_192
