"""Well-known files that no reader reads are named by their content, with advice."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import UnknownFormat
from ctxlab.formats import load

CELL = {"cell_type": "code", "source": ["1 + 1"], "outputs": []}
CHAT = "## User\n\nWhat is 1 + 1?\n\n## Assistant\n\n2\n"


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "[]")
    return buffer.getvalue()


def database(*tables: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table} (key TEXT, value BLOB)")
        return connection.serialize()


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


FILES: dict[str, tuple[bytes, str]] = {
    "chat export": (
        zipped("users.json", "conversations.json"),
        "the export of a chat service .* name conversations.json",
    ),
    "office": (zipped("[Content_Types].xml", "word/document.xml"), "an Office document"),
    "zip": (zipped("a.json", "b/c.json"), r"a zip archive of a\.json, b/c\.json; unpack it"),
    "cursor": (database("ItemTable", "cursorDiskKV"), "the state of Cursor .* export the chat"),
    "vs code": (database("ItemTable"), "the state of VS Code"),
    "llm": (database("conversations", "responses"), "the log of the command line program llm"),
    "database": (database("a", "b"), "an SQLite database of another program, with a, b; export"),
    "damaged database": (b"SQLite format 3\0" + bytes(99), "a damaged SQLite database"),
    "damaged zip": (zipped("a.json")[:40], "a damaged zip archive .*; copy it again"),
    "har": (
        dumped({"log": {"version": "1.2", "creator": {"name": "x"}, "entries": []}}),
        "a HAR file .* write the body of each request",
    ),
    "notebook": (dumped({"cells": [CELL], "metadata": {}, "nbformat": 4}), "a Jupyter notebook"),
    "claude export": (
        dumped([{"uuid": "u", "name": "x", "chat_messages": [{"sender": "human", "text": "hi"}]}]),
        "an export of Claude.ai",
    ),
    "saved run": (
        dumped({"spec": {"data": ["a"], "strategies": ["full"], "limits": [0.5]}}),
        "the manifest of a saved run; .* ctxlab compare DIR",
    ),
    "package": (dumped({"name": "x", "dependencies": {"y": "1"}}), "the package.json of"),
    "lock file": (dumped({"name": "x", "lockfileVersion": 3}), "the package.json of"),
    "schema": (dumped({"type": "object", "properties": {"a": {}}}), "a JSON schema"),
    "openapi": (dumped({"openapi": "3.1.0", "info": {}}), "an OpenAPI description"),
    "aider": (
        b"\n# aider chat started at 2026-01-02 03:04:05\n\n#### hi\n",
        "Aider's chat history",
    ),
    "markdown": (CHAT.encode(), "a transcript in plain text or Markdown; .* lacks tool calls"),
    "bold": (b"**You:** hi\n\n**Claude:** hello\n", "a transcript in plain text or Markdown"),
    "table": (
        b"id,question,answer\n1,a,b\n2,c,d\n",
        r"a table \(CSV or TSV\); name the column with the messages",
    ),
    "dataset": (
        dumped({"_data_files": [], "_split": "train"}),
        "the description of a data set of Hugging Face; name its folder",
    ),
    "web page": (b"<!DOCTYPE html>\n<html></html>", "a web page"),
    "xml": (b'<?xml version="1.0"?><a/>', "an XML file"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0", "a picture or a PDF document"),
    "utf-16": ("Hi".encode("utf-16"), "text in UTF-16; convert it to UTF-8"),
    "stream": (
        b'event: message_start\ndata: {"type": "message_start"}\n',
        "a recorded event stream",
    ),
    "damaged json": (b'{"a" "b"}', "damaged JSON; check that the file"),
    "cut json": (b'{"a": [1, 2], "b": [3', "damaged JSON; check that the file"),
    "numbers": (b"[1, 2]", "JSON without objects"),
    "binary": (b"\x01\x02\0\x03", "a binary file"),
    "text": (b"You may.\n", "plain text; name a log in JSON or JSONL"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_refused_file_is_named_by_its_content_with_advice(tmp_path: Path, kind: str) -> None:
    content, said = FILES[kind]
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=f"file: unknown format: the file looks like {said}"):
        list(load(path))


def test_in_a_folder_the_kind_is_told_without_advice_and_common_kinds_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "chat.jsonl").write_text('{"role":"user","content":"hi"}\n')
    (tmp_path / "a.md").write_text(CHAT)
    (tmp_path / "LICENSE").write_text("You may.\n")
    told: dict[str, str] = {}
    list(load(tmp_path, on_skip=lambda path, reason: told.update({Path(path).name: reason})))
    assert told == {
        "LICENSE": "unknown format",
        "a.md": "unknown format: looks like a transcript in plain text or Markdown",
    }


def test_names_in_a_refused_archive_are_printed_without_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zipped("\x1b[31m.json"))
    with pytest.raises(UnknownFormat, match=r"of \?\[31m\.json;"):
        list(load(path))
