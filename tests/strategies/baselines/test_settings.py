"""Tests of the settings of products: how several are written together, and which values are tried."""

from __future__ import annotations

import json

import pytest
import yaml

from ctxlab.formats import FORMATS
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.baselines.settings import RequestSizes, Setting, write_settings

WINDOW = 400_000
SIZES = RequestSizes(WINDOW, longest=150_000, smallest=30_000)


def test_settings_of_one_file_are_written_as_one_document() -> None:
    changes = {"threshold": 0.4, "target_ratio": 0.1}
    (written,) = BASELINES["hermes"].write_settings(changes, WINDOW)
    assert yaml.safe_load(written.text) == {"compression": changes}
    (written,) = BASELINES["opencode"].write_settings({"prune": True, "reserved": 9}, WINDOW)
    assert json.loads(written.text) == {"compaction": {"reserved": 9, "prune": True}}


def test_settings_of_different_places_are_written_apart_and_missing_ones_not_at_all() -> None:
    keep = Setting("keep", "json", "a.json", "keep")
    share = Setting("share", "environment", "", "SHARE")
    fixed = Setting("fixed", note="fixed in the source")
    found = write_settings([(keep, 3), (share, 0.5), (fixed, 1)])
    assert [(each.place, each.text) for each in found] == [
        ("a.json", '{"keep": 3}'),
        ("environment", "SHARE=0.5"),
    ]


def test_a_share_is_written_as_tokens_where_the_product_wants_tokens() -> None:
    (written,) = BASELINES["codex"].write_settings({"trigger": 0.5}, WINDOW)
    assert written.text == "model_auto_compact_token_limit = 200000"


@pytest.mark.parametrize("unit", ["share", "percent", "tokens", "free"])
def test_thresholds_to_try_lie_within_the_requests_and_below_the_default(unit: str) -> None:
    setting = Setting("start", "json", "a.json", "start", threshold=unit)  # type: ignore[arg-type]
    to_tokens = {
        "share": lambda value: value * WINDOW,
        "percent": lambda value: value * WINDOW / 100,
        "tokens": lambda value: value,
        "free": lambda value: WINDOW - value,
    }[unit]
    default = {"share": 0.25, "percent": 25, "tokens": 100_000, "free": 300_000}[unit]
    found = [to_tokens(value) for value in setting.values_to_try(default, SIZES)]
    assert found
    assert all(30_000 < tokens < 100_000 for tokens in found)


def test_configurations_to_try_are_few_and_change_only_what_a_user_can_set() -> None:
    for name, baseline in BASELINES.items():
        default, *others = baseline.variants(SIZES)
        assert default == baseline(), name
        assert len(others) <= 12, name
        settable = {each.parameter for each in baseline.settings if each.kind}
        for each in others:
            assert each.changes, name
            assert {parameter for parameter, _ in each.changes} <= settable, name


def test_each_format_of_logs_has_one_product() -> None:
    named = [each for baseline in BASELINES.values() for each in baseline.formats]
    assert len(named) == len(set(named))
    assert set(named) <= set(FORMATS)
