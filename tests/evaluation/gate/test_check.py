"""Tests of the gate: it fails only if a score became worse, and its results are deterministic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import a_recording

from ctxlab.cli.render.gate import (
    findings_json,
    findings_junit_xml,
    findings_markdown,
    findings_text,
)
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.gate.baseline import (
    ExperimentBaseline,
    compute_score,
    make_experiment_baseline,
    read_baseline,
)
from ctxlab.evaluation.gate.check import check_results, run_gate, update_baseline
from ctxlab.evaluation.gate.config import Bound, GateBudget, parse_bounds, read_gate_config
from ctxlab.evaluation.gate.findings import Finding
from ctxlab.evaluation.metrics import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.tokens.models import ModelWarning

MASKING = "observation_mask(keep=14) | panic"
BUDGETS = """
[logs]
max = { overflow_rate = 0, invalid_rate = 0 }
margin = { recall_far_held = 0.02, tokens_mean = "1 %" }

[logs.masking]
strategy = "observation_mask(keep=14) | panic"
"""


def tickets(number: int) -> Recording:
    """Return a recording of an agent that uses each ticket again after 5 to 9 turns."""
    messages = [Message("user", f"Close all tickets of order {number}.")]
    for turn in range(16 + number % 3):
        back = turn - 5 - turn * (number + 2) % 5
        known = f'"ticket": "AB-{number}{back:03d}"' if back >= 0 else f'"page": {turn}'
        call = ToolCall(f"c{turn}", "look", f"{{{known}}}")
        text = f"AB-{number}{turn:03d}\n" + "\n".join(
            f"value_{turn}_{line} = {line * 7}" for line in range(100)
        )
        messages += [
            Message("assistant", None, tool_calls=(call,)),
            Message("tool", text, tool_call_id=call.id),
        ]
    return Recording(f"order-{number}", tuple(messages), cluster=f"task-{number}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with budgets, an experiment, and eight recordings of eight tasks."""
    (tmp_path / "logs").mkdir()
    for number in range(8):
        write([tickets(number)], tmp_path / "logs" / f"{number}.jsonl")
    (tmp_path / "logs.toml").write_text('data = ["logs"]\nlimits = [12000, 16000]\n')
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    return tmp_path


def change(project: Path, before: str, after: str, file: str = "budgets.toml") -> Path:
    path = project / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return path


# --- the whole of it, on recordings ---------------------------------------------------------------


@pytest.mark.e2e
def test_what_is_as_it_was_holds(project: Path) -> None:
    update_baseline(project / "budgets.toml")
    gate = run_gate(project / "budgets.toml")
    assert gate.passed
    assert len(gate.findings) == 8
    assert all(f.difference == 0 for f in gate.findings if f.bound.kind == "margin")


def test_scores_of_the_closed_loop_can_have_bounds(project: Path) -> None:
    change(project, "data =", "closed_loop = true\ndata =", "logs.toml")
    bounds = "max = { refetch_rate = 0.001, invalid_rate = 0 }"
    change(project, "max = { overflow_rate = 0, invalid_rate = 0 }", bounds)
    change(project, 'margin = { recall_far_held = 0.02, tokens_mean = "1 %" }', "")
    change(project, MASKING, "sliding_window(messages=6)")
    failed = [
        each for each in run_gate(project / "budgets.toml").findings if each.outcome == "worse"
    ]
    assert {each.score.name for each in failed} == {"refetch_rate"}


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (MASKING, "observation_mask(keep=7) | panic", f"{HEADLINE_LABEL} fell from 1.00 to 0."),
        ("strategy = ", 'margin = {recall = 0}\nstrategy = "full" #', "overflow rate is 0"),
    ],
)
def test_a_planted_regression_fails_with_a_sentence(
    project: Path, was: str, now: str, words: str
) -> None:
    update_baseline(project / "budgets.toml")
    path = change(project, was, now)
    if "recall = 0" in now:
        update_baseline(path)
    gate = run_gate(path)
    assert not gate.passed
    assert any(words in f.sentence for f in gate.breaches)


