"""Read data sets of the Hugging Face hub as tables.

The name is ``hf:OWNER/NAME``, optionally with a configuration, a revision and a split:
``hf:OWNER/NAME/CONFIG@REVISION:SPLIT``. Without a split, all splits are read. The rows are streamed
with the package ``datasets``, which needs a connection. Only data sets of plain files (Parquet, CSV,
JSON, Arrow) are read, because other loaders of the package may unpickle objects. ``datasets`` 4 and
later run no code of a data set; earlier versions are rejected.

References
----------
huggingface.co/docs/datasets, "Stream" and "Load", version 5 (2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from typing_extensions import override

from ctxlab.errors import CtxlabError, DataMissing, ReadError, SpecError
from ctxlab.formats.base import Format, OnError, Source, read_recordings
from ctxlab.formats.table.reader import read_table
from ctxlab.formats.table.rows import Table, to_json_rows
from ctxlab.messages.types import Recording

HUB_PREFIX = "hf:"
"""Prefix of paths that name a data set of the Hugging Face hub."""

_FORM = "hf:OWNER/NAME[/CONFIG][@REVISION][:SPLIT]"
_NAME = re.compile(r"hf:([^\s/:@]+/[^\s/:@]+)(?:/([^\s/:@]+))?(?:@([^\s:@]+))?(?::([^\s:]+))?")
_LOADERS = ("parquet", "csv", "json", "arrow")
_BATCH_ROWS = 16
_MIN_VERSION = 4


class HubName(NamedTuple):
    """Name of a data set on the hub."""

    dataset: str
    "owner and name, such as ``owner/name``"
    config: str | None
    "configuration; None for the default"
    revision: str | None
    "branch, tag or commit; None for the default"
    split: str | None
    "split; None for all splits"


def is_hub_name(path: object) -> bool:
    """Check whether a path names a data set of the hub.

    Parameters
    ----------
    path : object
        A path as the user wrote it.

    Returns
    -------
    bool
        True for text that starts with ``hf:`` but is not a URL.

    Examples
    --------
    >>> is_hub_name("hf:owner/name:train"), is_hub_name("hf://datasets/owner/name")
    (True, False)
    """
    return isinstance(path, str) and path.startswith(HUB_PREFIX) and "://" not in path


def parse_hub_name(path: str) -> HubName:
    """Parse the name of a data set.

    Parameters
    ----------
    path : str
        Name such as ``hf:owner/name:train``.

    Returns
    -------
    HubName
        The parts of the name.

    Raises
    ------
    SpecError
        If the name is malformed.

    Examples
    --------
    >>> parse_hub_name("hf:owner/name:train")
    HubName(dataset='owner/name', config=None, revision=None, split='train')
    """
    match = _NAME.fullmatch(path)
    if match is None:
        raise SpecError(f"expected {_FORM}, got {path!r}")
    return HubName(*match.groups())


def read_hub(path: str, named: dict[str, str], on_error: OnError) -> Iterator[Recording]:
    """Read the recordings of a data set on the hub.

    Parameters
    ----------
    path : str
        Name such as ``hf:owner/name:train``.
    named : dict of str to str
        Columns that the user named, by field.
    on_error : {"raise", "skip"}
        How to handle malformed rows.

    Yields
    ------
    Recording
        A conversation. Its id starts with the name of the data set and the split.

    Raises
    ------
    DataMissing
        If the package ``datasets`` is missing, or if the data set cannot be loaded.
    ReadError
        If a row is malformed, or if no conversation is found.
    SpecError
        If the name is malformed, or if the data set is not stored in plain files.
    """
    name = parse_hub_name(path)
    found = False
    splits = _open_splits(path, name)
    for split, rows in splits.items():
        source = Source(path, f"{name.dataset}/{split}", on_error)
        table = HubTable(path, rows)

        def read(source: Source, table: HubTable = table) -> Iterator[Recording]:
            yield from read_table(source, table, named)

        format = Format("table", "", lambda head: False, read)
        for recording in read_recordings(format, source):
            found = True
            yield recording
        left_out = "; ".join(source.pop_skipped())
        if left_out and not found and split == list(splits)[-1]:
            raise ReadError(path, None, f"found no recording ({left_out})")
    if not found:
        raise ReadError(path, None, "found no recording")


@dataclass(frozen=True)
class HubTable(Table):
    """The rows of a split, counted from 0."""

    path: str
    "name of the data set, as given by the user"
    split: Any
    "split of the data set, as the package ``datasets`` returns it"

    @override
    def rows(self, only: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows; see ``Table.rows``."""
        number = 0
        try:
            chosen = self.split if only is None else self.split.select_columns(list(only))
            # In this format, images and sounds are not decoded.
            for batch in chosen.with_format("arrow").iter(_BATCH_ROWS):
                for row in to_json_rows(batch):
                    yield number, row
                    number += 1
        except CtxlabError:
            raise
        except Exception as error:  # the package raises exceptions of many libraries
            raise _missing(self.path, error) from None

    @override
    def silent(self) -> HubTable:
        """Return the table for a further pass; see ``Table.silent``."""
        return self


def _open_splits(path: str, name: HubName) -> dict[str, Any]:
    """Return the splits of a data set, without reading their rows."""
    try:
        package = import_module("datasets")
        version, load_builder = package.__version__, package.load_dataset_builder
    except (ImportError, AttributeError):  # a folder named datasets is imported as an empty package
        fix = "run: pip install '.[hub]' in a clone of ctxlab, or download its Parquet files"
        raise DataMissing(f"{path}: requires the package datasets; {fix}") from None
    if int(version.partition(".")[0]) < _MIN_VERSION:
        fix = "run: pip install --upgrade '.[hub]' in a clone of ctxlab"
        raise DataMissing(
            f"{path}: requires datasets {_MIN_VERSION} or later, got {version}; {fix}"
        )
    try:
        builder = load_builder(name.dataset, name.config, revision=name.revision)
        loader = type(builder).__module__.rpartition(".")[2]
        if loader not in _LOADERS:
            known = ", ".join(_LOADERS)
            raise SpecError(f"{path}: expected a data set of {known} files, got {loader}")
        splits = builder.as_streaming_dataset()
    except CtxlabError:
        raise
    except Exception as error:
        raise _missing(path, error) from None
    if name.split is None:
        return dict(splits)
    if name.split not in splits:
        known = ", ".join(splits)
        raise SpecError(f"{path}: expected a split ({known}), got {name.split!r}")
    return {name.split: splits[name.split]}


def _missing(path: str, error: Exception) -> DataMissing:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    fix = "check the name and the connection, or download its Parquet files and name their folder"
    return DataMissing(f"{path}: {text}; {fix}")
