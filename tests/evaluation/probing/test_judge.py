"""Tests of judges: strict parsing of verdicts, and Cohen's kappa of two judges."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.probing.judge import (
    cohen_kappa,
    judge_agreement,
    judge_request,
    parse_verdict,
)
from ctxlab.messages.types import Probe

BOOLS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@pytest.mark.parametrize("verdict", ["correct", "incorrect"])
@pytest.mark.parametrize(
    "around", ["{}", "```json\n{}\n```", "Let me see: {}", "<think>{{x}}</think>{}"]
)
def test_a_verdict_is_read_wherever_its_object_stands(verdict: str, around: str) -> None:
    said = around.format(json.dumps({"verdict": verdict, "reason": "So."}))
    assert parse_verdict(said) == (verdict == "correct", "So.")


@pytest.mark.parametrize(
    "said",
    [
        *("", "correct", "It is incorrect.", '{"verdict": "maybe"}', '{"verdict": true}', "{"),
        *("[]", '{"reason": "correct"}', '{"verdict": "correct", ', '{"verdict": ["correct"]}'),
    ],
)
def test_what_holds_no_verdict_is_none(said: str) -> None:
    assert parse_verdict(said).correct is None


@given(st.text())
def test_nothing_that_a_judge_may_write_is_a_failure(said: str) -> None:
    assert parse_verdict(said).correct in (True, False, None)


def test_a_judge_is_told_question_answers_and_reply_and_nothing_else() -> None:
    probe = Probe("q", "Where?", ("Paris", "in Paris"), (3,), category="place")
    request = judge_request("m", probe, "Paris?", 50)
    told = request.messages[-1].text
    for words in ("Where?", "- Paris\n- in Paris", "<reply>\nParis?\n</reply>"):
        assert words in told
    assert "place" not in told
    assert (request.max_tokens, request.temperature, request.replicate) == (50, None, 0)
    assert "does not say" in judge_request("m", Probe("q", "Where?"), "x", 9).messages[-1].text


def test_kappa_is_that_of_cohens_example_and_of_scikit_learn() -> None:
    assert cohen_kappa(
        [True] * 25 + [False] * 25, [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    ) == (pytest.approx(0.4))
    assert cohen_kappa([True, False], [False, True]) == -1
    assert cohen_kappa([True, False], [True, False]) == 1


@given(BOOLS)
def test_kappa_takes_no_side_and_is_at_most_one(pairs: list[tuple[bool, bool]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    found = cohen_kappa(first, second)
    if np.isnan(found):
        assert len({*first, *second}) == 1
        return
    assert found == pytest.approx(cohen_kappa(second, first))
    assert found == pytest.approx(cohen_kappa(~first, ~second))
    assert -1 - 1e-9 <= found <= 1 + 1e-9
    assert (found == pytest.approx(1)) == bool((first == second).all())


def test_nothing_judged_has_no_kappa() -> None:
    assert np.isnan(cohen_kappa([], []))
    assert np.isnan(cohen_kappa([True, True], [True, True]))


def test_the_interval_is_over_clusters() -> None:
    rng = np.random.default_rng(5)
    truth = rng.random(600) < 0.6
    first, second = (truth ^ (rng.random(600) < 0.1) for _ in range(2))
    many = judge_agreement(first, second, np.repeat(np.arange(60), 10))
    assert many.low < many.kappa < many.high
    assert many.agreement == (first == second).mean()
    assert many.replies == 600
    few = judge_agreement(first, second, np.repeat(np.arange(4), 150))
    assert few.kappa == many.kappa
    assert np.isnan(few.low)
    # The same 60 witnesses, each heard ten times over, are no 600.
    same = judge_agreement(
        np.repeat(first[:60], 10), np.repeat(second[:60], 10), np.repeat(np.arange(60), 10)
    )
    alone = judge_agreement(first[:60], second[:60], np.arange(60))
    assert (same.low, same.high) == pytest.approx((alone.low, alone.high))
    assert many.high - many.low < same.high - same.low


def test_the_interval_covers_what_it_says() -> None:
    """Of 200 samples of 40 clusters, some 95 % hold the kappa of the population."""
    rng = np.random.default_rng(0)
    wrong = 0.15
    truth_rate = 0.5
    expected = (1 - 2 * wrong) ** 2  # with half of all correct, chance agreement is a half
    hits = 0
    for seed in range(200):
        truth = rng.random((40, 8)) < truth_rate
        first, second = (truth ^ (rng.random((40, 8)) < wrong) for _ in range(2))
        found = judge_agreement(
            first.ravel(), second.ravel(), np.repeat(np.arange(40), 8), resamples=400, seed=seed
        )
        hits += found.low <= expected <= found.high
    assert 0.9 <= hits / 200 <= 0.99