def test_the_sentence_names_strategy_score_baseline_now_interval_and_margin(project: Path) -> None:
    update_baseline(project / "budgets.toml")
    gate = run_gate(change(project, "keep=14", "keep=7"))
    told = [f for f in gate.breaches if f.score.name == HEADLINE_SCORE and f.budget.limit == 12000]
    (finding,) = told
    value, low, high = (f"{abs(each):.2f}" for each in (finding.value, finding.low, finding.high))
    assert finding.sentence == (
        f"logs / masking at 12,000: {HEADLINE_LABEL} fell from 1.00 to {value} "
        f"(−{1 - finding.value:.2f}; margin 0.02; on other recordings, the difference may "
        f"be −{low} to −{high} (95 %)); masking is "
        "now observation_mask(keep=7) | panic() and was observation_mask(keep=14) | panic()"
    )


def test_a_window_that_is_halved_fails(project: Path) -> None:
    change(project, "observation_mask(keep=14) | panic", "sliding_window(tokens=8000)")
    change(project, "[logs]", "[logs]\nlimits = 16000")
    update_baseline(project / "budgets.toml")
    gate = run_gate(change(project, "8000", "4000"))
    assert {f.score.name for f in gate.breaches} == {"recall_far_held"}
    assert "sliding_window(tokens=4000) and was sliding_window(tokens=8000)" in (
        gate.breaches[0].sentence
    )


def test_what_became_better_holds(project: Path) -> None:
    change(project, "keep=14", "keep=7")
    update_baseline(project / "budgets.toml")
    gate = run_gate(change(project, "keep=7", "keep=14"))
    assert [f.score.name for f in gate.breaches] == ["tokens_mean"] * 2
    assert all(f.outcome == "ok" for f in gate.findings if f.score.name == "recall_far_held")


@pytest.mark.e2e
def test_twenty_runs_give_the_same_reports(project: Path) -> None:
    change(project, "[logs.masking]", "[logs.masking]\nlimits = 12000")
    update_baseline(project / "budgets.toml")
    path = change(project, "keep=14", "keep=7")
    reports = set()
    for _ in range(20):
        gate = run_gate(path, progress=False)
        reports.add(
            findings_text(gate)
            + findings_markdown(gate)
            + findings_junit_xml(gate)
            + findings_json(gate)
        )
    assert len(reports) == 1
    assert not gate.passed


def test_without_a_baseline_the_file_names_the_way_to_one(project: Path) -> None:
    with pytest.raises(
        SpecError, match=r"no held far recall in the baseline yet; run ctxlab gate .*--update"
    ):
        run_gate(project / "budgets.toml")


def test_bounds_by_themselves_need_no_baseline(project: Path) -> None:
    change(project, 'margin = { recall_far_held = 0.02, tokens_mean = "1 %" }', "")
    assert run_gate(project / "budgets.toml").passed
    assert not update_baseline(project / "budgets.toml").changes


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("0.jsonl", None, r"recordings: 1 missing \(the baseline has 8\)"),
        ("8.jsonl", "new", r"recordings: 1 new \(the baseline has 8\)"),
        ("1.jsonl", "again", r"recordings: 1 changed \(the baseline has 8\)"),
    ],
)
def test_other_recordings_than_the_baselines_are_a_fault(
    project: Path, name: str, text: str | None, words: str
) -> None:
    update_baseline(project / "budgets.toml")
    file = project / "logs" / name
    if text is None:
        file.unlink()
    elif text == "new":
        write([a_recording(8)], file)
    else:
        file.write_text(file.read_text().replace("Close", "Open"))
    with pytest.raises(SpecError, match=f"{words}.*--update"):
        run_gate(project / "budgets.toml")


