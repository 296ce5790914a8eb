"""Fixtures: small recordings in which an agent uses early results late, and a figure for each test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest

matplotlib.use("Agg")

from plotted import recorded

from ctxlab.formats import load, write
from ctxlab.messages.types import Recording


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    """Return five recordings that were loaded from a file."""
    path = tmp_path_factory.mktemp("recordings") / "made.jsonl"
    names = ("alpha", "beta", "gamma", "delta", "omega")
    write([recorded(name, 9 + i) for i, name in enumerate(names)], path)
    return list(load([path]))


@pytest.fixture(autouse=True)
def _no_figure_is_left_open() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
