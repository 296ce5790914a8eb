"""Read the catalog of published data sets, and find the data sets that are downloaded.

The file ``datasets.toml`` is the catalog. The files of data sets that are sessions in a repository are
listed in ``sessions.tsv``, with their clusters. This file can also be used as a table of clusters
(``clusters``). Data sets are downloaded to the folder in the environment
variable ``CTXLAB_DATA`` or, if the variable is not set, to the user's cache folder for ctxlab. Each
data set has its own subfolder. Bundled data sets are installed with ctxlab and need no download.
"""

from __future__ import annotations

import functools
import os
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from ctxlab.errors import DataMissing, UnknownName

BUNDLED_PREFIX, DATASET_PREFIX = "bundled:", "dataset:"
"""Prefixes of paths that refer to data sets, such as ``dataset:tau-bench``."""


class License(msgspec.Struct, frozen=True, kw_only=True):
    """The licence of a data set."""

    name: str
    "SPDX identifier of the licence"
    means: str
    "summary of the permissions and obligations, in one sentence"
    address: str
    "URL of the licence text"
    text: str
    "the licence text, or a sentence that refers to it"


class DatasetFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a data set."""

    name: str
    "path of the file, relative to the folder of the data set"
    address: str
    "URL of the published file at a fixed commit"
    bytes: int
    "size of the file in bytes"
    sha256: str | None = None
    "SHA-256 hash. None: unknown; the file is downloaded only if the user specifies its hash"
    cluster: str | None = None
    "cluster of the recordings of the file; None: the reader decides"


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published set of recorded conversations."""

    name: str
    "name of the data set in the catalog"
    meaning: str
    "description in one sentence"
    conversations: int
    "number of conversations"
    licence: License
    "licence of the data set"
    notice: str
    "copyright line, or the authors that a user must credit"
    homepage: str
    "URL of the project"
    citation: str = ""
    "paper to cite; empty if there is none"
    glob: str
    "glob pattern that matches the recordings in the folder of the data set"
    files: tuple[DatasetFile, ...]
    "published files of the data set"

    @property
    def pinned_files(self) -> tuple[DatasetFile, ...]:
        """Files whose SHA-256 hash is in the catalog."""
        return tuple(file for file in self.files if file.sha256)

    @property
    def total_bytes(self) -> int:
        """Total size of all published files in bytes."""
        return sum(file.bytes for file in self.files)

    def is_complete(self, folder: Path) -> bool:
        """Check whether a folder contains every file of ``pinned_files``.

        The content of the files is not checked.

        Parameters
        ----------
        folder : Path
            The folder of the data set.

        Returns
        -------
        bool
            True if all these files exist. False if ``pinned_files`` is empty.
        """
        pinned = self.pinned_files
        return bool(pinned) and all((folder / file.name).is_file() for file in pinned)


@functools.cache
def datasets() -> dict[str, Dataset]:
    """Return all data sets of the catalog by name.

    Returns
    -------
    dict of str to Dataset
        Name → data set, in the order of ``datasets.toml``.

    Examples
    --------
    >>> datasets()["tau-bench"].licence.name
    'MIT'
    """
    catalog = files("ctxlab.formats.io") / "datasets.toml"
    table = tomllib.loads(catalog.read_text(encoding="utf-8"))
    licences = {name: fields | {"name": name} for name, fields in table["licences"].items()}

    listed = _read_sessions()

    def read(name: str, fields: dict[str, Any]) -> Dataset:
        if "repository" in fields:
            fields = _describe_repository(fields) | {"files": listed[name]}
            fields["conversations"] = len(listed[name])
        more = {"name": name, "licence": licences[fields["licence"]]}
        return msgspec.convert(fields | more, Dataset)

    return {name: read(name, fields) for name, fields in table["datasets"].items()}


def _read_sessions() -> dict[str, list[dict[str, Any]]]:
    """Return the fields of the files in ``sessions.tsv``, by data set."""
    table = (files("ctxlab.formats.io") / "sessions.tsv").read_text(encoding="utf-8")
    header, *lines = (line.split("\t") for line in table.splitlines())
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        row = dict(zip(header, line, strict=True))
        dataset, _, name = row["file"].partition("/")
        place = quote(f"{row['repository']}/{row['commit']}/{row['path']}")
        fields = {
            "name": name,
            "address": f"https://raw.githubusercontent.com/{place}",
            "bytes": int(row["bytes"]),
            "sha256": row["sha256"] or None,
            "cluster": row["cluster"],
        }
        found.setdefault(dataset, []).append(fields)
    return found


