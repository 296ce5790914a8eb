"""Tests of the Codex CLI baselines, by the source code of its compaction."""

from __future__ import annotations

from small_talk import firsts, last, played, said, steps, task

from ctxlab.messages.types import Message


def test_what_the_user_said_stays_and_a_summary_follows_it() -> None:
    messages = [*said(3), Message("user", "user 3"), *steps(8)]
    trace, sent = played("codex", messages, 900)
    cut = next(s for s, turn in zip(sent, trace.tokens, strict=True) if "Summary" in s.texts[-1])
    assert firsts(cut.messages) == ["user 0", "user 1", "user 2", "user 3", "Summary of"]
    assert not any(trace.violation_counts)


def test_in_the_middle_of_a_turn_the_newest_results_go_too() -> None:
    trace, sent = played("codex", task(20), 480)
    for turn, event in trace.context.events:
        assert event == "summary"
        assert [m.role for m in sent[turn].messages] == ["system", "user", "user"]
    assert len(trace.context.events) > 2


def test_it_waits_for_nine_tenths_of_the_window() -> None:
    whole, _ = played("full", task(20), 1000)
    trace, _ = played("codex", task(20), 1000)
    first = next(turn for turn, event in trace.context.events if event == "summary")
    assert whole.tokens[first] >= 900 > whole.tokens[first - 1]


def test_a_message_that_is_not_answered_stands_after_the_summary() -> None:
    messages = [*task(7), Message("user", "And now? " * 9)]
    tokens = played("full", messages, 10**6)[0].tokens[-1]
    sent = last("codex", messages, int(tokens / 0.9))
    assert firsts(sent) == ["Be brief.", "Fix the", "Summary of", "And now?"]


def test_of_the_users_words_the_newest_stay_and_the_oldest_that_does_not_fit_is_cut() -> None:
    long = Message("user", "begin " + "x" * 400 + " end")
    messages = [Message("user", "first"), long, *said(2), *steps(9)]
    sent = last("codex(user_tokens=130)", messages, 700)
    assert firsts(sent, 1)[0] == "begin"
    assert "tokens left out" in sent[0].text
    assert sent[0].text.endswith(" end")
    assert len(sent[0].text) < 320
    assert firsts(sent[1:4]) == ["user 0", "user 1", "Summary of"]


def test_the_next_summary_extends_the_first_and_is_the_only_one() -> None:
    sent = last("codex", task(40), 800)
    assert sum("Summary of" in m.text for m in sent) == 1
    assert "step 0" in next(m.text for m in sent if "Summary of" in m.text)


def test_a_server_keeps_64_000_tokens_of_the_users_words_and_a_local_compaction_20_000() -> None:
    messages = [Message("user", "word " * 70_000), *steps(9)]
    size = played("full", messages, 10**6)[0].tokens[-1]
    for name, tokens in (("codex", 64_000), ("codex.local", 20_000)):
        sent = last(f"{name}(trigger={size})", messages, 10**6)
        assert firsts(sent[1:]) == ["Summary of"]
        assert 4 * tokens <= len(sent[0].text) < 4 * tokens + 50
