"""Tests that the figures and the text of ``evals/LOCOMO.md`` match the output of its command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ctxlab.cli import main
from ctxlab.formats import load
from ctxlab.formats.io.datasets import find_dataset, local_dataset_dir

TEXT = (Path(__file__).parents[1] / "evals" / "LOCOMO.md").read_text(encoding="utf-8")
CHATS = 7


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", TEXT, flags=re.DOTALL)
    assert found is not None
    return found[1]


def code(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def locomo(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set ``CTXLAB_DATA`` to the data of the page; skip the test if they are not available."""
    place = local_dataset_dir(find_dataset("locomo"), recorded)
    if place is None:
        pytest.skip("the data set locomo is not beside the others")
    if (chats := len(list(load(place)))) != CHATS:
        pytest.skip(f"the page was made with {CHATS} conversations, and here are {chats}")
    monkeypatch.setenv("CTXLAB_DATA", str(recorded))


def test_the_table_is_what_the_command_gives(
    locomo: None, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = shlex.split(code("sh").splitlines()[-1])
    assert (program, main(arguments)) == ("ctxlab", 0)
    assert capsys.readouterr().out.strip() == block("table")


def test_the_categories_are_what_the_code_gives(
    locomo: None, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(code("python"), {})
    assert capsys.readouterr().out.strip() == block("kinds")


def evidence(limit: str) -> dict[str, tuple[float, float, float]]:
    """Return evidence recall and its interval by strategy; without interval, the value repeated."""
    part = block("table").split(f"Within {limit} tokens:\n\n")[1].split("\n\n")[0]
    found = {}
    head, _, *lines = part.splitlines()
    at = [each.strip() for each in head.split("|")].index("evidence recall (95 %)")
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)
        name, cell = cells[1], cells[at]
        figures = [float(each) for each in re.findall(r"[\d.]+", cell)]
        found[re.findall("`(.*)`", name)[0]] = (figures[0], *(figures[1:] or figures * 2))
    return found  # type: ignore[return-value]


def test_the_text_says_what_the_table_says() -> None:
    tables = [evidence(limit) for limit in ("4,000", "8,000", "16,000")]
    panic = r" \| panic"
    for table in tables:
        window, chance = table[f"sliding_window{panic}"], table["random_drop"]
        excerpts, both = (
            table[f"{name}{panic}"] for name in ("excerpt_memory", r"excerpt_memory \| retrieval")
        )
        assert window[1] <= chance[0] <= window[2]
        assert excerpts[0] < window[0]
        assert both[1] <= table["retrieval"][0] <= both[2]
        batches = table[rf"in_batches(sliding_window()){panic}"]
        masked = rf"in_batches(observation_mask \| sliding_window()){panic}"
        assert table[masked] == table[rf"offload \| in_batches(sliding_window()){panic}"] == batches
        assert batches[0] < window[0]
        assert table["oracle"][0] == table["full"][0] == 1
    for table in tables[:2]:
        assert table["retrieval"][1] > table[f"sliding_window{panic}"][2]
    assert tables[2][f"rolling_summary{panic}"][1:] == (0, 0.6)
    full = re.search(r"`full` \(control\).*\| (\.\d+) \(", block("table"))
    assert full is not None
    assert f"even the full history contains only {full[1]} of the answers" in " ".join(TEXT.split())
