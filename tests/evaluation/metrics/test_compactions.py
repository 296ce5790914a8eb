"""Tests of compactions against a comparison of all sent messages, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compacting import cleared, summarised
from generated import TOOLS, conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from replaying import Sent, run, strategies

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.compactions import (
    COMPACTION_KINDS,
    READ_AGAIN_REQUESTS,
    CompactionMetric,
    find_compactions,
)
from ctxlab.evaluation.replay import replay
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.messages.file_access import is_tool_error
from ctxlab.messages.tool_lookups import parse_fetch_target
from ctxlab.messages.types import Compaction, Message, Recording, ToolCall
from ctxlab.strategies import Strategy
from ctxlab.tokens.counter import TokenCounter

SCORES = ("compaction_rate", "freed_mean", "rewritten_share", "small_share", "requests_between")

# A copy of the context is sent at some or all requests of these strategies.
COPYING = (
    "panic()",
    "random_drop(3)",
    "middle_out(tokens=150)",
    "rolling_summary(0.3, 0.1) | panic()",
    "file_sessions() | tool_stubs() | sliding_window() | panic()",
    "contents(0.4, 0.3) | retrieval(k=3, share=0.4) | panic()",
    "observation_mask(keep=1) | random_drop(1)",
)


@st.composite
def repeated_reads(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation of different messages, whose tool calls read one of three files.

    The replay may take a message for a new one if it moves to the place of an equal one.
    """
    messages = draw(conversations(turns=8) | strange_conversations())
    count = sum(len(message.tool_calls) for message in messages)
    files = iter(draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count)))
    return tuple(
        message.replace(
            content=numbered(number, message.content),
            tool_calls=tuple(
                ToolCall(call.id, "read", f'{{"path": "src/{next(files)}.py"}}')
                for call in message.tool_calls
            ),
        )
        for number, message in enumerate(messages)
    )


def numbered(number: int, content: Any) -> Any:
    if isinstance(content, tuple):
        return ({"type": "text", "text": f"part {number}"}, *content)
    return f"{content or ''} {number}"


def by_eye(prepared: PreparedRecording, sent: Sequence[Sent]) -> list[dict[str, Any]]:
    """Find the compactions of a replay by comparing the messages of consecutive requests."""
    count = prepared.counter.count_request
    tools, messages = prepared.recording.tools, prepared.recording.messages
    sizes = [count(each.messages, tools) for each in sent]
    found = []
    for number in range(1, len(sent)):
        before, now = sent[number - 1], sent[number]
        if now.messages[: len(before.messages)] == before.messages:
            continue
        same = 0
        while same < min(len(before.messages), len(now.messages)) and (
            before.messages[same] == now.messages[same]
        ):
            same += 1
        unedited = [*before.messages, *messages[before.position : now.position]]
        whole, kept = count(now.messages, ()), count(now.messages[:same], ())
        empty = count([], ())
        grown = [i for i in range(number + 1, len(sent)) if sizes[i] >= count(unedited, tools)]
        found.append(
            {
                "request": number,
                "position": now.position,
                "tokens_before": count(unedited, tools),
                "tokens_after": sizes[number],
                "rewritten_share": (whole - kept) / max(whole - empty, 1),
                "requests_until_limit": grown[0] - number if grown else np.nan,
                "read_again": calls_by_eye(prepared, before, now, number),
            }
        )
    numbers = [row["request"] for row in found]
    for row, following in zip(found, [*numbers[1:], np.nan], strict=False):
        row["requests_until_next"] = following - row["request"]
    return found


def calls_by_eye(prepared: PreparedRecording, before: Sent, now: Sent, request: int) -> int:
    """Count the calls in ten replies that fetch what only the request before contains verbatim."""
    messages, calls = prepared.recording.messages, prepared.history.calls_by_result
    was, stands = (
        {e.start for e in each.entries if e.form is Form.VERBATIM} for each in (before, now)
    )
    results = [
        place for place in (was - stands) & calls.keys() if not is_tool_error(messages[place])
    ]
    gone = {parse_fetch_target(calls[place]) for place in results} - {None}
    replies = prepared.request_positions[request : request + READ_AGAIN_REQUESTS]
    made = [call for place in replies for call in messages[place].tool_calls]
    return sum(parse_fetch_target(call) in gone for call in made)


