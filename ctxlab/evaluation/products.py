"""Compare the default context strategies of products: what each costs, and what it forgets.

Each product runs with the settings that it is shipped with. A limit is a context window: it includes
the system prompt and the tools that no log contains (``fixed_in_limit``). Only recordings that are
longer than the limit are replayed, because a product does nothing to shorter ones, and only those
whose head leaves room for the conversation.

Two evaluations are made: one of the recordings, with recall, the closed loop and both lifetimes of
cache writes; and one of copies in which constraints were planted (see ``ctxlab.evaluation.canaries``).
Summaries are extracted without a model, so they cost nothing and lose what an extract loses. The replay
is off-policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.canaries import DEFAULT_DEPTHS, CanaryPlanter, make_planter, read_canaries
from ctxlab.evaluation.columns import (
    ColumnFacts,
    Figure,
    frame_columns,
    legend_of,
)
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.grid import StrategyLike, resolve_strategy
from ctxlab.evaluation.html import grouped_html, paragraph, wrap_with_frame
from ctxlab.evaluation.metrics import Metric
from ctxlab.evaluation.metrics.base import Better
from ctxlab.evaluation.metrics.cost import hour_cost
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.run_files import MANIFEST_FILE
from ctxlab.evaluation.verdict import control_name
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import Strategy
from ctxlab.strategies.baselines import BASELINES, NamedStrategy, newest_baselines
from ctxlab.tokens.cache_timeline import AS_RECORDED
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.profiles import TokenProfile

_TABLE, _TABLE_AS_TEXT = "products.parquet", "products.csv"
_Array = npt.NDArray[np.float64]

REFERENCES: tuple[str, ...] = (
    "full",
    "recorded",
    "sliding_window() | panic()",
    "excerpt_memory() | panic()",
    "nothing",
    "random_drop()",
    "oracle",
)
"""Strategies beside the products: full history, the recorded compactions, two of ctxlab's own, and
controls."""

DEFAULT_WINDOWS: tuple[int, ...] = (200_000,)
"""Default limits: the context window for which most of these defaults were chosen."""

_METRICS = ("usage", "validity", "cost", hour_cost, "recall")

CONSTRAINTS = 10
"""Default number of constraints that are planted in a copy of each recording."""

COLUMNS: dict[str, tuple[str, str]] = {
    "strategy": ("", "name of the baseline or strategy"),
    "version": ("", "version of the product that the baseline reproduces; empty for others"),
    "kind": ("", "`product`, `reference` or `control`"),
    "limit": ("tokens", "context window, with the system prompt and tools that no log contains"),
    "recordings": ("recordings", "recordings that were replayed"),
    "clusters": ("clusters", "independent groups of these recordings"),
    "requests": ("requests", "requests of these recordings"),
    "cost_5m": (
        "share",
        "input cost divided by that of the full history; cache writes last 5 minutes",
    ),
    "cost_1h": ("share", "the same if cache writes last an hour"),
    "usd_5m": ("USD", "input cost of all requests; cache writes last 5 minutes"),
    "usd_1h": ("USD", "the same if cache writes last an hour"),
    "held_far": ("share", "far needs that are held: `recall_far_held`"),
    "closed_cost": (
        "share",
        "cost of the closed loop, in which the agent fetches again what it needs and no longer holds, "
        "divided by the cost of the full history; cache writes last 5 minutes",
    ),
    "constraints": ("share", "planted constraints in view at the last request of each recording"),
    "compactions": ("per 100 requests", "requests that change what the previous request sent"),
    "invalid": (
        "share",
        "requests that the provider would reject for their form, but not the full history",
    ),
    "overflow": ("share", "requests that exceed the limit"),
}
"""Unit and meaning of each column of the table. Columns with intervals have two more, with the suffixes
``_low`` and ``_high``."""

_BETTER: dict[str, Better] = {
    **dict.fromkeys(("cost_5m", "cost_1h", "usd_5m", "usd_1h", "closed_cost"), "lower"),
    **dict.fromkeys(("held_far", "constraints"), "higher"),
    **dict.fromkeys(("compactions", "invalid", "overflow"), "lower"),
}
FACTS = {
    name: ColumnFacts(unit, _BETTER.get(name, ""), meaning)
    for name, (unit, meaning) in COLUMNS.items()
}
"""Format, direction and meaning of the columns of the table."""

WITH_INTERVALS = ("cost_5m", "cost_1h", "held_far", "closed_cost", "constraints", "compactions")
"""Columns that have 95 % intervals over clusters."""

COLUMN_NAMES = tuple(
    f"{name}{end}"
    for name in COLUMNS
    for end in ("", *(("_low", "_high") if name in WITH_INTERVALS else ()))
)
"""Names of all columns in their order. Columns that were not measured are missing in a table."""


FIGURES = (
    Figure("cost\n%", "cost_5m", "percent", "cost: input cost, as % of the cost of the full history"),
    Figure("1 h\n%", "cost_1h", "percent", "1 h: the same if cache writes last an hour", 2),
    Figure(
        "closed\n%", "closed_cost", "percent",
        "closed: the same if the agent fetches again what it needs and no longer holds", 3,
    ),
    Figure(
        "held far\n(95 %)", "held_far", "interval",
        "held far: share of the values in tool calls, last mentioned over 4,000 tokens before, that "
        "the request still holds",
    ),
    Figure(
        "constraints\n(95 %)", "constraints", "interval",
        "constraints: share of planted constraints in the last request", 1,
    ),
    Figure(
        "edits\nper 100", "compactions", "count",
        "edits: requests that change what was sent before", 4,
    ),
    Figure(
        "invalid\n%", "invalid", "percent",
        "invalid: requests that a provider would reject, but not the full history", hide="zero",
    ),
    Figure(
        "over\n%", "overflow", "percent", "over: requests that exceed the window", hide="zero",
    ),
)  # fmt: skip
"""Columns of the printed table."""


@dataclass(repr=False)
class ProductTable:
    """Comparison of the defaults of products. A notebook displays it as a table.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> products = ["claude_code", "codex"]
    >>> found = ctxlab.compare_products([recording], 16_000, products, closed_loop=False, workers=1)
    >>> found.frame[["strategy", "requests"]].values.tolist()
    [['full()', 120], ['claude_code()', 120], ['codex()', 120]]
    """

    frame: pd.DataFrame
    "one row per strategy and limit; ``COLUMNS`` describes the columns"
    results: dict[tuple[float, str], Results]
    """evaluations by limit and by ``recordings`` or ``constraints``: all measurements of the table"""
    folder: Path | None = None
    "folder in which the evaluations are stored already; None if there is none"

    @property
    def ranked(self) -> pd.DataFrame:
        """Rows of ``frame`` by limit and cost, as they are shown."""
        return self.frame.sort_values(["limit", "cost_5m"], kind="stable", ignore_index=True)

    def save(self, folder: str | Path) -> Path:
        """Save the table as ``products.parquet`` and ``products.csv``, beside its evaluations.

        Evaluations that ``compare_products`` has stored in this folder are not written again.

        Parameters
        ----------
        folder : str or Path
            Folder to save to. It is created if it does not exist.

        Returns
        -------
        Path
            The folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.frame.to_parquet(folder / _TABLE, index=False)
        self.frame.to_csv(folder / _TABLE_AS_TEXT, index=False)
        if self.folder is None or folder.resolve() != self.folder.resolve():
            for key, results in self.results.items():
                results.save(_folder_of(folder, *key))
        return folder

    def __repr__(self) -> str:
        """Return a short description with the number of rows."""
        return f"<ProductTable: {len(self.frame):,} rows>"

    def _repr_html_(self) -> str:
        rows = self.ranked
        columns = frame_columns(rows, FIGURES)
        legend = paragraph(legend_of(columns), is_note=True)
        return wrap_with_frame([grouped_html(rows, columns), legend], rows)


