"""Tests that the page of formats, which is made from the samples, is true of real recordings."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest
from samples import recordings_of

from ctxlab.formats import FORMATS, load
from ctxlab.messages.types import Recording

GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"


@pytest.mark.recordings
def test_real_recordings_contain_nothing_that_the_page_leaves_empty(recorded: Path) -> None:
    page = runpy.run_path(str(GENERATE))
    features = page["CONTENT_FEATURES"] | page["REQUEST_FEATURES"]

    def found(recordings: Iterable[Recording]) -> set[tuple[str | None, str]]:
        return {(r.format, name) for r in recordings for name, has in features.items() if has(r)}

    ticks = {tick for name in FORMATS for tick in found(recordings_of(name))}
    folders = [*recorded.iterdir(), *recorded.parent.glob("corpus/*/")]
    assert ticks
    for folder in filter(Path.is_dir, folders):
        assert found(load(folder, on_error="skip")) <= ticks, folder.name
