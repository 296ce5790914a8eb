"""Tests of malformed files: a reader returns recordings or raises an error that names the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutating import MUTATIONS, mutated
from reading import try_to_read
from samples import SAMPLE_FOLDERS, SAMPLES, files_of, format_of, packed

from ctxlab.formats import FORMATS, FileHead, load

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def test_every_format_has_a_sample() -> None:
    assert {format_of(sample) for sample in SAMPLES} == set(FORMATS)


@pytest.mark.properties(smoke=True)
@every_sample
def test_the_sample_itself_is_read_by_its_own_format_alone(sample: Path, tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(packed(files_of(sample)))
    recordings = list(load(path))
    assert recordings
    assert {recording.format for recording in recordings} == {format_of(sample)}
    assert [f.name for f in FORMATS.values() if f.sniff(FileHead.from_file(path))] == [
        format_of(sample)
    ]


@pytest.mark.parametrize("sample", SAMPLE_FOLDERS, ids=lambda sample: sample.name)
def test_a_sample_folder_is_read_whole_by_its_own_format(sample: Path) -> None:
    recordings = list(load(sample))
    assert {recording.format for recording in recordings} == {format_of(sample)}
    assert not any(recording.skipped for recording in recordings)


@pytest.mark.properties(smoke=True)
@every_sample
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_a_mutated_file_raises_nothing_but_errors_of_ctxlab(sample: Path, seed: int) -> None:
    try_to_read(mutated(files_of(sample), random.Random(seed)), format_of(sample))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_changes_a_file(mutation: str) -> None:
    content = files_of(SAMPLES[0])[""]
    assert any(MUTATIONS[mutation](content, random.Random(seed)) != content for seed in range(9))


@pytest.mark.properties
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_errors_of_ctxlab(content: bytes) -> None:
    for name in FORMATS:
        try_to_read(content, name)


@pytest.mark.properties
def test_every_sample_survives_being_read_by_every_format() -> None:
    for sample in SAMPLES:
        for name in FORMATS:
            try_to_read(packed(files_of(sample)), name)
