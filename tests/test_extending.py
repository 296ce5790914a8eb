"""Tests that a new strategy, format or metric needs one new file and one line."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import ctxlab.evaluation.metrics
import ctxlab.formats
import ctxlab.strategies
from ctxlab.cli.render.leaderboard import leaderboard_text
from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import evaluate

STRATEGY = '''
"""Keeps every other message of what may go."""

from dataclasses import dataclass

from ctxlab.strategies import BaseStrategy


@dataclass(frozen=True, repr=False)
class every_other(BaseStrategy):
    """Drops every unit but the last ``keep``."""

    keep: int = 2

    def __call__(self, context, /):
        stop = context.next_safe_cut(max(context.first_droppable, len(context.entries) - self.keep))
        if context.first_droppable < min(stop, context.last_unit_start):
            context.drop(context.first_droppable, min(stop, context.last_unit_start))
        return context


def last_two(messages):
    return messages[-2:]
'''

FORMAT = '''
"""Notes are lines such as ``user> hello``."""

from ctxlab.messages.types import Message, Recording
from ctxlab.formats import Format


def sniff(head):
    return head.first_bytes.lstrip().startswith(b"user>")


def read(source):
    rows = [line.split("> ", 1) for line in source.path.read_text().splitlines()]
    yield Recording(source.name, tuple(Message(role, text) for role, text in rows))


FORMAT = Format("notes", "lines such as user> hello", sniff, read)
'''

METRIC = '''
"""How many words a request has."""

from ctxlab.evaluation.metrics import per_request_metric


@per_request_metric("words", "words in the request", "words")
def words(context):
    return sum(len(m.text.split()) for m in context.messages)
'''

NOTES = "user> book HAT136\nassistant> fine\nuser> and then\nassistant> HAT136 is booked\n"

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an importable folder with three new files of a user."""
    for name, text in (("my_strategy", STRATEGY), ("my_format", FORMAT), ("my_metric", METRIC)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(importlib.sys.modules, name, raising=False)  # type: ignore[attr-defined]
    (tmp_path / "talk.notes").write_text(NOTES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_one_line_each_and_an_evaluation_runs_with_them(folder: Path) -> None:
    strategy, format_, metric = map(
        importlib.import_module, ("my_strategy", "my_format", "my_metric")
    )

    ctxlab.strategies.register_strategy("every_other", strategy.every_other)
    ctxlab.formats.register_format(format_.FORMAT)
    ctxlab.evaluation.metrics.register_metric("words", metric.words)

    recordings = list(ctxlab.formats.load(folder / "talk.notes"))
    results = evaluate(
        recordings, ("full", "every_other(keep=1)"), (500,), metrics=("usage", "recall", "words"),
        workers=1, progress=False,
    )  # fmt: skip
    board = results.leaderboard().set_index("strategy")
    assert recordings[0].format == "notes"
    assert board.loc["full()", "words_mean"] == 3.5
    assert board.loc["every_other(keep=1)", "words_mean"] == 3.0
    assert board.loc["full()", "recall"] == 1.0
    printed = leaderboard_text(results, min_recall=0.95).splitlines()
    assert printed[0].split()[-1] == "words"
    assert "words: words in the request" in " ".join(printed)


def test_a_dotted_path_needs_no_line_at_all(folder: Path) -> None:
    strategies = ("my_strategy.every_other(keep=1)", "my_strategy.last_two | panic()")
    recording = next(
        ctxlab.formats.load(
            folder / "talk.notes", format=importlib.import_module("my_format").FORMAT
        )
    )
    board = evaluate([recording], strategies, (500,), workers=1, progress=False).leaderboard()
    assert board["strategy"].tolist() == ["every_other(keep=1)", "last_two | panic()"]


def test_a_name_that_is_taken_is_refused() -> None:
    metric, format_ = (
        importlib.import_module("my_metric"),
        importlib.import_module("my_format").FORMAT,
    )
    ctxlab.formats.register_format(format_)
    ctxlab.evaluation.metrics.register_metric("words", metric.words)
    with pytest.raises(SpecError):
        ctxlab.formats.register_format(format_)
    with pytest.raises(SpecError):
        ctxlab.evaluation.metrics.register_metric("words", metric.words)
    with pytest.raises(SpecError):
        ctxlab.strategies.register_strategy("full", ctxlab.strategies.panic)
