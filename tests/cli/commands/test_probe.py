"""Tests of ``ctxlab probe``: killed and resumed runs, the cost limit, and the printed results."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from asked import JUDGE, MODEL, asked_of, honest, with_questions
from running import PROGRAM, Run
from talking import Action, Call, Fault, Slow, Talker, talking

from ctxlab.evaluation.probing.results import QAResults
from ctxlab.formats import write
from ctxlab.llm import DEFAULT_CACHE_FOLDER
from ctxlab.tokens.models import find_model

AT_ONCE = 8
RECORDINGS, QUESTIONS = 20, 50
OPTIONS = ("-a", MODEL, "-s", "full", "-l", "1.0")


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Change to a folder with recordings: ``chats`` has 1,000 questions, ``few`` has 40."""
    patch.chdir(folder)
    patch.setenv("OPENAI_API_KEY", "sk-test")
    write([with_questions(i, QUESTIONS) for i in range(RECORDINGS)], folder / "chats.jsonl")
    write([with_questions(i, 8) for i in range(5)], folder / "few.jsonl")


def reach(server: Talker, patch: pytest.MonkeyPatch) -> None:
    """Use the server in place of the provider."""
    for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
        patch.setenv(name, server.address)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Callable[[Talker], None]:
    return lambda server: reach(server, monkeypatch)


