"""Tests of the context map, which shows the state of each message and the needs that are missing."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from ctxlab.errors import SpecError
from ctxlab.evaluation.plots import colors as palette
from ctxlab.evaluation.plots import plot_context_map
from ctxlab.evaluation.plots.base import rule_color
from ctxlab.evaluation.replay import MESSAGE_STATES, replay
from ctxlab.messages.types import Message, Recording

STRATEGIES = (
    "full",
    "panic",
    "sliding_window",
    "observation_mask(keep=3) | panic",
    "tool_result_cap(chars=200)",
    "rolling_summary(keep_recent=4)",
)


def legend_of(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def marks(ax: Axes, tier: str) -> set[tuple[int, int]]:
    spots = [c for c in ax.collections if c.get_gid() == tier]
    return {(int(x), int(y)) for c in spots for x, y in np.asarray(c.get_offsets())}


def test_it_draws_on_the_axes_it_is_given_and_returns_them(recordings: list[Recording]) -> None:
    _, ax = plt.subplots()
    assert plot_context_map(replay(recordings[0], "panic", 0.5), ax=ax) is ax
    assert ax.images


def test_there_is_a_colour_for_every_state_and_no_two_are_alike() -> None:
    assert set(palette.STATE_COLORS) == set(MESSAGE_STATES)
    assert len(set(palette.STATE_COLORS.values())) == len(MESSAGE_STATES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_cell_has_the_colour_of_its_state(strategy: str, recordings: list[Recording]) -> None:
    close = replay(recordings[0], strategy, 0.4)
    ax = plot_context_map(close)
    shown = np.asarray(ax.images[0].get_array())
    colors = {**palette.STATE_COLORS, "absent": ax.get_facecolor(), "dropped": rule_color(ax)}
    for code, state in enumerate(MESSAGE_STATES):
        cells = close.states[:, : shown.shape[1]] == code
        assert np.allclose(shown[cells], to_rgb(colors[state]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_legend_holds_the_states_that_occur_and_no_others(
    strategy: str, recordings: list[Recording]
) -> None:
    close = replay(recordings[0], strategy, 0.4)
    sent = close.states[:, : close.prepared.request_positions[-1]]
    occur = {MESSAGE_STATES[code] for code in np.unique(sent)} - {"absent"}
    assert {name for name in legend_of(plot_context_map(close)) if name in MESSAGE_STATES} == occur


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tier", ["lost", "pointer"])
def test_every_need_that_was_not_in_view_is_marked_where_it_had_last_stood(
    tier: str, strategy: str, recordings: list[Recording]
) -> None:
    close = replay(recordings[0], strategy, 0.4)
    needs = close.needs[close.needs["tier"] == tier]
    expected = set(zip(needs["last"].tolist(), needs["request"].tolist(), strict=True))
    assert marks(plot_context_map(close), tier) == expected


def test_the_recordings_made_here_do_lose_something(recordings: list[Recording]) -> None:
    assert marks(plot_context_map(replay(recordings[0], "panic", 0.4)), "lost")
    stubs = replay(recordings[0], "observation_mask(keep=3) | panic", 0.9)
    assert marks(plot_context_map(stubs), "pointer")


def test_where_nothing_was_missed_nothing_is_marked(recordings: list[Recording]) -> None:
    ax = plot_context_map(replay(recordings[0], "full", 1.0))
    assert not ax.collections
    assert legend_of(ax) == ["verbatim"]


def compaction_ticks(ax: Axes) -> list[float]:
    ticks = [c for c in ax.collections if c.get_gid() == "compaction"]
    return [path.vertices[0, 1] for c in ticks for path in c.get_paths()]


def test_each_of_a_few_compactions_has_a_tick_and_the_legend_names_them(
    recordings: list[Recording],
) -> None:
    close = replay(recordings[0], "rolling_summary(trigger=0.8, target=0.3)", 0.5)
    ax = plot_context_map(close)
    assert compaction_ticks(ax) == close.compactions["request"].tolist() != []
    assert legend_of(ax)[-1] == "compaction"


def test_many_compactions_are_not_marked(recordings: list[Recording]) -> None:
    close = replay(recordings[0], "observation_mask(keep=3)", 0.5)
    ax = plot_context_map(close)
    assert len(close.compactions) * 5 > len(close.trace.tokens)
    assert compaction_ticks(ax) == []
    assert "compaction" not in legend_of(ax)


def test_the_title_says_which_recording_strategy_and_limit(recordings: list[Recording]) -> None:
    close = replay(recordings[0], "observation_mask(keep=3) | panic", 3000)
    title = plot_context_map(close).get_title(loc="left")
    assert title == "alpha\nobservation_mask(keep=3) | panic, 3,000 tokens"


def test_a_recording_without_a_model_call_is_an_error() -> None:
    quiet = Recording("quiet", (Message("user", "hello?"),))
    with pytest.raises(SpecError, match="quiet"):
        plot_context_map(replay(quiet, "panic", 100))
