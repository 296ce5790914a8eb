"""Draw every plot on bundled recordings: ``python docs/plot_gallery.py --write`` renews docs/plots.md.

``--style dark --folder F`` and ``--style grey --folder F`` draw the pictures in other styles.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import ctxlab

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "plots.md"
FOLDER = ROOT / "docs" / "plots"
STRATEGIES = [
    "full", "nothing", "sliding_window()", "observation_mask(keep=3) | panic",
    "rolling_summary | panic", "excerpt_memory | panic", "claude_code", "codex",
]  # fmt: skip


@cache
def recordings() -> list[ctxlab.Recording]:
    """Return the bundled coding sessions."""
    return list(ctxlab.load("bundled:coding-agent"))


@cache
def results() -> ctxlab.Results:
    """Return results with the closed loop."""
    return ctxlab.evaluate(recordings(), STRATEGIES, [8000, 16000], closed_loop=True)


@cache
def replay(strategy: str) -> ctxlab.Replay:
    """Return a replay of one recording."""
    return ctxlab.replay(recordings()[1], strategy, 8000)


@cache
def survival() -> ctxlab.SurvivalResults:
    """Return the survival of canaries."""
    return ctxlab.measure_survival(recordings(), STRATEGIES[2:6], [8000])


class Plot(NamedTuple):
    """A picture of the gallery."""

    name: str
    "name of the function"
    code: str
    "code that a user writes"
    draw: Callable[[], Any]
    "function that draws it"
    reading: str
    "how to read it"


PLOTS = [
    Plot(
        "plot_frontier",
        "results = ctxlab.evaluate(recordings, strategies, [8000, 16000])\n"
        "ctxlab.plot_frontier(results)",
        lambda: ctxlab.plot_frontier(results()),
        "Up and left is better. No strategy on the bold line is beaten by a cheaper one. The thin lines "
        "are 95 % intervals; hollow points do not fit.",
    ),
    Plot(
        "plot_context_map",
        'closeup = ctxlab.replay(recording, "rolling_summary | panic", 8000)\n'
        "ctxlab.plot_context_map(closeup)",
        lambda: ctxlab.plot_context_map(replay("rolling_summary | panic")),
        "Read it from top to bottom: each row is a request. A cross is a need that the request lost; "
        "its column is the message that said it last.",
    ),
    Plot(
        "plot_request_sizes",
        'ctxlab.plot_request_sizes([closeup, ctxlab.replay(recording, "excerpt_memory | panic", 8000)])',
        lambda: ctxlab.plot_request_sizes(
            [replay(name) for name in ("rolling_summary | panic", "excerpt_memory | panic")]
        ),
        "A saw-tooth with few, deep falls keeps the prompt cache; many small falls pay for it again.",
    ),
    Plot(
        "plot_cost",
        "ctxlab.plot_cost(closeup)",
        lambda: ctxlab.plot_cost(replay("sliding_window()")),
        "What the provider bills, summed over the requests. A steep layer of uncached input is the "
        "price of edits that invalidate the prompt cache.",
    ),
    Plot(
        "plot_contents",
        'ctxlab.plot_contents(ctxlab.replay(recording, "full", 8000))',
        lambda: ctxlab.plot_contents(replay("full")),
        "What fills the context. A strategy that shortens the largest layer saves most.",
    ),
    Plot(
        "plot_size_distribution",
        "ctxlab.plot_size_distribution(results)",
        lambda: ctxlab.plot_size_distribution(results()),
        "Where the line of `full` crosses a limit: the share of requests that would fit without a "
        "strategy.",
    ),
    Plot(
        "plot_recall_by_distance",
        'names = ["sliding_window()", "rolling_summary | panic", "excerpt_memory | panic"]\n'
        "ctxlab.plot_recall_by_distance(\n"
        "    ctxlab.replay(each, name, 8000) for each in recordings for name in names\n"
        ")",
        lambda: ctxlab.plot_recall_by_distance(
            ctxlab.replay(each, name, 8000)
            for each in recordings()
            for name in ("sliding_window()", "rolling_summary | panic", "excerpt_memory | panic")
        ),
        "All strategies hold what is near. They differ in what they hold of needs from far back.",
    ),
    Plot(
        "plot_recordings",
        "ctxlab.plot_recordings(results)",
        lambda: ctxlab.plot_recordings(results()),
        "A dark row is a recording that every strategy forgets; a dark column is a strategy that "
        "forgets everywhere.",
    ),
    Plot(
        "plot_differences",
        'window = "sliding_window()"\n'
        "names = [\n"
        '    "excerpt_memory() | panic()",\n'
        '    "rolling_summary() | panic()",\n'
        '    "observation_mask(keep=3) | panic",\n'
        "]\n"
        "comparisons = [ctxlab.compare_strategies(results, name, window) for name in names]\n"
        "ctxlab.plot_differences(comparisons)",
        lambda: ctxlab.plot_differences(
            [
                ctxlab.compare_strategies(results(), f"{name} | panic()", "sliding_window()")
                for name in ("excerpt_memory()", "rolling_summary()", "observation_mask(keep=3)")
            ]
        ),
        "A filled mark is settled: its interval excludes zero.",
    ),
    Plot(
        "plot_equal_knowledge",
        "results = ctxlab.evaluate(recordings, strategies, [8000], closed_loop=True)\n"
        "ctxlab.plot_equal_knowledge(results)",
        lambda: ctxlab.plot_equal_knowledge(results()),
        "A cheap strategy that forgets must fetch again. The whole bar is what it then costs.",
    ),
    Plot(
        "plot_survival",
        "survival = ctxlab.measure_survival(recordings, strategies, [8000])\n"
        "ctxlab.plot_survival(survival)",
        lambda: ctxlab.plot_survival(survival()),
        "Facts that were planted in the recordings, by rounds of compaction since then.",
    ),
    Plot(
        "plot_canaries",
        'ctxlab.plot_canaries(survival, "excerpt_memory | panic")',
        lambda: ctxlab.plot_canaries(survival(), "excerpt_memory | panic"),
        "Which kinds of facts survive to the end, and from which depth.",
    ),
    Plot(
        "plot_tuning",
        'tuning = ctxlab.tune(recordings, ["observation_mask(keep=[1, 3, 10]) | panic"], [8000])\n'
        "ctxlab.plot_tuning(tuning)",
        lambda: ctxlab.plot_tuning(
            ctxlab.tune(
                recordings(),
                [
                    "observation_mask(keep=[1, 3, 10]) | panic",
                    "tool_stubs(keep=[1, 3, 10]) | panic",
                ],
                [8000],
                holdout=0,
                progress=False,
            )
        ),
        "Each line is a strategy with growing values of its parameter.",
    ),
]


def draw(plot: Plot, folder: Path, suffix: str = "png") -> str:
    """Draw one plot into a folder, and return its description."""
    made = plot.draw()
    axes = list(made) if hasattr(made, "__len__") else [made]
    figure = axes[0].get_figure(root=True)
    file = folder / f"{plot.name}.{suffix}"
    figure.savefig(file, dpi=80, metadata={"Software": None}, bbox_inches="tight")
    plt.close(figure)
    return " ".join(ax.get_label() for ax in axes)


def write_page(descriptions: dict[str, str]) -> str:
    """Return the page with all pictures."""
    parts = []
    for plot in PLOTS:
        summary = (getdoc(getattr(ctxlab, plot.name)) or "").split("\n")[0]
        text = descriptions[plot.name].replace("[", "(").replace("]", ")")
        parts.append(
            f"## `{plot.name}`\n\n{summary}\n\n```python\n{plot.code}\n```\n\n"
            f"![{text}](plots/{plot.name}.png)\n\n{plot.reading}\n"
        )
    return f"""<!-- Generated by docs/plot_gallery.py; do not edit. -->

