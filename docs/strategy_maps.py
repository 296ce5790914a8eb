"""Descriptions of all strategies, each with the context map of a replay of one bundled recording."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import ctxlab
from ctxlab._utils.tables import markdown_table
from ctxlab.strategies.introspection import StrategyInfo, list_strategies

RECORDING = "coding-agent/check-digits-1"
LIMIT = 16_000
REPORTED = ["sliding_window", "rolling_summary | panic", "excerpt_memory | panic", "claude_code"]
REPORTED += ["codex", "full", "nothing", "random_drop", "oracle"]
"""Strategies of the example report."""
SHOWN = {
    "offload": "offload(tokens=800, preview=400)",
    "shorten_arguments": "shorten_arguments(limit=200)",
    "langchain.summarization": "langchain.summarization(trigger=('tokens', 12_000))",
    "langchain.clear_tool_uses": "langchain.clear_tool_uses(trigger=12_000)",
    "anthropic.clear_tool_uses": "anthropic.clear_tool_uses(trigger=12_000)",
}
"""Name → strategy that is replayed, where the defaults would edit nothing in a recording this short."""


class StrategyMaps:
    """Context maps and figures of all strategies on one recording.

    Attributes
    ----------
    pictures : dict of str to bytes
        PNG of the context map of each strategy that edits a request.
    """

    def __init__(self) -> None:
        recording = next(r for r in ctxlab.load("bundled:coding-agent") if r.id == RECORDING)
        self._known = {known.name: known for known in list_strategies()}
        self._shown = {name: _expression(known) for name, known in self._known.items()}
        shown = list(self._shown.values())
        board = ctxlab.evaluate([recording], shown, [LIMIT], progress=False).leaderboard()
        self._scores = dict(zip(self._known, board.to_dict("records"), strict=True))
        replays = {
            name: ctxlab.replay(recording, text, LIMIT) for name, text in self._shown.items()
        }
        self.pictures = {
            name: _draw(found)
            for name, found in replays.items()
            if (found.states > 1).any() or name == "full"
        }

    @staticmethod
    def report() -> str:
        """Return the report of a run over the bundled recordings, as HTML."""
        recordings = list(ctxlab.load("bundled:coding-agent"))
        results = ctxlab.evaluate(recordings, REPORTED, LIMIT, progress=False)
        with tempfile.TemporaryDirectory() as folder:
            return results.report(Path(folder, "report.html"), recordings).read_text("utf-8")

    def describe(self, kind: str) -> str:
        """Return the descriptions of all strategies of a kind as Markdown, with their maps."""
        return "\n\n".join(
            part
            for name, known in self._known.items()
            if known.kind == kind
            for part in (f"### {name}", *self._describe(known))
        )

    def _describe(self, known: StrategyInfo) -> list[str]:
        """Return the parts of the description of one strategy."""
        source = known.source.replace("<", "&lt;").replace("\n", " ")
        parts = [
            known.summary,
            f"Source: [{source}]({known.url})" if known.url else f"Source: {source}",
        ]
        if known.parameters:
            rows = [
                [f"`{p.name}`", f"`{p.default}`" if p.default else "required", p.description]
                for p in known.parameters
            ]
            parts.append(markdown_table(["parameter", "default", "meaning"], rows))
        if any(parameter.setting for parameter in known.parameters):
            anchor = known.name.replace(".", "")
            parts.append(f"[Where a user of the product sets this](settings.md#{anchor})")
        figures = _figures(self._scores[known.name])
        if known.name not in self.pictures:
            return [*parts, f"In this recording, it edits no request. {figures}"]
        alt = f"Context map of {known.name}"
        return [
            *parts,
            f"`{self._shown[known.name]}`: {figures}",
            f"![{alt}](maps/{known.name}.png)",
        ]


def _expression(known: StrategyInfo) -> str:
    """Return the strategy that is replayed; one that runs another strategy runs a mask."""
    inner = any(p.name == "strategy" and not p.default for p in known.parameters)
    return SHOWN.get(known.name, f"{known.name}(observation_mask())" if inner else known.name)


def _figures(scores: dict[str, Any]) -> str:
    """Return the figures of a strategy in one line."""
    return (
        f"{scores['tokens_mean']:,.0f} tokens per request, {scores['overflow_rate']:.0%} over, "
        f"{scores['invalid_rate']:.0%} invalid, ${scores['cost_usd']:.2f}, "
        f"held far recall {scores['recall_far_held']:.2f}."
    )


def _draw(found: ctxlab.Replay) -> bytes:
    """Return the context map of a replay as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = ctxlab.plot_context_map(found, ax=figure.subplots())
    axes.set_title("", loc="left")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=96, transparent=True)
    return file.getvalue()
