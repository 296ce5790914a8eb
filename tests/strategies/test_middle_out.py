"""Tests of ``middle_out``, which drops messages in the middle until the rest fits."""

from __future__ import annotations

from itertools import pairwise, starmap

from cutting import safe_cuts
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run
from small_talk import firsts, last, played, said, task

from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


def test_as_many_steps_stay_at_the_beginning_as_at_the_end() -> None:
    sent = last("middle_out(tokens=300)", task(20, lines=2), 10**6)
    numbers = [int(message.text.split()[1]) for message in sent[2:] if message.role == "tool"]
    oldest, newest = [n for n in numbers if n < 10], [n for n in numbers if n >= 10]
    assert oldest == list(range(len(oldest)))
    assert newest == list(range(20 - len(newest), 20))
    assert len(newest) - len(oldest) in (0, 1)


def test_what_was_gone_comes_back_once_a_large_message_left_the_end() -> None:
    messages = [*said(4), Message("user", "word " * 300), *said(4)]
    _, sent = played("middle_out(tokens=450)", messages, 10**6)
    seen = [messages[2] in s.messages for s in sent if s.position > 9]
    assert False in seen
    assert seen[-1]


def test_the_task_and_the_newest_step_stay_though_they_do_not_fit() -> None:
    assert firsts(last("middle_out()", task(9), 40)) == [
        *("Be brief.", "Fix the", "step 8", "result 8")
    ]


@given(messages=conversations(), limit=limits())
def test_it_drops_no_more_than_it_must(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    available = prepared.make_budget(limit).available
    trace, requests = run(prepared, "middle_out()", limit)
    for sent in requests:
        cuts = [
            c for c in safe_cuts(messages[: sent.position]) if c >= prepared.history.head_length
        ]
        steps = list(starmap(range, pairwise([*cuts, sent.position])))
        head = list(range(min(prepared.history.head_length, sent.position)))
        while True:
            kept = [*head, *(i for step in steps for i in step)]
            if (
                sum(counter.count_message(messages[i]) for i in kept) <= available
                or len(steps) <= 1
            ):
                break
            steps.pop((len(steps) - 1) // 2)
        assert [entry.start for entry in sent.entries] == kept
    assert not any(trace.violation_counts)
