"""Tests of the comparison of new logs with old ones: only a settled loss is a breach."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from running import a_recording

from ctxlab.errors import SpecError
from ctxlab.evaluation.gate.check import GateResults
from ctxlab.evaluation.gate.logs import DEFAULT_LOG_SCORES, compare_logs
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.messages.types import Message, Recording, Usage


def logs(seed: int, turns: int, count: int = 12, billed: bool = True) -> Iterator[Recording]:
    """Yield recordings of different tasks, with about ``turns`` model calls each."""
    random = np.random.default_rng(seed)
    for number in range(count):
        made = a_recording(number + 100 * seed, turns + int(random.integers(0, 5)))
        messages = [
            msgspec.structs.replace(message, usage=Usage(100, cache_read=50, output=20))
            if billed and message.role == "assistant"
            else message
            for message in made.messages
        ]
        yield msgspec.structs.replace(made, cluster=made.id, messages=tuple(messages))


def outcomes(gate: GateResults) -> dict[str, str]:
    return {finding.score.name: finding.outcome for finding in gate.findings}


def test_an_agent_that_grew_is_a_breach_with_its_interval() -> None:
    gate = compare_logs(logs(1, 14), logs(2, 24), model="gpt-5", progress=False)
    found = outcomes(gate)
    assert list(found) == list(DEFAULT_LOG_SCORES)
    assert {found[name] for name in found if name.endswith("_per_recording")} == {"worse"}
    for finding in gate.breaches:
        assert finding.margin < finding.low < finding.difference < finding.high
    said = "new logs: number of model calls per recording rose from 17."
    assert gate.breaches[0].sentence.startswith(said)


@pytest.mark.simulations
def test_what_the_logs_do_not_settle_is_no_breach() -> None:
    for seed in range(1, 9, 2):
        gate = compare_logs(logs(seed, 14), logs(seed + 1, 14), model="gpt-5", progress=False)
        assert gate.passed
        assert "unclear" in outcomes(gate).values()


def test_a_margin_that_is_wide_enough_is_met() -> None:
    margins = {"calls_per_recording": "200 %", "tool_calls_per_recording": 40}
    gate = compare_logs(logs(1, 14), logs(2, 24), margins=margins, model="gpt-5", progress=False)
    assert {outcomes(gate)[name] for name in margins} == {"ok"}


def test_too_few_clusters_settle_nothing_and_it_is_said() -> None:
    gate = compare_logs(logs(1, 14, 4), logs(2, 24, 12), model="gpt-5", progress=False)
    assert set(outcomes(gate).values()) == {"unclear"}
    assert all("too few clusters for an interval (4)" in f.sentence for f in gate.findings)


@pytest.mark.simulations
def test_a_score_that_all_clusters_of_both_sets_share_is_met() -> None:
    gate = compare_logs(logs(1, 14), logs(2, 14), model="gpt-5", progress=False)
    (recall,) = (f for f in gate.findings if f.score.name == HEADLINE_SCORE)
    assert (recall.value, recall.baseline_value, recall.outcome) == (1, 1, "ok")
    assert np.isnan([recall.low, recall.high]).all()
    few = compare_logs(logs(1, 14, 4), logs(2, 14), model="gpt-5", progress=False)
    assert outcomes(few)[HEADLINE_SCORE] == "unclear"
    assert {f.score.name for f in few.unclear} == set(outcomes(few))


def test_the_figures_are_means_of_a_recording() -> None:
    old, new = list(logs(1, 14)), list(logs(2, 24, 7))
    gate = compare_logs(old, new, model="gpt-5", progress=False)
    found = {finding.score.name: finding for finding in gate.findings}
    for side, recordings in (("baseline_value", old), ("value", new)):
        replies = [[m for m in r.messages if m.role == "assistant"] for r in recordings]
        expected = {
            "calls_per_recording": [len(each) for each in replies],
            "tool_calls_per_recording": [sum(len(m.tool_calls) for m in each) for each in replies],
            "output_per_recording": [20 * len(each) for each in replies],
        }
        for name, amounts in expected.items():
            assert getattr(found[name], side) == pytest.approx(np.mean(amounts))


def test_logs_without_bills_have_no_billed_scores_and_asking_for_one_is_a_fault() -> None:
    old, new = list(logs(1, 14, billed=False)), list(logs(2, 14))
    found = outcomes(compare_logs(old, new, model="gpt-5", progress=False))
    assert set(DEFAULT_LOG_SCORES) - set(found) == {"output_per_recording", "billed_per_recording"}
    with pytest.raises(SpecError, match="the old logs have no value of price of the billed"):
        compare_logs(old, new, margins={"billed_per_recording": 1}, model="gpt-5", progress=False)


def test_a_strategy_and_its_limit_decide_tokens_and_recall() -> None:
    gate = compare_logs(
        logs(1, 14), logs(2, 14), "sliding_window", "4k", model="gpt-5", progress=False
    )
    found = {finding.score.name: finding for finding in gate.findings}
    assert found["tokens_mean"].value < 4000
    assert found[HEADLINE_SCORE].value < 1
    assert found["tokens_mean"].budget.label == "new logs at 4,000"


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ({"recal": 0.1}, "did you mean recall"),
        ({"tokens_peak": 1}, "unknown score 'tokens_peak'"),
        ({"recall": -1}, "0 or more"),
    ],
)
def test_a_wrong_margin_is_named_before_a_log_is_read(
    margins: dict[str, float], words: str
) -> None:
    def unread() -> Iterator[Recording]:
        raise AssertionError
        yield Recording("a", (Message("user", "hi"),))

    with pytest.raises(SpecError, match=words):
        compare_logs(unread(), unread(), margins=margins)
