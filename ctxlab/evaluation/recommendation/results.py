"""A recommendation in four or five sentences, and the figures behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import dump_json
from ctxlab._utils.numbers import format_share, format_signed_share, format_usd
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.html import paragraph, wrap_html
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL
from ctxlab.evaluation.recommendation.agent_setup import Fact
from ctxlab.evaluation.recommendation.choice import format_saving, percent
from ctxlab.evaluation.recommendation.effects import Effect
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.holdout import MIN_TUNING_CLUSTERS
from ctxlab.strategies.baselines.settings import WrittenSetting

FILE = "recommendation.json"
"""Name of the file in the folder of a saved recommendation."""


@dataclass(frozen=True)
class Evidence:
    """Recordings on which a recommendation is based."""

    tuning_recordings: int
    "recordings on which the setting was chosen"
    tuning_clusters: int
    "independent groups of these recordings"
    recordings: int
    "recordings on which it was measured"
    clusters: int
    "independent groups of these recordings"
    requests: int
    "requests of these recordings"
    is_held_out: bool
    "False if the setting was chosen and measured on the same recordings"
    left_out: Mapping[str, int]
    "number of recordings that were not used, by reason"


@dataclass(frozen=True)
class Recommendation:
    """Setting of a product for the recorded work. Printed, it has four or five lines.

    The lines say what to set, what it saves, what it forgets and how sure that is; and, if there is
    one, which strategy for any agent is better.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.recommend([recording], "codex", 8000, "gpt-4", portable=[], workers=1)
    >>> found.product, list(found.lines)
    ('codex', ['Setting', 'Saves', 'Forgets', 'Evidence'])
    """

    product: str
    "name of the baseline of the product"
    facts: tuple[Fact, ...]
    "product, window, reserve, model and cache lifetime, each with its origin"
    changes: Mapping[str, Any]
    "recommended values by parameter of the baseline; empty: keep the default"
    settings: tuple[WrittenSetting, ...]
    "what the user of the product writes; empty: keep the default"
    tried_setting: str
    "the setting that was measured, on one line, also if it is not recommended; empty: none saves enough"
    reason: str
    "why the default is to be kept; empty if a setting is recommended"
    default: Effect
    "measurements of the default"
    candidate: Effect | None
    "measurements of the chosen setting, also if it is not recommended; None: none saves enough"
    portable: Effect | None
    "measurements of a strategy for any agent that is better; None: there is none"
    portable_tools: tuple[str, ...]
    "tools that the agent needs for this strategy"
    evidence: Evidence
    "recordings on which the choice and the measurements are based"
    trials: pd.DataFrame = field(repr=False, compare=False)
    "scores of all strategies on the recordings that chose the setting"
    results: Results = field(repr=False, compare=False)
    "evaluation of the default, the recorded requests and the chosen setting"

    def __str__(self) -> str:
        """Return the lines with their names."""
        return "\n".join(f"{name}: {text}" for name, text in self.lines.items())

    @property
    def lines(self) -> dict[str, str]:
        """Text of each line, by its name."""
        chosen = self.candidate if self.changes and self.candidate else self.default
        found = {
            "Setting": self._setting_line(),
            "Saves": self._saving_line(chosen),
            "Forgets": _forgetting_line(chosen, self.default),
            "Evidence": _evidence_line(self.evidence, self.candidate, bool(self.changes)),
        }
        if self.portable is not None:
            found["Portable"] = _portable_line(self.portable, self.portable_tools)
        return found

    @property
    def assumptions(self) -> str:
        """Paragraph with the assumptions about the agent, and the limits of the figures."""
        facts = "; ".join(f"{each.name} {each.value} ({each.origin})" for each in self.facts)
        return (
            f"Assumed: {facts}. A replay: the agent acts as recorded, whatever is removed, and "
            "recall is availability. Costs are input costs, with an estimate for the calls that "
            "write summaries."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the evaluation as values of JSON; nan becomes None.

        Returns
        -------
        dict
            Fields by name; ``trials`` as a list of rows, and ``lines``.
        """
        names = [name for name in self.__dataclass_fields__ if name not in ("trials", "results")]
        rows = self.trials.reset_index().to_dict("records")
        found = {
            "lines": self.lines,
            **{name: getattr(self, name) for name in names},
            "trials": rows,
        }
        return {name: _to_plain(value) for name, value in found.items()}

    def save(self, folder: str | Path) -> Path:
        """Save the recommendation as ``recommendation.json``, beside the evaluation behind it.

        Parameters
        ----------
        folder : str or Path
            Folder to save to. It is created if it does not exist.

        Returns
        -------
        Path
            The folder.
        """
        folder = self.results.save(folder)
        (folder / FILE).write_text(dump_json(self.to_dict()) + "\n", encoding="utf-8")
        return folder

    def _repr_html_(self) -> str:
        lines = (paragraph(f"{name}: {text}") for name, text in self.lines.items())
        return wrap_html(*lines, paragraph(self.assumptions, is_note=True))

    def _setting_line(self) -> str:
        if self.reason:
            return f"keep the default of {self.product}. {self.reason}"
        return "; and ".join(map(_write_setting, self.settings))

    def _saving_line(self, chosen: Effect) -> str:
        whole = f"${format_usd(self.default.usd)} per 100 requests"
        beside = _compare_with_recorded(chosen.saved_share_of_recorded.value)
        if chosen is self.default:
            return f"nothing. The default costs {whole}, {beside}."
        return (
            f"${format_usd(chosen.saved_usd.value)} of {whole}, "
            f"{format_saving(chosen.saved_share)} of the cost of the default; it costs {beside}."
        )


