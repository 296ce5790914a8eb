"""Load the experiment of a command, replay it, and prepare it for the manifest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab.cli.notices import note_run
from ctxlab.cli.output import print_note, report_skipped
from ctxlab.errors import ReadError, SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec


def load_experiment(paths: list[str], changes: dict[str, Any]) -> tuple[Spec, Path | None]:
    """Load an experiment from the paths and options of a command.

    If ``paths`` is empty, the built-in experiment ``evals/quickstart.toml`` is loaded. If ``paths``
    contains recordings, they replace the recordings of the experiment.

    Parameters
    ----------
    paths : list of str
        Paths of recordings, and at most one experiment file or saved run.
    changes : dict
        Values of the options, which replace fields of the experiment.

    Returns
    -------
    spec : Spec
        Experiment with the values of the options.
    run : Path or None
        Saved run whose recordings the experiment reads again; None if there is no saved run, or if
        ``paths`` contains recordings.

    Raises
    ------
    SpecError
        If ``paths`` contains several experiments, or if an experiment is invalid.
    ReadError
        If an experiment cannot be read. A saved run beside recordings is skipped with a note if the
        option ``--on-error`` is ``"skip"``.
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
        if changes.get("on_error") == "skip":
            experiments = [path for path in experiments if _is_readable(path)]
    if data and not experiments:
        return Spec(**changes), None
    path = Path(experiments[0]) if experiments else bundled_path("evals/quickstart.toml")
    saved = path.suffix != ".toml"
    if saved and changes.keys() & {"data", "model"}:
        # The token profiles in a saved run were fitted to its models, so they are not used for others.
        changes = {**changes, "profiles": None}
    return replace(read_spec(path), **changes), path if saved and not data else None


def _is_readable(path: str) -> bool:
    """Check whether an experiment can be read. If not, print a note for a saved run, else raise."""
    from ctxlab.evaluation.spec import read_spec

    try:
        read_spec(path)
    except (ReadError, SpecError) as error:
        if Path(path).suffix == ".toml":
            raise
        print_note(f"skipped the saved run {path}, whose settings are not used: {error}")
        return False
    return True


def replay_spec(
    spec: Spec, progress: bool | None, out: Path | None = None, **settings: Any
) -> Results:
    """Replay an experiment, and print notes about what was skipped or failed, and model calls.

    If the replay fails, the skipped files are printed before the error is raised.

    Parameters
    ----------
    spec : Spec
        Experiment to replay.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    out : Path, optional
        Folder in which finished parts of the run are stored.
    **settings : object
        Other settings of ``run_experiment`` for runs that are stored in parts.

    Returns
    -------
    Results
        Results of the replay.
    """
    from ctxlab.evaluation.spec import run_experiment

    with report_skipped(spec.on_error) as skipped:
        results = run_experiment(spec, progress, skipped, out, **settings)
        for recording in results.recordings:
            skipped.rows.update(recording["skipped"])
    note_run(results, spec.model)
    for failed in results.manifest.get("failed", ()):
        print_note(f"{failed['source'] or failed['recording']}: not evaluated: {failed['reason']}")
    return results


def spec_to_store(spec: Spec, results: Results, **changes: Any) -> dict[str, Any]:
    """Convert an experiment to a dict, for the manifest of its run.

    The dict contains the base folder of the recordings as an absolute path, so that the experiment
    can be repeated from any folder.

    Parameters
    ----------
    spec : Spec
        Experiment that was replayed.
    results : Results
        Results of the replay. The field ``profiles`` of ``spec`` is replaced by the calibrations of
        token counts that the manifest of the results contains.
    **changes : object
        New values for fields of the experiment.

    Returns
    -------
    dict
        Values of the fields by name, with tuples converted to lists.
    """
    from msgspec import to_builtins
    from msgspec.structs import replace

    stored = replace(
        spec.without_credentials(), folder=os.path.abspath(spec.folder or "."), **changes
    )
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in to_builtins(stored).items()}
    return {**fields, "profiles": results.manifest["spec"]["profiles"]}
