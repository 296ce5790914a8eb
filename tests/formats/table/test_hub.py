"""Tests of data sets of the Hugging Face hub. A stand-in replaces the package ``datasets``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

from ctxlab.errors import DataMissing, ReadError, SpecError
from ctxlab.evaluation.spec import Spec
from ctxlab.formats import load
from ctxlab.formats.table.hub import parse_hub_name

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@dataclass
class Split:
    """A streamed split: batches of rows in the format ``arrow``."""

    rows: list[dict[str, Any]]
    form: str = ""

    def select_columns(self, columns: list[str]) -> Split:
        return Split([{name: row[name] for name in columns} for row in self.rows])

    def with_format(self, form: str) -> Self:
        return type(self)(self.rows, form)

    def iter(self, size: int) -> Iterator[Any]:
        assert self.form == "arrow"
        for start in range(0, len(self.rows), size):
            yield pa.Table.from_pylist(self.rows[start : start + size])


def install(
    monkeypatch: pytest.MonkeyPatch, version: str = "5.2.0", loader: str = "parquet", **splits: Any
) -> list[tuple[Any, ...]]:
    """Install the stand-in, and return the list of the calls that it receives."""
    asked: list[tuple[Any, ...]] = []
    streams = {name: Split(rows) for name, rows in splits.items()}
    kind = type("Loader", (), {"as_streaming_dataset": lambda self: streams})
    kind.__module__ = f"datasets.packaged_modules.{loader}.{loader}"

    def load_builder(name: str, config: str | None, revision: str | None) -> Any:
        asked.append((name, config, revision))
        return kind()

    package = SimpleNamespace(__version__=version, load_dataset_builder=load_builder)
    monkeypatch.setitem(sys.modules, "datasets", package)
    return asked


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"r{number}", "messages": CHAT, **more} for number in range(count)]


def test_all_splits_are_read_with_the_columns_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, train=rows(20, instance_id="t"), test=rows(1))
    found = list(load("hf:owner/name"))
    assert len(found) == 21
    assert (found[0].id, found[0].cluster) == ("owner/name/train/r0", "t")
    assert (found[20].id, found[20].source) == ("owner/name/test/r0", "hf:owner/name")


def test_a_name_may_have_a_configuration_a_revision_and_a_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = install(monkeypatch, train=rows(1), test=rows(2))
    assert len(list(load("hf:owner/name/chat@v1:test"))) == 2
    assert asked == [("owner/name", "chat", "v1")]


def test_columns_conditions_and_other_paths_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, train=[{"log": CHAT, "key": 1}, {"log": CHAT * 2, "key": 2}])
    found = load(
        ["hf:owner/name", "hf:owner/other"], columns="messages=log,id=key", where="messages>=4"
    )
    assert [each.id for each in found] == ["owner/name/train/2", "owner/other/train/2"]


def test_rows_of_messages_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [{"chat_id": id, **message} for message in CHAT for id in "ab"]
    install(monkeypatch, train=said)
    found = list(load("hf:owner/name"))
    assert [(each.id, len(each.messages)) for each in found] == [
        ("owner/name/train/a", 2),
        ("owner/name/train/b", 2),
    ]


def test_an_experiment_may_name_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, train=rows(3))
    assert len(list(Spec(data=("hf:owner/name:train",), folder="logs").recordings())) == 3


@pytest.mark.parametrize("package", [None, SimpleNamespace()])
def test_a_missing_package_is_an_error_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, package: Any
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(DataMissing, match=r"pip install '.\[hub\]'"):
        list(load("hf:owner/name"))


def test_a_version_that_runs_code_of_data_sets_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, version="3.6.0", train=rows(1))
    with pytest.raises(DataMissing, match=r"requires datasets 4 or later, got 3\.6\.0"):
        list(load("hf:owner/name"))
    assert not asked


def test_a_loader_that_unpickles_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, loader="pandas", train=rows(1))
    with pytest.raises(SpecError, match=r"expected a data set of parquet, .* files, got pandas"):
        list(load("hf:owner/name"))


def test_a_data_set_that_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the hub\nmore")

    package = SimpleNamespace(__version__="5.0.0", load_dataset_builder=offline)
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(
        DataMissing, match="Couldn't reach the hub; check the name and the connection"
    ):
        list(load("hf:owner/name"))


def test_an_unknown_split_is_named_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, train=rows(1), test=rows(1))
    with pytest.raises(SpecError, match=r"expected a split \(train, test\), got 'dev'"):
        list(load("hf:owner/name:dev"))


def test_a_data_set_without_messages_is_an_error_with_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, train=[{"question": "a", "answer": "b"}])
    with pytest.raises(ReadError, match=r"found no recording .*its columns are question, answer"):
        list(load("hf:owner/name"))


@pytest.mark.parametrize("name", ["hf:", "hf:name", "hf:a/b/c/d", "hf:a/b:", "hf:a/b@"])
def test_a_malformed_name_is_rejected(name: str) -> None:
    with pytest.raises(SpecError, match="expected hf:OWNER/NAME"):
        parse_hub_name(name)
