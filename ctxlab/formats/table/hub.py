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
from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab.errors import CtxlabError, SpecError
from ctxlab.formats.base import OnError
from ctxlab.formats.table.dataset import import_datasets, read_splits, unreadable
from ctxlab.messages.types import Recording

HUB_PREFIX = "hf:"
"""Prefix of paths that name a data set of the Hugging Face hub."""

_FORM = "hf:OWNER/NAME[/CONFIG][@REVISION][:SPLIT]"
_NAME = re.compile(r"hf:([^\s/:@]+/[^\s/:@]+)(?:/([^\s/:@]+))?(?:@([^\s:@]+))?(?::([^\s:]+))?")
_LOADERS = ("parquet", "csv", "json", "arrow")


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
    yield from read_splits(path, name.dataset, _open_splits(path, name), named, on_error)


def _open_splits(path: str, name: HubName) -> dict[str, Any]:
    """Return the splits of a data set, without reading their rows."""
    load_builder = import_datasets(path).load_dataset_builder
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
        raise unreadable(path, error) from None
    if name.split is None:
        return dict(splits)
    if name.split not in splits:
        known = ", ".join(splits)
        raise SpecError(f"{path}: expected a split ({known}), got {name.split!r}")
    return {name.split: splits[name.split]}
