"""Reader for tables of conversations: Parquet, Arrow, CSV and TSV files.

Tables that ctxlab wrote (``to_dataset``) contain everything that a recording has. There are two kinds
of other tables:

- Each row is a conversation. One column contains its messages, as nested values or as JSON text. The
  column is recognised by its name (``messages``, ``conversations``, ``trajectory``, ``history``, …) and
  its values. This is the form of many published data sets, such as the trajectories of SWE-smith,
  SWE-rebench and SWE-agent, or chats in the form of ShareGPT.
- Each row is a message, with its role, its content and the id of its conversation. If there is a
  column such as ``turn`` or ``message_index``, the messages are sorted by it. Otherwise, they are in
  the order of the file. The rows of a conversation need not be adjacent: the ids are read first.

The ids, clusters, models, tool definitions and system prompts are read from other columns. Without
a column ``cluster``, the id of the task (``instance_id``, ``task_id``) is the cluster, because several
rows may be trials of one task. The remaining short values are stored in ``meta``. Longer values, such as
patches, are not read. If the columns have other names, ``load`` and the command line accept the names
(``columns``). JSONL files with other keys than those of the known formats can be read in the same way.

Parquet and Arrow files are read in batches. A folder that ``save_to_disk`` of the package ``datasets``
wrote consists of Arrow files. Null values in objects are left out, because these files store a null
for each key that only other rows have.

References
----------
huggingface.co/datasets: SWE-bench/SWE-smith-trajectories, nebius/SWE-rebench-openhands-trajectories,
nebius/SWE-agent-trajectories (their dataset cards, 2025). arrow.apache.org/docs/python/parquet.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.fields import get_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.native import is_recording_row, recording_from_row
from ctxlab.formats.table.columns import ColumnNames, match_columns, parse_columns
from ctxlab.formats.table.conversation import build_conversation, build_thread, iter_threads
from ctxlab.formats.table.rows import BINARY_MAGICS, Table, head_rows, open_table
from ctxlab.messages.types import Recording

_SAMPLED_ROWS = 5


def sniff(head: FileHead) -> bool:
    """Check whether a file is a Parquet or Arrow file, or a CSV or TSV file with columns of messages.

    The columns of Parquet and Arrow files are checked by ``read``.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True for a Parquet or Arrow file, and for a CSV or TSV file with a column of message lists, or
        with columns for the role, the content and the id of the conversation.
    """
    if head.first_bytes.startswith(BINARY_MAGICS):
        return True
    rows = head_rows(head)
    return bool(rows) and match_columns(rows[:1], {}) is not None


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a table whose columns have known names.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        A conversation.

    Raises
    ------
    ReadError
        If the file or a row is malformed.
    """
    yield from read_table(source, open_table(source), {})


def read_table(source: Source, table: Table, named: dict[str, str]) -> Iterator[Recording]:
    """Read the conversations of a table.

    Parameters
    ----------
    source : Source
        Name and error policy of the table. Content that is skipped is counted by its ``skip`` method.
    table : Table
        The rows.
    named : dict of str to str
        Columns that the user named, by field.

    Yields
    ------
    Recording
        A conversation. Nothing is yielded if the columns are not recognised.

    Raises
    ------
    ReadError
        If the table or a row is malformed, or if a named column is missing.
    """
    sample = [row for _, row in islice(table.silent().rows(), _SAMPLED_ROWS)]
    if not sample:
        source.skip("table without rows")
        return
    if not named and all(map(is_recording_row, sample)):
        for number, row in table.rows():
            recording = None
            with source.handle_errors(number, table.item):
                recording = recording_from_row(row, source.name, source.skip)
            if recording is not None:
                yield recording
        return
    try:
        columns = match_columns(sample, named)
    except ValueError as error:
        raise ReadError(source.path, None, str(error)) from None
    if columns is None:
        present = ", ".join(list(sample[0])[:12])
        source.skip(
            "table without a known column of messages: name the columns with --input-columns, such as "
            f"messages=COLUMN,id=COLUMN; its columns are {present}"
        )
        return
    if "messages" in columns:
        for number, row in table.rows():
            recording = None
            with source.handle_errors(number, table.item):
                recording = build_conversation(row, columns, source, (number, table.item))
            if recording is not None:
                yield recording
        return
    key = columns["id"]
    sizes = Counter(row.get(key) for _, row in table.silent().rows([key]))
    rows = (each for each in table.rows() if _has_id(each[1].get(key), each[0], table.item, source))
    for thread in iter_threads(rows, key, sizes):
        recording = None
        with source.handle_errors(thread[0][0], table.item):
            recording = build_thread(thread, columns, source, table.item)
        if recording is not None:
            yield recording


def with_columns(columns: ColumnNames) -> Format:
    """Return the format ``table`` with columns that the user named.

    Parameters
    ----------
    columns : str or mapping
        Columns by field, such as ``"messages=history,id=key"``.

    Returns
    -------
    Format
        A format that also reads JSONL files and JSON lists with these columns.

    Raises
    ------
    SpecError
        If ``columns`` is malformed.

    Examples
    --------
    >>> with_columns("messages=history").sniff(FileHead(b'{"history": []}'))
    True
    """
    named = parse_columns(columns)

    def recognise(head: FileHead) -> bool:
        rows = head_rows(head) or [get_object(row) for row in _json_rows(head)]
        return head.first_bytes.startswith(BINARY_MAGICS) or bool(
            rows and set(named.values()) <= rows[0].keys()
        )

    return replace(FORMAT, sniff=recognise, read=_reader(named))


def _reader(named: dict[str, str]) -> Callable[[Source], Iterator[Recording]]:
    def read_named(source: Source) -> Iterator[Recording]:
        yield from read_table(source, open_table(source), named)

    return read_named


def _json_rows(head: FileHead) -> list[Any]:
    value = head.value
    return value if isinstance(value, list) else list(head.rows)


def _has_id(id: Any, number: int, item: str, source: Source) -> bool:
    if id in (None, ""):
        source.skip(f"{item} without the id of a conversation", number)
        return False
    return True


_ABOUT = (
    "tables of conversations or messages: Parquet, Arrow, CSV, TSV; JSONL if the columns are named"
)
FORMAT = Format(
    "table",
    _ABOUT,
    sniff,
    read,
    versions="from data set cards of 2025 (SWE-smith, SWE-rebench, SWE-agent)",
    not_read=(
        "left out: other columns with objects or with texts of more than 200 characters, "
        "such as patches"
    ),
)
