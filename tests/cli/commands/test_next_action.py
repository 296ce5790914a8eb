"""Tests of ``ctxlab next-action``: it states the cost, asks, and compares with the full history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from running import Run, Said, a_recording
from talking import Call, Refusal, Talker, talking

from ctxlab.evaluation.probing.results import NextActionResults
from ctxlab.formats import load, write
from ctxlab.llm import DEFAULT_CACHE_FOLDER
from ctxlab.messages.types import Message, Recording, ToolCall, message_text

MODEL = "openai/gpt-4o-mini"
OPTIONS = ("-l", "100k", "-s", "full", "-s", "sliding_window(tokens=3000)", "-s", "nothing")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary folder as the current folder, where replies are cached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


@pytest.fixture
def next_action(monkeypatch: pytest.MonkeyPatch, run: Run, logs: Path) -> Callable[..., Said]:
    """Return a function that runs the command with a scripted server as the provider."""

    def call(server: Talker, *options: Any, paths: tuple[Any, ...] = ()) -> Said:
        for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, server.address)
        return run("next-action", *(paths or (logs,)), "-a", MODEL, *options)

    return call


def knowing(logs: Path) -> Callable[[Call], Message]:
    """Return a model that makes the recorded call if its prompt contains the path of the call."""
    after = {}
    for recording in load(logs):
        for position in recording.request_positions:
            before = recording.messages[position - 1]
            after[recording.messages[1].text, before.tool_call_id] = recording.messages[position]

    def answer(call: Call) -> Message:
        recorded = after[call.messages[1].text, call.messages[-1].tool_call_id]
        if not recorded.tool_calls:
            return Message("assistant", "Done.")
        (wanted,) = recorded.tool_calls
        path = json.loads(wanted.arguments)["path"]
        if call.messages[-1].role == "user" or any(
            path in message_text(message) for message in call.messages
        ):
            return Message("assistant", None, tool_calls=(wanted,))
        return Message("assistant", None, tool_calls=(ToolCall("x", "list_files", "{}"),))

    return answer


def rows(said: Said) -> dict[str, dict[str, Any]]:
    return {row["strategy"]: row for row in json.loads(said.out)}


@pytest.mark.e2e
def test_the_board_orders_strategies_by_what_they_leave_in_view(
    next_action: Callable[..., Said], logs: Path
) -> None:
    with talking(knowing(logs)) as server:
        said = next_action(server, *OPTIONS, "--requests-per-recording", "0", "--json")
        assert not any(call.violations for call in server.calls)
    found = {name: row["agrees_both"] for name, row in rows(said).items()}
    assert said.code == 0
    assert found["full()"] == 1
    assert 1 > found["sliding_window(tokens=3000)"] >= found["nothing()"] > 0


@pytest.mark.e2e
def test_the_estimate_comes_first_and_a_dry_run_ends_there(
    next_action: Callable[..., Said], logs: Path
) -> None:
    with talking(knowing(logs)) as server:
        dry = next_action(server, *OPTIONS, "--requests-per-recording", "4", "--dry-run")
        told = next_action(server, *OPTIONS, "--requests-per-recording", "4", "--dry-run", "--json")
        assert server.attempts == 0
        wet = next_action(server, *OPTIONS, "--requests-per-recording", "4")
        asked = server.answered
    estimate = f"ctxlab: {asked} questions, at most $0."
    assert (dry.code, dry.out) == (0, "")
    (row,) = json.loads(told.out)
    assert (row["model"], row["questions"], row["known"]) == (MODEL, asked, 0)
    assert dry.err.startswith(estimate)
    assert f" with {MODEL}\n" in dry.err
    assert wet.err.startswith(estimate)
    assert f"called {MODEL} {asked} times (0 answers from {DEFAULT_CACHE_FOLDER})" in wet.err


@pytest.mark.e2e
def test_the_same_command_once_more_asks_nothing_and_says_the_same(
    next_action: Callable[..., Said], logs: Path
) -> None:
    with talking(knowing(logs)) as server:
        first, again = (next_action(server, *OPTIONS, "--out", f"run{i}") for i in range(2))
        attempts = server.attempts
        replayed = next_action(server, *OPTIONS, "--cache-mode", "replay")
        assert server.attempts == attempts == server.answered
    assert first.out == again.out == replayed.out
    assert f"cached or repeated: no calls to {MODEL} are needed" in again.err
    assert f"no model is called; answers are read from {DEFAULT_CACHE_FOLDER}" in replayed.err
    assert "nothing was billed" in again.err
    assert NextActionResults.load("run0").equals(NextActionResults.load("run1"))
    frames = [pd.read_parquet(f"run{i}/answers.parquet") for i in range(2)]
    pd.testing.assert_frame_equal(*frames)


@pytest.mark.e2e
def test_the_bound_in_dollars_is_not_passed_and_the_next_run_goes_on(
    next_action: Callable[..., Said], logs: Path
) -> None:
    options = (*OPTIONS, "--requests-per-recording", "8", "--max-tokens", "100")
    with talking(knowing(logs)) as server:
        said = next_action(server, *options, "--max-cost", "0.01")
        done = server.answered
        spent = server.prompt * 0.15e-6 + server.completion * 0.6e-6
        whole = next_action(server, *options)
        texts = [str(call.body["messages"]) for call in server.calls]
    assert said.code == 2
    assert spent <= 0.01
    assert said.err.rstrip().endswith(
        f"raise the limit to continue; earlier replies are cached in {DEFAULT_CACHE_FOLDER} and "
        "will not be requested again"
    )
    assert 0 < done < len(texts)
    assert len(texts) == len(set(texts))
    assert f"({done} answers from {DEFAULT_CACHE_FOLDER})" in whole.err


@pytest.mark.e2e
def test_the_board_is_readable_at_100_columns(next_action: Callable[..., Said], logs: Path) -> None:
    more = (
        "-s",
        "tool_result_cap(chars=2000) | observation_mask(keep=3) | rolling_summary() | panic()",
    )
    with talking(knowing(logs)) as server:
        said = next_action(
            server,
            *OPTIONS,
            *more,
            "-l",
            "25%",
            "--requests-per-recording",
            "4",
            "--include-text-only",
            "--replicates",
            "2",
        )
    assert max(map(len, said.out.split("\n"))) <= 100
    assert "\x1b" not in said.out
    assert "within 100,000 tokens" in said.out
    assert "within 25 % of each" in said.out


@pytest.mark.e2e
def test_the_board_says_what_is_behind_it_and_what_it_does_not_say(
    next_action: Callable[..., Said], logs: Path
) -> None:
    with talking(knowing(logs)) as server:
        words = " ".join(next_action(server, *OPTIONS, "--requests-per-recording", "4").out.split())
        alone = " ".join(
            next_action(server, "-s", "nothing", "--requests-per-recording", "4").out.split()
        )
    for each in (
        f"{MODEL} was asked for the next action at 24 of 84 recorded calls, "
        "in 6 recordings and 3 clusters.",
        "Off-policy: a different call may be as good as the recorded one",
        "--replicates measures how often the model agrees with itself",
        "6 recordings without tool definitions: tools are derived from the recorded calls (mean: 1.0",
    ):
        assert each in words
    assert "vs full" in words
    assert "vs full" not in alone
    assert "Full history was not evaluated" in alone


def test_definitions_are_read_from_a_file(next_action: Callable[..., Said], logs: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    Path("tools.json").write_text(json.dumps([tool]))
    with talking(knowing(logs)) as server:
        said = next_action(
            server, "-s", "full", "--requests-per-recording", "1", "--tools", "tools.json"
        )
        assert {call.body["tools"][0]["function"]["name"] for call in server.calls} == {"look"}
    assert "derived" not in said.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "invalid JSON"),
        ('{"a": 1}', "a JSON list of tool definitions, as objects"),
    ],
)
def test_definitions_that_are_none_are_said_in_a_sentence(
    next_action: Callable[..., Said], content: str | None, words: str
) -> None:
    if content is not None:
        Path("tools.json").write_text(content)
    with talking() as server:
        said = next_action(server, "--tools", "tools.json")
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.count("\n") == 1


def test_recordings_without_calls_are_said_to_hold_nothing_to_agree_with(
    next_action: Callable[..., Said], tmp_path: Path
) -> None:
    chat = Recording("chat", (Message("user", "hi"), Message("assistant", "hello")))
    write([chat], tmp_path / "chat.jsonl")
    with talking() as server:
        said = next_action(server, paths=(tmp_path / "chat.jsonl",))
        assert server.attempts == 0
    assert said.code == 2
    assert "no recording contains a tool call" in said.err


def test_the_model_that_answers_must_be_named(run: Run, logs: Path) -> None:
    said = run("next-action", logs)
    assert said.code == 2
    assert "--answer-model" in said.err


def test_a_provider_that_refuses_ends_the_command_with_one_sentence(
    next_action: Callable[..., Said],
) -> None:
    with talking(Refusal(401, says="Incorrect API key provided")) as server:
        said = next_action(server, *OPTIONS)
    assert (said.code, said.out) == (2, "")
    assert f"{MODEL} rejected the request" in said.err.rstrip().split("\n")[-1]


def test_broken_lines_are_left_out_and_said_once(
    next_action: Callable[..., Said], logs: Path
) -> None:
    script = knowing(logs)
    with (logs / "0.jsonl").open("a") as file:
        file.write("{broken\n")
    with talking(script) as server:
        stopped = next_action(server, "-s", "full", "--requests-per-recording", "1")
        said = next_action(
            server, "-s", "full", "--requests-per-recording", "1", "--on-error", "skip"
        )
    assert stopped.code == 2
    assert "to skip such lines, add --on-error skip" in stopped.err
    assert said.code == 0
    assert said.err.count("skipped ") == 1


@pytest.mark.e2e
def test_a_saved_run_can_be_evaluated_on_the_same_recordings(
    next_action: Callable[..., Said],
    run: Run,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with talking(knowing(logs)) as server:
        next_action(
            server, *OPTIONS, "--requests-per-recording", "2", "--out", "run", paths=("logs",)
        )
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    again = run("eval", "../run", "--json")
    assert again.code == 0
    assert {row["requests"] for row in json.loads(again.out)} == {90}


@pytest.mark.e2e
def test_agreement_is_compared_like_everything_else(
    next_action: Callable[..., Said], run: Run, logs: Path
) -> None:
    for number in range(6, 12):
        write([a_recording(number)], logs / f"{number}.jsonl")
    with talking(knowing(logs)) as server:
        next_action(server, *OPTIONS, "--requests-per-recording", "0", "--out", "run")
    said = run("compare", "run", "nothing", "full", "--score", "agrees_both", "--json")
    assert said.code == 0
    (row,) = json.loads(said.out)
    assert row["difference"] < 0
