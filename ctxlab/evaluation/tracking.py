"""Log results to an experiment tracker: MLflow or Weights & Biases.

Both trackers get the same: one run with the settings, the verdict and the files of the results, and one
run per configuration with its scores, so that their tables compare strategies. In MLflow, the runs of
the configurations are nested; in Weights & Biases, all runs are in one group. No text of a recording
is logged. The manifest contains the paths that were given.

References
----------
mlflow.org/docs, "Hierarchical and nested runs", version 3 (2026). docs.wandb.ai, "Group runs into
experiments" (2026).
"""

from __future__ import annotations

import math
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ctxlab._utils.numbers import format_limit
from ctxlab.errors import DataMissing, SpecError
from ctxlab.evaluation.verdict import choose_configuration

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results

Tracker: TypeAlias = Literal["mlflow", "wandb"]
"""Name of an experiment tracker, and of the package that writes to it."""

LEADERBOARD_FILE = "leaderboard.csv"
"""Name of the file with the leaderboard."""

_SETTINGS = ("model", "reserve", "cache_ttl", "fixed", "fixed_in_limit", "reasoning")


@dataclass(frozen=True)
class TrackedConfiguration:
    """Parameters and scores of a strategy under a limit, as they are logged."""

    name: str
    "strategy and limit, as the name of the run"
    params: dict[str, Any]
    "strategy, limit and settings of the experiment"
    metrics: dict[str, float]
    "scores of the leaderboard with the bounds of their intervals, without missing ones"
    recommended: bool
    "True if the verdict recommends it"


def log_results(
    results: Results, tracker: Tracker, *, project: str | None = None, name: str = "ctxlab"
) -> str:
    """Log results to an experiment tracker; see ``Results.log_to``.

    Parameters
    ----------
    results : Results
        The results.
    tracker : {"mlflow", "wandb"}
        Where to log them.
    project : str, optional
        Experiment of MLflow or project of Weights & Biases.
    name : str, default "ctxlab"
        Name of the run.

    Returns
    -------
    str
        Id of the run that holds the settings and files.

    Raises
    ------
    SpecError
        If the tracker is unknown.
    DataMissing
        If its package is not installed.
    """
    if tracker not in _LOGGERS:
        raise SpecError(f"tracker: expected {' or '.join(_LOGGERS)}, got {tracker!r}")
    try:
        package = import_module(tracker)
    except ImportError:
        fix = f"run: pip install '.[{tracker}]' in a clone of ctxlab"
        raise DataMissing(f"log_to: requires the package {tracker}; {fix}") from None
    return _LOGGERS[tracker](package, results, project, name)


def tracked_settings(results: Results) -> dict[str, Any]:
    """Return the settings of an experiment and its size.

    Parameters
    ----------
    results : Results
        The results.

    Returns
    -------
    dict
        Settings by name. Strategies and limits are texts.
    """
    spec, versions = results.manifest["spec"], results.manifest["versions"]
    limits = dict.fromkeys(format_limit(limit) for _, limit in results.configurations)
    return {
        "strategies": "; ".join(dict.fromkeys(name for name, _ in results.configurations)),
        "limits": "; ".join(limits),
        **{key: spec.get(key) for key in _SETTINGS},
        "recordings": results.recording_count,
        "clusters": results.cluster_count,
        "ctxlab": versions["ctxlab"],
    }


def tracked_configurations(results: Results) -> Iterator[TrackedConfiguration]:
    """Yield what is logged about each row of the leaderboard.

    Parameters
    ----------
    results : Results
        The results.

    Yields
    ------
    TrackedConfiguration
        A strategy under a limit.
    """
    board = results.leaderboard()
    choice = choose_configuration(board)
    best = choice.key if choice is not None and choice.qualifies else None
    settings = {key: results.manifest["spec"].get(key) for key in _SETTINGS}
    for row in board.to_dict("records"):
        strategy, limit = row.pop("strategy"), row.pop("limit")
        yield TrackedConfiguration(
            f"{strategy} @ {format_limit(limit)}",
            {"strategy": strategy, "limit": limit, **settings},
            {str(key): float(value) for key, value in row.items() if math.isfinite(value)},
            (limit, strategy) == best,
        )


@contextmanager
def _written_files(results: Results) -> Iterator[Path]:
    """Write the leaderboard and the manifest into a temporary folder."""
    from ctxlab.evaluation.run_files import write_manifest

    with tempfile.TemporaryDirectory(prefix="ctxlab-") as folder:
        results.leaderboard().to_csv(Path(folder, LEADERBOARD_FILE), index=False)
        write_manifest(Path(folder), results.manifest, results.scores)
        yield Path(folder)


def _log_to_mlflow(mlflow: Any, results: Results, project: str | None, name: str) -> str:
    experiment = None  # that of the active run, or the active experiment
    if project is not None:
        client = mlflow.MlflowClient()
        found = client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else client.create_experiment(project)
    start = partial(mlflow.start_run, experiment_id=experiment, nested=True)
    with start(run_name=name, description=results.verdict()) as parent:
        mlflow.log_params(tracked_settings(results))
        with _written_files(results) as folder:
            mlflow.log_artifacts(str(folder))
        for each in tracked_configurations(results):
            with start(run_name=each.name, tags={"recommended": str(each.recommended).lower()}):
                mlflow.log_params(each.params)
                mlflow.log_metrics(each.metrics)
    return str(parent.info.run_id)


def _log_to_wandb(wandb: Any, results: Results, project: str | None, name: str) -> str:
    group = f"{name}-{secrets.token_hex(4)}"

    def start(kind: str, name: str, config: dict[str, Any], **more: Any) -> Any:
        # A run that is active in the process goes on.
        options = {"project": project, "group": group, "job_type": kind, "reinit": "create_new"}
        return wandb.init(name=name, config=config, **options, **more)

    with start("evaluation", name, tracked_settings(results), notes=results.verdict()) as run:
        run.log({"leaderboard": wandb.Table(dataframe=results.leaderboard())})
        artifact = wandb.Artifact(f"{group}-results", type="evaluation")
        with _written_files(results) as folder:
            artifact.add_dir(str(folder))
            run.log_artifact(artifact)
    for each in tracked_configurations(results):
        tags = ("recommended",) if each.recommended else ()
        with start("configuration", each.name, each.params, tags=tags) as child:
            child.summary.update(each.metrics)
    return str(run.id)


_LOGGERS: dict[str, Callable[[Any, Results, str | None, str], str]] = {
    "mlflow": _log_to_mlflow,
    "wandb": _log_to_wandb,
}
