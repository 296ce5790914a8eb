"""A published data set has a name; the catalog says where it is fetched from and where it lies here.

The table is ``datasets.toml``. On this machine a data set is the folder of its name inside the folder
of data sets: what ``CTXLAB_DATA`` names, or ctxlab's folder in the platform's cache. The bundled ones
come with ctxlab itself.
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

__all__ = [
    "BUNDLED_PREFIX",
    "DATASET_PREFIX",
    "Dataset",
    "DatasetFile",
    "License",
    "bundled_path",
    "data_dirs",
    "dataset_path",
    "datasets",
    "find_dataset",
    "local_dataset_dir",
    "resolve_dataset_path",
]

BUNDLED_PREFIX, DATASET_PREFIX = "bundled:", "dataset:"
"""What the name of a data set begins with where a path is asked for."""


class License(msgspec.Struct, frozen=True, kw_only=True):
    """What a licence asks of who uses the data."""

    name: str
    "its SPDX identifier"
    means: str
    "its plain consequence"
    address: str
    "where its terms stand"
    text: str
    "the terms themselves, or a sentence that says which they are"


class DatasetFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a data set."""

    name: str
    "its path in the data set's folder"
    address: str
    "where it is published, at one commit"
    bytes: int
    sha256: str | None = None
    "None: not known; then it is fetched only for who brings one"


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A published set of recorded conversations."""

    name: str
    meaning: str
    conversations: int
    licence: License
    notice: str
    "the copyright line, or who is to be named"
    homepage: str
    citation: str = ""
    glob: str
    "which files of its folder are recordings"
    files: tuple[DatasetFile, ...]

    @property
    def pinned_files(self) -> tuple[DatasetFile, ...]:
        """The files whose sha256 is known: those that make the data set whole."""
        return tuple(file for file in self.files if file.sha256)

    @property
    def total_bytes(self) -> int:
        """What its files weigh together."""
        return sum(file.bytes for file in self.files)

    def is_complete(self, folder: Path) -> bool:
        """Whether a folder holds every file whose sha256 is known."""
        return bool(self.pinned_files) and all(
            (folder / file.name).is_file() for file in self.pinned_files
        )


@functools.cache
def datasets() -> dict[str, Dataset]:
    """Every data set by name, as ``datasets.toml`` lists them.

    >>> datasets()["tau-bench"].licence.name
    'MIT'
    """
    table = tomllib.loads(
        (files("ctxlab.formats.io") / "datasets.toml").read_text(encoding="utf-8")
    )
    licences = {name: fields | {"name": name} for name, fields in table["licences"].items()}

    def read(name: str, fields: dict[str, Any]) -> Dataset:
        more = {"name": name, "licence": licences[fields["licence"]]}
        return msgspec.convert(fields | more, Dataset)

    return {name: read(name, fields) for name, fields in table["datasets"].items()}


def find_dataset(name: str) -> Dataset:
    """The data set of a name. Raises ``UnknownName``, which offers similar ones.

    >>> find_dataset("locomo").licence.means.partition(";")[0]
    'non-commercial use only'
    """
    if name not in datasets():
        raise UnknownName("data set", name, datasets())
    return datasets()[name]


def data_dirs(data_dir: str | Path | None = None) -> tuple[Path, ...]:
    """The folders to look in for data sets; one that is fetched goes into the first.

    ``data_dir`` alone where it is given, else ``CTXLAB_DATA`` where it is set, and the cache.
    """
    if data_dir is not None:
        return (Path(data_dir).expanduser().absolute(),)
    from pooch import os_cache

    configured = os.environ.get("CTXLAB_DATA")
    return (*([Path(configured).expanduser().absolute()] if configured else []), os_cache("ctxlab"))


def local_dataset_dir(dataset: Dataset, data_dir: str | Path | None = None) -> Path | None:
    """The folder that holds a data set, or None where it is not here or only half fetched.

    A folder of its name with recordings under other names, such as a part of the published ones,
    is taken as it is.
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
    """What to load for ``dataset:NAME``, or ``dataset:NAME/FILE`` for one file of it.

    Raises ``UnknownName``, and ``DataMissing`` that says how to fetch what is not here.
    """
    name, _, inside = name.partition("/")
    dataset = find_dataset(name)
    folder = local_dataset_dir(dataset)
    if folder is None:
        raise DataMissing(
            f"the data set {name} is not on this machine; ctxlab datasets fetch {name} gets it "
            f"({dataset.licence.name}: {dataset.licence.means})"
        )
    only = dataset.files[0].name
    # A part of it that lies beside the whole would count twice.
    whole = len(dataset.files) == 1 and (folder / only).is_file()
    return folder / (inside or (only if whole else dataset.glob))


def bundled_path(name: str) -> Path:
    """Where a file or folder that comes with ctxlab is: in the package, or in the clone around it.

    Raises ``DataMissing`` where neither has it.
    """
    package = Path(str(files("ctxlab")))
    for root in (package / "bundled", package.parent):
        if (root / name).exists():
            return root / name
    raise DataMissing(f"{name} is not part of this installation of ctxlab; install it anew")


def resolve_dataset_path(path: str) -> Path | None:
    """What to load for ``bundled:NAME`` or ``dataset:NAME``; None for any other path.

    A part of it is asked for by ``bundled:NAME/FILE``. Raises ``UnknownName`` and ``DataMissing``.

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
