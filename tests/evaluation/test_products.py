"""Tests of the comparison of products: its figures are those of the evaluations behind it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from running import a_recording

from ctxlab.errors import SpecError
from ctxlab.evaluation.canaries import plant_canaries
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.products import (
    COLUMNS,
    WITH_INTERVALS,
    ProductTable,
    compare_products,
)
from ctxlab.strategies.baselines import BASELINES, newest_baselines

LIMIT = 5000
STRATEGIES = (
    "codex",
    "anthropic.clear_tool_uses(trigger=2000, keep=1)",
    "recorded",
    "random_drop(seed=1)",
)
RECORDINGS = [a_recording(n, 14 + n % 3) for n in range(6)]
SHORT = a_recording(9, 2)


@pytest.fixture(scope="module")
def table() -> ProductTable:
    return compare_products(
        [*RECORDINGS, SHORT], LIMIT, STRATEGIES, "claude-opus-4-6", constraints=3
    )


def test_each_figure_is_that_of_an_evaluation_of_the_longer_recordings(table: ProductTable) -> None:
    names = ["full", *STRATEGIES]
    common = {"fixed_in_limit": True, "model": "claude-opus-4-6"}
    short_lived = evaluate(RECORDINGS, names, LIMIT, cache_ttl="5m", closed_loop=True, **common)
    board = short_lived.leaderboard()
    hour = evaluate(RECORDINGS, names, LIMIT, cache_ttl="1h", **common).leaderboard()
    planted = [plant_canaries(each, 3, "constraint") for each in RECORDINGS]
    kept = evaluate(planted, names, LIMIT, metrics="canaries", **common).leaderboard()
    full, frame = board["cost_usd"][0], table.frame
    expected = {
        "strategy": board["strategy"],
        "requests": board["requests"],
        "usd_5m": board["cost_usd"],
        "usd_1h": hour["cost_usd"],
        "cost_5m": board["cost_usd"] / full,
        "cost_1h": hour["cost_usd"] / hour["cost_usd"][0],
        "held_far": board["recall_far_held"],
        "closed_cost": board["closed_usd"] / full,
        "constraints": kept["survival_end"],
        "invalid": board["newly_invalid_rate"],
        "overflow": board["overflow_rate"],
    }
    pd.testing.assert_frame_equal(frame[list(expected)], pd.DataFrame(expected), check_dtype=False)
    edits = short_lived.compactions.groupby("strategy", observed=True).size()
    counted = 100 * board["strategy"].map(edits.to_dict()).fillna(0) / board["requests"]
    assert frame["compactions"].tolist() == pytest.approx(counted.tolist())
    assert frame["recordings"].eq(len(RECORDINGS)).all()
    assert frame["overflow"].max() > 0
    assert frame["kind"].tolist() == ["reference", "product", "product", "reference", "control"]
    assert frame["version"].astype(bool).tolist() == [False, True, True, False, False]


def test_every_column_is_described(table: ProductTable) -> None:
    bounds = {f"{name}_{side}" for name in WITH_INTERVALS for side in ("low", "high")}
    assert set(table.frame) == set(COLUMNS) | bounds


def test_all_baselines_are_compared_but_those_of_superseded_versions() -> None:
    older = {name for name, each in BASELINES.items() if each.superseded_by}
    assert set(newest_baselines()) == set(BASELINES) - older
    assert all(BASELINES[name].superseded_by in BASELINES for name in older)


def test_a_folder_keeps_all_measurements_and_takes_no_other_recordings(
    table: ProductTable, tmp_path: Path
) -> None:
    arguments = {"model": "claude-opus-4-6", "constraints": 3, "folder": tmp_path / "run"}
    found = compare_products(RECORDINGS, LIMIT, STRATEGIES, **arguments)
    stored = tmp_path / "run" / f"{LIMIT}" / "recordings" / "requests.parquet"
    before = stored.stat().st_ino
    found.save(tmp_path / "run")
    assert stored.stat().st_ino == before  # it is not written again
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "run" / "products.parquet"), table.frame
    )
    again = compare_products(RECORDINGS, LIMIT, STRATEGIES, **arguments)
    pd.testing.assert_frame_equal(again.frame, table.frame)
    with pytest.raises(SpecError, match="other recordings"):
        compare_products(RECORDINGS[1:], LIMIT, STRATEGIES, **arguments)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SpecError, match=r"expected an empty folder .* notes\.txt"):
        compare_products(RECORDINGS, LIMIT, STRATEGIES, **{**arguments, "folder": tmp_path})


def test_a_limit_that_no_recording_exceeds_is_refused() -> None:
    with pytest.raises(SpecError, match="longer than the limit of 200,000 tokens, got 1 shorter"):
        compare_products([SHORT], 200_000, STRATEGIES)
