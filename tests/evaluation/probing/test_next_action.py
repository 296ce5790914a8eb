"""Tests of the next-action evaluation, which compares a model's calls with the recorded ones."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from continuing import RECORDINGS, SCRIPT, WINDOW, asked, board, scripted
from hypothesis import given
from hypothesis import strategies as st
from running import a_recording

from ctxlab.errors import SpecError
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.probing.next_action import sample_stretches
from ctxlab.evaluation.probing.results import NextActionResults
from ctxlab.formats import load
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.strategies.registry import DEFAULT_LINEUP

# --- what comes out ---------------------------------------------------------------------------------


def test_a_model_that_needs_what_it_uses_agrees_less_the_less_it_is_sent() -> None:
    found = board(asked())["agrees_both"]
    assert found["full()"] == 1
    assert 1 > found[WINDOW] > found["nothing()"] > 0


def test_shares_are_counts_of_what_agrees_with_the_recorded_calls() -> None:
    found = asked(requests=0, strategies=[WINDOW])
    texts, hits, total = 0, 0, 0
    for row in found.answers.itertuples():
        each = next(r for r in RECORDINGS if r.id == row.recording)
        (call,) = each.messages[row.position].tool_calls
        said = row.said.split("(", 1)
        hits += said[0] == call.name and json.loads(said[1][:-1]) == json.loads(call.arguments)
        total += 1
        texts += not row.said
    assert total == sum(len(each.request_positions) - 1 for each in RECORDINGS)
    assert board(found)["agrees_both"][WINDOW] == pytest.approx(hits / total)
    assert board(found)["agrees_name"][WINDOW] == pytest.approx(hits / total)


def test_an_interval_over_clusters_stands_beside_every_share() -> None:
    found = board(asked()).loc[WINDOW]
    assert found["agrees_both_low"] < found["agrees_both"] < found["agrees_both_high"]


def test_every_configuration_is_asked_about_the_same_requests() -> None:
    frame = asked(limits=[2000, 100_000]).answers
    places = frame.groupby(["strategy", "limit"])[["recording", "position"]].apply(
        lambda rows: list(rows.itertuples(index=False, name=None))
    )
    assert len(places) == 6
    assert len({tuple(rows) for rows in places}) == 1


def test_late_requests_are_among_those_that_are_drawn() -> None:
    frame = asked(requests=5).answers
    for _, positions in frame.groupby("recording")["position"]:
        chosen = sorted(set(positions))
        last = RECORDINGS[0].request_positions[-2]
        assert len(chosen) == 5
        assert chosen[0] <= last / 5 + 2
        assert chosen[-1] >= last * 4 / 5 - 2


@given(st.integers(0, 60), st.integers(0, 20), st.integers(0, 3))
def test_one_of_each_stretch_is_drawn(size: int, count: int, seed: int) -> None:
    among = [3 * i for i in range(size)]
    picked = sample_stretches(among, count, (seed,))
    assert len(picked) == (size if not 0 < count < size else count)
    assert list(picked) == sorted(set(picked) & set(among))
    if 0 < count < size:
        edges = [size * i // count for i in range(count + 1)]
        assert all(
            among[a] <= p < 3 * b for p, a, b in zip(picked, edges[:-1], edges[1:], strict=True)
        )


def test_the_same_seed_draws_the_same_whatever_else_is_read() -> None:
    alone = asked(recordings=RECORDINGS[3:4]).answers
    among = asked().answers
    assert list(alone["position"]) == list(among[among["recording"] == "order-3"]["position"])
    assert list(alone["position"]) != list(
        asked(recordings=RECORDINGS[3:4], seed=1).answers["position"]
    )


@pytest.mark.e2e
def test_differing_draws_only_where_something_is_left_out() -> None:
    all_of_them, found = asked(strategies=WINDOW), asked(strategies=WINDOW, only_changed=True)
    assert 0 < board(all_of_them)["differs_rate"][WINDOW] < 1
    assert board(found)["differs_rate"][WINDOW] == 1
    assert board(found)["agrees_both"][WINDOW] < board(all_of_them)["agrees_both"][WINDOW]
    with pytest.raises(SpecError, match="no strategy changes any request"):
        asked(strategies="full", only_changed=True)


@pytest.mark.e2e
def test_turns_without_a_call_are_asked_only_when_they_are_wanted() -> None:
    def chatty(request: Request) -> Message:
        return (
            Message("assistant", "Well.") if len(request.messages) % 4 else SCRIPT(request.messages)
        )

    without = asked(ScriptedClient(chatty), "full", requests=0)
    found = asked(ScriptedClient(chatty), "full", requests=0, include_text_only=True)
    assert len(found.answers) == len(without.answers) + len(RECORDINGS)
    assert board(without)["text_only_rate"]["full()"] > 0
    assert board(found)["agrees_text"]["full()"] == 1
    assert board(found)["agrees_both"].equals(board(without)["agrees_both"])
    last = found.answers[found.answers["recorded"] == ""]
    assert last["name"].isna().all()


def test_replicates_show_how_often_the_model_agrees_with_itself() -> None:
    def moody(request: Request) -> Message:
        other = Message("assistant", tool_calls=(ToolCall("y", "list_files", "{}"),))
        return other if request.replicate == 2 else SCRIPT(request.messages)

    found = board(asked(ScriptedClient(moody), "full", replicates=3))
    assert found["agrees_self"]["full()"] == pytest.approx(1 / 3)
    assert found["agrees_both"]["full()"] == pytest.approx(2 / 3)
    assert math.isnan(board(asked())["agrees_self"]["full()"])


def test_the_frame_has_a_row_a_request_strategy_limit_and_replicate() -> None:
    found = asked(limits=[2000, 4000], replicates=2, requests=3)
    keys = ["recording", "strategy", "limit", "position", "replicate"]
    assert len(found.answers) == 6 * 3 * 2 * 3 * 2
    assert not found.answers.duplicated(keys).any()
    first = found.answers.iloc[0]
    assert first["recorded"].startswith("read_file({")
    assert first["said"].startswith(("read_file({", "list_files({"))


def test_results_are_sums_of_the_frame() -> None:
    found = asked(replicates=2)
    keys = ["recording", "strategy", "limit", "position"]
    sums = found.answers.groupby(keys, sort=False)[
        ["asked", "calls", "name", "both", "prompt"]
    ].sum()
    requests = found.requests.astype({"recording": str, "strategy": str, "position": int})
    assert np.allclose(requests.set_index(keys)[sums.columns].sort_index(), sums.sort_index())


# --- what is asked ----------------------------------------------------------------------------------


def test_equal_requests_are_asked_once() -> None:
    client = scripted()
    found = asked(client, ["full", "panic", "full | panic", WINDOW], limits=[50_000, 100_000])
    contexts = {tuple(map(repr, request.messages)) for request in client.requests}
    assert len(client.requests) == len(contexts)
    assert len(found.answers) == 6 * 12 * 4 * 2
    same = found.answers[found.answers["strategy"] != WINDOW]
    assert same.groupby(["recording", "position"])["said"].nunique().max() == 1


def test_what_is_sent_is_what_the_replay_sends_and_nothing_later() -> None:
    client = scripted()
    asked(client, "full", requests=0, recordings=RECORDINGS[:1])
    sent = [request.messages for request in client.requests]
    messages = RECORDINGS[0].messages
    assert sent == [messages[:position] for position in RECORDINGS[0].request_positions[:-1]]


def test_definitions_are_the_recorded_ones_else_those_that_the_calls_show() -> None:
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    with_tools = msgspec.structs.replace(RECORDINGS[0], tools=(tool,))
    for recorded, given_, origin in (
        (with_tools, None, "recorded"),
        (RECORDINGS[0], None, "derived"),
        (with_tools, [tool, tool], "given"),
    ):
        client = scripted()
        found = asked(client, "full", recordings=[recorded], tools=given_)
        (described,) = found.recordings
        names = [t["function"]["name"] for t in client.requests[0].tools]
        assert described["tools"] == origin
        assert names == ["read_file"] * (2 if given_ else 1)
        assert (described["tool_tokens"] > 0) == (origin != "recorded")


def test_tokens_are_those_of_the_request_with_its_definitions() -> None:
    client = scripted()
    found = asked(client, "full", requests=0, recordings=RECORDINGS[:1], model="gpt-4o-mini")
    assert list(found.answers["tokens"]) == list(found.answers["prompt"])


def test_the_budget_of_the_replay_is_that_of_an_evaluation() -> None:
    from ctxlab.evaluation.experiment import evaluate

    found = asked(strategies=["sliding_window()"], limits=5000, requests=0)
    plain = evaluate(RECORDINGS, ["sliding_window()"], 5000, workers=1).requests
    for (name, rows), (_, same) in zip(
        found.answers.groupby("recording"), plain.groupby("recording", observed=True), strict=True
    ):
        extra = next(r["tool_tokens"] for r in found.recordings if r["recording"] == name)
        assert list(rows["tokens"]) == [tokens + extra for tokens in list(same["tokens"])[:-1]]


def test_what_a_provider_would_refuse_is_not_asked_and_counted() -> None:
    def orphans(messages: list[Message]) -> list[Message]:
        return [m for m in messages if not m.tool_calls]

    client = scripted()
    found = asked(client, ["full", orphans], requests=0, recordings=RECORDINGS[:1])
    assert all(not find_violations(request.messages, "openai") for request in client.requests)
    refused = found.answers[found.answers["why"] != ""]
    assert set(refused["strategy"]) == {"orphans"}
    assert len(refused) == 29  # before the first call there is none to leave out
    assert refused["asked"].sum() == 0
    assert board(found)["invalid_rate"]["orphans"] == pytest.approx(29 / 30)
    assert board(found)["agrees_both"]["full()"] == 1


def test_a_strategy_that_sends_nothing_at_all_is_not_asked_with_full_history() -> None:
    def emptied(messages: list[Message]) -> list[Message]:
        return []

    client = scripted()
    found = asked(client, emptied)
    assert client.requests == []
    assert found.answers["outcome"].eq("invalid").all()


def test_a_recording_that_is_itself_no_valid_request_is_left_out_and_counted() -> None:
    messages = list(RECORDINGS[0].messages)
    del messages[10]  # a call whose result stays
    assert messages[10].role == "tool"
    broken = Recording("broken", tuple(messages))
    found = asked(strategies="full", recordings=[broken, RECORDINGS[1]], requests=0)
    first, second = found.recordings
    assert (first["eligible"], first["unsound"]) == (4, 25)
    assert (second["eligible"], second["unsound"]) == (30, 0)
    everything = Recording("all", tuple(messages[:2] + messages[10:]))
    with pytest.raises(SpecError, match="the provider would reject all 25 recorded requests"):
        asked(strategies="full", recordings=[everything])


def test_recordings_without_a_call_are_said_to_hold_nothing_to_agree_with() -> None:
    chat = Recording("chat", (Message("user", "hi"), Message("assistant", "hello")))
    with pytest.raises(SpecError, match="no recording contains a tool call"):
        asked(recordings=[chat])
    found = asked(strategies="full", recordings=[chat, RECORDINGS[0]])
    assert [r["drawn"] for r in found.recordings] == [0, 12]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"requests": -1}, "requests"),
        ({"replicates": 0}, "replicates"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"answer_model": ""}, "expected the name of a model"),
        ({"strategies": "no_such"}, "no_such"),
    ],
)
def test_what_makes_no_sense_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        asked(**wrong)


@pytest.mark.parametrize("spec", [spec for spec in DEFAULT_LINEUP if spec not in ("oracle",)])
def test_requests_of_a_valid_strategy_are_valid_for_a_provider(spec: str) -> None:
    client = ScriptedClient(lambda request: "Well.")
    recordings = [a_recording(0), RECORDINGS[0]]
    found = asked(client, [spec], limits=[2000, 0.5], recordings=recordings)
    assert client.requests
    assert found.answers["why"].eq("").all()
    assert all(not find_violations(request.messages, "openai") for request in client.requests)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    found = asked()
    found.save(tmp_path / "run")
    assert NextActionResults.load(tmp_path / "run").equals(found)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "run" / "answers.parquet"), found.answers
    )


def test_an_agreement_is_compared_as_any_results_are() -> None:
    found = asked(requests=0)
    beside = found.difference_to_full().set_index("strategy")
    table = compare_strategies(found, WINDOW, "nothing()", scores=["agrees_both"]).table
    assert 0 > beside["difference"][WINDOW] > beside["difference"]["nothing()"]
    assert not beside["high"]["nothing()"] >= 0  # it is the same in every recording, or clear
    assert table["difference"][0] == pytest.approx(
        beside["difference"][WINDOW] - beside["difference"]["nothing()"]
    )
    assert asked(strategies=[WINDOW]).difference_to_full().empty


def test_an_empty_recording_is_listed_and_asked_nothing() -> None:
    found = asked(strategies="full", recordings=[Recording("empty", ()), RECORDINGS[0]])
    assert [r["drawn"] for r in found.recordings] == [0, 12]


# --- real recordings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["claude-code-entireio", "mini-swe-agent", "tau-bench", "openhands"]
)
def test_real_recordings_give_requests_that_are_valid(recorded: Path, name: str) -> None:
    folder = recorded / name
    if not folder.is_dir():
        pytest.skip(f"no recordings of {name} beside the others")
    recordings = list(islice(load(folder, on_error="skip"), 4))
    said: dict[tuple[Message, ...], Message] = {
        each.messages[:p]: each.messages[p] for each in recordings for p in each.request_positions
    }
    client = ScriptedClient(
        lambda request: said.get(request.messages, Message("assistant", "I do not know."))
    )
    strategies = ["full", "observation_mask(keep=3) | sliding_window() | panic()", "nothing"]
    found = asked(client, strategies, limits=0.25, requests=6, recordings=recordings)
    assert all(not find_violations(request.messages, "openai") for request in client.requests)
    assert all(request.tools for request in client.requests)
    assert board(found)["agrees_both"]["full()"] == 1
    assert board(found)["agrees_both"]["nothing()"] < 1
    assert found.answers["outcome"].eq("answered").all()
