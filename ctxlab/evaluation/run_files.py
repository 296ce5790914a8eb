"""Files of a saved run: their names, the manifest, and replacing an earlier run by a new one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.recording_table import RECORDINGS_FILE

MANIFEST_FILE = "manifest.json"
"""File name of the manifest in the folder of a saved run."""

REQUESTS_FILE = "requests.parquet"
"""File name of the table of requests in the folder of a saved run."""

RUNS_FILE = "runs.parquet"
"""File name of the table of runs."""

COMPACTIONS_FILE = "compactions.parquet"
"""File name of the table of compactions."""

RUN_FILES = (
    MANIFEST_FILE,
    *(REQUESTS_FILE, RUNS_FILE, COMPACTIONS_FILE, RECORDINGS_FILE),
    *("answers.parquet", "frontier.parquet", "trials.parquet"),
)
"""Names of the files of a saved run. Saving removes the files of an earlier run with these names."""

UNFINISHED_PREFIX = ".saving-"
"""Prefix of the name of the temporary folder into which a run is written first."""


def write_manifest(folder: Path, manifest: Mapping[str, Any], scores: Iterable[Score]) -> None:
    """Write the manifest of a run into an existing folder.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    manifest : mapping
        Manifest of the results.
    scores : iterable of Score
        Scores of the leaderboard.
    """
    text = dump_json({**manifest, "scores": [vars(score) for score in scores]})
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


@contextmanager
def replace_run_files(folder: Path) -> Iterator[Path]:
    """Replace the run in ``folder`` by the files that the ``with`` block writes.

    The block writes to a temporary folder. When it ends, the files of the earlier run are moved away
    and the new files are moved into ``folder``. If anything fails, the earlier run is restored. The
    new manifest is moved last. If the process is killed while files are moved, the folder therefore
    has no manifest and does not look like a saved run.

    Parameters
    ----------
    folder : Path
        Folder of the run. It is created if it does not exist.

    Yields
    ------
    Path
        Temporary folder for the new files.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=folder) as work:
            made, before = Path(work, "made"), Path(work, "before")
            made.mkdir()
            before.mkdir()
            yield made
            names = [name for name in RUN_FILES if (folder / name).is_file()]
            files = sorted(made.iterdir(), key=lambda file: file.name == MANIFEST_FILE)
            moves = [(folder / name, before / name) for name in names]
            _move_all_or_none(moves + [(file, folder / file.name) for file in files])
    except BaseException:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _move_all_or_none(moves: Sequence[tuple[Path, Path]]) -> None:
    """Move files one after another. If a move fails, undo the earlier moves."""
    try:
        for old, new in moves:
            old.replace(new)
    except BaseException:
        for old, new in reversed(moves):
            if new.exists() and not old.exists():
                new.replace(old)
        raise