@pytest.mark.parametrize("line", ['model = "gpt-4o"', "reserve = 100"])
def test_an_experiment_that_counts_otherwise_is_a_fault(project: Path, line: str) -> None:
    update_baseline(project / "budgets.toml")
    change(project, "data =", f"{line}\ndata =", "logs.toml")
    with pytest.raises(
        SpecError, match=r"differs from its baseline: the \w+ is .* and was .*--update"
    ):
        run_gate(project / "budgets.toml")


def test_other_prices_are_a_fault_only_where_money_is_compared(project: Path) -> None:
    baseline = project / "baseline.json"
    update_baseline(project / "budgets.toml")
    assert "prices" not in json.loads(baseline.read_text())["experiments"]["logs"]
    change(project, "recall_far_held = 0.02", 'cost_usd = "1 %"')
    update_baseline(project / "budgets.toml")
    assert run_gate(project / "budgets.toml").passed
    held = json.loads(baseline.read_text())
    held["experiments"]["logs"]["prices"]["gpt-5"]["input"] *= 2
    baseline.write_text(json.dumps(held))
    with pytest.raises(SpecError, match=r"the prices of gpt-5 have changed \(input\)"):
        run_gate(project / "budgets.toml")


def test_another_rule_of_cost_is_a_fault_only_where_money_is_compared(project: Path) -> None:
    update_baseline(project / "budgets.toml")
    change(project, "data =", 'cache_ttl = "1h"\nfixed = 9000\ndata =', "logs.toml")
    assert run_gate(project / "budgets.toml").passed
    change(project, "recall_far_held = 0.02", 'cost_usd = "1 %"')
    update_baseline(project / "budgets.toml")
    change(project, "fixed = 9000", "fixed = 0", "logs.toml")
    with pytest.raises(SpecError, match=r"fixed is 0 and was 9000.*--update"):
        run_gate(project / "budgets.toml")


def test_a_figure_that_is_not_known_neither_holds_nor_breaks(project: Path) -> None:
    change(project, "overflow_rate = 0", "cost_usd = 5")
    change(project, "data =", 'model = "nobody/knows"\ndata =', "logs.toml")
    change(project, "margin =", "# margin =")
    with (
        pytest.warns(ModelWarning),
        pytest.raises(
            SpecError, match=r"could not be computed: no price is known for nobody/knows"
        ),
    ):
        run_gate(project / "budgets.toml")


def test_an_update_says_what_changed_and_then_nothing(project: Path) -> None:
    first = update_baseline(project / "budgets.toml")
    assert first.file_changed
    assert {(c.label, c.before) for c in first.changes} == {
        ("logs / masking at 12,000", None),
        ("logs / masking at 16,000", None),
    }
    text = (project / "baseline.json").read_text()
    assert not update_baseline(project / "budgets.toml").file_changed
    assert (project / "baseline.json").read_text() == text
    change(project, "keep=14", "keep=7")
    change(project, "[logs.masking]", "[logs.masking]\nlimits = 12000")
    again = update_baseline(project / "budgets.toml")
    assert [(c.label, c.score and c.score.name) for c in again.changes] == [
        ("logs / masking at 12,000", "recall_far_held"),
        ("logs / masking at 12,000", "tokens_mean"),
        ("logs / masking at 16000", None),
    ]
    (project / "logs" / "0.jsonl").unlink()
    assert update_baseline(project / "budgets.toml").data_changes == (
        "logs: recordings: 1 missing (the baseline has 8)",
    )
    assert not list(project.glob("*.part"))


def test_one_experiment_is_updated_beside_the_others(project: Path) -> None:
    (project / "more.toml").write_text('data = ["logs"]\nlimits = [12000]\n')
    with (project / "budgets.toml").open("a") as file:
        file.write('[more.all]\nstrategy = "panic"\nmargin = { tokens_mean = 0 }\n')
    update_baseline(project / "budgets.toml")
    before = read_baseline(project / "baseline.json")
    change(project, "keep=14", "keep=7")
    change(project, '"panic"', '"panic(protect=2)"')
    update_baseline(project / "budgets.toml", ["more"])
    after = read_baseline(project / "baseline.json")
    assert after["logs"] == before["logs"]
    assert after["more"] != before["more"]
    with pytest.raises(SpecError, match="did you mean more"):
        run_gate(project / "budgets.toml", ["mor"])
    change(project, "[more.all]", "[logs.all]")
    update_baseline(project / "budgets.toml")
    assert set(json.loads((project / "baseline.json").read_text())["experiments"]) == {"logs"}


