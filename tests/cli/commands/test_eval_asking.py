"""Tests of ``ctxlab eval`` with strategies that ask a model: it reports calls, cost and failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Run
from talking import REPETITION, Call, Refusal, Talker, talking

from ctxlab.llm import DEFAULT_CACHE_FOLDER

MODEL = "openai/gpt-4o-mini"
ASKS = f"rolling_summary(model='{MODEL}') | panic"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary folder as the current folder, where replies are cached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch, run: Run, logs: Path) -> Run:
    """Return a function that runs an evaluation with a scripted server as the provider."""

    def call(server: Talker, *strategies: str) -> object:
        for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, server.address)
        options = [part for strategy in strategies for part in ("-s", strategy)]
        return run("eval", logs, "-l", "4k", *options)

    return call  # type: ignore[return-value]


def summary(call: Call) -> str:
    return f"## Goal\nRepair, part {call.number}."


@pytest.mark.e2e
def test_a_run_says_what_it_asked_and_that_what_is_kept_is_not_billed_again(asking: Run) -> None:
    with talking(summary) as server:
        first, again = (asking(server, ASKS, "rolling_summary | panic") for _ in range(2))
        asked, tokens = server.answered, server.prompt + server.completion
    assert (
        f"called {MODEL} {asked} times (0 answers from {DEFAULT_CACHE_FOLDER}): {tokens / 1000:.1f}"
        in first.err
    )
    assert "k tokens, $0.0" in first.err
    kept = (
        f"called {MODEL} {asked} times: all answers came from {DEFAULT_CACHE_FOLDER}; nothing was "
        "billed"
    )
    assert kept in again.err
    assert first.out == again.out


@pytest.mark.e2e
def test_the_cost_of_own_calls_is_shown_where_there_is_some(asking: Run) -> None:
    with talking(summary) as server:
        head = "strategy"
        words = "strategy $: cost of the strategy's own model calls (included in cost)"
        said = asking(server, ASKS, "full").out
        assert head in said.split("\n")[0]
        assert words in " ".join(said.split())
        said = asking(server, "full").out
        assert head not in said.split("\n")[0]
        assert words not in " ".join(said.split())


def test_a_run_whose_summaries_are_not_the_models_says_so(
    asking: Run, run: Run, logs: Path
) -> None:
    with talking(REPETITION) as server:
        said = asking(server, "full", ASKS)
        (row,) = json.loads(run("eval", logs, "-l", "4k", "-s", ASKS, "--json").out)
    number = int(row["fallbacks"])
    assert f"{number} of {number} summaries of {ASKS} were made without the model" in " ".join(
        said.out.split()
    )
    assert "(the summary repeats itself)." in " ".join(said.out.split())
    assert said.out.rstrip().endswith(
        " 100% of its summaries are fallbacks, made without its model."
    )
    assert row["fallback_rate"] == 1


@pytest.mark.e2e
def test_a_model_without_a_price_is_said_before_and_costs_what_is_not_known(asking: Run) -> None:
    unknown = ASKS.replace("gpt-4o-mini", "my-finetune")
    with talking(summary) as server:
        said = asking(server, unknown, "rolling_summary | panic")
    before = "openai/my-finetune has no known price; costs that depend on it are shown as –"
    assert before in said.err
    assert "tokens, price unknown" in said.err
    cells = said.out.split("| panic")[0]
    assert cells.count(" –") == 2


def test_a_provider_that_is_down_stops_the_run_with_one_sentence(asking: Run) -> None:
    with talking(Refusal(429, "3600")) as server:
        said = asking(server, ASKS)
        assert server.attempts == 5
    assert said.code == 2
    last = said.err.rstrip().split("\n")[-1]
    assert last.startswith(f"ctxlab: {MODEL}: 5 calls in a row failed (last error: ")
    assert last.endswith(
        f"; earlier replies are cached in {DEFAULT_CACHE_FOLDER} and will not be requested again"
    )