def _write_setting(setting: WrittenSetting) -> str:
    """Write what the user pastes, and where; a text of several lines is an indented block."""
    where = f"({'; '.join([setting.place, *setting.notes])})"
    first, *more = setting.text.split("\n")
    return "\n    ".join([where, first, *more]) if more else f"{first} {where}"


def _compare_with_recorded(saved: float) -> str:
    share = percent(abs(saved))
    if share == "0 %":
        return "as much as the recorded requests"
    return f"{share} {'less' if saved > 0 else 'more'} than the recorded requests"


def _forgetting_line(chosen: Effect, default: Effect) -> str:
    held = f"{HEADLINE_LABEL} {format_share(chosen.held_far)}"
    if chosen is default:
        return (
            f"{held}. An agent that fetches again what it lacks repeats {chosen.refetches:.1f} calls "
            "per 100 requests."
        )
    change, bounds = chosen.held_far_change, ""
    if not math.isnan(change.low):
        low, high = format_signed_share(change.low), format_signed_share(change.high)
        bounds = f", 95 %: {low} to {high}"
    return (
        f"{held} instead of {format_share(default.held_far)} (difference "
        f"{format_signed_share(change.value)}{bounds}). An agent that fetches again what it lacks "
        f"repeats {chosen.refetches:.1f} calls per 100 requests instead of {default.refetches:.1f}, and "
        f"still saves {format_saving(chosen.closed_saved_share)}."
    )


def _evidence_line(evidence: Evidence, candidate: Effect | None, is_recommended: bool) -> str:
    """Say on what the figures are based, and what to do if that is little."""
    measured = pluralize(evidence.recordings, "recording")
    size = f"{pluralize(evidence.clusters, 'cluster')}, {evidence.requests:,} requests"
    if evidence.is_held_out:
        said = (
            f"chosen on {pluralize(evidence.tuning_recordings, 'recording')} "
            f"({pluralize(evidence.tuning_clusters, 'cluster')}), measured on "
            f"{measured} held out ({size})."
        )
    else:
        said = f"chosen and measured on the same {measured} ({size}), so a saving is optimistic."
    if candidate is not None:
        changed = candidate.changed_recordings
        name = "The setting" if is_recommended else "The setting that was measured"
        said += f" {name} changes requests of {changed:,} of these {evidence.recordings:,}."
    chosen = candidate if is_recommended else None
    if evidence.clusters < MIN_CLUSTERS:
        least = MIN_CLUSTERS + MIN_TUNING_CLUSTERS
        said += f" Too few for intervals: collect {least} independent sessions or more."
    elif candidate is not None and candidate.changed_recordings < MIN_CLUSTERS:
        said += " Too few are long enough to tell: collect more long sessions."
    elif chosen is not None and chosen.saved_share.low <= 0:
        said += (
            " These do not settle whether it saves anything in other sessions; they could show a saving "
            f"of {percent(chosen.detectable_share)}: collect more."
        )
    if evidence.left_out:
        counts = ", ".join(f"{count:,} {why}" for why, count in evidence.left_out.items())
        said += f" Left out: {counts}."
    return said


def _portable_line(effect: Effect, tools: Sequence[str]) -> str:
    needs = f" It also needs the tool {' and '.join(tools)}." if tools else ""
    return (
        f"{short_strategy(effect.strategy)} at {effect.limit:,.0f} tokens saves "
        f"{format_saving(effect.saved_share)}, with a {HEADLINE_LABEL} of "
        f"{format_share(effect.held_far)}, and {format_saving(effect.closed_saved_share)} if the agent "
        "fetches again what it lacks. It is no setting: the agent must send what "
        f"ctxlab.ContextManager or an adapter builds.{needs}"
    )


def _to_plain(value: Any) -> Any:
    """Convert to values of JSON; nan becomes None."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): _to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
