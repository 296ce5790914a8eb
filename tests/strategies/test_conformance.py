"""Tests that baselines send the same requests as their upstream packages, if these are installed.

The tests use bundled recordings. ``nox -s peers`` installs all packages and uses real recordings.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from ctxlab.llm import ScriptedClient
from ctxlab.strategies.baselines import BASELINES, Baseline
from ctxlab.strategies.upstream import PEERS

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

from compare import compare, recordings  # type: ignore[import-not-found]

COMPARED = [baseline for baseline in BASELINES.values() if baseline.package]


@pytest.mark.properties
@pytest.mark.parametrize("baseline", COMPARED, ids=lambda b: b.name)
@pytest.mark.filterwarnings("default")
def test_a_baseline_sends_what_the_package_sends(baseline: Baseline) -> None:
    try:
        installed = version(str(baseline.package))
    except PackageNotFoundError:
        pytest.skip(f"{baseline.package} is not installed: run nox -s peers in a clone of ctxlab")
    if installed not in baseline.product_version:
        pytest.skip(f"{baseline.product_version} is imitated, and {installed} is installed")
    recorded = recordings(Path("no such folder"))[:2]
    client = ScriptedClient(lambda _: "Several files were read and one of them changed.")
    for options in baseline.conformance_options:
        found = compare(baseline.name, options, recorded, 4000, client)
        assert found.differences == [], options
        assert found.requests > 20


def test_every_peer_has_a_baseline_that_says_under_which_settings_they_are_compared() -> None:
    assert {baseline.name for baseline in COMPARED} == set(PEERS)
    assert all(baseline.conformance_options for baseline in COMPARED)


def test_the_settings_of_a_package_cover_every_parameter() -> None:
    for baseline in COMPARED:
        settings = [setting.parameter for setting in baseline.settings]
        assert sorted(settings) == sorted(baseline.parameters), baseline.name
        assert all(s.kind or s.note for s in baseline.settings), baseline.name
