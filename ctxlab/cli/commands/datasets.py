"""``ctxlab datasets``: list, describe and download public data sets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import NO_PROGRESS, App, argument, complete_from, flag, option
from ctxlab.cli.output import print_note, print_result
from ctxlab.errors import DataMissing

if TYPE_CHECKING:
    from ctxlab.formats.io.datasets import Dataset


def _dataset_names() -> Iterable[str]:
    from ctxlab.formats.io.datasets import datasets

    return datasets()


_complete = complete_from(_dataset_names)
_NAME = argument(
    "NAME", "Name of a data set; see ctxlab datasets list.", ..., autocompletion=_complete
)
_DATA_DIR = option(
    "--data-dir DIR",
    "Folder that contains the data sets. Default: $CTXLAB_DATA, else your cache folder.",
)

app = App()


@app.callback()
def _describe() -> None:
    """List and download public data sets of recordings.

    After the download, write dataset:NAME wherever a command expects recordings, as in
    ctxlab eval dataset:NAME.
    """


@app.command("list", short_help="List the data sets.")
def list_datasets(data_dir: Path | None = _DATA_DIR) -> None:
    """List the data sets with their sizes, licenses and, if they are downloaded, local paths."""
    from ctxlab._utils.numbers import format_bytes
    from ctxlab.cli.render.table import Table
    from ctxlab.evaluation.columns import Column
    from ctxlab.formats.io.datasets import data_dirs, datasets, local_dataset_dir

    known = list(datasets().values())
    paths = [_local_path_text(each, local_dataset_dir(each, data_dir)) for each in known]
    names = [each.licence.name for each in known]
    columns = [
        Column("data set", [each.name for each in known], left=True),
        Column("recordings", [f"{each.conversations:,}" for each in known]),
        Column("size", [format_bytes(each.total_bytes) for each in known]),
        Column("license", names, left=True, narrow=[_break_license(name) for name in names]),
        Column("local path", paths, left=True),
    ]
    looked = " and ".join(map(str, data_dirs(data_dir)))
    said = (
        f"Searched folders: {looked}. ctxlab datasets info NAME describes a data set, and ctxlab "
        "datasets fetch NAME downloads it. To use it, write dataset:NAME as the path of recordings."
    )
    print_result(Table(columns, wrap=4).render(said))


@app.command("info", short_help="Describe a data set.")
def info(name: str = _NAME, data_dir: Path | None = _DATA_DIR) -> None:
    """Print the content, license, citation, files and usage of a data set."""
    from ctxlab._utils.numbers import format_bytes
    from ctxlab.formats.io.datasets import find_dataset, local_dataset_dir

    dataset = find_dataset(name)
    found = local_dataset_dir(dataset, data_dir)
    files = pluralize(len(dataset.files), "file")
    use = [f"ctxlab describe dataset:{name}", f"ctxlab eval dataset:{name} --limit 25%"]
    lines = [
        f"{name}: {dataset.meaning}",
        "",
        f"conversations  {dataset.conversations:,}",
        f"size           {format_bytes(dataset.total_bytes)} in {files}",
        f"license        {_license_text(dataset)}",
        f"               {dataset.licence.address}",
        f"attribution    {dataset.notice}",
        f"homepage       {dataset.homepage}",
        *([f"citation       {dataset.citation}"] if dataset.citation else []),
        f"local path     {_local_path_text(dataset, found)}",
        f"usage          {use[0] if found else f'ctxlab datasets fetch {name}'}",
        f"               {use[1] if found else use[0]}",
    ]
    if found and (found / "clusters.tsv").is_file():
        clusters = found / "clusters.tsv"
        lines.append(f"clusters       {use[0]} --clusters {clusters}")
    for file in dataset.files:
        known = f"sha256 {file.sha256}" if file.sha256 else "sha256 unknown (--sha256 HEX)"
        size = format_bytes(file.bytes)
        lines += ["", f"{file.name}  {size}", f"  {file.address}", f"  {known}"]
    print_result("\n".join(lines))


@app.command("fetch", short_help="Download a data set.")
def fetch(
    name: str = _NAME,
    data_dir: Path | None = _DATA_DIR,
    yes: bool = flag("--yes -y", "Agree to the license and the download size without being asked."),
    sha256: str | None = option(
        "--sha256 HEX", "SHA-256 hash of the file for which ctxlab datasets info shows no hash."
    ),
    no_progress: bool = NO_PROGRESS,
) -> None:
    """Download a data set. Its license and size are shown first, and you are asked to agree.

    If a download is interrupted, the next fetch continues it. A downloaded file is deleted if its hash
    differs from the published hash.

    To download from a mirror, set CTXLAB_MIRROR=https://a.server/folder. In every URL,
    this address then replaces the scheme and the host.
    """
    from ctxlab._utils.numbers import format_bytes
    from ctxlab.formats.io import download
    from ctxlab.formats.io.datasets import data_dirs, find_dataset

    dataset = find_dataset(name)
    home = data_dirs(data_dir)[0]
    files = download.files_to_fetch(dataset, sha256)
    missing = [file for file in files if not (home / name / file.name).is_file()]
    if missing:
        size = format_bytes(sum(file.bytes for file in missing))
        print_note(f"{name}: {_license_text(dataset)} ({dataset.licence.address})")
        print_note(f"{pluralize(len(missing), 'file')}, {size}, will be saved in {home / name}")
        _confirm_license(name, yes)
    try:
        progress = False if no_progress else None
        folder = download.fetch_dataset(dataset, home, sha256=sha256, progress=progress)
    except KeyboardInterrupt:
        print_note(f"partial downloads are kept; to continue, run: ctxlab datasets fetch {name}")
        raise
    _note_fetched(dataset, folder, bool(missing))


def _confirm_license(name: str, yes: bool) -> None:
    """Ask the user to agree to the license. Without a terminal, ``--yes`` is required instead."""
    if yes:
        return
    if not sys.stdin.isatty():
        hint = f"to agree to the license, run: ctxlab datasets fetch {name} --yes"
        raise DataMissing(f"nothing was downloaded; {hint}")
    typer.confirm("Agree and download?", abort=True, err=True)


def _note_fetched(dataset: Dataset, folder: Path, new: bool) -> None:
    """Print the local path of a data set to standard output, and a hint on its use to stderr."""
    from ctxlab.formats.io.datasets import data_dirs

    for file in dataset.files:
        if not (folder / file.name).is_file():
            print_note(f"{file.name} was not downloaded (unknown hash); add --sha256 HEX")
    named = f"dataset:{dataset.name}" if folder.parent in data_dirs() else str(folder)
    was = "was downloaded" if new else "was already downloaded"
    print_note(f"{dataset.name} {was}; to describe its recordings, run: ctxlab describe {named}")
    print_result(str(folder))


def _local_path_text(dataset: Dataset, found: Path | None) -> str:
    if found is None:
        return "not downloaded"
    return f"{found}{'' if dataset.is_complete(found) else ' (differs from the published files)'}"


def _break_license(name: str) -> str:
    """Break the long names of licenses into two lines, for narrow terminals."""
    return name.replace("-NC", "-\nNC").replace("Apache-", "Apache-\n")


def _license_text(dataset: Dataset) -> str:
    return f"{dataset.licence.name}: {dataset.licence.means}"
