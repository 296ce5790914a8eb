"""Load the experiment that a command was asked to run, and run it with notes about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab.cli.notices import note_run
from ctxlab.cli.output import report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec


def load_experiment(paths: list[str], changes: dict[str, Any]) -> tuple[Spec, Path | None]:
    """Read the experiment that a command was asked to run.

    Without any path it is the built-in quickstart.

    Parameters
    ----------
    paths : list of str
        Data, and at most one experiment file or saved run.
    changes : dict
        Fields that options replace.

    Returns
    -------
    spec : Spec
        The experiment.
    run : Path or None
        The saved run whose data is read again, if there is one.

    Raises
    ------
    SpecError
        If several experiments are named.
    """
    from msgspec.structs import replace

    from ctxlab.evaluation.spec import Spec, is_spec, read_spec
    from ctxlab.formats.io.datasets import bundled_path

    experiments = [path for path in paths if is_spec(path)]
    data = tuple(path for path in paths if path not in experiments)
    if len(experiments) > 1:
        named = f"{len(experiments)}: {' and '.join(experiments)}"
        raise SpecError(f"expected one experiment, got {named}; run them one at a time")
    if data:
        changes = {**changes, "data": data, "folder": ""}
    if data and not experiments:
        return Spec(**changes), None
    path = Path(experiments[0]) if experiments else bundled_path("evals/quickstart.toml")
    saved = path.suffix != ".toml"
    if saved and changes.keys() & {"data", "model"}:
        # The token profiles of a saved run belong to its models and do not apply to others.
        changes = {**changes, "profiles": None}
    return replace(read_spec(path), **changes), path if saved and not data else None


def replay_spec(spec: Spec, progress: bool | None) -> Results:
    """Run an experiment and note what was not read, even if it fails.

    Parameters
    ----------
    spec : Spec
        The experiment.
    progress : bool, optional
        Show a progress bar; None shows it on a terminal only.

    Returns
    -------
    Results
        The results.
    """
    from ctxlab.evaluation.spec import run_experiment

    with report_skipped(spec.on_error) as skipped:
        results = run_experiment(spec, progress, skipped)
        for recording in results.manifest["recordings"]:
            skipped.rows.update(recording["skipped"])
    note_run(results, spec.model)
    return results


def spec_to_store(spec: Spec, results: Results, **changes: Any) -> dict[str, Any]:
    """Return an experiment for a manifest, so that its data is found again from any folder.

    Parameters
    ----------
    spec : Spec
        The experiment.
    results : Results
        Its results, whose manifest has the token profiles that were used.
    **changes : object
        Fields to replace.

    Returns
    -------
    dict
        The fields of the experiment.
    """
    from msgspec import to_builtins
    from msgspec.structs import replace

    stored = replace(spec, folder=os.path.abspath(spec.folder or "."), **changes)
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in to_builtins(stored).items()}
    return {**fields, "profiles": results.manifest["spec"]["profiles"]}
