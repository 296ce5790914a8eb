"""Tests of ``find_refetches``, which finds the results that were fetched again after a compaction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compacting import cleared, summarised

from ctxlab.errors import SpecError
from ctxlab.evaluation.refetch import find_refetches, refetch_evidence, with_simulated_compactions
from ctxlab.evaluation.replay import replay
from ctxlab.formats import load
from ctxlab.messages.entities import normalize_path
from ctxlab.messages.types import Message, Recording, ToolCall

FOLDERS = ("claude-code-entireio", "pi-mono")


def step(tool: str, argument: str, result: str = "fine") -> list[Message]:
    key = {"bash": "command", "grep": "pattern"}.get(tool, "path")
    call = ToolCall(f"{tool} {argument}", tool, f'{{"{key}": "{argument}"}}')
    return [
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", result, tool_call_id=call.id),
    ]


BEFORE = [
    Message("user", "Mend the reader."),
    *step("read", "src/named.py"),
    *step("read", "src/whole.py"),
    *step("read", "src/gone.py"),
    *step("read", "src/gone.py"),
    *step("read", "src/missing.py", "Error: no such file"),
    *step("grep", "read_rows"),
    *step("bash", "make"),
    *step("edit", "src/made.py"),
    *step("read", "src/kept.py"),
]
AFTER = [
    *step("edit", "src/kept.py"),
    *step("bash", "wc -l src/whole.py"),
    *step("read", "src/whole.py"),
    *step("read", "src/named.py"),
    *step("grep", "read_rows"),
    Message("assistant", "Done."),
]
HERE = len(BEFORE)
SUMMARY = summarised(
    BEFORE, HERE, "named.py is next, then src/whole.py.", kept=(HERE - 2, HERE - 1)
)
LOG = Recording("log", (*BEFORE, *AFTER), compactions=(SUMMARY,))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return find_refetches([LOG]).set_index("key")


def test_things_are_what_was_fetched_and_not_what_failed_or_was_written(rows: pd.DataFrame) -> None:
    files = ["src/named.py", "src/whole.py", "src/gone.py", "src/kept.py"]
    assert sorted(rows.index) == sorted([*files, "grep: read_rows", "make"])
    assert rows.loc["src/gone.py", "times"] == 2
    assert set(rows["how"]) == {"summary"}
    assert set(rows["span"]) == {6}


def test_a_thing_is_in_view_where_what_is_sent_contains_it_whole(rows: pd.DataFrame) -> None:
    seen = {key: value for key, value in rows["seen"].items() if key != "make"}
    assert seen == {
        "src/named.py": False,
        "src/whole.py": True,
        "src/gone.py": False,
        "src/kept.py": True,
        "grep: read_rows": False,
    }
    assert rows["seen"].isna()["make"]  # no typed token: the metrics do not look for it
    assert rows["named"].loc[["src/named.py", "src/gone.py"]].tolist() == [True, False]


def test_its_content_is_there_where_a_result_stands_word_for_word(rows: pd.DataFrame) -> None:
    assert rows.index[rows["content"].astype(bool)].tolist() == ["src/kept.py"]


def test_when_it_is_fetched_and_used_again_is_counted_in_requests(rows: pd.DataFrame) -> None:
    again = rows["again"].dropna().to_dict()
    assert again == {"src/whole.py": 2, "src/named.py": 3, "grep: read_rows": 4}
    assert rows["used"].dropna().to_dict() == {
        "src/kept.py": 0,
        "src/whole.py": 1,
        "src/named.py": 3,
    }
    assert rows["first"].dropna().to_dict() == {
        "src/kept.py": "edits",
        "src/whole.py": "looks",
        "src/named.py": "fetches",
    }


def test_the_gap_is_tokens_since_it_was_last_fetched(rows: pd.DataFrame) -> None:
    assert rows.loc["src/kept.py", "gap"] == 0
    assert rows.loc["src/gone.py", "gap"] < rows.loc["src/named.py", "gap"]


def test_a_cleared_result_leaves_the_path_in_view_and_not_the_content() -> None:
    clear = cleared(BEFORE, HERE, ["read src/whole.py"])
    found = find_refetches([Recording("log", LOG.messages, compactions=(clear,))]).set_index("key")
    assert found.loc["src/whole.py", "seen"]
    assert not found.loc["src/whole.py", "content"]
    assert found.loc["src/named.py", "content"]


def test_after_a_second_compaction_the_first_is_over() -> None:
    again = summarised(LOG.messages, HERE + 6, "Nothing.")
    found = find_refetches([Recording("log", LOG.messages, compactions=(again, SUMMARY))])
    first, second = (rows.set_index("key") for _, rows in found.groupby("point"))
    assert set(first["span"]) == {3}
    assert first["again"].dropna().to_dict() == {"src/whole.py": 2}
    assert second["again"].dropna().to_dict() == {"src/named.py": 0, "grep: read_rows": 1}


def test_points_without_a_compaction_have_all_in_view() -> None:
    plain = find_refetches([Recording("log", LOG.messages)], control_every=4)
    assert set(plain["how"]) == {"none"}
    assert plain["content"].all()
    assert find_refetches([Recording("log", LOG.messages)]).empty
    both = find_refetches([LOG], control_every=4)
    assert (both["how"] == "none").any()
    # What was fetched before the compaction is no longer counted on after it.
    late = both[(both["how"] == "none") & (both["point"] == both["point"].max())]
    assert "src/gone.py" not in set(late["key"])


def test_a_path_is_no_recording() -> None:
    with pytest.raises(SpecError, match="expected recordings, got the path"):
        find_refetches("logs/")  # type: ignore[arg-type]


def test_evidence_finds_what_was_planted() -> None:
    """Agents that look again at exactly what is gone, and edit unseen what stands."""
    logs = []
    for number in range(8):
        said = [Message("user", "go")]
        for i in range(6):
            said += step("read", f"src/file_{i}.py")
        here = len(said)
        for i in range(6):
            said += step("read" if i < 3 else "edit", f"src/file_{i}.py")
        kept = tuple(range(7, here))
        logs.append(
            Recording(
                f"log {number}",
                tuple(said),
                compactions=(summarised(said, here, "-", kept),),
            )
        )
    found = refetch_evidence(find_refetches(logs)).set_index(["question", "matched"])
    lost = found.loc[("fetched again: whole name lost", "compaction")]
    assert (lost["first"], lost["second"], lost["counted"]) == (1, 0, (24, 24))
    assert np.isnan([lost["low"], lost["high"]]).all()  # all recordings say the same
    assert lost["p"] == 2 / 2**8
    assert found.loc[("looked at first, if used: path lost", "compaction"), "estimate"] == 1
    assert np.isnan(found.loc[("looked at first, if used: result gone", "recording"), "estimate"])


def test_a_pretended_compaction_stands_where_the_strategy_compacted() -> None:
    made = with_simulated_compactions(
        LOG, "rolling_summary(trigger=0.3, target=0.2, keep_recent=2)", 1.0
    )
    assert made.compactions
    for each in made.compactions:
        assert each.position in LOG.request_positions
        assert each.summary
        assert all(place < each.position for place in each.kept)
    assert made.messages == LOG.messages
    assert set(find_refetches([made])["how"]) == {"summary"}


# --- real logs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logs(recorded: Path) -> list[Recording]:
    folders = [recorded / name for name in FOLDERS]
    if not all(map(Path.is_dir, folders)):
        pytest.skip("no recordings with compactions beside the others")
    return [log for folder in folders for log in load(folder, on_error="skip")]


@pytest.fixture(scope="module")
def things(logs: list[Recording]) -> pd.DataFrame:
    return find_refetches(logs, control_every=20)


@pytest.mark.e2e
def test_every_compaction_that_a_request_follows_is_looked_at(
    logs: list[Recording], things: pd.DataFrame
) -> None:
    after = things[things["how"] != "none"]
    points = after.groupby("recording")["point"].nunique().to_dict()
    assert points == {log.id: len(log.compactions) for log in logs if log.compactions}
    assert len(points) >= 5
    assert len(after) > 300
    assert set(after["kind"]) >= {"file", "search", "command"}


def test_in_view_means_what_recall_means(logs: list[Recording], things: pd.DataFrame) -> None:
    """A file that the first request after a point uses is a need there, and has the same tier."""
    compared = 0
    used = things[(things["kind"] == "file") & (things["used"] == 0) & (things["how"] != "none")]
    for log in logs:
        mine = used[used["recording"] == log.id]
        if mine.empty:
            continue
        needs = replay(log, "recorded", 10**7, "gpt-5").needs
        starts = [min(p for p in log.request_positions if p >= c.position) for c in log.compactions]
        for row in mine.itertuples():
            entity = normalize_path(row.key, log.meta.get("cwd", ""))
            same = needs[(needs["position"] == starts[row.point]) & (needs["entity"] == entity)]
            for tier in same["tier"]:
                assert (tier in ("held", "named")) == row.seen
                compared += 1
    assert compared


@pytest.mark.parametrize("within", [10, 20])
def test_what_the_notebook_says_comes_out(things: pd.DataFrame, within: int) -> None:
    found = refetch_evidence(things, within).set_index(["question", "matched"])
    # The metric's own rule tells nothing here: an interval around nothing.
    for matched in ("compaction", "compaction, age"):
        whole = found.loc[("fetched again: whole name lost", matched)]
        assert whole["low"] < 0 < whole["high"]
    # A file that is not even named is fetched again less often: the summary names what goes on.
    named = found.loc[("fetched again: file not even named", "compaction")]
    assert named["hits"][0] == 0 < named["hits"][1]
    assert named["estimate"] < 0 < named["high"]
    # With its content gone a file is looked at before it is edited, more often than where it stands.
    content = found.loc[("looked at first, if used: result gone", "recording")]
    assert content["first"] == 1
    assert content["low"] > 0
    # Among files as old that is not told apart, and over recordings no p is small.
    older = found.loc[("looked at first, if used: result gone", "recording, age")]
    assert older["low"] < 0 < older["estimate"]
    assert found["p"].min() > 0.05


def test_where_nothing_was_lost_selection_alone_goes_the_other_way(logs: list[Recording]) -> None:
    whole = [log for log in logs if not log.compactions and "parent" not in log.meta]
    found = refetch_evidence(find_refetches([with_simulated_compactions(log) for log in whole]), 20)
    lost = found.set_index(["question", "matched"]).loc[
        ("fetched again: whole name lost", "compaction")
    ]
    assert lost["clusters"] == len(whole)
    assert lost["estimate"] < 0
