"""Tests of the SWE-agent baseline, as defined by its source."""

from __future__ import annotations

import pytest
from small_talk import firsts, last, played, said, task

from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy

OLD = "Old environment output: (10 lines omitted)"


def results(messages: list[Message]) -> list[str]:
    return [m.text for m in messages if m.role == "tool"]


def test_the_last_five_observations_stay_and_the_others_say_how_many_lines_they_had() -> None:
    sent = results(last("swe_agent.last_5", task(12), 10**6))
    assert sent[:7] == [OLD] * 7
    assert firsts([Message("user", text) for text in sent[7:]]) == [
        f"result {i}" for i in range(7, 12)
    ]


def test_nothing_is_elided_before_there_are_more() -> None:
    assert OLD not in results(last("swe_agent.last_5", task(5), 10**6))


@pytest.mark.parametrize(
    ("steps", "elided"), [(8, 0), (9, 5), (12, 5), (13, 5), (14, 10), (19, 15)]
)
def test_polling_edits_only_every_few_observations(steps: int, elided: int) -> None:
    # The task counts as an observation: 10 of them are there after 9 steps.
    sent = results(last("swe_agent.last_5(polling=5, n=4)", task(steps), 10**6))
    assert sent.count(OLD) == elided


def test_a_short_observation_is_replaced_by_a_longer_line() -> None:
    messages = [m if m.role != "tool" else m.replace(content="ok") for m in task(8)]
    assert results(last("swe_agent.last_5", messages, 10**6))[0] == OLD.replace("10", "1")


def test_in_a_run_without_tools_what_the_user_says_after_the_task_is_an_observation() -> None:
    sent = last("swe_agent.last_5", [*said(9), Message("user", "user 9")], 10**6)
    users = [m.text for m in sent if m.role == "user"]
    assert users[0].startswith("user 0")
    assert users[1:5] == ["Old environment output: (1 lines omitted)"] * 4
    assert firsts([Message("user", text) for text in users[5:]]) == [
        f"user {i}" for i in range(5, 10)
    ]


def test_pictures_are_counted() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
    text = {"type": "text", "text": "shot"}
    messages = [m if m.role != "tool" else m.replace(content=(text, picture)) for m in task(8)]
    sent = results(last("swe_agent.last_5", messages, 10**6))
    assert sent[0] == "Old environment output: (1 lines omitted) (1 images omitted)"


def test_mini_swe_agent_sends_everything() -> None:
    trace, sent = played("mini_swe_agent", task(20), 300)
    assert [len(s.messages) for s in sent] == [s.position for s in sent]
    assert max(trace.tokens) > 300


@pytest.mark.parametrize("spec", ["swe_agent.last_5(n=0)", "swe_agent.last_5(polling=0)"])
def test_no_observation_or_no_step_at_all_is_refused(spec: str) -> None:
    with pytest.raises(SpecError, match="at least 1"):
        parse_strategy(spec)
