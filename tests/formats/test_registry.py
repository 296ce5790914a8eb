"""Tests of the table of formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxlab.errors import SpecError
from ctxlab.formats import FORMATS, FileHead, Format, Source, detect_format, load, register_format
from ctxlab.messages.types import Message, Recording


def read(source: Source) -> Iterator[Recording]:
    for _, row in source.read_jsonl():
        yield Recording(source.name, (Message("user", row["toy"]),))


def looks_like_toy(head: FileHead) -> bool:
    return isinstance(head.value, dict) and "toy" in head.value


@pytest.fixture
def toy() -> Iterator[Format]:
    yield register_format(Format("toy", "a toy", looks_like_toy, read))
    del FORMATS["toy"]


def test_a_registered_format_is_recognised_and_read(toy: Format, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('{"toy": "hi"}\n{"toy": "ho"}\n')
    assert detect_format(path) is toy
    recordings = list(load(path))
    assert [recording.id for recording in recordings] == ["a", "a#2"]
    assert {recording.format for recording in recordings} == {"toy"}


def test_a_name_is_given_once(toy: Format) -> None:
    with pytest.raises(SpecError, match="'toy' is already registered"):
        register_format(toy)


def test_a_table_entry_stands_under_its_own_name_with_a_meaning() -> None:
    assert next(iter(FORMATS)) == "native"
    assert all(name == format.name and format.description for name, format in FORMATS.items())


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_says_with_which_versions_it_was_checked(name: str) -> None:
    assert re.fullmatch(r"\S.{4,98}[^\s.]", FORMATS[name].versions)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_says_in_a_short_fragment_what_is_not_read(name: str) -> None:
    assert re.fullmatch(r"([A-Za-z][\w ,;:.()/'-]{8,198}[\w)])?", FORMATS[name].not_read)


def test_no_real_file_is_claimed_by_two_formats(data: Path) -> None:
    for path in sorted(data.rglob("*")):
        if path.is_file():
            head = FileHead.from_file(path)
            claims = [format.name for format in FORMATS.values() if format.sniff(head)]
            assert len(claims) <= 1, path