def begun(out: str) -> subprocess.Popen[str]:
    options = (*OPTIONS, "--concurrency", str(AT_ONCE), "--out", out)
    return subprocess.Popen(
        [*PROGRAM, "probe", "chats.jsonl", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def whole(out: str) -> QAResults:
    run = begun(out)
    said, told = run.communicate(timeout=240)
    assert run.returncode == 0, told
    assert "within" in said
    return QAResults.load(out)


def soon(call: Call) -> Action:
    """Answer after a short delay, so that calls are running whenever the process is killed."""
    return Slow(0.01, honest)


def times(server: Talker) -> Counter[str]:
    return Counter(asked_of(call) for call in server.calls)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> QAResults:
    """Return the results for the 1,000 questions of a run without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch, talking(honest) as server:
        prepare(folder, patch)
        reach(server, patch)
        found = whole("out")
        assert server.attempts == RECORDINGS * QUESTIONS
    return found


@pytest.mark.e2e
@pytest.mark.parametrize("killed", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_run_of_a_thousand_questions_that_was_killed_goes_on_where_it_was(
    killed: signal.Signals,
    undisturbed: QAResults,
    elsewhere: Path,
    reached: Callable[[Talker], None],
) -> None:
    with talking(soon) as server:
        reached(server)
        run = begun("stopped")
        while server.attempts < 400 and run.poll() is None:
            time.sleep(0.002)
        run.send_signal(killed)
        _, told = run.communicate(timeout=60)
        assert run.returncode == (-9 if killed == signal.SIGKILL else 130), told
        first = times(server)
        assert 400 <= len(first) < 600
        assert max(first.values()) == 1
        assert not (elsewhere / "stopped" / "answers.parquet").exists()
        resumed = whole("resumed")
        both = times(server)
        again = [question for question, count in both.items() if count > 1]
        assert len(both) == RECORDINGS * QUESTIONS
        if killed == signal.SIGKILL:  # only what was under way, and had not been kept
            assert len(again) <= AT_ONCE
            assert max(both.values()) <= 2
        else:
            assert again == []
        asked = server.attempts
        third = whole("third")
        assert server.attempts == asked
    assert third.equals(resumed)
    for one in (resumed, third):
        pd.testing.assert_frame_equal(one.answers, undisturbed.answers)
        pd.testing.assert_frame_equal(one.requests, undisturbed.requests)
    assert (undisturbed.answers["exact"].dropna() == 1).all()


@pytest.mark.e2e
def test_all_that_was_asked_before_ctrl_c_is_on_disk(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    with talking(soon) as server:
        reached(server)
        stopped = begun("stopped")
        while server.attempts < 100 and stopped.poll() is None:
            time.sleep(0.002)
        stopped.send_signal(signal.SIGINT)
        _, told = stopped.communicate(timeout=60)
        assert stopped.returncode == 130, told
        assert told.rstrip().endswith("Cancelled")
        assert (
            f"the answers so far are stored in {DEFAULT_CACHE_FOLDER}; run the same command again to "
            "continue" in told
        )
        assert not (elsewhere / "stopped").exists()
        said = run("probe", "chats.jsonl", *OPTIONS, "--dry-run").err
    assert f"1,000 questions, {server.answered} cached" in said
    assert server.answered == server.attempts


@pytest.mark.e2e
def test_a_second_interruption_leaves_at_once(
    elsewhere: Path, reached: Callable[[Talker], None]
) -> None:
    with talking(lambda call: honest(call) if call.number < 20 else Fault.HANG) as server:
        reached(server)
        run = begun("out")
        while server.attempts < 20 + AT_ONCE and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(1)
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=40)  # less than an answer is waited for
        assert run.returncode == 130
    assert f"waiting for {AT_ONCE} running calls; press Ctrl+C again to stop at once" in told


def billed(server: Talker) -> float:
    prices = find_model(MODEL).prices
    sent = [call for call in server.calls if call.outcome != "failed"]
    return sum(call.prompt * prices.input + call.completion * prices.output for call in sent)


@pytest.mark.e2e
def test_a_run_stops_before_its_bound_and_goes_on_with_another(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    def trouble(call: Call) -> Action:
        return {0: 503, 1: Fault.CUT, 2: 429}.get(call.number % 20, honest)  # type: ignore[return-value]

    options = ("probe", "few.jsonl", *OPTIONS, "--max-tokens", "50")
    bound = 0.0015
    with talking(trouble) as server:
        reached(server)
        dry = run(*options, "--dry-run")
        assert server.attempts == 0
        assert "40 questions, at most $0.00" in dry.err
        assert dry.out == ""
        said = run(*options, "--max-cost", bound)
        assert said.code == 2
        assert said.out == ""
        last = said.err.rstrip().split("\n")[-1]
        assert f"of the cost limit of ${bound} is spent" in last
        assert (
            f"earlier replies are cached in {DEFAULT_CACHE_FOLDER} and will not be requested again"
            in last
        )
        assert bound / 2 < billed(server) <= bound
        answered = {asked_of(call) for call in server.calls if call.outcome == "answered"}
        first = server.attempts
        assert 0 < len(answered) < 40
        assert f", {len(answered)} cached or repeated, at most" in run(*options, "--dry-run").err
        done = run(*options, "--max-cost", 1)
        assert done.code == 0
        assert not answered & {asked_of(call) for call in server.calls[first:]}
        asked = server.attempts
        assert run(*options, "--max-cost", 0).out == done.out
        assert server.attempts == asked


@pytest.mark.e2e
def test_the_board_is_readable_at_100_columns_and_says_what_it_rests_on(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    strategies = ("-s", "full", "-s", "sliding_window", "-s", "nothing", "-l", "60%", "-l", "2k")
    judges = ("-j", JUDGE, "-j", "openai/gpt-4.1")
    options = ("probe", "few.jsonl", "-a", MODEL, *strategies, *judges, "--replicates", "2")
    with talking(honest) as server:
        reached(server)
        said = run(*options)
        asked = server.attempts
        again = run(*options, "--cache-mode", "replay")
        rows = json.loads(run(*options, "--json").out)
        assert server.attempts == asked
    assert again.out == said.out
    assert "no model is called" in again.err
    assert max(map(len, said.out.split("\n"))) <= 100
    words = " ".join(said.out.split())
    for part in (
        "Off-policy",
        "compare them with full",
        "was asked 40 questions under each strategy, each 2 times, in 5 recordings and 5 clusters",
        "standard deviation of the share graded as correct over the 2 replicates",
        "Cohen's kappa 1.0",
        "availability",
    ):
        assert part in words
    for part in ("questions, at most $0.", f"with {MODEL}", "verdicts, at most", JUDGE):
        assert part in said.err
    assert len(rows) == 6
    assert {"f1_low", "judged_2", "f1_sd", "declined_rate", "usd"} <= rows[0].keys()


@pytest.mark.e2e
def test_what_got_no_answer_is_told_below_the_board(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    def silent(call: Call) -> Action:
        if "item 1 " in asked_of(call):
            return ""
        return Fault.CUT if "item 0 of order 0" in asked_of(call) else honest(call)

    with talking(silent) as server:
        reached(server)
        said = " ".join(run("probe", "few.jsonl", *OPTIONS).out.split())
    assert "1 of 40 requests got no reply and are not scored" in said
    assert "5 of 40 replies are empty, which counts as wrong (mostly: stop)" in said


def test_strategies_that_ask_are_said_to_come_on_top(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    with talking() as server:
        reached(server)
        said = run("probe", "few.jsonl", "-a", MODEL, "-s", f"rolling_summary(model='{MODEL}')",
                   "-l", "50%", "--dry-run", "--max-cost", "1")  # fmt: skip
        assert server.attempts == 0
    assert "these calls is not in the estimate, but it counts towards --max-cost" in said.err
    assert "the run stops before it costs more than $1.00" in said.err


@pytest.mark.e2e
def test_a_saved_run_is_evaluated_on_the_recordings_that_it_asked_about(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    with talking(honest) as server:
        reached(server)
        assert run("probe", "few.jsonl", *OPTIONS, "--out", "run").code == 0
    said = run("eval", "run", "-s", "full", "--json")
    assert said.code == 0
    assert "the 5 recordings are the same as in run" in said.err


def test_a_dry_run_as_json_is_the_estimate(
    elsewhere: Path, reached: Callable[[Talker], None], run: Run
) -> None:
    with talking(honest) as server:
        reached(server)
        said = run("probe", "few.jsonl", *OPTIONS, "-j", JUDGE, "--dry-run", "--json")
        assert server.attempts == 0
    answers, verdicts = json.loads(said.out)
    assert (answers["model"], answers["questions"], answers["known"]) == (MODEL, 40, 0)
    assert answers["usd"] > 0
    assert verdicts["model"] == JUDGE


def test_where_nothing_is_asked_no_price_is_named_but_the_way_to_ask(
    elsewhere: Path, run: Run
) -> None:
    said = run("probe", "few.jsonl", *OPTIONS, "--cache-mode", "replay", "--dry-run")
    assert "$" not in said.err
    assert f"40 have no stored answer (--cache-mode auto asks {MODEL})" in said.err


@pytest.mark.parametrize(("bound", "said"), [("0.004", "$0.004"), ("5", "$5.00")])
def test_a_bound_is_said_as_it_was_written(
    bound: str, said: str, elsewhere: Path, run: Run
) -> None:
    told = run("probe", "few.jsonl", *OPTIONS, "--max-cost", bound, "--dry-run").err
    assert f"the run stops before it costs more than {said}; " in told


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--replicates", "0"), "replicates: expected at least 1"),
        (("--concurrency", "0"), "--concurrency: expected 1 or more, got 0"),
        (("-j", "a", "-j", "a"), "judges: expected different models"),
        (("--max-cost", "-1"), "Expected a finite cost limit of 0 USD or more"),
        (("--cache-mode", "sometimes"), "--cache-mode: "),
        (("--max-tokens", "0"), "max_tokens: expected at least 1"),
    ],
)
def test_what_is_written_wrongly_is_one_sentence(
    options: tuple[str, ...], words: str, elsewhere: Path, run: Run
) -> None:
    said = run("probe", "few.jsonl", *OPTIONS, *options)
    assert said.code == 2
    assert words in said.err
    assert said.out == ""


def test_recordings_without_questions_say_where_there_are_some(run: Run, logs: Path) -> None:
    said = run("probe", logs, "-a", MODEL)
    assert said.code == 2
    assert "no recording has a question; use LoCoMo" in said.err