def table_of(prepared: PreparedRecording, trace: Trace) -> pd.DataFrame:
    return pd.DataFrame(find_compactions(prepared, [trace]).columns())


def check(prepared: PreparedRecording, strategy: Strategy | str, limit: int) -> None:
    trace, sent = run(prepared, strategy, limit)
    table, expected = table_of(prepared, trace), by_eye(prepared, sent)
    assert len(table) == len(expected)
    numbers = table.drop(columns="kind").astype(float)  # a missing number is nan
    for row, seen in zip(numbers.to_dict("records"), expected, strict=True):
        assert {name: row[name] for name in seen} == pytest.approx(seen, nan_ok=True)
    columns = {
        name: rows[0] for name, rows in CompactionMetric().measure(prepared, [trace]).items()
    }
    assert np.flatnonzero(columns["compacted"]).tolist() == table["request"].tolist()
    sums = {name: values.sum() for name, values in columns.items()}
    assert sums["freed_tokens"] == table["freed"].sum()
    assert sums["compacted_tokens"] == (table["tokens_after"] - prepared.fixed_tokens).sum()
    rewritten = table["rewritten_share"] * (table["tokens_after"] - prepared.fixed_tokens)
    assert sums["rewritten_tokens"] == pytest.approx(rewritten.sum())
    assert sums["small_compaction"] == (table["freed_share"] < 0.1).sum()
    assert sums["repeated_compaction"] == max(len(table) - 1, 0)
    assert sums["requests_since_compaction"] == table["requests_until_next"].sum()


@given(messages=repeated_reads(), strategy=strategies(), limit=limits())
def test_every_compaction_is_found_and_measured_as_the_sent_messages_show(
    messages: tuple[Message, ...], strategy: Strategy, limit: int, counter: TokenCounter
) -> None:
    check(prepare_messages(messages, counter, TOOLS), strategy, limit)


