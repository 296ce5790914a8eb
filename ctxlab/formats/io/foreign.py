"""Recognise well-known kinds of files that no reader reads, to say what a refused file is.

The kind is found by the content of the file. It is looked up only after no reader has recognised the
file, so that a format that is read never reaches the table ``_KINDS``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ctxlab.errors import ReadError
from ctxlab.formats.fields import get_in, get_object, get_text, parse_json_or_none
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.sqlite_file import SQLITE_MAGIC, open_sqlite
from ctxlab.formats.io.zip_archive import first_member_name, open_zip

_MAX_LISTED_NAMES = 5
_MAX_TABLE_ROWS = 5
_ZIP_ADVICE = "unpack it, or read its files with a URL such as zip://*.json::FILE.zip"
_TABLE_ADVICE = "convert it to Parquet, CSV or JSONL"
_CONFIG_ADVICE = "it contains no conversation; name a log instead"
_TEXT_ADVICE = (
    "a transcript lacks tool calls and results, so name the log that the program wrote, "
    "such as its JSON or JSONL file"
)
_SPEAKER = re.compile(
    r"^[#>*_\s]{0,6}(?:(user|human|you|me|prompt)|(?:assistant|ai|claude|chatgpt|gemini|model|bot))"
    r"(?:[*_]{0,2}:|[*_:]{0,3}\s*$)",
    re.IGNORECASE | re.MULTILINE,
)
_COLUMN_NAME = re.compile(r"[\w .:/-]{1,40}")


class FileKind(NamedTuple):
    """A kind of file that is not read."""

    name: str
    "what the file is, with an article, such as ``a HAR file (recorded web traffic)``"
    advice: str
    "what to do instead, as an imperative"
    is_common: bool = False
    """True for kinds such as plain text, which occur in many folders and are no logs, so that they need
    no explanation there"""
    detail: str = ""
    "continuation of the name that is specific to the file, such as ``, with the keys id, turns``"

    @property
    def text(self) -> str:
        """The name with the detail."""
        return self.name + self.detail


def describe_unknown_file(path: PathOrUrl, head: FileHead) -> FileKind | None:
    r"""Find the kind of a file that no reader recognises.

    Parameters
    ----------
    path : str or Path
        Path or URL of the file. It is opened again if the kind depends on the end of the file.
    head : FileHead
        The beginning of the file.

    Returns
    -------
    FileKind or None
        The kind, or None if it is not known.

    Examples
    --------
    >>> describe_unknown_file("a", FileHead(b"# aider chat started at 2026-01-02\n")).name
    "Aider's chat history in Markdown"
    """
    if first_member_name(head.first_bytes) is not None:
        return _describe_zip(path)
    if head.first_bytes.startswith(SQLITE_MAGIC):
        return _describe_database(path)
    return next((kind for is_kind, kind in _KINDS if is_kind(head)), None)


def list_kinds() -> tuple[FileKind, ...]:
    """List the kinds of files that are recognised, but not read.

    Returns
    -------
    tuple of FileKind
        The kinds. Damaged files, and archives and databases of unknown programs, are not listed.

    Examples
    --------
    >>> [kind.advice for kind in list_kinds() if kind.name == "a tar archive"]
    ['unpack it and name the folder']
    """
    databases = (kind for _, kind in _DATABASE_KINDS)
    return (_CHAT_EXPORT, _OFFICE_DOCUMENT, *databases, *(kind for _, kind in _KINDS))


def list_keys(head: FileHead) -> str:
    """List the keys of the first JSON object of a file that has an unknown format.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    str
        The keys, separated by commas. Empty if the file does not start with an object or a list of
        objects.

    Examples
    --------
    >>> list_keys(FileHead(b'{"id": 1, "turns": []}'))
    'id, turns'
    """
    first = head.value[0] if isinstance(head.value, list) and head.value else head.value
    keys = [*get_object(first)]
    return _list_names(keys) if keys else ""


def _describe_zip(path: PathOrUrl) -> FileKind:
    try:
        with open_zip(path) as archive:
            names = archive.namelist()
    except ReadError as error:
        return FileKind("a damaged zip archive", "copy it again", detail=f" ({error.reason})")
    inner = {name.rpartition("/")[2] for name in names}
    if "conversations.json" in inner:
        return _CHAT_EXPORT
    if "[Content_Types].xml" in names:
        return _OFFICE_DOCUMENT
    return FileKind("a zip archive", _ZIP_ADVICE, detail=f" of {_list_names(names)}")


def _describe_database(path: PathOrUrl) -> FileKind:
    try:
        with open_sqlite(path) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = [str(row["name"]) for row in rows]
    except ReadError as error:
        return FileKind("a damaged SQLite database", "copy it again", detail=f" ({error.reason})")
    known = (kind for tables, kind in _DATABASE_KINDS if tables.issubset(names))
    if kind := next(known, None):
        return kind
    advice = "export its conversations as OpenAI messages in JSONL"
    detail = f", with {_list_names(names)}"
    return FileKind("an SQLite database of another program", advice, detail=detail)


def _list_names(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED_NAMES
    shown = ", ".join(map(_printable, names[:_MAX_LISTED_NAMES]))
    return f"{shown} and {more:,} more" if more > 0 else shown or "nothing"


def _printable(name: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in name[:60])


def _starts(*magics: bytes) -> Callable[[FileHead], bool]:
    return lambda head: head.first_bytes.lstrip().lower().startswith(magics)


def _starts_exactly(*magics: bytes) -> Callable[[FileHead], bool]:
    return lambda head: head.first_bytes.startswith(magics)


def _is_notebook(head: FileHead) -> bool:
    return "nbformat" in get_object(head.value) or (
        isinstance(cells := get_in(head.value, "cells"), list)
        and get_in(cells[0] if cells else None, "cell_type") is not None
    )


def _is_har(head: FileHead) -> bool:
    return {"version", "creator"} <= get_object(head.value, "log").keys()


def _is_claude_export(head: FileHead) -> bool:
    first = head.value[0] if isinstance(head.value, list) and head.value else head.value
    return {"uuid", "chat_messages"} <= get_object(first).keys()


def _is_saved_run(head: FileHead) -> bool:
    return {"data", "strategies", "limits"} <= get_object(head.value, "spec").keys()


def _is_dataset_description(head: FileHead) -> bool:
    keys = get_object(head.value).keys()
    # dataset_info.json, state.json and dataset_dict.json, as save_to_disk writes them.
    return {"citation", "features"} <= keys or "_data_files" in keys or keys == {"splits"}


def _is_package(head: FileHead) -> bool:
    keys = get_object(head.value).keys()
    is_lock = "lockfileVersion" in keys
    return is_lock or (
        "name" in keys and bool(keys & {"dependencies", "devDependencies", "scripts"})
    )


def _is_schema(head: FileHead) -> bool:
    said = get_text(head.value, "$schema") or ""
    is_object = get_in(head.value, "type") == "object"
    return "json-schema.org" in said or (
        is_object and isinstance(get_in(head.value, "properties"), dict)
    )


def _is_api_description(head: FileHead) -> bool:
    return bool(get_object(head.value).keys() & {"openapi", "swagger"})


def _is_empty_json(head: FileHead) -> bool:
    return head.first_bytes.strip() in (b"[]", b"{}")


def _is_event_stream(head: FileHead) -> bool:
    return re.match(rb"\s*(?:event: \S+\s+)?data: ?[\[{]", head.first_bytes) is not None


def _is_tar(head: FileHead) -> bool:
    return head.first_bytes[257:262] == b"ustar"


def _is_broken_json(head: FileHead) -> bool:
    if head.first_bytes.lstrip()[:1] not in (b"{", b"["):
        return False
    if not head.rows:
        return True
    # The rows may be a value that was cut off and then closed. Of a long file, the end is not known.
    texts = (head.first_bytes, *head.first_bytes.splitlines())
    return head.is_complete and all(parse_json_or_none(text) is None for text in texts)


def _is_transcript(head: FileHead) -> bool:
    if head.rows or _is_binary(head):
        return False
    speakers = {bool(match[1]) for match in _SPEAKER.finditer(_text(head))}
    return speakers == {True, False}


def _is_table(head: FileHead) -> bool:
    if head.rows or _is_binary(head):
        return False
    lines = _text(head).splitlines()
    delimiter = next((each for each in "\t,;" if each in (lines[0] if lines else "")), "")
    if not delimiter:
        return False
    try:
        rows = [*islice(csv.reader(lines, delimiter=delimiter), _MAX_TABLE_ROWS)]
    except csv.Error:
        return False
    names, *others = rows
    named = all(_COLUMN_NAME.fullmatch(name.strip()) for name in names)
    return named and bool(others) and all(len(row) == len(names) for row in others)


def _is_json_without_objects(head: FileHead) -> bool:
    values = (each for row in head.rows for each in (row if isinstance(row, list) else [row]))
    return bool(head.rows) and not any(isinstance(each, dict) for each in values)


def _is_binary(head: FileHead) -> bool:
    return b"\0" in head.first_bytes


def _text(head: FileHead) -> str:
    return head.first_bytes.decode("utf-8", "replace")


_CHAT_EXPORT = FileKind(
    "the export of a chat service (Claude.ai or ChatGPT)",
    "unpack it and name conversations.json, or name zip://conversations.json::FILE.zip",
)
_OFFICE_DOCUMENT = FileKind("an Office document", _TABLE_ADVICE)

_DATABASE_KINDS = (
    (
        frozenset(("cursorDiskKV",)),
        FileKind(
            "the state of Cursor (state.vscdb)",
            "it is not read; export the chat in Cursor, or name logs of another agent",
        ),
    ),
    (
        frozenset(("ItemTable",)),
        FileKind(
            "the state of VS Code (state.vscdb)",
            "name the log of the extension, such as Cline's task folder",
        ),
    ),
    (
        frozenset(("conversations", "responses")),
        FileKind(
            "the log of the command line program llm (logs.db)",
            "it is not read; export the conversations as OpenAI messages in JSONL",
        ),
    ),
)
"""Pairs of table names and the kind of SQLite databases that have these tables. The first match
counts."""

_KINDS: tuple[tuple[Callable[[FileHead], bool], FileKind], ...] = (
    (
        _starts_exactly(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-"),
        FileKind("a picture or a PDF document", "name the log that the program wrote", True),
    ),
    (
        _starts_exactly(b"\xff\xfe", b"\xfe\xff"),
        FileKind(
            "text in UTF-16", "convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8"
        ),
    ),
    (_is_tar, FileKind("a tar archive", "unpack it and name the folder")),
    (
        _starts(b"# aider chat started at"),
        FileKind(
            "Aider's chat history in Markdown",
            "it lacks the requests; run aider with --llm-history-file for a full log, and convert "
            "that log to JSONL with one list of messages per line",
        ),
    ),
    (
        _starts(b"<!doctype html", b"<html"),
        FileKind("a web page", "export the conversation as JSON instead of HTML"),
    ),
    (_starts(b"<?xml"), FileKind("an XML file", _TABLE_ADVICE, True)),
    (_is_notebook, FileKind("a Jupyter notebook", _CONFIG_ADVICE, True)),
    (
        _is_har,
        FileKind(
            "a HAR file (recorded web traffic)",
            "write the body of each request to the model API as one line of a JSONL file",
        ),
    ),
    (
        _is_claude_export,
        FileKind(
            "an export of Claude.ai",
            "it is not read; convert each conversation to a list of messages in Anthropic's format",
        ),
    ),
    (
        _is_saved_run,
        FileKind(
            "the manifest of a saved run",
            "it contains no recordings; ctxlab compare DIR shows the run",
        ),
    ),
    (
        _is_dataset_description,
        FileKind("the description of a data set of Hugging Face", "name its folder", True),
    ),
    (_is_package, FileKind("the package.json of a JavaScript project", _CONFIG_ADVICE, True)),
    (_is_api_description, FileKind("an OpenAPI description", _CONFIG_ADVICE, True)),
    (_is_schema, FileKind("a JSON schema", _CONFIG_ADVICE, True)),
    (_is_empty_json, FileKind("an empty JSON value", "name a file with messages", True)),
    (
        _is_event_stream,
        FileKind(
            "a recorded event stream of an API",
            "log the requests instead, one JSON body per line; a stream contains only the answer",
        ),
    ),
    (
        _is_broken_json,
        FileKind("damaged JSON", "check that the file was copied whole, and that it is UTF-8"),
    ),
    (_is_json_without_objects, FileKind("JSON without objects", "name a file with messages", True)),
    (_is_transcript, FileKind("a transcript in plain text or Markdown", _TEXT_ADVICE)),
    (
        _is_table,
        FileKind(
            "a table (CSV or TSV)",
            "name the column with the messages, as in --input-columns messages=NAME",
        ),
    ),
    (_is_binary, FileKind("a binary file", "name a log in JSON or JSONL", True)),
    (
        lambda head: not head.rows,
        FileKind(
            "plain text", "name a log in JSON or JSONL; ctxlab formats lists the formats", True
        ),
    ),
)
"""Pairs of a check and the kind of the files that pass it. The first match counts."""
