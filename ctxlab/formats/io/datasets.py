"""The catalog of published data sets, and where they are stored on this machine.

``datasets.toml`` lists the data sets. A downloaded data set is stored in a folder of its name,
inside the folder that the environment variable ``CTXLAB_DATA`` names or ctxlab's folder in the
cache of the platform. Bundled data sets are part of ctxlab itself.
"""

from __future__ import annotations

import functools
import os
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ctxlab.errors import DataMissing, UnknownName

BUNDLED_PREFIX, DATASET_PREFIX = "bundled:", "dataset:"
"""Prefixes of the names of data sets, where a path is expected."""


class License(msgspec.Struct, frozen=True, kw_only=True):
    """The licence of a data set."""

    name: str
    "its SPDX identifier"
    means: str
    "what it allows and requires, in one sentence"
    address: str
    "URL of its terms"
    text: str
    "the terms, or a sentence that refers to them"


class DatasetFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a data set."""

    name: str
    "its path in the folder of the data set"
    address: str
    "URL of the published file at a fixed commit"
    bytes: int
    "its size"
    sha256: str | None = None
    "its hash; None: not known, so the file is downloaded only if the user gives one"


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published set of recorded conversations."""

    name: str
    "its name in the catalog"
    meaning: str
    "a description in one sentence"
    conversations: int
    "number of conversations"
    licence: License
    "its licence"
    notice: str
    "the copyright line, or who must be credited"
    homepage: str
    "URL of the project"
    citation: str = ""
    "the paper to cite, if there is one"
    glob: str
    "pattern of the files in its folder that are recordings"
    files: tuple[DatasetFile, ...]
    "its files"

    @property
    def pinned_files(self) -> tuple[DatasetFile, ...]:
        """Files whose sha256 is known; a complete data set has all of them."""
        return tuple(file for file in self.files if file.sha256)

    @property
    def total_bytes(self) -> int:
        """Size of all files in bytes."""
        return sum(file.bytes for file in self.files)

    def is_complete(self, folder: Path) -> bool:
        """Check whether a folder holds every file whose sha256 is known.

        Parameters
        ----------
        folder : Path
            The folder of the data set.

        Returns
        -------
        bool
            True if no such file is missing.
        """
        pinned = self.pinned_files
        return bool(pinned) and all((folder / file.name).is_file() for file in pinned)


@functools.cache
def datasets() -> dict[str, Dataset]:
    """Return all data sets of the catalog by name.

    Returns
    -------
    dict of str to Dataset
        The data sets in the order of ``datasets.toml``.

    Examples
    --------
    >>> datasets()["tau-bench"].licence.name
    'MIT'
    """
    catalog = files("ctxlab.formats.io") / "datasets.toml"
    table = tomllib.loads(catalog.read_text(encoding="utf-8"))
    licences = {name: fields | {"name": name} for name, fields in table["licences"].items()}

    def read(name: str, fields: dict[str, Any]) -> Dataset:
        more = {"name": name, "licence": licences[fields["licence"]]}
        return msgspec.convert(fields | more, Dataset)

    return {name: read(name, fields) for name, fields in table["datasets"].items()}


def find_dataset(name: str) -> Dataset:
    """Return a data set by name.

    Parameters
    ----------
    name : str
        The name of the data set.

    Returns
    -------
    Dataset
        The data set.

    Raises
    ------
    UnknownName
        If no data set has this name. The message offers similar names.

    Examples
    --------
    >>> find_dataset("locomo").licence.means.partition(";")[0]
    'non-commercial use only'
    """
    if name not in datasets():
        raise UnknownName("data set", name, datasets())
    return datasets()[name]


def data_dirs(data_dir: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched for data sets; downloads go into the first.

    Parameters
    ----------
    data_dir : str or Path, optional
        Use only this folder. By default, the folder named by ``CTXLAB_DATA`` if it is set, and the
        cache folder.

    Returns
    -------
    tuple of Path
        The folders.
    """
    if data_dir is not None:
        return (Path(data_dir).expanduser().absolute(),)
    from pooch import os_cache

    configured = os.environ.get("CTXLAB_DATA")
    return (*([Path(configured).expanduser().absolute()] if configured else []), os_cache("ctxlab"))


def local_dataset_dir(dataset: Dataset, data_dir: str | Path | None = None) -> Path | None:
    """Return the folder of a data set on this machine.

    A folder of its name that holds only recordings under other names, such as a subset of the
    published ones, is accepted.

    Parameters
    ----------
    dataset : Dataset
        The data set.
    data_dir : str or Path, optional
        The folder to search, as in ``data_dirs``.

    Returns
    -------
    Path or None
        The folder, or None if the data set is missing or partly downloaded.
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
    """Return the path to load for ``dataset:NAME``, or for one file with ``dataset:NAME/FILE``.

    Parameters
    ----------
    name : str
        The name of the data set, optionally followed by a slash and a file.

    Returns
    -------
    Path
        A file, or a glob for several files.

    Raises
    ------
    UnknownName
        If no data set has this name.
    DataMissing
        If the data set is not on this machine. The message says how to download it.
    """
    name, _, inside = name.partition("/")
    dataset = find_dataset(name)
    folder = local_dataset_dir(dataset)
    if folder is None:
        fix = f"ctxlab datasets fetch {name} ({dataset.licence.name}: {dataset.licence.means})"
        raise DataMissing(f"the data set {name} is not on this machine; run: {fix}")
    only = dataset.files[0].name
    # A file with a subset of the recordings beside the whole file would count them twice.
    whole = len(dataset.files) == 1 and (folder / only).is_file()
    return folder / (inside or (only if whole else dataset.glob))


def bundled_path(name: str) -> Path:
    """Return the path of a bundled file or folder, in the package or in the source tree around it.

    Parameters
    ----------
    name : str
        The path of the file or folder, relative to the root of the repository.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    DataMissing
        If the installation does not contain it.
    """
    package = Path(str(files("ctxlab")))
    for root in (package / "bundled", package.parent):
        if (root / name).exists():
            return root / name
    raise DataMissing(f"{name} is missing from this installation of ctxlab; reinstall it")


def resolve_dataset_path(path: str) -> Path | None:
    """Return the path to load for ``bundled:NAME`` or ``dataset:NAME``.

    A single file is selected with ``bundled:NAME/FILE`` or ``dataset:NAME/FILE``.

    Parameters
    ----------
    path : str
        A path as the user wrote it.

    Returns
    -------
    Path or None
        A file or a glob, or None if the path does not name a data set.

    Raises
    ------
    UnknownName
        If no data set has this name.
    DataMissing
        If the data set is not on this machine.

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