def exceeds_window(prepared: PreparedRecording, limit: float) -> bool:
    """Return whether a recording is longer than a context window, and its head takes at most half of it.

    No strategy drops the head: the system prompt, the tool definitions and the first user message.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording with its token counts.
    limit : int
        Context window in tokens. It includes the tokens that the log does not contain.

    Returns
    -------
    bool
        True if the recording tells what a product does within this window.
    """
    if not prepared.request_positions:
        return False
    history, unlogged = prepared.history, prepared.priced_fixed_tokens
    head = history.tokens_before[history.head_length] + prepared.fixed_tokens + unlogged
    return prepared.longest_request_tokens + unlogged > limit and head <= limit / 2


def compare_products(
    recordings: Iterable[Recording],
    limits: float | Iterable[float] = DEFAULT_WINDOWS,
    strategies: Iterable[StrategyLike] | None = None,
    model: str | None = None,
    *,
    constraints: int = CONSTRAINTS,
    closed_loop: bool = True,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    folder: str | Path | None = None,
) -> ProductTable:
    """Replay recordings through the defaults of products, and tabulate what they cost and forget.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay. Those that are not longer than a limit are left out for this limit.
    limits : int or iterable of int, optional
        One or several context windows, in tokens; 200,000 if left out.
    strategies : iterable of Strategy, str or callable, optional
        Strategies to compare; the newest baseline of each product and ``REFERENCES`` if left out.
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of each recording.
    constraints : int, default 10
        Number of constraints that are planted in a copy of each recording; 0 plants none.
    closed_loop : bool, default True
        Also replay each strategy with an agent that fetches again what it needs.
    seed : int, default 0
        Seed for planting the constraints.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show progress bars. None shows them only on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.
    folder : str or Path, optional
        Folder of the finished parts; see ``ctxlab.evaluate``. The same call goes on where it stopped.

    Returns
    -------
    ProductTable
        The table and its evaluations.

    Raises
    ------
    SpecError
        If no recording is longer than a limit, or the folder contains other files or a comparison of
        other recordings.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> products = ["claude_code", "codex"]
    >>> found = ctxlab.compare_products([recording], 16_000, products, constraints=0, workers=1)
    >>> found.frame[["strategy", "limit", "overflow"]].round(2).values.tolist()
    [['full()', 16000, 0.72], ['claude_code()', 16000, 0.0], ['codex()', 16000, 0.0]]
    """
    check_recordings(recordings)
    every = recordings if isinstance(recordings, Sequence) else list(recordings)
    names = [*newest_baselines(), *REFERENCES] if strategies is None else list(strategies)
    chosen = list(dict.fromkeys(map(resolve_strategy, ["full", *names])))
    settings: dict[str, Any] = {
        "model": model, "fixed_in_limit": True, "workers": workers, "progress": progress,
        "profile": profile,
    }  # fmt: skip
    planter = make_planter(constraints, "constraint", DEFAULT_DEPTHS, seed) if constraints else None
    results: dict[tuple[float, str], Results] = {}
    frames: list[pd.DataFrame] = []
    if folder is not None:
        _check_folder(Path(folder))
    for limit in [limits] if isinstance(limits, int | float) else limits:
        longer = _choose_longer(every, limit, model, profile, workers)
        if folder is not None:
            _check_recordings_of(_folder_of(Path(folder), limit, "recordings"), longer)
        runs: dict[str, tuple[list[Recording], Sequence[str | Metric], dict[str, Any]]] = {
            "recordings": (longer, _METRICS, {"closed_loop": closed_loop}),
        }
        if planter and (planted := _plant(planter, longer)):
            runs["constraints"] = planted, ("canaries",), {}
        for name, (data, metrics, more) in runs.items():
            place = None if folder is None else _folder_of(Path(folder), limit, name)
            results[limit, name] = evaluate(
                data, chosen, limit,
                cache_ttl="5m", metrics=metrics, folder=place, **settings, **more,
            )  # fmt: skip
        frames.append(_tabulate(limit, chosen, {name: results[limit, name] for name in runs}))
    stored = None if folder is None else Path(folder).absolute()
    return ProductTable(pd.concat(frames, ignore_index=True), results, stored)