def test_a_baseline_is_text_with_a_line_a_recording(project: Path) -> None:
    update_baseline(project / "budgets.toml")
    text = (project / "baseline.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text)["ctxlab"]
    (line,) = [line for line in text.splitlines() if '"digest"' in line and "order-3" in line]
    assert sorted(json.loads(line.split(":", 1)[1].rstrip(","))) == ["cluster", "digest"]
    assert str(project) not in text


def test_what_is_no_baseline_is_named(project: Path) -> None:
    (project / "baseline.json").write_text('{"ctxlab": "1"}')
    with pytest.raises(ReadError, match=r"baseline\.json: not a baseline: .*experiments"):
        run_gate(project / "budgets.toml")


# --- the file -------------------------------------------------------------------------------------

WRONG = {
    "not TOML": ("[logs", "invalid TOML"),
    "key of the file": (
        'basline = "b"\n[logs.a]\n',
        "unknown key 'basline'; did you mean basel",
    ),
    "nothing": ("", "expected an experiment, got none; add a table"),
    "key of an experiment": (
        "[logs]\nmaxi = 3\n",
        "logs: unknown key 'maxi'; did you mean max",
    ),
    "misspelt table": (
        "[logs]\nmargins = { recall = 1 }\n",
        "logs: margins: a budget needs the key 'strategy', got only ['recall']; ",
    ),
    "no budget": ("[logs]\n", "logs: expected a budget, got none; add a table [logs.NAME]"),
    "no experiment": ("[lags.a]\nstrategy = 'full'\n", "lags: file: "),
    "key of a budget": (
        "[logs.a]\nstrategy = 'full'\nlimit = 3\n",
        "logs: a: unknown key 'limit'; did you mean limits",
    ),
    "strategy": ("[logs.a]\nstrategy = 'ful'\nmax = { recall = 1 }\n", "did you mean full"),
    "strategy of no text": (
        "[logs.a]\nstrategy = 3\nmax = { recall = 1 }\n",
        "strategy: expected a string",
    ),
    "limit": (
        "[logs.a]\nstrategy = 'full'\nlimits = '8k'\nmax = { recall = 1 }\n",
        "logs: a: limits: expected a limit of the experiment (12000, 16000), got 8000",
    ),
    "score": (
        "[logs.a]\nstrategy = 'full'\nmin = { recal_far = 0.5 }\n",
        "logs: a: min: unknown score 'recal_far'; did you mean recall_far",
    ),
    "figure": (
        "[logs.a]\nstrategy = 'full'\nmax = { tokens_mean = 'much' }\n",
        "logs: a: max: tokens_mean: expected 0 or more, such as '8k', 0.02 or '2 %', got 'much'",
    ),
    "truth": ("[logs.a]\nstrategy = 'full'\nmax = { recall = true }\n", "got True"),
    "negative": (
        "[logs.a]\nstrategy = 'full'\nmargin = { recall = -0.1 }\n",
        "got -0.1",
    ),
    "per cent of tokens": (
        "[logs.a]\nstrategy = 'full'\nmax = { tokens_mean = '5 %' }\n",
        "expected a number of tokens, got the percentage '5 %'",
    ),
    "margin without direction": (
        "[logs.a]\nstrategy = 'full'\nmargin = { far_arguments = 1 }\n",
        "'far_arguments' cannot have a margin",
    ),
    "nothing bounded": (
        "[logs.a]\nstrategy = 'full'\n",
        "logs: a: expected a bound, got none; add a table named max, min or margin",
    ),
    "baseline": (
        "baseline = 3\n[logs.a]\nstrategy = 'full'\nmax = {recall = 1}\n",
        "baseline: expected a string",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_written_wrongly_is_named_with_file_and_key(project: Path, case: str) -> None:
    text, words = WRONG[case]
    path = project / "budgets.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as raised:
        read_gate_config(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert words in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"nowhere\.toml: No such file"):
        read_gate_config(tmp_path / "nowhere.toml")


def test_a_budgets_own_bound_takes_the_place_of_its_experiments(project: Path) -> None:
    change(project, "[logs.masking]", "[logs.masking]\nmax = { overflow_rate = '10 %' }")
    (experiment,) = read_gate_config(project / "budgets.toml").experiments
    most = {b.score.name: b.value for b in experiment.budgets[0].bounds if b.kind == "max"}
    assert most == {"overflow_rate": 0.1, "invalid_rate": 0}


def test_only_the_strategies_of_budgets_are_replayed(project: Path) -> None:
    (experiment,) = read_gate_config(project / "budgets.toml").experiments
    assert experiment.spec.strategies == (MASKING,)
    assert [budget.baseline_key for budget in experiment.budgets] == [
        "masking at 12000",
        "masking at 16000",
    ]


# --- the rule -------------------------------------------------------------------------------------

SCORES = (
    Score("rate", "", "share", "ratio", "hit", "tried", better="higher"),
    Score("total", "", "tokens", "sum", "size", better="lower"),
    Score("peak", "", "tokens", "max", "size", better="lower"),
)
RECORDINGS = 24


def made(hit: Any, size: Any = 100.0, clusters: int = RECORDINGS) -> Results:
    """Return results of one strategy on recordings with one request each."""
    names = [f"r{n}" for n in range(RECORDINGS)]
    groups = [f"c{n % clusters}" for n in range(RECORDINGS)]
    frame = pd.DataFrame(
        {"recording": names, "cluster": groups, "strategy": "s()", "limit": 100.0, "budget": 100,
         "request": 0, "hit": hit, "tried": 10.0, "size": size}
    )  # fmt: skip
    told = [{"recording": n, "digest": n, "cluster": g} for n, g in zip(names, groups, strict=True)]
    manifest = {"spec": {"reserve": 0}, "tokens": {"m": ""}, "prices": {}}
    return Results(frame, SCORES, manifest, told)


def found(before: Results, now: Results, **margins: float | str) -> list[Finding]:
    bounds = parse_bounds({"margin": margins}, SCORES)
    budget = GateBudget("e", "b", "s()", 100, bounds)
    then = make_experiment_baseline(before, [budget], margins_only=True)
    return check_results(now, [budget], then, Path("baseline.json"), "--update")


def noise(seed: int, size: float = 1.0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, size, RECORDINGS)


def test_within_a_margin_noise_holds() -> None:
    for seed in range(10):
        before, now = 7 + noise(seed, 0.2), 7 + noise(1000 + seed, 0.2)
        (finding,) = found(made(before), made(now), rate=0.1)
        assert finding.outcome == "ok"


def test_a_change_beyond_noise_and_margin_fails() -> None:
    for seed in range(10):
        before = 7 + noise(seed)
        (finding,) = found(made(before), made(before - 2 + noise(1000 + seed)), rate=0.05)
        assert finding.outcome == "worse"
        assert finding.low < finding.difference < finding.high < 0


def test_the_figure_and_the_margin_decide_and_the_interval_words_it() -> None:
    before = made(np.full(RECORDINGS, 7.0))
    for by, outcome in ((2.0, "worse"), (0.1, "ok")):
        (finding,) = found(before, made(7.0 - by + noise(1, 0.01)), rate=0.05)
        assert finding.outcome == outcome
    one = np.full(RECORDINGS, 7.0)
    one[0] = 0  # one task of many is lost whole
    (finding,) = found(before, made(one), rate=0.02)
    assert finding.outcome == "worse"
    assert finding.low < -0.02 < 0 < finding.high
    assert "on other recordings, the difference may be −0." in finding.sentence
    assert "fell from 0.700 to 0.671" in finding.sentence
    (finding,) = found(made(one), before, rate=0)
    assert finding.outcome == "ok"  # what is better is no breach, however few show it


HITS = st.lists(st.integers(0, 100), min_size=RECORDINGS, max_size=RECORDINGS)


@given(HITS, st.lists(HITS, min_size=2, max_size=4), st.sampled_from([0, 0.02, 0.2, "5 %"]))
@pytest.mark.simulations
def test_a_larger_loss_never_passes_where_a_smaller_one_fails(
    before: list[int], changed: list[list[int]], margin: float | str
) -> None:
    old = made(np.array(before) / 10)
    findings = [found(old, made(np.array(hits) / 10), rate=margin)[0] for hits in changed]
    outcomes = [finding.outcome for finding in sorted(findings, key=lambda f: f.loss)]
    assert outcomes == sorted(outcomes)  # "ok" comes before "worse"
    for finding in findings:
        excess = finding.loss - finding.margin
        assert abs(excess) < 1e-8 or (finding.outcome == "worse") == (excess > 0)


@pytest.mark.properties
def test_fewer_kept_results_never_pass_after_a_breach(tmp_path: Path) -> None:
    if not list((Path(__file__).parents[3] / "datasets" / "coding-agent").glob("*.jsonl")):
        pytest.skip("the bundled data sets are not built: python -m datasets.make")
    data = 'data = ["bundled:coding-agent"]\nlimits = [8000]\nmetrics = ["usage", "recall"]\n'
    (tmp_path / "logs.toml").write_text(data)
    budgets = tmp_path / "budgets.toml"
    budgets.write_text(
        f"[logs]\nmargin = {{ recall = 0.02, {HEADLINE_SCORE} = 0.034 }}\n"
        '[logs.mask]\nstrategy = "observation_mask(keep=10)"\n'
    )
    update_baseline(budgets, progress=False)
    rows = []
    for keep in range(10, 0, -1):
        rows.append(run_gate(budgets, progress=False).findings)
        budgets.write_text(budgets.read_text().replace(f"keep={keep}", f"keep={keep - 1}"))
    for findings in zip(*rows, strict=True):
        outcomes = [finding.outcome for finding in findings]
        assert outcomes == sorted(outcomes)  # "ok" comes before "worse"
        assert set(outcomes) == {"ok", "worse"}


def test_with_few_clusters_the_figure_decides_and_that_is_said() -> None:
    rows = [found(made(7.0, clusters=3), made(hit, clusters=3), rate=0.05) for hit in (6.0, 6.9)]
    (bad,), (good,) = rows
    assert (bad.outcome, good.outcome) == ("worse", "ok")
    assert "margin 0.05; too few clusters for an interval (3))" in bad.sentence


def test_a_sum_is_compared_as_the_mean_of_a_recording_and_told_as_a_sum() -> None:
    (finding,) = found(made(7.0, 100 + noise(1)), made(7.0, 110 + noise(2)), total="5 %")
    assert finding.outcome == "worse"
    assert finding.difference == pytest.approx(240, rel=0.1)
    assert finding.low < finding.difference < finding.high
    assert "total rose from" in finding.sentence
    assert "margin 5 %, which is 120" in finding.sentence


def test_a_change_that_is_the_same_everywhere_is_decided_by_the_figure() -> None:
    rows = [found(made(7.0), made(hit), rate=0.05) for hit in (6.0, 6.9)]
    (bad,), (good,) = rows
    assert (bad.outcome, good.outcome) == ("worse", "ok")
    assert "no interval, because all 24 clusters have the same difference" in bad.sentence


def test_a_baseline_that_a_merge_has_torn_is_a_fault(project: Path) -> None:
    update_baseline(project / "budgets.toml")
    path = project / "baseline.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    for tear in ("gone", "unknown"):
        torn = json.loads(json.dumps(whole))
        (first, *_) = torn["experiments"]["logs"]["budgets"].values()
        name = next(iter(first["sums"]))
        if tear == "gone":
            del first["sums"][name]
        else:
            first["sums"][name] = dict.fromkeys(first["sums"][name])
        path.write_text(json.dumps(torn), encoding="utf-8")
        with pytest.raises(SpecError, match="baseline"):
            run_gate(project / "budgets.toml")


def test_a_share_of_more_than_all_is_no_bound() -> None:
    with pytest.raises(SpecError, match="expected a share from 0 to 1"):
        parse_bounds({"max": {"rate": "300 %"}}, SCORES)


def test_of_a_maximum_the_figure_decides() -> None:
    (finding,) = found(made(7.0), made(7.0, np.r_[np.full(23, 100.0), 150.0]), peak=20)
    assert finding.outcome == "worse"
    assert "a maximum has no interval" in finding.sentence
    (finding,) = found(made(7.0), made(7.0, np.r_[np.full(23, 100.0), 115.0]), peak=20)
    assert finding.outcome == "ok"


def test_dust_of_another_machine_is_no_difference() -> None:
    before, now = 7 + noise(1), 7 + noise(1) + 1e-13
    (finding,) = found(made(before), made(now), rate=0)
    assert (finding.outcome, finding.difference) == ("ok", 0)
    bounds = (Bound("max", SCORES[0], 0.7),)
    budget = GateBudget("e", "b", "s()", 100, bounds)
    (finding,) = check_results(made(7 + 1e-13), [budget], None, Path(), "")
    assert finding.outcome == "ok"


def test_the_sums_give_every_score_of_the_leaderboard() -> None:
    results = evaluate(
        [a_recording(n) for n in range(4)], ["panic", "full"], [6000], progress=False
    )
    scores = {score.name: score for score in results.scores}
    board = results.leaderboard().set_index("strategy")
    for strategy in board.index:
        bounds = tuple(Bound("max", score, 1) for score in scores.values())
        budget = GateBudget("e", "b", strategy, 6000, bounds)
        (entry,) = make_experiment_baseline(results, [budget]).budgets.values()
        figures = {name: compute_score(score, entry.sums) for name, score in scores.items()}
        expected: Mapping[str, float] = {name: board.loc[strategy, name] for name in scores}
        assert figures == pytest.approx(expected, nan_ok=True)


def test_a_score_that_was_not_measured_is_a_fault() -> None:
    budget = GateBudget("e", "b", "s()", 100, (Bound("max", Score("x", "", "", "sum", "x"), 1),))
    with pytest.raises(SpecError, match="x was not measured"):
        check_results(made(7.0), [budget], None, Path(), "")


def test_money_of_which_a_part_is_unknown_is_not_known() -> None:
    usd = Score("usd", "", "USD", "sum", "size", better="lower")
    budget = GateBudget("e", "b", "s()", 100, (Bound("max", usd, 1e9),))
    with pytest.raises(SpecError, match="usd could not be computed: no price is known for m"):
        check_results(made(7.0, np.r_[np.full(23, 1.0), np.nan]), [budget], None, Path(), "")


@pytest.mark.evals
def test_the_projects_own_gate_holds() -> None:
    root = Path(__file__).parents[3]
    if not list((root / "datasets" / "long-chat").glob("*.jsonl")):
        pytest.skip("the bundled data sets are not built: python -m datasets.make")
    gate = run_gate(root / "evals" / "budgets.toml", progress=False)
    assert [f.sentence for f in gate.breaches] == []
    assert all(isinstance(part, ExperimentBaseline) for part in _committed(root).values())


def _committed(root: Path) -> dict[str, ExperimentBaseline]:
    experiments = read_baseline(root / "evals" / "baseline.json")
    assert experiments
    assert all(part.prices is None for part in experiments.values())
    return experiments
