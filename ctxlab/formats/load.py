"""Load files, folders, globs, URLs and data sets as one stream of recordings with unique ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec

from ctxlab.errors import ReadError, SpecError, UnknownFormat, UnknownName, redact_urls
from ctxlab.formats.base import Format, OnError, Source, read_recordings
from ctxlab.formats.filters import Condition, parse_condition, sample_recordings
from ctxlab.formats.io.clusters import ClusterTable, read_clusters
from ctxlab.formats.io.files import FoundFile, PathOrUrl, find_files
from ctxlab.formats.io.foreign import FileKind, describe_unknown_file, list_keys
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.load_report import FileReport, LoadReport
from ctxlab.formats.registry import FORMATS, match_format
from ctxlab.formats.table.columns import ColumnNames, parse_columns
from ctxlab.formats.table.dataset import MemoryDataset
from ctxlab.formats.table.hub import is_hub_name, read_hub
from ctxlab.formats.table.reader import FORMAT as TABLE_FORMAT
from ctxlab.formats.table.reader import with_columns
from ctxlab.messages.types import Recording

OnSkip: TypeAlias = Callable[[PathOrUrl, str], None]
"""Called with the path of each file in which no recording was found, and the reason."""

_EMPTY = FileKind("an empty file", "name a file with messages", True)


def load(
    path: PathOrUrl | Iterable[PathOrUrl],
    *,
    format: str | Format | None = None,
    columns: ColumnNames | None = None,
    clusters: PathOrUrl | None = None,
    on_error: OnError = "raise",
    on_skip: OnSkip | None = None,
    report: LoadReport | None = None,
    where: str | Condition | Iterable[str | Condition] = (),
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[Recording]:
    """Load the recordings of files, folders (with subfolders), globs or URLs.

    Files are read lazily, folder by folder in the order of their paths. Files that are compressed
    with gzip, bzip2, xz or zstd are decompressed. The format of a file is recognised by its
    content.

    The id of a recording starts with the path of its file, relative to the requested folder and
    without suffix. If the file contains several recordings, an identifier follows. If two
    recordings have the same id, the suffix ``#2`` is added to the second one.

    Parameters
    ----------
    path : str, Path, or iterable of them
        The files, folders, globs or URLs to load. A string may be any URL that fsspec supports,
        such as ``s3://bucket/logs`` or ``zip://*.json::logs.zip``. It may also be ``bundled:NAME``
        for a data set that is included in ctxlab, ``dataset:NAME`` for a data set that
        ``ctxlab datasets fetch`` downloaded, or ``hf:OWNER/NAME`` for a data set of the Hugging Face
        hub (also ``hf:OWNER/NAME/CONFIG@REVISION:SPLIT``). A ``Dataset`` or ``DatasetDict`` of the
        package ``datasets`` is read from memory, and a folder that its method ``save_to_disk`` wrote
        like any folder.
    format : str or Format, optional
        Read all files in this format. Files of a folder or glob are skipped if their content is not
        in this format. By default, the format of each file is recognised by its content.
    columns : str or mapping, optional
        Columns of tables by field, such as ``"messages=history,id=key,cluster=repo"`` or
        ``{"role": "speaker", "content": "text", "id": "thread"}``. The files are then read as tables
        (Parquet, CSV, TSV or JSONL). By default, columns are recognised by their names.
    clusters : str or Path, optional
        A TSV or CSV file with the columns ``file`` and ``cluster``. Each recording gets the cluster of
        its file. A path in the column ``file`` may be the end of the path of the file.
    on_error : {"raise", "skip"}
        ``"raise"`` stops at the first malformed line, at a named file that no reader recognises, and at
        a folder that cannot be listed. ``"skip"`` continues, and ``Recording.skipped`` contains the
        number of skipped items by reason. A path without recordings is an error only if it is the only
        one, or if no path has recordings.
    on_skip : Callable, optional
        Called for each file in which no recording was found and for each folder that cannot be listed,
        with the path and the reason. With ``on_error="raise"``, it is not called for named files. If a
        folder or glob is loaded, it is also called with the path of ``clusters`` if some of its lines
        apply to no recording.
    report : LoadReport, optional
        Filled with the format of each file that is read, and with the kind of each other file.
    where : str, Callable, or iterable of them
        Conditions that a recording must meet. A condition is a string such as ``messages>=50``,
        ``tokens>=20k`` or ``model=claude*``, or a function that takes a recording and returns a
        bool.
    sample : int, optional
        Number of recordings to draw at random. By default, all recordings are returned.
    seed : int
        Seed of the random sample. The same seed gives the same sample.

    Returns
    -------
    Iterator of Recording
        The recordings that meet all conditions, or the random sample of them.

    Raises
    ------
    ReadError
        If a path does not exist, is empty or malformed, or contains no conversation, or if
        ``clusters`` has no line for a recording. If several paths were named and ``on_error`` is
        ``"skip"``, a path that exists and contains no conversation is not an error.
    UnknownFormat
        If no reader recognises a file that was named explicitly, under the same condition.
    UnknownName
        If ``format`` is not the name of a known format, or a data set is unknown.
    DataMissing
        If a data set has not been downloaded, or the package for ``hf:`` is missing.
    SpecError
        If ``on_error``, ``columns``, ``where`` or ``sample`` is not valid.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent", where="messages>=250"))
    >>> len(recordings), recordings[0].id
    (4, 'coding-agent/check-digits-1')
    """
    if on_error not in get_args(OnError):
        raise SpecError(f"on_error: expected {' or '.join(get_args(OnError))}, got {on_error!r}")
    if isinstance(format, str):
        if format not in FORMATS:
            raise UnknownName("format", format, FORMATS)
        format = FORMATS[format]
    if columns is not None:
        if format is not None and format.name != TABLE_FORMAT.name:
            raise SpecError(
                f"columns: expected the format table, got {format.name}; omit the format"
            )
        format = with_columns(columns)
    dataset = MemoryDataset.wrap(path)
    paths = [path] if isinstance(path, (str, Path)) else [] if dataset else list(path)
    table = None if clusters is None else read_clusters(clusters)
    loader = _Loader(
        format,
        on_error,
        on_skip or (lambda path, reason: None),
        report or LoadReport(),
        stops=on_error == "raise" or len(paths) == 1,
        columns=parse_columns(columns),
        table=None if table is None else Path(table.path),
    )
    files_by_path = [(each, loader.find_files(each)) for each in paths]
    asked = [where] if isinstance(where, str) or callable(where) else list(where)
    conditions = [parse_condition(each) if isinstance(each, str) else each for each in asked]
    stream = loader.read_dataset(dataset) if dataset else loader.read_paths(files_by_path)
    if table is not None:
        whole = any(not found.explicit for _, files in files_by_path for found in files)
        stream = _assign_clusters(stream, table, loader.remark if whole else None)
    unique = _make_ids_unique(stream)
    chosen = (each for each in unique if all(holds(each) for holds in conditions))
    return chosen if sample is None else sample_recordings(chosen, sample, seed)


@dataclass(frozen=True)
class _Loader:
    """Reader for files, with the options that were passed to ``load``."""

    format: Format | None
    on_error: OnError
    on_skip: OnSkip
    report: LoadReport
    stops: bool
    "True if a path without recordings is an error, also if other paths have recordings"
    columns: dict[str, str]
    "columns of tables that the user named, by field"
    table: Path | None
    "path of the table of clusters, which may be in the same folder as the recordings"

    def find_files(self, path: PathOrUrl) -> list[FoundFile]:
        """Find the files at a path, and report what cannot be read in its folders."""
        if is_hub_name(path):
            self.report.found += 1
            return []
        unreadable: list[tuple[PathOrUrl, str, FileKind]] = []

        def add_folder(error: ReadError) -> None:
            if self.on_error == "raise":
                raise error
            name = f"a folder that cannot be listed: {error.reason}"
            kind = FileKind(name, "check its permissions")
            unreadable.append((error.path, error.reason, kind))

        def add_special(path: PathOrUrl, what: str) -> None:
            unreadable.append((path, f"not a file: {what}", FileKind(what, "", True)))

        found = find_files(path, add_folder, add_special)
        self.report.found += len(found) + len(unreadable)
        for each in unreadable:
            self._skip(*each)
        return found

    def remark(self, path: PathOrUrl, reason: str) -> None:
        """Report a problem that is not about one file."""
        path = _without_credentials(path)
        self.on_skip(path, reason)
        self.report.remarks.append((path, reason))

    def read_paths(
        self, files_by_path: list[tuple[PathOrUrl, list[FoundFile]]]
    ) -> Iterator[Recording]:
        """Yield the recordings of all paths, and raise ``ReadError`` if there are none."""
        nothing = True
        for path, files in files_by_path:
            for recording in self._read_path(path, files):
                nothing = False
                yield recording
        if nothing and files_by_path:
            reason = f"found no recording (paths read: {len(files_by_path)}); see ctxlab formats"
            raise ReadError(files_by_path[0][0], None, reason)

    def read_dataset(self, dataset: MemoryDataset) -> Iterator[Recording]:
        """Yield the recordings of a data set in memory."""
        yield from dataset.read(self.columns, self.on_error)
        self.report.add(FileReport(str(dataset), TABLE_FORMAT.name))

    def _read_path(self, path: PathOrUrl, files: list[FoundFile]) -> Iterator[Recording]:
        if is_hub_name(path):
            yield from read_hub(str(path), self.columns, self.on_error)
            self.report.add(FileReport(path, TABLE_FORMAT.name))
        else:
            yield from self._read_files(path, files)

    def _read_files(self, path: PathOrUrl, files: list[FoundFile]) -> Iterator[Recording]:
        """Yield the recordings of the files at a path, and report it if there are none."""
        nothing = True
        for format, group in self._group(files):
            for recording in self._read_group(format, group):
                nothing = False
                yield recording
        if nothing:
            reason = f"found no recording (files read: {len(files)}); see ctxlab formats"
            if self.stops:
                raise ReadError(path, None, reason)
            if not any(found.explicit for found in files):  # a named file was already reported
                self.remark(path, reason)

    def _group(self, files: list[FoundFile]) -> Iterator[tuple[Format, list[FoundFile]]]:
        """Detect the format of each file, and yield the format and the files to read together.

        In each folder, files that are read separately come before groups of files. Groups that span
        folders come last.
        """
        spanning: dict[tuple[str, str], tuple[Format, list[FoundFile]]] = {}
        for _, here in groupby(files, key=lambda found: found.folder):
            groups: dict[tuple[str, str], tuple[Format, list[FoundFile]]] = {}
            for found in here:
                head = self._read_head(found)
                format = self._detect_format(found, head) if head else None
                if head is None or format is None:
                    continue
                group = format.group_key(head) if format.group_key else None
                if group is None:
                    yield format, [found]
                else:
                    into = spanning if format.spans_folders else groups
                    into.setdefault((format.name, group), (format, []))[1].append(found)
            yield from groups.values()
        yield from spanning.values()

    def _read_head(self, found: FoundFile) -> FileHead | None:
        try:
            return FileHead.from_file(found.path)
        except ReadError as error:
            if self.on_error == "raise":
                raise
            name = f"a file that cannot be opened: {error.reason}"
            kind = FileKind(name, "check its permissions, and that it was copied whole")
            self._report([found], error, kind)
            return None

    def _detect_format(self, found: FoundFile, head: FileHead) -> Format | None:
        """Return the format of a file. If it is unknown, report the file and return None."""
        if not head.first_bytes.strip():
            # Lock files of session stores, and markers of OpenHands, are always empty.
            empty = (".lock", ".marker")
            if head.first_bytes or found.explicit or not str(found.path).endswith(empty):
                self._report([found], ReadError(found.path, None, "the file is empty"), _EMPTY)
            else:
                self._add_skipped(found.path, _EMPTY)
            return None
        if self.format is None:
            format = match_format(head)
        else:
            format = self.format if found.explicit or self.format.sniff(head) else None
        if format is None:
            kind, reason = self._explain_unknown(found, head)
            self._report([found], UnknownFormat(found.path, None, reason), kind)
        return format

    def _explain_unknown(self, found: FoundFile, head: FileHead) -> tuple[FileKind, str]:
        """Return the kind of a file that is refused, and the reason.

        The reason is longer if the file was named and is an error.
        """
        if self.format is not None:
            name = f"not in the {self.format.name} format"
            return FileKind(name, "", True), f"the content is {name}"
        kind = describe_unknown_file(found.path, head)
        is_error = found.explicit and self.stops
        if kind and is_error:
            return kind, f"unknown format: the file looks like {kind.text}; {kind.advice}"
        if kind:
            return kind, "unknown format" + ("" if kind.is_common else f": looks like {kind.text}")
        keys = list_keys(head)
        kind = FileKind(
            "JSON in an unknown format",
            "if it is a log, name its format with --format, or its columns with --input-columns",
            detail=f", with the keys {keys}" if keys else "",
        )
        if not is_error:
            return kind, "unknown format"
        about = f" (JSON with the keys {keys})" if keys else ""
        known = ", ".join(FORMATS)
        return kind, f"unknown format{about}; known formats: {known}. Name one with --format"

    def _read_group(self, format: Format, files: list[FoundFile]) -> Iterator[Recording]:
        first, *others = files
        name = first.name.rpartition("/")[0] or first.name if others else first.name
        together = tuple(found.path for found in others)
        source = Source(first.path, name, self.on_error, together, first.root)
        nothing = True
        try:
            for recording in read_recordings(format, source):
                nothing = False
                yield recording
        except ReadError as error:
            if self.on_error == "raise":
                raise
            # What follows a colon or a bracket differs from file to file.
            reason = re.split(r": | \(", error.reason, maxsplit=1)[0]
            name = f"a log in the {format.name} format that cannot be read: {reason}"
            detail = error.reason.removeprefix(reason)
            kind = FileKind(name, "check that the file was copied whole", detail=detail)
            self._report(files, error, kind)
            return
        if nothing:
            left_out = [f"{count}x {reason}" for reason, count in source.pop_skipped().items()]
            said = "; ".join(left_out[:3])
            reason = f"the file contains no {format.name} conversation" + (said and f" ({said})")
            is_table = format.name == TABLE_FORMAT.name
            kind = FileKind(
                f"a file in the {format.name} format without a conversation",
                "name the column with the messages, as in --input-columns messages=NAME",
                is_common=not is_table,
                detail=said and f": {said}",
            )
            self._report(files, ReadError(first.path, None, reason), kind)
        else:
            paths = (_without_credentials(found.path) for found in files)
            self.report.add(*(FileReport(each, format.name) for each in paths))

    def _report(self, files: list[FoundFile], error: ReadError, kind: FileKind) -> None:
        """Raise the error if the user named the file and it is an error. Otherwise, report the files."""
        if files[0].explicit and self.stops:
            raise error
        for found in files:
            self._skip(found.path, error.reason, kind)

    def _skip(self, path: PathOrUrl, reason: str, kind: FileKind) -> None:
        if self.table is not None and Path(path) == self.table:
            kind = FileKind("the table of clusters", "", True)
        else:
            self.on_skip(_without_credentials(path), reason)
        self._add_skipped(path, kind)

    def _add_skipped(self, path: PathOrUrl, kind: FileKind) -> None:
        advice = "" if kind.is_common else kind.advice
        self.report.add(
            FileReport(_without_credentials(path), None, kind.name, kind.detail, advice)
        )


def _without_credentials(path: PathOrUrl) -> PathOrUrl:
    return redact_urls(path) if isinstance(path, str) else path


def _assign_clusters(
    stream: Iterator[Recording], table: ClusterTable, tell: OnSkip | None
) -> Iterator[Recording]:
    """Assign the clusters of a table, and report its unused lines if ``tell`` is given."""
    for recording in stream:
        yield table.assign(recording)
    if tell is not None and table.unused:
        tell(table.path, table.unused)


def _make_ids_unique(stream: Iterator[Recording]) -> Iterator[Recording]:
    used: dict[str, int] = {}  # id → number in the suffix of its last use
    for recording in stream:
        id, again = recording.id, used.get(recording.id, 0)
        while id in used:
            again += 1
            id = f"{recording.id}#{again}"
        used[recording.id] = max(again, 1)
        used.setdefault(id, 1)
        yield recording if id == recording.id else msgspec.structs.replace(recording, id=id)
