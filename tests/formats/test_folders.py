"""Tests that each folder of real recordings is read without warnings, with the known counts."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from ctxlab.formats import load
from ctxlab.formats.io.files import PathOrUrl
from ctxlab.messages.types import Recording
from ctxlab.tokens.counter import TokenCounter


class Known(NamedTuple):
    """Known counts of a folder; comments explain differences from the data's own description."""

    formats: set[str]
    conversations: int
    median: float
    most: int
    tool_share: float | None = None


FOLDERS: dict[str, Known] = {
    "tau-bench": Known({"tau-bench"}, 200, 24, 62, 0.39),
    # Retail 22/65 and airline 23/209 as described; telecom 35/49 for 60/81, since what the user's own
    # tools do is never sent to the agent (433 calls and 482 results, counted as left out).
    "tau2-bench": Known({"tau2-bench"}, 114 + 50 + 40, 24, 209),
    # 187/316 with the message of role exit, which is the submission and not part of the conversation.
    "mini-swe-agent": Known({"mini-swe-agent"}, 10, 186, 315, 0.45),
    # 40/100 without the final answer, which stands in the response alone. Three more conversations are
    # in the event file, where 76 % is of the completions alone.
    "openhands": Known({"openhands-completions", "openhands-events"}, 25 + 3, 45, 101, 0.75),
    # 199/719 counts rows: those of one message id are one message here. 78 % is of text with thinking.
    # Nine sessions, three of which have four subagents together.
    "claude-code-entireio": Known({"claude-code"}, 9 + 4, 70, 420, 0.84),
    # 990 and 914 with 16 and 15 answers that were broken off before they said a word.
    "pi-mono": Known({"pi"}, 2, (974 + 899) / 2, 974, 0.52),
    "locomo": Known({"locomo"}, 7, 663, 689, 0),
    "longmemeval": Known({"longmemeval"}, 2, (396 + 409) / 2, 409, 0),
    "swe-agent": Known({"swe-agent"}, 6, 26.5, 43, 0.23),
    # Five files, three of them with several samples and epochs.
    "inspect-ai": Known({"inspect"}, 16, 3, 12),
    # 13 rows: one is a notice, one goes on with the row before, and 9 calls have their results.
    "gemini-cli-entireio": Known({"gemini-cli"}, 1, 20, 20),
    "codex-format-samples": Known({"codex"}, 3, 12, 14),
}


def test_every_folder_is_known(recorded: Path) -> None:
    there = {folder.name for folder in recorded.iterdir() if folder.is_dir()}
    assert there <= set(FOLDERS)


@pytest.mark.recordings(smoke=True)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_read_with_nothing_said(
    recorded: Path, name: str, counter: TokenCounter
) -> None:
    folder, known = recorded / name, FOLDERS[name]
    if not folder.is_dir():
        pytest.skip(f"no recordings of {name} beside the others")
    told: list[PathOrUrl] = []
    recordings = list(load(folder, on_skip=lambda place, reason: told.append(place)))
    lengths = [len(recording.messages) for recording in recordings]
    assert {recording.format for recording in recordings} == known.formats
    assert (len(recordings), median(lengths), max(lengths)) == known[1:4]
    assert {Path(place).suffix for place in told} <= {".md", ".txt"}  # the licence and the source
    assert len({recording.id for recording in recordings}) == len(recordings)
    if known.tool_share is not None:
        assert share_of_tools(recordings, counter) == pytest.approx(known.tool_share, abs=0.03)


def share_of_tools(recordings: list[Recording], counter: TokenCounter) -> float:
    """Return the share of tool results in the tokens of texts and arguments."""
    tool = every = 0
    for recording in recordings:
        for message in recording.messages:
            size = counter.count_text(message.text)
            tool += size * (message.role == "tool")
            every += size + sum(counter.count_text(call.arguments) for call in message.tool_calls)
    return tool / every
