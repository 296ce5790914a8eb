"""Tests of ``evals/fit_excerpts.py``, which fits the weights of excerpt_memory."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ctxlab.strategies.helpers.entity_memory import FEATURES, WEIGHTS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = ROOT / "evals" / "fit_excerpts.py"
    spec = importlib.util.spec_from_file_location("fit_excerpts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fit_excerpts", module)
    spec.loader.exec_module(module)
    return module


def simulate(script: ModuleType, weights: tuple[float, ...], seed: int) -> object:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(20_000, len(FEATURES)))
    chance = 1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
    return script.Cases(features, (rng.random(20_000) < chance).astype(float), np.ones(20_000))


def test_the_fit_recovers_the_weights_of_simulated_cases(script: ModuleType) -> None:
    cases = [simulate(script, WEIGHTS, seed) for seed in range(4)]
    assert script.fit_weights(cases) == pytest.approx(WEIGHTS, abs=0.15)


def test_the_weights_without_a_family_do_not_see_it(script: ModuleType) -> None:
    other = tuple(-each for each in WEIGHTS)
    cases = {"a": simulate(script, WEIGHTS, 0), "b": simulate(script, other, 1)}
    without = script.fit_without_each(cases)
    assert without["a"] == pytest.approx(other, abs=0.2)
    assert without["b"] == pytest.approx(WEIGHTS, abs=0.2)


def test_cases_are_found_in_recorded_sessions(script: ModuleType) -> None:
    folder = ROOT / "datasets" / "coding-agent"
    if not any(folder.glob("*.jsonl")):
        pytest.skip("the bundled recordings are not there")
    script.MIN_USED = 1
    cases = script.collect_families(script.load_families([str(folder)]))["coding-agent"]
    assert cases.features.shape == (len(cases.used), len(FEATURES))
    assert 0 < np.count_nonzero(cases.used) < len(cases.used)
