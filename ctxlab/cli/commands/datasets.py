"""``ctxlab datasets`` lists the published data sets that have a name here, and fetches them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.output import print_note, print_result
from ctxlab.errors import DataMissing

if TYPE_CHECKING:
    from ctxlab.formats.io.datasets import Dataset

__all__ = ["app", "fetch", "info", "list_datasets"]

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As ctxlab datasets list has it.")]
_DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of data sets [what CTXLAB_DATA names, else a folder in the platform's cache].",
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _show_help(context: typer.Context) -> None:
    """List published recordings and fetch them; dataset:NAME then stands for them."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list", short_help="List the data sets.")
def list_datasets(data_dir: _DataDir = None) -> None:
    """List the data sets: how large, under which license, and where they are."""
    from rich.text import Text

    from ctxlab.cli.render.format import make_table, render_to_text
    from ctxlab.formats.io.datasets import data_dirs, datasets, local_dataset_dir

    rows = []
    for dataset in datasets().values():
        found = local_dataset_dir(dataset, data_dir)
        cells = [dataset.name, f"{dataset.conversations:,}", _format_bytes(dataset.total_bytes)]
        rows.append(([*cells, dataset.licence.name, _local_path_text(dataset, found)], ""))
    heads = ["data set", "conversations", "size", "license", "local path"]
    looked = " and ".join(map(str, data_dirs(data_dir)))
    said = (
        f"Looked in {looked}. ctxlab datasets info NAME says what one is, ctxlab datasets fetch NAME "
        "fetches it, and dataset:NAME is it wherever recordings are named."
    )
    print_result(
        render_to_text(make_table(heads, rows, {0, 3, 4}, wrap_column=4), Text(), Text(said))
    )


@app.command("info", short_help="Say all that is known of one.")
def info(name: _Name, data_dir: _DataDir = None) -> None:
    """Say all that is known of a data set: what it is, its license, its files, how to use it."""
    from ctxlab.formats.io.datasets import find_dataset, local_dataset_dir

    dataset = find_dataset(name)
    found = local_dataset_dir(dataset, data_dir)
    files = pluralize(len(dataset.files), "file")
    use = [f"ctxlab describe dataset:{name}", f"ctxlab eval dataset:{name} --limit 25%"]
    lines = [
        f"{name}: {dataset.meaning}",
        "",
        f"conversations  {dataset.conversations:,}",
        f"size           {_format_bytes(dataset.total_bytes)} in {files}",
        f"license        {_license_text(dataset)}",
        f"               {dataset.licence.address}",
        f"attribution    {dataset.notice}",
        f"homepage       {dataset.homepage}",
        *([f"citation       {dataset.citation}"] if dataset.citation else []),
        f"local path     {_local_path_text(dataset, found)}",
        f"usage          {use[0] if found else f'ctxlab datasets fetch {name}'}",
        f"               {use[1] if found else use[0]}",
    ]
    for file in dataset.files:
        known = f"sha256 {file.sha256}" if file.sha256 else "sha256 not known (--sha256 HEX)"
        lines += [
            "",
            f"{file.name}  {_format_bytes(file.bytes)}",
            f"  {file.address}",
            f"  {known}",
        ]
    print_result("\n".join(lines))


@app.command("fetch", short_help="Fetch one, once you agree to its license.")
def fetch(
    name: _Name,
    data_dir: _DataDir = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to the license and the size.")
    ] = False,
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The hash of the file that the catalog has none of."),
    ] = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Show no bar.")] = False,
) -> None:
    """Fetch a data set, after showing its license and its size.

    What broke off goes on where it stopped; what is not as it was published is not kept. With
    CTXLAB_MIRROR=https://a.server/folder every address begins with that in place of its own host.
    """
    from ctxlab.formats.io import download
    from ctxlab.formats.io.datasets import data_dirs, find_dataset

    dataset = find_dataset(name)
    home = data_dirs(data_dir)[0]
    missing = [
        file
        for file in download.files_to_fetch(dataset, sha256)
        if not (home / name / file.name).is_file()
    ]
    if missing:
        size = _format_bytes(sum(file.bytes for file in missing))
        print_note(f"{name}: {_license_text(dataset)} ({dataset.licence.address})")
        print_note(f"{pluralize(len(missing), 'file')}, {size}, go into {home / name}")
        _confirm_license(name, yes)
    try:
        folder = download.fetch_dataset(
            dataset, home, sha256=sha256, progress=False if no_progress else None
        )
    except KeyboardInterrupt:
        print_note(f"what has arrived is kept; ctxlab datasets fetch {name} goes on from there")
        raise
    _note_fetched(dataset, folder, bool(missing))


def _confirm_license(name: str, yes: bool) -> None:
    """Goes on only with consent, which nobody can give in a pipe."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise DataMissing(
            f"nothing was fetched: add --yes to agree (ctxlab datasets fetch {name} --yes)"
        )
    typer.confirm("Agree and fetch?", abort=True, err=True)


def _note_fetched(dataset: Dataset, folder: Path, new: bool) -> None:
    """Where it is on standard output, and what to do with it beside that."""
    from ctxlab.formats.io.datasets import data_dirs

    for file in dataset.files:
        if not (folder / file.name).is_file():
            print_note(
                f"not fetched: {file.name}, whose sha256 is not known; --sha256 HEX fetches it"
            )
    named = f"dataset:{dataset.name}" if folder.parent in data_dirs() else str(folder)
    print_note(
        f"{dataset.name} is {'here now' if new else 'here already'}: ctxlab describe {named}"
    )
    print_result(str(folder))


def _local_path_text(dataset: Dataset, found: Path | None) -> str:
    if found is None:
        return "not downloaded"
    return (
        f"{found}{'' if dataset.is_complete(found) else ' (other files than the published ones)'}"
    )


def _license_text(dataset: Dataset) -> str:
    return f"{dataset.licence.name}: {dataset.licence.means}"


def _format_bytes(count: int) -> str:
    from ctxlab.cli.render.format import format_count

    return f"{format_count(count)}B"
