"""Tests of the exchange with the package ``datasets``: the package itself, and its files without it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ctxlab
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.formats import to_dataset
from ctxlab.formats.native import ROW_COLUMNS, row_from_recording
from ctxlab.messages.types import Compaction, Message, Probe, Recording, Substitute, ToolCall

PICTURE = ({"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "data:,"}})
RECORDINGS = [
    Recording(
        "air/1",
        (
            Message("user", "What is here?", time=3.5),
            Message("assistant", None, (ToolCall("c1", "ls", '{"path": "."}'),), reasoning="Look."),
            Message("tool", "a.py é \ud800", tool_call_id="c1", extra={"exit": 0}),
            Message("assistant", "One file."),
        ),
        tools=({"type": "function", "function": {"name": "ls"}},),
        model="gpt-5",
        cluster="air",
        probes=(Probe("How many?", "one"),),
        compactions=(Compaction(3, (0, Substitute(Message("user", "Files were listed.")))),),
        meta={"reward": 0.5},
    ),
    Recording("air/2", (Message("user", PICTURE), Message("assistant", "A picture."))),
]


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    package = pytest.importorskip("datasets", reason="datasets is not installed: [hub]")
    if not hasattr(package, "Dataset"):
        pytest.skip("the folder datasets of this repository hides the package: nox -s ecosystem")
    return package


def arrow(path: Path, *, stream: bool) -> Path:
    rows = [row_from_recording(each) for each in RECORDINGS]
    table = pa.Table.from_pylist(rows, pa.schema({n: pa.string() for n in ROW_COLUMNS[:-1]}))
    table = table.append_column("version", pa.array([1, 1]))
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as file:
        file.write_table(table)
    return path


def same(found: Any) -> None:
    found = list(found)
    assert [each.id for each in found] == ["air/1", "air/2"]
    assert list(map(recording_digest, found)) == list(map(recording_digest, RECORDINGS))
    for one, other in zip(found, RECORDINGS, strict=True):
        assert (one.model, one.cluster, one.meta) == (other.model, other.cluster, other.meta)
        assert one.messages == other.messages


@pytest.mark.parametrize("stream", [True, False])
def test_an_arrow_file_gives_back_the_recordings(tmp_path: Path, stream: bool) -> None:
    path = arrow(tmp_path / "a", stream=stream)
    same(ctxlab.load(path))
    (tmp_path / "a.gz").write_bytes(gzip.compress(path.read_bytes()))
    same(ctxlab.load(tmp_path / "a.gz"))


def test_a_size_that_an_arrow_file_claims_to_have_allocates_nothing(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", stream=True)
    content = bytearray(path.read_bytes())
    second = content.index(b"\xff\xff\xff\xff", 8)  # the message with the batch
    start, size = second + 8, int.from_bytes(content[second + 4 : second + 8], "little")
    table = pa.ipc.read_message(pa.py_buffer(bytes(content[second:])))
    body = len(table.body).to_bytes(8, "little")
    at = content.index(body, start, start + size)
    content[at : at + 8] = (1 << 50).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(ReadError, match=r"a\.arrow: broken Arrow file"):
        list(ctxlab.load(path))


def test_a_cut_arrow_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", stream=True)
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(ReadError, match=r"a\.arrow: broken Arrow file"):
        list(ctxlab.load(path))


def test_a_data_set_in_memory_gives_back_the_recordings(datasets: Any) -> None:
    made = to_dataset(RECORDINGS)
    same(ctxlab.load(made))
    assert all(each.source is None for each in ctxlab.load(made))
    same(ctxlab.load(made.to_iterable_dataset()))


@pytest.mark.parametrize("split", [None, "train"])
def test_a_data_set_on_disk_gives_back_the_recordings(
    datasets: Any, tmp_path: Path, split: str | None
) -> None:
    made = to_dataset(RECORDINGS)
    whole = made if split is None else datasets.DatasetDict({split: made})
    whole.save_to_disk(tmp_path / "saved")
    skipped: dict[str, str] = {}
    same(ctxlab.load(tmp_path / "saved", on_skip=lambda path, why: skipped.update({path: why})))
    assert set(skipped.values()) == {"unknown format"}  # its descriptions need no explanation
    made.to_parquet(tmp_path / "a.parquet")
    same(ctxlab.load(tmp_path / "a.parquet"))


def test_splits_and_columns_of_other_data_sets_are_read_as_tables_are(datasets: Any) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    rows = datasets.Dataset.from_list([{"key": "r1", "log": chat}])
    whole = datasets.DatasetDict({"train": rows, "test": rows})
    found = list(ctxlab.load(whole, columns="messages=log,id=key", where="messages>=2"))
    assert [each.id for each in found] == ["train/r1", "test/r1"]
    assert found[0].messages[1].text == "hello"
    with pytest.raises(ReadError, match=r"split data: found no recording .*columns are key, log"):
        list(ctxlab.load(rows.remove_columns("log").add_column("log", [1])))


def test_to_dataset_takes_recordings_and_no_path() -> None:
    with pytest.raises(SpecError, match=r"pass ctxlab\.load"):
        to_dataset("logs/")  # type: ignore[arg-type]
