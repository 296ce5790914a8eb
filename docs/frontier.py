"""Write ``frontier.png``, the plot in the README, and print the leaderboard of the same results.

Run it with ``python docs/frontier.py``. It needs the data set
``claude-code-entireio``; run ``ctxlab datasets fetch claude-code-entireio`` before.
"""

from pathlib import Path

import matplotlib

import ctxlab
from ctxlab.cli.render.leaderboard import leaderboard_text

STRATEGIES = [
    "sliding_window",
    "tool_stubs | panic",
    "observation_mask(keep=10) | panic",
    "when_it_pays(observation_mask(keep=10)) | panic",
    "in_batches(observation_mask(keep=10) | sliding_window) | panic",
    "excerpt_memory | panic",
    "rolling_summary | panic",
    "recorded",
    "claude_code",
    "codex",
    "full",
    "nothing",
    "random_drop",
    "oracle",
]

if __name__ == "__main__":
    matplotlib.use("Agg")
    found = ctxlab.load("dataset:claude-code-entireio", on_error="skip")
    recordings = [recording for recording in found if "parent" not in recording.meta]
    limits = [50_000, 100_000, 150_000]
    results = ctxlab.evaluate(recordings, STRATEGIES, limits, reserve=16_000)
    panels = ctxlab.plot_frontier(results, limit=[50_000, 100_000])
    target = Path(__file__).with_name("frontier.png")
    panels[0].figure.savefig(target, dpi=110, bbox_inches="tight")
    print(leaderboard_text(results, 0.95))