def _folder_of(folder: Path, limit: float, name: str) -> Path:
    return folder / f"{limit:g}" / name


def _check_folder(folder: Path) -> None:
    """Raise ``SpecError`` if a folder contains anything but a comparison of products."""
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        if each.name not in (_TABLE, _TABLE_AS_TEXT) and not each.name.isdecimal():
            raise SpecError(
                f"expected an empty folder or a comparison of products, got {folder} with {each.name}; "
                "name another folder"
            )


def _check_recordings_of(folder: Path, recordings: Iterable[Recording]) -> None:
    """Raise ``SpecError`` if a folder contains a run with other recordings."""
    if not (folder / MANIFEST_FILE).is_file():
        return
    held = {each["digest"] for each in Results.load(folder).recordings}
    if held != set(map(recording_digest, recordings)):
        raise SpecError(f"{folder} contains a run with other recordings; name another folder")


def _choose_longer(
    recordings: Sequence[Recording],
    limit: float,
    model: str | None,
    profile: TokenProfile | Iterable[TokenProfile] | None,
    workers: int | None,
) -> list[Recording]:
    """Return the recordings that are longer than a limit, and whose head takes at most half of it."""
    check = partial(_is_longer, limit, ModelChoice.from_options(model, profile))
    found = list(map_parallel(check, recordings, workers))
    longer = [each for each, is_longer in zip(recordings, found, strict=True) if is_longer]
    if not longer:
        raise SpecError(
            f"expected a recording that is longer than the limit of {limit:,} tokens, got "
            f"{len(recordings):,} shorter ones; choose a smaller limit"
        )
    return longer


