"""Tests of ``evals/fit_excerpts.py``: the fit finds known weights, and a family can be left out."""

from __future__ import annotations

import tomllib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from eval_scripts import import_eval_script
from generated import prepare_messages

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers.entity_memory import FEATURES
from ctxlab.tokens.counter import TokenCounter

TRUE = (-2.0, 1.0, -0.5, 0.8, -0.4, 0.5)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return import_eval_script("fit_excerpts", monkeypatch)


def simulated(script: ModuleType, seed: int, weights: tuple[float, ...], n: int = 20_000) -> Any:
    """Simulate a family whose entities are used again with the probabilities of given weights."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(n, len(FEATURES)))
    chances = 1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
    return script.Cases(features, (random.random(n) < chances).astype(float), np.ones(n))


def test_the_fit_finds_the_weights_of_simulated_families(script: ModuleType) -> None:
    fitted = script.fit_weights([simulated(script, seed, TRUE) for seed in range(3)])
    assert fitted == pytest.approx(TRUE, abs=0.05)


def test_a_sample_of_the_unused_gives_the_weights_of_all(script: ModuleType) -> None:
    every = simulated(script, 0, TRUE, 200_000)
    kept = (every.used > 0) | (np.random.default_rng(1).random(len(every.used)) < 0.2)
    weights = np.where(every.used[kept] > 0, 1.0, 5.0)
    sample = script.Cases(every.features[kept], every.used[kept], weights)
    assert script.fit_weights([sample]) == pytest.approx(TRUE, abs=0.05)


def test_a_large_family_counts_as_much_as_a_small_one(script: ModuleType) -> None:
    one, other = simulated(script, 0, TRUE), simulated(script, 1, (-1.0, *[0.0] * 5))
    twice = script.Cases(*(np.concatenate([part, part]) for part in one))
    fitted = script.fit_weights([twice, other])
    assert fitted == pytest.approx(script.fit_weights([one, other]), abs=0.01)


def test_weights_without_a_family_do_not_see_it(script: ModuleType) -> None:
    cases = {name: simulated(script, seed, TRUE) for seed, name in enumerate("ab")}
    odd = {"c": simulated(script, 7, (1.0, *[-2.0] * 5)), "d": simulated(script, 8, TRUE)}
    without = [script.fit_without_each({**cases, "left out": odd[each]}) for each in odd]
    assert without[0]["left out"] == without[1]["left out"]
    assert without[0]["a"] != without[1]["a"]


def test_the_share_found_is_that_of_the_likeliest_cases(script: ModuleType) -> None:
    features = np.arange(100.0)[:, None] * np.eye(len(FEATURES))[0]
    used = np.zeros(100)
    used[[99, 98, 50, 3]] = 1.0
    cases = script.Cases(features, used, np.ones(100))
    weights = (0.0, 1.0, *[0.0] * (len(FEATURES) - 1))
    assert [script.share_found(cases, weights, share) for share in (0.05, 0.5, 1.0)] == [
        0.5,
        0.75,
        1,
    ]


def test_the_file_that_is_written_has_the_names_of_the_features(script: ModuleType) -> None:
    written = tomllib.loads(script.format_data(TRUE, ["a", "b"]))
    assert written["families"] == 2
    assert tuple(written["weights"]) == ("intercept", *FEATURES)
    assert tuple(written["weights"].values()) == TRUE
    assert script.DATA.is_file()


def test_cases_are_the_entities_before_the_window_and_their_later_use(
    script: ModuleType, counter: TokenCounter
) -> None:
    messages = [Message("user", "Mend the reader")]
    for n in range(40):
        path = "src/file_0.py" if n == 30 else f"src/file_{n}.py"
        call = ToolCall(f"c{n}", "read", f'{{"path": "{path}"}}')
        messages += [Message("assistant", None, tool_calls=(call,))]
        messages += [Message("tool", f"function_{n}\n" * 30, tool_call_id=call.id)]
    prepared = prepare_messages(messages, counter)
    found = list(script.collect_cases(prepared, 1600, np.random.default_rng(0)))
    assert len(found) > 2
    used = np.concatenate([each.used for each in found])
    assert used.sum() == 1.0  # only src/file_0.py is used after it left the window
    for each in found:
        assert each.features.shape == (len(each.used), len(FEATURES))
        assert set(each.weights[each.used == 0]) <= {float(script.UNUSED_PER_CASE)}
        assert set(each.weights[each.used > 0]) <= {1.0}