# Plots

Each function returns the axes, takes `ax=`, and follows matplotlib's `rcParams`, also in dark styles.
`ax.get_label()` is a description in words, for the alternative text of a picture. Colours are those of
Okabe and Ito; layers also differ in their hatches. The pictures show the bundled recordings.
`plot_bills` compares counts with bills, which the bundled recordings do not have; see [bills](bills.md).

{chr(10).join(parts)}"""


def main() -> None:
    """Draw all plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="renew docs/plots.md and its pictures")
    parser.add_argument("--folder", type=Path, help="draw the pictures into this folder only")
    parser.add_argument("--style", choices=("light", "dark", "grey"), default="light")
    parser.add_argument("--only", help="draw only this plot")
    options = parser.parse_args()
    folder = FOLDER if options.write else options.folder
    if folder is None:
        parser.error("expected --write or --folder")
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    if options.style == "dark":
        plt.style.use("dark_background")
    plots = [plot for plot in PLOTS if options.only in (None, plot.name)]
    descriptions = {plot.name: draw(plot, folder) for plot in plots}
    if options.style == "grey":
        from PIL import Image

        for plot in plots:
            file = folder / f"{plot.name}.png"
            Image.open(file).convert("L").save(file)
    if options.write:
        PAGE.write_text(write_page(descriptions), encoding="utf-8")


if __name__ == "__main__":
    main()