@pytest.mark.parametrize("strategy", COPYING)
@given(messages=repeated_reads(), limit=limits())
def test_compactions_of_copied_contexts_are_found_too(
    strategy: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    check(prepare_messages(messages, counter), strategy, limit)


@given(messages=repeated_reads(), limit=limits())
def test_full_history_has_no_compaction(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, _ = run(prepared, "full", limit)
    assert table_of(prepared, trace).empty
    assert not any(rows.any() for rows in CompactionMetric().measure(prepared, [trace]).values())


def reading(reads: int = 12, again: Sequence[int] = ()) -> Recording:
    """Return a recording of an agent that reads a new file in each request, or file 0 in ``again``."""
    messages = [Message("system", "You mend code."), Message("user", "Mend it.")]
    for i in range(reads):
        call = ToolCall(f"c{i}", "read", f'{{"path": "src/{0 if i in again else i}.py"}}')
        text = f"part {i} " + "word " * 200
        messages += [
            Message("assistant", tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    return Recording("reads", (*messages, Message("assistant", "Done.")))


@pytest.mark.parametrize("kind", ["summary", "stub"])
def test_one_logged_compaction_is_one_compaction_of_recorded(kind: str) -> None:
    plain = reading(again=(9,))
    made: Compaction = (
        summarised(plain.messages, 12, "Five files were read.", kept=[0])
        if kind == "summary"
        else cleared(plain.messages, 12, ["c0", "c1"])
    )
    table = replay(structs.replace(plain, compactions=(made,)), "recorded", 0.5).compactions
    (row,) = table.to_dict("records")
    assert (row["request"], row["position"], row["kind"]) == (5, 12, kind)
    assert (row["read_again"], row["freed"] > 0) == (1, True)
    assert pd.isna(row["requests_until_next"])
    assert replay(plain, "recorded", 0.5).compactions.empty


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("rolling_summary()", "summary"),
        ("observation_mask(keep=2)", "stub"),
        ("tool_result_cap(chars=60) | sliding_window(messages=4)", "drop"),
        ("sliding_window(messages=4)", "drop"),
        ("panic()", "panic"),
        ("middle_out()", "rebuilt"),
    ],
)
def test_the_kind_names_what_replaced_the_messages(strategy: str, kind: str) -> None:
    assert set(replay(reading(), strategy, 0.4).compactions["kind"]) == {kind}


def test_an_edit_of_one_request_is_undone_by_a_compaction_of_the_next_one() -> None:
    class shortens_one_request:
        def __call__(self, context: Context) -> Context:
            return context.fork_with(2, 4, []) if context.request_index == 4 else context

    table = replay(reading(), shortens_one_request(), 0.9).compactions
    assert table[["request", "kind"]].to_numpy().tolist() == [[4, "rebuilt"], [5, "rebuilt"]]
    assert table["freed"].iloc[0] == -table["freed"].iloc[1] > 0


def test_a_message_that_is_shortened_before_it_is_sent_is_no_compaction() -> None:
    close = replay(reading(), "tool_result_cap(chars=60)", 0.5)
    assert close.compactions.empty
    assert close.trace.tokens[-1] < close.prepared.longest_request_tokens / 2


@pytest.mark.parametrize(("again", "calls"), [((), 0), ((6,), 1), ((4, 13, 14), 2), ((3,), 0)])
def test_calls_count_from_the_compaction_on_for_ten_requests(
    again: Sequence[int], calls: int
) -> None:
    class drops_the_first_result:
        def __call__(self, context: Context) -> Context:
            if context.request_index == 4:
                context.drop(2, 4)
            return context

    table = replay(reading(16, again), drops_the_first_result(), 0.9).compactions
    assert table[["request", "read_again"]].to_numpy().tolist() == [[4, calls]]


STRATEGIES = (
    "full",
    "rolling_summary | panic",
    "observation_mask(keep=3) | panic",
    "random_drop()",
)


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return list(load("bundled:support-desk"))[:6]


@pytest.fixture(scope="module")
def found(recordings: list[Recording]) -> Results:
    strategies = [*STRATEGIES, "random_drop(seed=0)"]
    return evaluate(recordings, strategies, (0.3, 0.6), workers=1, progress=False)


def test_each_row_adds_up_and_belongs_to_a_request(found: Results) -> None:
    table, keys = (
        found.compactions,
        ["recording", "cluster", "strategy", "limit", "budget", "request"],
    )
    assert (table["freed"] + table["tokens_after"] == table["tokens_before"]).all()
    assert (table["freed_share"] * table["tokens_before"] - table["freed"]).abs().max() < 1e-6
    rows = table.merge(found.requests, on=keys, validate="one_to_one")
    assert len(rows) == len(table) > 100
    assert (rows["tokens_after"] == rows["tokens"])[rows["strategy"] != "random_drop()"].all()
    once = found.requests[found.requests["strategy"] != "random_drop()"]
    assert once["compacted"].sum() == (table["strategy"] != "random_drop()").sum()


def test_scores_summarise_the_table(found: Results) -> None:
    board = found.leaderboard().set_index(["limit", "strategy"])
    for (limit, strategy), rows in found.compactions.groupby(["limit", "strategy"], observed=True):
        if strategy == "random_drop()":
            continue
        sent = rows["tokens_after"] - fixed_tokens(found, rows)
        expected = (
            len(rows) / board.loc[(limit, strategy), "requests"],
            rows["freed"].mean(),
            (rows["rewritten_share"] * sent).sum() / sent.sum(),
            (rows["freed_share"] < 0.1).mean(),
            rows["requests_until_next"].mean(),
        )
        assert board.loc[(limit, strategy), list(SCORES)].tolist() == pytest.approx(expected)
    for limit in (0.3, 0.6):
        full = board.loc[(limit, "full()")]
        assert full["compaction_rate"] == 0
        assert full[list(SCORES[1:])].isna().all()


def fixed_tokens(found: Results, rows: pd.DataFrame) -> pd.Series[int]:
    """Return the tokens of tools and framing for each row."""
    counter = TokenCounter("gpt-4o")
    fixed = {r.id: PreparedRecording(r, counter).fixed_tokens for r in load("bundled:support-desk")}
    return rows["recording"].astype(str).map(fixed)


def test_the_table_of_a_random_control_is_that_of_its_first_seed(found: Results) -> None:
    keys = ["strategy"]
    table = found.compactions
    mean, first = (
        table[table["strategy"] == name].drop(columns=keys).reset_index(drop=True)
        for name in ("random_drop()", "random_drop(seed=0)")
    )
    pd.testing.assert_frame_equal(mean, first)
    board = found.leaderboard().set_index("strategy")
    assert (board.loc["random_drop()", "compaction_rate"] > 0).all()


def test_a_strategy_that_ignores_its_budget_has_the_same_rows_under_each_limit(
    recordings: list[Recording],
) -> None:
    limits = (0.3, 0.6)
    table = evaluate(recordings, "observation_mask(keep=2)", limits, progress=False).compactions
    low, high = (table[table["limit"] == limit].reset_index(drop=True) for limit in limits)
    assert (low["budget"] < high["budget"]).all()
    assert low.drop(columns=["limit", "budget"]).equals(high.drop(columns=["limit", "budget"]))


def test_the_number_of_processes_changes_nothing(recordings: list[Recording]) -> None:
    one, two = (
        evaluate(recordings, STRATEGIES, 0.3, workers=count, progress=False) for count in (1, 2)
    )
    assert one.compactions.equals(two.compactions)


@pytest.mark.parametrize("strategies", [STRATEGIES, ("full",)])
def test_saved_results_keep_the_table(
    strategies: tuple[str, ...], recordings: list[Recording], tmp_path: Path
) -> None:
    saved = evaluate(recordings[:2], strategies, 0.3, workers=1, progress=False)
    loaded = Results.load(saved.save(tmp_path))
    pd.testing.assert_frame_equal(loaded.compactions, saved.compactions)
    assert loaded.equals(saved)
    assert list(loaded.compactions["kind"].cat.categories) == list(COMPACTION_KINDS)
    if not saved.compactions.empty:
        loaded.compactions.loc[0, "freed"] += 1
        assert not loaded.equals(saved)


def test_a_run_saved_without_the_table_says_so_and_saves_none(
    recordings: list[Recording], tmp_path: Path
) -> None:
    folder = evaluate(recordings[:2], "panic", 0.3, workers=1, progress=False).save(tmp_path)
    (folder / "compactions.parquet").unlink()
    old = Results.load(folder)
    with pytest.raises(SpecError, match=r"no table of compactions.*run ctxlab eval again"):
        _ = old.compactions
    assert old.leaderboard()["compaction_rate"].notna().all()
    assert Results.load(old.save(folder)).equals(old)
    assert not (folder / "compactions.parquet").exists()


def test_a_damaged_table_is_an_error(recordings: list[Recording], tmp_path: Path) -> None:
    folder = evaluate(recordings[:2], "panic", 0.3, workers=1, progress=False).save(tmp_path)
    (folder / "compactions.parquet").write_bytes(b"PAR1")
    with pytest.raises(ReadError, match="not a saved evaluation"):
        Results.load(folder)


def test_recordings_without_a_request_have_no_rows(recordings: list[Recording]) -> None:
    quiet = Recording("quiet", (Message("user", "hello?"),))
    found = evaluate([quiet, recordings[0]], STRATEGIES, 0.3, workers=1, progress=False)
    assert set(found.compactions["recording"]) == {recordings[0].id}
    assert replay(quiet, "panic", 100).compactions.empty


def test_compactions_of_real_logs_are_those_that_the_product_logged(recorded: Path) -> None:
    counts = []
    for recording in load([recorded / "claude-code-entireio"]):
        table = replay(recording, "recorded", 100_000).compactions
        assert len(table) == len(recording.compactions)
        assert (table["freed"] > 0).all()
        counts.append(len(table))
    assert sum(counts) > 5
