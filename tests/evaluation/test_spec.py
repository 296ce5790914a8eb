"""Tests of experiment files: their keys, and errors that name the file and the key."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from operator import length_hint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab._utils.humanize import parse_limit
from ctxlab.errors import CtxlabError, ReadError, SpecError
from ctxlab.evaluation.metrics import DEFAULT_METRICS
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import Spec, is_spec, read_spec, run_experiment
from ctxlab.formats import write
from ctxlab.formats.io.datasets import bundled_path
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies.baselines import newest_baselines
from ctxlab.strategies.registry import CONTROLS, DEFAULT_LINEUP, METRIC_CONTROLS


def toml(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with an experiment file and its data."""
    (tmp_path / "logs").mkdir()
    messages = (Message("user", "hi"), Message("assistant", "hello"), Message("user", "bye"))
    write([Recording("a", (*messages, Message("assistant", "bye")))], tmp_path / "logs/a.jsonl")
    toml(tmp_path, 'data = ["logs"]\nlimits = [0.5]\nstrategies = ["full", "panic"]\n')
    return tmp_path


def test_what_is_left_out_is_the_default(tmp_path: Path) -> None:
    spec = read_spec(toml(tmp_path, 'data = ["logs"]'))
    assert spec.strategies == DEFAULT_LINEUP
    assert spec.metrics == DEFAULT_METRICS
    assert (spec.model, spec.reserve, spec.min_recall) == (None, 0, 0.95)


def test_one_value_stands_for_a_list_of_one(tmp_path: Path) -> None:
    spec = read_spec(toml(tmp_path, 'data = "logs"\nlimits = "16k"\nstrategies = "panic"'))
    assert (spec.data, spec.limits, spec.strategies) == (("logs",), (16000,), ("panic",))


def test_the_newest_baselines_are_named_at_once() -> None:
    spec = Spec(data=("a",), strategies=("full", "baselines"))
    assert spec.strategies == ("full", *newest_baselines())


def test_the_controls_of_the_metric_are_named_at_once() -> None:
    spec = Spec(data=("a",), strategies=("nothing", "metric_controls"))
    assert spec.strategies == ("nothing", *METRIC_CONTROLS)
    assert {text.split("(")[0] for text in METRIC_CONTROLS} < CONTROLS


