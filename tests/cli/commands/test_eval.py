"""Tests of ``ctxlab eval``, which prints a table or JSON, or saves a run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from running import NAMELESS, Run, a_recording

from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.formats import write
from ctxlab.messages.types import Message, Probe, Recording
from ctxlab.strategies import parse_strategy

LIMITS = ("--limit", "4k", "--limit", "50%")
LONG = "tool_result_cap(chars=2000) | observation_mask(keep=3) | rolling_summary() | panic()"


def test_json_is_all_of_standard_output_and_keyed_by_the_columns(run: Run, logs: Path) -> None:
    said = run("eval", logs, *LIMITS, "-s", "full", "-s", "nothing", "--json")
    rows = json.loads(said.out)
    assert said.code == 0
    assert [(row["strategy"], row["limit"]) for row in rows] == [
        ("full()", 4000),
        ("nothing()", 4000),
        ("full()", 0.5),
        ("nothing()", 0.5),
    ]
    assert all(isinstance(row["limit"], int) for row in rows[:2])
    assert {HEADLINE_SCORE, f"{HEADLINE_SCORE}_low", "cost_usd", "requests"} <= set(rows[0])
    assert [row["compaction_rate"] for row in rows[::2]] == [0, 0]
    assert all(row["freed_mean"] is not None for row in rows[1::2])


@pytest.mark.e2e
def test_the_options_of_the_cost_are_in_the_manifest_and_change_only_the_cost(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    found = []
    for number, options in enumerate([(), ("--cache-ttl", "1h", "--fixed", "30k")]):
        out = tmp_path / str(number)
        assert run("eval", logs, "-l", "4k", "-s", "full", "--out", out, *options).code == 0
        found.append(Results.load(out))
    spec = found[1].manifest["spec"]
    assert (spec["cache_ttl"], spec["fixed"]) == ("1h", 30_000)
    plain, given = (results.leaderboard().iloc[0] for results in found)
    assert given["cost_usd"] > plain["cost_usd"]
    for score in ("tokens_mean", "tokens_peak", "overflow_rate"):
        assert given[score] == plain[score]


def test_what_cannot_be_worked_out_is_null_in_json(run: Run, tmp_path: Path) -> None:
    lines = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    chat = tmp_path / "chat.jsonl"
    chat.write_text("\n".join(map(json.dumps, lines)))
    said = run("eval", chat, "-l", "0.5", "-s", "full", "--json")
    assert json.loads(said.out)[0][HEADLINE_SCORE] is None
    assert "NaN" not in said.out


@pytest.mark.e2e
def test_the_table_is_readable_at_100_columns(run: Run, logs: Path) -> None:
    said = run("eval", logs, *LIMITS, "-s", "lineup", "-s", LONG)
    *lines, _ = said.out.rstrip("\n").split("\n")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in said.out


@pytest.mark.e2e
def test_the_last_line_is_the_verdict(run: Run, logs: Path) -> None:
    last = run("eval", logs, *LIMITS).out.rstrip("\n").split("\n")[-1]
    assert "(0.95 times that of full history)" in last
    assert last.endswith(".")


@pytest.mark.e2e
def test_the_verdict_takes_the_least_recall_that_is_asked_for(run: Run, logs: Path) -> None:
    assert (
        "(0.2 times that of full history)" in run("eval", logs, *LIMITS, "--min-recall", "0.2").out
    )


@pytest.mark.e2e
def test_the_table_says_what_is_behind_it(run: Run, logs: Path) -> None:
    said = " ".join(run("eval", logs, *LIMITS, "-s", "full").out.split())
    assert "6 recordings in 3 clusters, 90 requests" in said
    for words in ("off-policy", "upper bound", "o200k_base", "litellm's table"):
        assert words in said


def test_a_column_that_was_not_measured_is_not_shown(run: Run, logs: Path) -> None:
    said = run("eval", logs, "-l", "4k", "-s", "full", "--metric", "cost", "--metric", "recall")
    assert said.code == 0
    assert "cost" in said.out
    assert "over" not in said.out.split("\n")[0]


@pytest.mark.parametrize("text", ["full()", LONG, "tool_stubs(keep=3) | panic()", "oracle()"])
def test_a_shortened_strategy_can_be_typed(text: str) -> None:
    assert parse_strategy(short_strategy(text)) == parse_strategy(text)
    assert "()" not in short_strategy(text)


@pytest.mark.e2e
def test_a_saved_run_is_repeated_exactly(run: Run, logs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("eval", logs, *LIMITS, "-s", "full", "-s", "panic", "--out", first).code == 0
    again = run("eval", first, "--out", second)
    assert again.code == 0
    assert "the 6 recordings are the same as in" in again.err
    assert Results.load(first).equals(Results.load(second))


@pytest.mark.e2e
def test_a_repeated_run_says_when_the_data_has_changed(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    run("eval", logs, "-l", "4k", "-s", "full", "--out", tmp_path / "run")
    (logs / "0.jsonl").unlink()
    assert "1 of 6 changed or are missing" in " ".join(run("eval", tmp_path / "run").err.split())


@pytest.mark.e2e
def test_options_take_the_place_of_what_the_experiment_says(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    spec = tmp_path / "mine.toml"
    spec.write_text('data = ["logs"]\nlimits = [4000, 5000]\nstrategies = ["full"]\nreserve = 10\n')
    rows = json.loads(run("eval", spec, "-l", "6k", "-s", "panic", "--json").out)
    assert [(row["strategy"], row["limit"]) for row in rows] == [("panic()", 6000)]
    rows = json.loads(run("eval", spec, logs / "0.jsonl", "--json").out)
    assert {row["requests"] for row in rows} == {15}
    assert len(rows) == 2


@pytest.mark.e2e
def test_a_strategy_of_ones_own_is_found_in_the_current_folder(
    run: Run, logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_tricks.py").write_text("def last_four(messages):\n    return messages[-4:]\n")
    rows = json.loads(run("eval", logs, "-l", "4k", "-s", "own_tricks.last_four", "--json").out)
    assert rows[0]["messages_mean"] < 4.5
    run("eval", logs, "-l", "4k", "-s", "own_tricks.last_four", "--out", "run")
    assert run("eval", "run").code == 0


def test_what_is_left_out_is_said(run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("not a recording")
    with (logs / "0.jsonl").open("a") as file:
        file.write("{broken\n")
    said = run("eval", logs, "-l", "4k", "-s", "full", "--on-error", "skip")
    assert said.code == 0
    assert said.err.startswith("ctxlab: skipped 1 file (notes.txt: unknown format), 1 row (broken")


def test_a_named_file_that_no_reader_knows_stops_unless_skipping_is_asked_for(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not a recording")
    command = ["eval", notes, logs, "-l", "4k", "-s", "full"]
    stopped = run(*command)
    assert stopped.code == 2
    assert "notes.txt: unknown format" in stopped.err
    assert "To skip such files beside others, add --on-error skip" in stopped.err
    said = run(*command, "--on-error", "skip")
    assert said.code == 0
    assert "skipped 1 file (notes.txt: unknown format)" in said.err


def test_a_damaged_saved_run_beside_recordings_stops_unless_skipping_is_asked_for(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    assert run("eval", logs, "-l", "4k", "-s", "full", "--out", saved).code == 0
    (saved / "manifest.json").write_text('{"spec": [')
    command = ["eval", saved, logs, "-l", "4k", "-s", "full"]
    stopped = run(*command)
    assert stopped.code == 2
    assert "saved/manifest.json" in stopped.err
    said = run(*command, "--on-error", "skip")
    assert said.code == 0
    assert f"skipped the saved run {saved}, whose settings are not used" in said.err


@pytest.mark.e2e
def test_an_unknown_model_is_a_warning(run: Run, logs: Path) -> None:
    said = run("eval", logs, "-l", "4k", "-s", "full", "--model", "nobody/knows-this-one")
    assert said.code == 0
    assert said.err.startswith("ctxlab: warning: model 'nobody/knows-this-one'")
    assert said.err.count("\n") == 1
    assert "no prices" in " ".join(said.out.split())


@pytest.mark.e2e
def test_the_bundled_experiment_runs_when_nothing_is_named(run: Run) -> None:
    datasets = Path(__file__).parents[3] / "datasets"
    names = ("coding-agent", "support-desk", "long-chat")
    if not all(list((datasets / name).glob("*.jsonl")) for name in names):
        pytest.skip("the bundled data sets are not built: python -m datasets.make")
    said = run("eval")
    assert (said.code, said.err) == (0, "")
    assert "within 8,000 tokens" in said.out


@pytest.mark.e2e
def test_it_says_by_which_model_it_counts_where_none_is_named(run: Run, tmp_path: Path) -> None:
    claude = msgspec.structs.replace(a_recording(0), model="claude-opus-4-5")
    write([claude], tmp_path / "a.jsonl")
    options = ("-s", "full", "-l", "1.0")
    said = run("eval", tmp_path, *options)
    assert "counted and priced as claude-opus-4-5, the model of 1 recording" in said.err
    assert "input $5, cached $0.5" in " ".join(said.out.split())
    other = run("eval", tmp_path, *options, "--model", "gpt-5")
    assert "counted and priced as gpt-5; recorded with claude-opus-4-5 (1)" in other.err
    assert "input $1.25" in " ".join(other.out.split())


def a_chat() -> Recording:
    """Return a chat of two people with three questions at the end."""
    said = [Message("user", "My dog Rex is two."), Message("assistant", "How sweet!")]
    said += [
        Message(r, "And so on and so on. " * 9) for _ in range(9) for r in ("user", "assistant")
    ]
    probes = (
        Probe("a", "What is the dog called?", ("Rex",), (0,)),
        Probe("b", "What did they say then?", ("so on",), (1, 19)),
        Probe("c", "What is the cat called?", (), (0,)),
    )
    return Recording("chat", tuple(said), probes=probes)


@pytest.mark.e2e
def test_evidence_and_answers_are_shown_where_there_are_questions(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    write([a_chat()], tmp_path / "chat.jsonl")
    said = run("eval", tmp_path / "chat.jsonl", "-l", "300", "-s", "lineup")
    lines = said.out.split("\n")
    assert max(map(len, lines[:-2])) <= 100
    assert "evidence answer in" in " ".join(lines[0].split())
    assert "recall (95 %) view (95 %)" in " ".join(lines[1].split())
    rows = {line.split()[0]: line.split()[-2:] for line in lines if line[:4] in ("full", "slid")}
    assert rows["full"] == ["1.0", "1.0"]
    assert "3 questions of the recordings were measured" in " ".join(said.out.split())
    without = run("eval", logs, "-l", "4k", "-s", "full").out
    assert "evidence" not in without
    assert "question" not in without


def test_markdown_has_a_table_for_each_limit_with_the_controls_last(
    run: Run, tmp_path: Path
) -> None:
    write([a_chat()], tmp_path / "chat.jsonl")
    given = ("eval", tmp_path / "chat.jsonl", "-l", "300", "-l", "50%", "--metric", "probes")
    said = run(*given, "-s", "nothing", "-s", "tool_stubs | sliding_window", "--markdown")
    parts = said.out.rstrip("\n").split("\n\n")
    assert (said.code, said.err) == (0, NAMELESS.replace("6 recordings name", "1 recording names"))
    assert [parts[0], parts[2]] == ["Within 300 tokens:", "Within 50 % of each recording:"]
    head, rule, *rows = parts[1].split("\n")
    shown = [
        "evidence recall (95 %)",
        "answer in view (95 %)",
        "chance answer %",
        "question tokens",
        "question over %",
    ]
    assert head == f"| strategy | {' | '.join(shown)} |"
    assert set(rule) == set("| -:")
    assert [row.split(" | ")[0] for row in rows] == [
        r"| `tool_stubs \| sliding_window`",
        "| `nothing` (control)",
    ]
    assert {row.replace(r"\|", "").count("|") for row in (head, *rows)} == {7}


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("probes", "probes was not measured: no recording contains probes; use LoCoMo"),
        ("canaries", "canaries was not measured: no recording contains canaries; insert canaries"),
    ],
)
def test_what_was_to_be_measured_and_is_not_there_is_said_once(
    run: Run, logs: Path, tmp_path: Path, metric: str, said: str
) -> None:
    told = run("eval", logs, "-l", "4k", "-s", "panic", "--metric", metric)
    assert told.code == 0
    assert told.err.count(said) == 1
    assert said not in run("eval", logs, "-l", "4k", "-s", "panic").err
    run("canaries", logs, "--write", tmp_path / "planted", "-n", "5")
    there = run("eval", tmp_path / "planted", "-l", "4k", "-s", "panic", "--metric", metric)
    assert said not in there.err
    assert ("canaries kept" in there.out) == (metric == "canaries")