def _describe_repository(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a data set that follow from its repository."""
    homepage = f"https://github.com/{fields['repository']}"
    licence_file = fields.get("licence_file", "LICENSE")
    notice = f"the authors of {fields['repository']}; see {homepage}/blob/HEAD/{licence_file}"
    return {"homepage": homepage, "notice": notice, "glob": "*.json*"} | fields


def find_dataset(name: str) -> Dataset:
    """Return the data set with a given name from the catalog.

    Parameters
    ----------
    name : str
        Name of the data set, such as ``"tau-bench"``.

    Returns
    -------
    Dataset
        The description, licence and files of the data set.

    Raises
    ------
    UnknownName
        If the catalog contains no data set with this name. The message suggests similar names.

    Examples
    --------
    >>> find_dataset("locomo").licence.means.partition(";")[0]
    'non-commercial use only'
    """
    if name not in datasets():
        raise UnknownName("data set", name, datasets())
    return datasets()[name]


def data_dirs(data_dir: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders in which ctxlab searches for downloaded data sets.

    New downloads are stored in the first of these folders.

    Parameters
    ----------
    data_dir : str or Path, optional
        The only folder to search. By default, the folder set by the environment variable
        ``CTXLAB_DATA``, if any, and the user's cache folder for ctxlab are searched.

    Returns
    -------
    tuple of Path
        The folders in the order of the search.
    """
    if data_dir is not None:
        return (Path(data_dir).expanduser().absolute(),)
    from platformdirs import user_cache_path

    configured = os.environ.get("CTXLAB_DATA")
    chosen = [Path(configured).expanduser().absolute()] if configured else []
    return (*chosen, user_cache_path("ctxlab"))


def local_dataset_dir(dataset: Dataset, data_dir: str | Path | None = None) -> Path | None:
    """Find the local folder of a data set.

    A folder with the name of the data set is accepted if it contains all ``pinned_files``. It is also
    accepted if it contains recordings but none of the ``pinned_files``, for example if the user saved
    a subset of the data set there.

    Parameters
    ----------
    dataset : Dataset
        The data set.
    data_dir : str or Path, optional
        The only folder to search. By default, the folders of ``data_dirs`` are searched.

    Returns
    -------
    Path or None
        The folder, or None if the data set is not downloaded or only partly downloaded.
    """
    for home in data_dirs(data_dir):
        folder = home / dataset.name
        if dataset.is_complete(folder):
            return folder
        begun = any((folder / file.name).is_file() for file in dataset.pinned_files)
        if not begun and not any(folder.rglob("*.part")) and any(folder.glob(dataset.glob)):
            return folder
    return None


def dataset_path(name: str) -> Path:
    """Return the path to load for a data set that has been downloaded.

    Parameters
    ----------
    name : str
        Name of the data set, such as ``"tau-bench"``. To select one file, append a slash and the
        name of the file.

    Returns
    -------
    Path
        Path of a file, or a glob pattern that matches several files.

    Raises
    ------
    UnknownName
        If the catalog contains no data set with this name.
    DataMissing
        If the data set is not downloaded. The message contains the command to download it.
    """
    name, _, inside = name.partition("/")
    dataset = find_dataset(name)
    folder = local_dataset_dir(dataset)
    if folder is None:
        fix = f"ctxlab datasets fetch {name} ({dataset.licence.name}: {dataset.licence.means})"
        raise DataMissing(f"the data set {name} is not downloaded; run: {fix}")
    only = dataset.files[0].name
    # The user may have saved a subset of the file in the same folder. It must not be loaded too.
    whole = len(dataset.files) == 1 and (folder / only).is_file()
    return folder / (inside or (only if whole else dataset.glob))


def bundled_path(name: str) -> Path:
    """Return the path of a file or folder that is bundled with ctxlab.

    The installed package is searched first, then the source tree that contains the package.

    Parameters
    ----------
    name : str
        Path of the file or folder, relative to the root of the repository.

    Returns
    -------
    Path
        Path of the existing file or folder.

    Raises
    ------
    DataMissing
        If the installation does not contain the file or folder.
    """
    package = Path(str(files("ctxlab")))
    for root in (package / "bundled", package.parent):
        if (root / name).exists():
            return root / name
    raise DataMissing(f"{name} is missing from this installation of ctxlab; reinstall ctxlab")


def resolve_dataset_path(path: str) -> Path | None:
    """Return the path to load for ``bundled:NAME`` or ``dataset:NAME``.

    ``bundled:NAME/FILE`` and ``dataset:NAME/FILE`` select a single file of the data set.

    Parameters
    ----------
    path : str
        A path as the user wrote it.

    Returns
    -------
    Path or None
        Path of a file, or a glob pattern. None if ``path`` does not start with ``bundled:`` or
        ``dataset:``.

    Raises
    ------
    UnknownName
        If there is no data set with this name.
    DataMissing
        If the data set is not downloaded, or if a bundled data set is missing from the installation.

    Examples
    --------
    >>> resolve_dataset_path("logs/a.jsonl") is None
    True
    """
    if path.startswith(DATASET_PREFIX):
        return dataset_path(path.removeprefix(DATASET_PREFIX))
    if not path.startswith(BUNDLED_PREFIX):
        return None
    name = path.removeprefix(BUNDLED_PREFIX)
    known = {found.parent.name for found in bundled_path("datasets").glob("*/*.jsonl")}
    if known and name.partition("/")[0] not in known:
        raise UnknownName("bundled data set", name, known)
    return bundled_path("datasets") / (name if "/" in name else f"{name}/*.jsonl")