def test_the_lineup_can_be_added_to() -> None:
    spec = Spec(data=("a",), strategies=("lineup", "panic(protect=2)", "full"))
    assert spec.strategies == (*DEFAULT_LINEUP, "panic(protect=2)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'data = ["a"]\nstrategy = ["full"]',
            "unknown key 'strategy'; did you mean strategies",
        ),
        ("limits = [4000]", "data: missing"),
        ("data = [1]", "data[0]: expected str, got int"),
        ("data = []", "data: expected at least one file or folder, got an empty list"),
        ('data = ["a"]\nlimits = [true]', "limits"),
        ('data = ["a"]\nlimits = []', "limits: expected at least one value, got an empty list"),
        ('data = ["a"]\nlimits = [1.5]', "(0.25, 25%), got 1.5"),
        ('data = ["a"]\nlimits = [-4000]', "(0.25, 25%), got -4000"),
        ('data = ["a"]\nlimits = [nan]', "(0.25, 25%), got nan"),
        ('data = ["a"]\nmodel = 5', "model: expected str, got int"),
        ('data = ["a"]\nreserve = 0.5', "reserve: expected int, got float"),
        ('data = ["a"]\nreserve = -1', "reserve: "),
        ('data = ["a"]\nmin_recall = 95', "min_recall: expected a share from 0 to 1, got 95"),
        ('data = ["a"]\nmetrics = ["costs"]', "metrics: unknown metric 'costs'"),
        ('data = ["a"]\nstrategies = ["ful"]', "strategies: unknown strategy 'ful'"),
        ('data = ["a"]\nstrategies = []', "strategies: expected at least one value, got"),
        ('data = ["a"]\nformat = "x"', "unknown format 'x'"),
        ('data = ["a"]\ncolumns = "x"', "columns: expected pairs such as"),
        ('data = ["a"]\non_error = "stop"', "on_error: "),
        ("data = [", "invalid TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(text: str, words: str, tmp_path: Path) -> None:
    path = toml(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_a_read_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="No such file"):
        read_spec(tmp_path / "nowhere.toml")


def test_a_file_that_is_no_text_is_a_spec_error(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_spec(tmp_path / "odd.toml")


@given(st.integers(1, 10**9))
def test_tokens_are_read_as_they_are_written(tokens: int) -> None:
    assert parse_limit(tokens) == parse_limit(str(tokens)) == parse_limit(f"{tokens:,}") == tokens
    assert parse_limit(f"{tokens}k") == tokens * 1000
    assert isinstance(parse_limit(float(tokens + 1)), int)


@given(st.integers(1, 100))
def test_per_cents_are_shares(per_cent: int) -> None:
    share = parse_limit(f"{per_cent}%")
    assert isinstance(share, float)
    assert share == pytest.approx(per_cent / 100)


@given(st.text(max_size=8) | st.floats() | st.integers() | st.booleans())
def test_whatever_is_given_is_a_limit_or_a_spec_error(limit: str | float) -> None:
    with suppress(CtxlabError):
        assert parse_limit(limit) > 0


def test_data_is_relative_to_the_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run_experiment(read_spec(project / "mine.toml"), progress=False)
    monkeypatch.chdir(project)
    assert run_experiment(read_spec("mine.toml"), progress=False).equals(results)


def test_clusters_are_relative_to_the_file_and_are_saved(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "clusters.tsv").write_text("file\tcluster\nlogs/a.jsonl\tone\n")
    path = toml(project, 'data = ["logs"]\nclusters = "clusters.tsv"\nstrategies = ["full"]\n')
    monkeypatch.chdir("/")
    results = run_experiment(read_spec(path), progress=False)
    assert [each["cluster"] for each in results.recordings] == ["one"]
    results.save(project / "run")
    assert [each.cluster for each in read_spec(project / "run").recordings()] == ["one"]


def test_a_saved_run_repeats_itself_from_anywhere(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    run_experiment(read_spec(project / "mine.toml"), progress=False).save(elsewhere / "run")
    monkeypatch.chdir(elsewhere)
    for saved in ("run", "run/manifest.json"):
        assert is_spec(saved)
        assert run_experiment(read_spec(saved), progress=False).equals(Results.load("run"))


def test_a_manifest_holds_the_keys_of_a_file(project: Path) -> None:
    results = run_experiment(read_spec(project / "mine.toml"), progress=False)
    manifest = results.manifest
    assert set(manifest["spec"]) == set(Spec.__struct_fields__)
    assert manifest["spec"]["folder"] == os.path.abspath(project)
    assert results.recordings[0]["source"] == os.path.join("logs", "a.jsonl")


def test_files_that_gave_nothing_are_told_and_kept(project: Path) -> None:
    (project / "logs" / "notes.txt").write_text("not a recording")
    told: list[str] = []
    spec = read_spec(project / "mine.toml")
    results = run_experiment(
        spec, progress=False, on_skip=lambda path, reason: told.append(path.name)
    )
    assert told == ["notes.txt"]
    assert results.manifest["left_out"][0]["reason"] == "unknown format"


def test_a_folder_of_recordings_is_no_experiment(project: Path) -> None:
    assert not is_spec(project / "logs")
    assert not is_spec(project / "logs" / "a.jsonl")


def test_the_bundled_experiment_is_well_written() -> None:
    spec = read_spec(bundled_path("evals/quickstart.toml"))
    assert spec.strategies == DEFAULT_LINEUP
    assert all(path.startswith("bundled:") for path in spec.data)


def test_the_number_of_recordings_is_estimated_from_the_files_that_are_left(tmp_path: Path) -> None:
    for number in range(4):
        line = json.dumps({"messages": [{"role": "user", "content": f"hello {number}"}]})
        (tmp_path / f"{number}.jsonl").write_text("\n".join([line] * 2), encoding="utf-8")
    recordings = Spec(data=(str(tmp_path),)).recordings()
    hints = [length_hint(recordings)]
    hints += [length_hint(recordings) for _ in recordings]
    assert hints[0] == 4
    assert max(hints) <= 8
    assert length_hint(recordings) == 0
