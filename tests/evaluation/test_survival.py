"""Tests that a canary survives if the text that is sent contains its value."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from generated import conversations, limits
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from replaying import SPECS, Sent, run, strategies
from running import a_recording

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, ratio_interval
from ctxlab.evaluation.canaries import CANARY_KINDS, plant_canaries, read_canaries
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.canaries import (
    CanaryMetric,
    CanaryVisibility,
    measure_canary_visibility,
)
from ctxlab.evaluation.survival import (
    BREAKDOWNS,
    DISTANCE_LABELS,
    ROUND_LABELS,
    SurvivalResults,
    measure_survival,
)
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording, ToolCall, message_text
from ctxlab.strategies import Strategy, as_strategy, parse_strategy
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.counter import TokenCounter


def recordings(count: int = 6, turns: int = 14) -> list[Recording]:
    return [a_recording(number, turns) for number in range(count)]


def by_eye(sent: list[Sent], recording: Recording) -> CanaryVisibility:
    """Compute survival by searching all texts of all requests for each value."""
    canaries = read_canaries(recording)
    words = cache(padded_words)  # a text is sent again and again

    def holds(request: Sent, value: str | None) -> bool:
        return value is not None and any(words(value) in words(text) for text in request.texts)

    said = np.array([[s.position > c.position for s in sent] for c in canaries])
    kept = [[holds(request, canary.value) for request in sent] for canary in canaries]
    old = [[holds(request, canary.old) for request in sent] for canary in canaries]
    new, before = np.array(kept) & said, np.array(old) & said
    return CanaryVisibility(canaries, said, new[None], (before & ~new)[None], (before & new)[None])


def check(recording: Recording, strategy: Strategy, limit: int, counter: TokenCounter) -> None:
    prepared = PreparedRecording(recording, counter, format_probe=None)
    trace, sent = run(prepared, strategy, limit)
    found, eyes = measure_canary_visibility(prepared, [trace]), by_eye(sent, recording)
    for name in ("said_before", "in_view", "stale", "both_in_view"):
        assert getattr(found, name).tolist() == getattr(eyes, name).tolist(), name


def with_canaries(messages: tuple[Message, ...], n: int, seed: int) -> Recording:
    last = Message("assistant", "Done.")
    try:
        return plant_canaries(Recording("r", (*messages, last)), n, seed=seed)
    except SpecError:
        assume(False)
        raise


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(messages=conversations(), n=st.integers(1, 6), seed=st.integers(0, 9), limit=limits())
def test_a_canary_is_in_view_where_a_text_that_is_sent_holds_its_value(
    spec: str, messages: tuple[Message, ...], n: int, seed: int, limit: int, counter: TokenCounter
) -> None:
    check(with_canaries(messages, n, seed), parse_strategy(spec), limit, counter)


@settings(suppress_health_check=list(HealthCheck))
@given(
    messages=conversations(),
    order=st.lists(st.integers(0, 30), unique=True, max_size=12),
    strategy=strategies(),
    limit=limits(),
)
def test_the_same_holds_for_a_plain_function_behind_a_strategy(
    messages: tuple[Message, ...],
    order: list[int],
    strategy: Strategy,
    limit: int,
    counter: TokenCounter,
) -> None:
    def pick(old: list[Message]) -> list[Message]:
        return [*(old[i] for i in order if i < len(old)), Message("user", "go on")]

    both = parse_strategy("panic") | as_strategy(pick)
    check(with_canaries(messages, 3, 0), both, limit, counter)
    check(with_canaries(messages, 3, 0), strategy | as_strategy(pick), limit, counter)


def test_a_value_that_is_moved_into_another_message_is_still_in_view(counter: TokenCounter) -> None:
    talk = [Message("user" if i % 2 == 0 else "assistant", f"line {i}") for i in range(12)]
    recording = plant_canaries(Recording("r", tuple(talk)), 1, "fact", 0.2)
    (canary,) = read_canaries(recording)

    class moves:
        def __call__(self, context: Context) -> Context:
            place = canary.position
            if context.history_length == 9:
                text = context.entries[place].message.text
                context.replace(place, Message("user", "cut"), Form.TRUNCATED)
                context.replace(6, Message("user", f"as said: {text}"))
            if context.history_length == 11:
                context.drop(5, 8)
            return context

    prepared = PreparedRecording(recording, counter, format_probe=None)
    trace, sent = run(prepared, moves(), 10**6)
    assert measure_canary_visibility(prepared, [trace]).in_view[0, 0].tolist()[-2:] == [True, False]
    assert (
        measure_canary_visibility(prepared, [trace]).in_view.tolist()
        == by_eye(sent, recording).in_view.tolist()
    )


def test_values_in_parts_and_in_messages_with_calls_are_found(counter: TokenCounter) -> None:
    call = ToolCall("c", "read", "{}")
    talk = [Message("user", "go")]
    for i in range(8):
        talk += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", ({"type": "text", "text": f"result {i}"},), tool_call_id="c"),
        ]
    recording = plant_canaries(Recording("r", (*talk, Message("assistant", "done"))), 8)
    assert {c.role for c in read_canaries(recording)} == {"tool", "assistant"}
    for spec in ("full", "observation_mask(keep=1)", "tool_result_cap(chars=40)", "panic"):
        check(recording, parse_strategy(spec), 90, counter)


def survival(**options: object) -> SurvivalResults:
    specs = ("full", "rolling_summary", "observation_mask(keep=2)", "sliding_window", "nothing")
    return measure_survival(
        options.pop("recordings", recordings()),  # type: ignore[arg-type]
        options.pop("strategies", specs),  # type: ignore[arg-type]
        options.pop("limits", ("3k", 0.5)),  # type: ignore[arg-type]
        workers=1,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def found() -> SurvivalResults:
    return survival()


def test_full_history_keeps_all_and_never_goes_through_a_round(found: SurvivalResults) -> None:
    full = found.frame[found.frame["strategy"] == "full()"]
    assert (full["kept"] == full["requests"]).all()
    assert (full["end_kept"] == full["end"]).all()
    assert set(full["round"]) == {"0"}


def test_nothing_keeps_only_what_stands_in_the_newest_step(counter: TokenCounter) -> None:
    for recording in recordings(3):
        changed = plant_canaries(recording, 10)
        prepared = PreparedRecording(changed, counter, format_probe=None)
        trace, sent = run(prepared, "nothing", 10**6)
        seen = measure_canary_visibility(prepared, [trace])
        for row, canary in enumerate(seen.canaries):
            unit = prepared.history.unit_starts
            for turn, request in enumerate(sent):
                newest = unit[request.position - 1]
                assert seen.in_view[0, row, turn] == (newest <= canary.position < request.position)


def test_every_row_of_the_frame_sums_up_to_what_the_metric_counts(found: SurvivalResults) -> None:
    keys = ["recording", "strategy", "limit"]
    rows = found.frame.groupby(keys, observed=True)[
        ["requests", "kept", "end", "end_kept", "superseded", "stale", "both", "end_stale"]
    ].sum()
    runs = found.results.runs.set_index(keys).loc[rows.index]
    names = ["canaries", "canaries_kept", "canaries_end", "canaries_end_kept"]
    names += [f"canaries_{name}" for name in ("superseded", "stale", "both", "stale_end")]
    assert np.array_equal(rows.to_numpy(), runs[names].to_numpy())
    assert (rows["end"] == 10).all()


def test_the_metric_gives_the_same_in_any_evaluation_of_planted_recordings(
    found: SurvivalResults,
) -> None:
    specs = ("full", "rolling_summary", "observation_mask(keep=2)", "sliding_window", "nothing")
    changed = [plant_canaries(recording) for recording in recordings()]
    again = evaluate(changed, specs, ("3k", 0.5), metrics=("usage", "canaries"), workers=1)
    pd.testing.assert_frame_equal(again.requests, found.results.requests)


def test_the_end_is_what_the_probes_find_when_they_are_asked_there(found: SurvivalResults) -> None:
    changed = [plant_canaries(recording) for recording in recordings()]
    specs = ("full", "rolling_summary", "observation_mask(keep=2)", "nothing")
    asked = evaluate(changed, specs, "3k", metrics="probes", workers=1).requests
    sums = asked.groupby("strategy", observed=True)[["answer_seen", "answerable"]].sum()
    board = found.results.leaderboard()
    board = board[board["limit"] == 3000].set_index("strategy")["survival_end"]
    # A question comes one message later than the last request, by when one more may be gone.
    for strategy, (seen, whole) in sums.iterrows():
        assert abs(board[strategy] - seen / whole) <= 0.1, strategy
    assert tuple(sums.loc["full()"]) == (60, 60)


def test_a_recording_without_canaries_measures_nothing(counter: TokenCounter) -> None:
    prepared = PreparedRecording(a_recording(0), counter)
    trace = replay_trace(prepared, parse_strategy("full"), prepared.make_budget(1000))
    measured = CanaryMetric().measure(prepared, [trace, trace])
    assert all(values.shape == (2, 15) and not values.any() for values in measured.values())


def test_a_round_is_a_request_that_does_not_begin_with_all_of_the_one_before(
    counter: TokenCounter,
) -> None:
    found = survival(strategies=("rolling_summary", "sliding_window", "full"), limits="3k")
    for recording in recordings():
        changed = plant_canaries(recording)
        prepared = PreparedRecording(changed, counter, format_probe=None)
        for spec in ("rolling_summary()", "sliding_window()"):
            _, sent = run(prepared, spec, 3000)
            texts = [[m.to_dict() for m in request.messages] for request in sent]
            cuts = [False] + [later[: len(one)] != one for one, later in pairwise(texts)]
            rows = found.frame[found.frame["recording"] == recording.id]
            rows = rows[rows["strategy"] == spec]
            for canary in read_canaries(changed):
                first = sum(p <= canary.position for p in prepared.request_positions)
                passed = np.cumsum(cuts)[first:] - (np.cumsum(cuts)[first - 1] if first else 0)
                mine = rows[rows["canary"] == canary.id].groupby("round", observed=False)
                counted = mine["requests"].sum()
                for label in ("0", "1", "2", "3", "4"):
                    assert counted[label] == (passed == int(label)).sum()
                assert counted["5–8"] == ((passed >= 5) & (passed <= 8)).sum()


def test_a_rolling_summary_falls_off_a_cliff_and_a_mask_loses_what_tools_said() -> None:
    found = survival(recordings=recordings(6, turns=40), limits="5k", n=10)
    rounds = found.breakdown("round").set_index(["strategy", "round"])["survival"]
    summary = rounds["rolling_summary()"]
    assert summary["0"] == 1
    assert summary.drop("0").max() < 0.5
    roles = found.breakdown("role").set_index(["strategy", "role"])["survival_end"]
    assert roles["observation_mask(keep=2)", "assistant"] == 1
    assert roles["observation_mask(keep=2)", "tool"] < 0.3


def test_extraction_by_looks_keeps_paths_and_loses_plain_words() -> None:
    talk = [
        Message("user" if i % 2 == 0 else "assistant", f"Line {i}: " + "word " * 20)
        for i in range(400)
    ]
    chats = [Recording(f"chat-{i}", tuple(talk)) for i in range(5)]
    found = survival(recordings=chats, strategies="rolling_summary", limits="2k", n=25)
    kinds = found.breakdown("kind").set_index("kind")["survival_end"]
    assert kinds["path"] > 0.9
    assert kinds["fact"] < 0.5


def test_an_old_value_in_view_without_the_new_one_is_stale(counter: TokenCounter) -> None:
    talk = [Message("user" if i % 2 == 0 else "assistant", f"line {i}") for i in range(30)]
    recording = plant_canaries(Recording("r", tuple(talk)), 1, "superseded", 0.6)
    (canary,) = read_canaries(recording)
    assert canary.old_position is not None

    class forgets:
        def __call__(self, context: Context) -> Context:
            if context.history_length == 25:
                context.drop(canary.position, canary.position + 1)
            if context.history_length == 27:
                assert canary.old_position is not None
                context.drop(canary.old_position, canary.old_position + 1)
            return context

    prepared = PreparedRecording(recording, counter, format_probe=None)
    trace, _ = run(prepared, forgets(), 10**6)
    figures = CanaryMetric().measure(prepared, [trace])
    assert figures["canaries_stale"].tolist() == [[0] * 12 + [1] + [0] * 2]
    assert figures["canaries_both"].sum() == 12 - sum(
        p <= canary.position for p in prepared.request_positions
    )
    assert figures["canaries_superseded_end"].tolist() == [[0] * 14 + [1]]
    assert figures["canaries_stale_end"].sum() == 0


@pytest.mark.simulations(smoke=True)
@pytest.mark.parametrize("what", BREAKDOWNS)
def test_a_breakdown_adds_up_to_the_whole(found: SurvivalResults, what: str) -> None:
    parts, whole = found.breakdown(what), found.breakdown(None)
    assert len(whole) == 10
    assert set(parts[what]) == set(found.frame[what])
    totals = found.frame.groupby(["limit", "strategy", what], observed=True)[["requests", "kept"]]
    if what in ("round", "distance"):  # each canary weighs the same there
        keys = ["limit", "strategy", what]
        own = found.frame.groupby([*keys, "recording", "canary"], observed=True)
        sums = own[["kept", "requests"]].sum()
        shares = (sums["kept"] / sums["requests"]).groupby(level=keys, observed=True).mean()
    else:
        shares = totals.sum()["kept"] / totals.sum()["requests"]
    assert np.allclose(parts["survival"], shares)
    if what in ("kind", "depth", "role"):
        assert (parts.groupby(["limit", "strategy"])["canaries"].sum() == 60).all()
    board = found.results.leaderboard().sort_values(["limit", "strategy"])
    whole = whole.sort_values(["limit", "strategy"])
    for name in ("survival", "survival_end"):
        assert np.allclose(whole[name], board[name])


def test_intervals_are_those_of_the_bootstrap_over_clusters() -> None:
    many = [
        a_recording(number, 10).__class__(f"r{number}", a_recording(number, 10).messages)
        for number in range(6)
    ]
    found = survival(recordings=many, strategies="sliding_window", limits="2k")
    row = found.breakdown(None).iloc[0]
    sums = found.frame.groupby("cluster", observed=True)[["kept", "requests"]].sum()
    low, high = ratio_interval(sums[["kept"]].to_numpy(), sums[["requests"]].to_numpy())
    assert (row["survival_low"], row["survival_high"]) == (low[0], high[0])
    assert row["survival_low"] < row["survival"] < row["survival_high"]


def test_below_five_clusters_there_is_no_interval(found: SurvivalResults) -> None:
    assert found.results.cluster_count == 3 < MIN_CLUSTERS
    assert found.breakdown("kind")["survival_end_low"].isna().all()


def test_recordings_without_room_are_left_out_and_named() -> None:
    short = Recording("short", (Message("user", "hi"), Message("assistant", "hello")))
    found = survival(recordings=[short, *recordings(2)], strategies="full")
    assert found.skip_reasons == (
        "short: 10 canaries need 12 suitable messages before the last request, got 0; plant fewer, "
        "or leave the recording out",
    )
    assert found.canary_count == 20
    assert found.results.manifest["canaries"]["left_out"] == list(found.skip_reasons)
    with pytest.raises(SpecError, match="no canary could be planted: short"):
        survival(recordings=[short])


def test_canaries_that_are_there_are_taken_as_they_are() -> None:
    changed = plant_canaries(a_recording(0), 3, "fact", 0.5)
    found = survival(recordings=[changed], strategies="full")
    assert found.canary_count == 3
    assert set(found.frame["kind"]) == {"fact"}


def test_the_order_of_processes_changes_nothing(found: SurvivalResults) -> None:
    specs = ("full", "rolling_summary", "observation_mask(keep=2)", "sliding_window", "nothing")
    again = measure_survival(iter(recordings()), specs, ("3k", 0.5), workers=2)
    pd.testing.assert_frame_equal(again.frame, found.frame)


def test_what_makes_no_sense_is_said_before_anything_is_read() -> None:
    with pytest.raises(UnknownName, match="breakdown"):
        survival(strategies="full").breakdown("colour")
    with pytest.raises(SpecError, match="expected 1 to"):
        measure_survival(iter([]), n=0)
    with pytest.raises(SpecError, match="expected at least one recording, got none"):
        measure_survival([], "full")
    with pytest.raises(SpecError, match="got the path"):
        measure_survival("logs/")  # type: ignore[arg-type]


def test_it_shows_itself_in_a_notebook(found: SurvivalResults) -> None:
    shown = found._repr_html_()
    for words in (*CANARY_KINDS, "rolling_summary()", "60 canaries", "upper bound", "stale"):
        assert words in shown


def test_the_groups_are_in_order() -> None:
    assert len(set(ROUND_LABELS)) == len(ROUND_LABELS) == 9
    assert len(set(DISTANCE_LABELS)) == len(DISTANCE_LABELS) == 8


def test_text_of_a_message_with_a_canary_reads_on() -> None:
    (canary,) = read_canaries(changed := plant_canaries(a_recording(0), 1, "path", 0.5))
    text = message_text(changed.messages[canary.position])
    assert text.endswith(f"are kept in {canary.value} for now.")
    assert "\nThe plans" in text


@pytest.mark.parametrize("name", ["claude-code-entireio", "mini-swe-agent"])
def test_on_real_recordings_a_canary_survives_where_a_reader_finds_it(
    recorded: Path, name: str, counter: TokenCounter
) -> None:
    if not (recorded / name).is_dir():
        pytest.skip(f"no recordings of {name} beside the others")
    found = sorted(load(recorded / name, on_error="skip"), key=lambda r: len(r.messages))
    for recording in [r for r in found if len(r.messages) > 60][:1]:
        changed = plant_canaries(recording, 15)
        for spec in DEFAULT_LINEUP:
            check(changed, parse_strategy(spec), 16_000, counter)


def test_on_real_recordings_a_rolling_summary_has_a_cliff_and_a_mask_forgets_tools(
    recorded: Path,
) -> None:
    if not (recorded / "mini-swe-agent").is_dir():
        pytest.skip("no recordings of mini-swe-agent beside the others")
    found = survival(
        recordings=list(load(recorded / "mini-swe-agent", on_error="skip")),
        strategies=("rolling_summary", "observation_mask(keep=10)"),
        limits="16k",
        n=25,
    )
    rounds = found.breakdown("round").set_index(["strategy", "round"])["survival"]
    assert rounds["rolling_summary()", "0"] == 1
    assert rounds["rolling_summary()", "1"] > 2 * rounds["rolling_summary()", "2"]
    kinds = found.breakdown("kind").set_index(["strategy", "kind"])["survival_end"]
    assert kinds["rolling_summary()", "fact"] < kinds["rolling_summary()", "path"]
    assert kinds["observation_mask()", "fact"] < 0.3 < kinds["observation_mask()", "decision"]
