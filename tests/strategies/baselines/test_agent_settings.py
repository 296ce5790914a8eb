"""Tests of the settings of the baselines of coding agents."""

from __future__ import annotations

import pytest

from ctxlab.strategies.baselines import BASELINES

PRODUCTS = (
    *("aider", "cline", "complexity_trap", "copilot_cli", "deepseek", "gemini_cli", "goose"),
    *(
        "hermes",
        "letta",
        "mini_swe_agent",
        "openclaw",
        "opencode",
        "pi",
        "roo",
        "swe_agent",
        "vercel",
    ),
)
NAMES = tuple(name for name in BASELINES if name.split(".")[0] in PRODUCTS)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_for_each_parameter_once_where_a_user_sets_it_or_why_not(name: str) -> None:
    baseline = BASELINES[name]
    named = [setting.parameter for setting in baseline.settings]
    assert sorted(named) == sorted(baseline.parameters)
    for setting in baseline.settings:
        assert bool(setting.write(baseline.parameters[setting.parameter])) != (setting.kind is None)
        assert setting.kind or setting.note


def test_an_older_version_names_the_newest_one_of_the_same_product() -> None:
    older = {name: b.superseded_by for name, b in BASELINES.items() if name in NAMES}
    assert {name: newest for name, newest in older.items() if newest} == {
        "deepseek.v0_1": "deepseek",
        "letta.v0_16_4": "letta",
        "letta.v0_16_8": "letta",
        "pi.v0_80": "pi",
    }