def _is_longer(limit: float, model_choice: ModelChoice, recording: Recording) -> bool:
    counter = model_choice.counter_for(recording)
    return exceeds_window(PreparedRecording(recording, counter, costs=AS_RECORDED), limit)


def _plant(planter: CanaryPlanter, recordings: Iterable[Recording]) -> list[Recording]:
    """Return copies with constraints of the recordings that are long enough for them."""
    planted: list[Recording] = []
    for each in recordings:
        try:
            planted.append(each if read_canaries(each) else planter(each))
        except SpecError:
            continue
    return planted


def _tabulate(
    limit: float, strategies: Sequence[Strategy], runs: dict[str, Results]
) -> pd.DataFrame:
    """Return the rows of one limit."""
    main = runs["recordings"]
    board = main.leaderboard().set_index("strategy")
    names = list(board.index)
    cells = [(float(limit), name) for name in names]

    def ratio(results: Results, top: str, bottom: str) -> _Columns:
        return _Columns(results.cluster_sums(top, cells), results.cluster_sums(bottom, cells))

    def against_full(column: str, whole: str = "cost_usd") -> _Columns:
        sums, full = main.cluster_sums(column, cells), main.cluster_sums(whole, cells[:1])
        return _Columns(sums, np.broadcast_to(full, sums.shape))

    values: dict[str, Any] = {
        "strategy": names,
        "version": [_version_of(each) for each in strategies],
        "kind": [_kind_of(each) for each in strategies],
        "limit": limit,
        "recordings": main.recording_count,
        "clusters": main.cluster_count,
        "requests": board["requests"].to_numpy(),
        **against_full("cost_usd").named("cost_5m"),
        **against_full("cost_usd_1h", "cost_usd_1h").named("cost_1h"),
        "usd_5m": board["cost_usd"].to_numpy(),
        "usd_1h": board["cost_usd_1h"].to_numpy(),
        **ratio(main, "far_held", "far_arguments").named("held_far"),
    }
    if "closed_usd" in main.runs:
        values |= against_full("closed_usd").named("closed_cost")
    if "constraints" in runs:
        kept = ratio(runs["constraints"], "canaries_end_kept", "canaries_end")
        values |= kept.named("constraints")
    values |= _count_compactions(main, cells).named("compactions")
    values["invalid"] = board["newly_invalid_rate"].to_numpy()
    values["overflow"] = board["overflow_rate"].to_numpy()
    frame = pd.DataFrame(values)
    return frame[[name for name in COLUMN_NAMES if name in frame]]


@dataclass
class _Columns:
    """Sums by cluster and strategy of a ratio, from which a column and its interval are computed."""

    top: _Array
    bottom: _Array

    def named(self, name: str) -> dict[str, _Array]:
        """Return the column ``name`` and its bounds."""
        whole = self.bottom.sum(axis=0)
        value = np.divide(
            self.top.sum(axis=0), whole, out=np.full(len(whole), np.nan), where=whole > 0
        )
        low, high = ratio_interval(self.top, self.bottom)
        return {name: value, f"{name}_low": low, f"{name}_high": high}


def _count_compactions(results: Results, cells: Sequence[tuple[float, str]]) -> _Columns:
    """Return the compactions per 100 requests."""
    requests = results.cluster_sums("requests", cells)
    rows = results.compactions
    clusters = list(results.runs["cluster"].drop_duplicates())
    counts = rows.groupby(["cluster", "strategy"], observed=True).size()
    table = counts.unstack("strategy", fill_value=0) if len(counts) else pd.DataFrame()
    table = table.reindex(index=clusters, columns=[name for _, name in cells], fill_value=0)
    return _Columns(100 * table.to_numpy(dtype=np.float64), requests)


def _version_of(strategy: Strategy) -> str:
    return BASELINES[strategy.name].product_version if isinstance(strategy, NamedStrategy) else ""


def _kind_of(strategy: Strategy) -> str:
    if isinstance(strategy, NamedStrategy):
        return "product"
    return "reference" if control_name(repr(strategy)) in ("", "full", "recorded") else "control"
