"""Tests of probe results with a model that answers only from its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from asked import JUDGE, MODEL, asked_of, honest, with_questions
from talking import NOT_JSON, Action, Call, Fault, Refusal, Said, Talker, talking

import ctxlab
from ctxlab.errors import DataMissing, ModelRequestRejected, ReadError, SpecError
from ctxlab.evaluation.answer_matching import contains_answer
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import ExperimentGrid
from ctxlab.evaluation.metrics.probes import ProbeMetric
from ctxlab.evaluation.probing.next_action import evaluate_next_action
from ctxlab.evaluation.probing.qa import QAPlan, format_question, run_qa
from ctxlab.evaluation.probing.results import NextActionResults, QAResults
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.spec import Spec
from ctxlab.llm import CachedClient, CostLimitExceeded, LiteLLMClient, ScriptedClient
from ctxlab.llm.base import Client, Request
from ctxlab.llm.batch import build_cost_limited_client, cache_only_client, estimate_requests
from ctxlab.messages.types import Message, Probe, Recording, ToolCall

RECORDINGS = [with_questions(i, 5 + i % 3, f"group-{i // 2}") for i in range(4)]
QUESTIONS = sum(len(recording.probes) for recording in RECORDINGS)
STRATEGIES = ("full", "sliding_window()", "oracle()", "nothing")


def client(server: Talker, folder: Path, **settings: object) -> CachedClient:
    given = {"timeout": 30.0, "retries": 1, "delay": 0.01, "patience": 0, **settings}
    return CachedClient(LiteLLMClient(server.address, "sk-test", **given), folder)  # type: ignore[arg-type]


def sat(
    asked: Client, recordings: Sequence[Recording] = RECORDINGS, **changes: object
) -> QAResults:
    given = {"limits": 0.6, "answer_model": MODEL, "progress": False, **changes}
    return run_qa(recordings, STRATEGIES, client=asked, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def qa_run(tmp_path_factory: pytest.TempPathFactory) -> QAResults:
    folder = tmp_path_factory.mktemp("calls")
    with talking(honest) as server:
        return sat(client(server, folder), judges=(JUDGE, "openai/gpt-4.1"), replicates=2)


@pytest.mark.e2e
def test_a_model_that_reads_its_prompt_is_as_good_as_what_stands_there(qa_run: QAResults) -> None:
    board = qa_run.leaderboard().set_index("strategy")
    for score in ("exact", "f1", "contains", "judged_1"):
        assert board.loc["full()", score] == 1
        assert board.loc["nothing()", score] < 0.3
        assert 0.1 < board.loc["sliding_window()", score] < 1
    for name in STRATEGIES[1:3]:
        row = board.loc[name]
        assert (
            row["exact"] == row["contains"] == row["answer_containment"] == row["evidence_recall"]
        )
        assert row["gave_up_rate"] == pytest.approx(1 - row["exact"])
    assert (board["declined_rate"] == 1).all()
    assert (board["questions"] == QUESTIONS).all()
    # Two clusters are too few for an interval.
    assert np.isnan(board.loc["sliding_window()", "f1_low"])


def test_the_answers_are_tidy_and_agree_with_the_board(qa_run: QAResults) -> None:
    answers = qa_run.answers
    assert len(answers) == QUESTIONS * len(STRATEGIES) * 2
    keys = ["recording", "probe", "strategy", "limit", "replicate"]
    assert not answers.duplicated(keys).any()
    assert set(answers["outcome"]) == {"answered"}
    missing = answers[answers["category"] == "missing"]
    assert missing[["exact", "f1", "contains"]].isna().all().all()
    assert (missing["abstained"] == 1).all()
    assert missing["judged_1"].eq(1).all()
    board = qa_run.leaderboard().set_index("strategy")
    means = answers.groupby("strategy")["exact"].mean()
    for name, mean in means.items():
        assert board.loc[name, "exact"] == pytest.approx(mean)
    assert qa_run.answers["usd"].sum() == pytest.approx(board["usd"].sum())
    order = answers.drop_duplicates("probe")["probe"].tolist()
    assert order == [probe.id for r in RECORDINGS for probe in r.probes]


def test_judges_are_compared_over_different_replies(qa_run: QAResults) -> None:
    (found,) = qa_run.judge_agreement().values()
    assert found.agreement == found.kappa == 1
    assert found.replies < len(qa_run.answers) / 2


@pytest.mark.e2e
def test_what_was_saved_comes_back_equal_and_is_a_result_too(
    qa_run: QAResults, tmp_path: Path
) -> None:
    folder = qa_run.save(tmp_path / "run")
    again = QAResults.load(folder)
    assert again.equals(qa_run)
    assert qa_run.equals(again)
    pd.testing.assert_frame_equal(again.leaderboard(), qa_run.leaderboard())
    plain = Results.load(folder)
    assert plain.leaderboard()["f1"].tolist() == qa_run.leaderboard()["f1"].tolist()
    (folder / "answers.parquet").unlink()
    with pytest.raises(ReadError, match="not a saved QA run"):
        QAResults.load(folder)
    assert "gpt-4o-mini" in repr(qa_run)
    assert "declined_rate" in qa_run._repr_html_()


def test_the_same_run_once_more_asks_nothing_and_gives_the_same_frame(tmp_path: Path) -> None:
    with talking(honest) as server:
        first = sat(client(server, tmp_path), RECORDINGS[:1], judges=JUDGE, replicates=2)
        asked = server.attempts
        second = sat(client(server, tmp_path), RECORDINGS[:1], judges=JUDGE, replicates=2)
        assert server.attempts == asked
        more = sat(client(server, tmp_path), RECORDINGS[:1], judges=JUDGE, replicates=3)
        assert asked < server.attempts < 2 * asked
    assert second.equals(first)
    kept = more.answers[more.answers["replicate"] < 2].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, first.answers)
    assert sat(
        CachedClient(None, tmp_path, "replay"), RECORDINGS[:1], judges=JUDGE, replicates=2
    ).equals(first)


@pytest.mark.e2e
def test_the_spread_is_the_deviation_of_a_score_over_replicates(tmp_path: Path) -> None:
    def moody(call: Call) -> Action:
        return honest(call) if call.number % 3 else "Not mentioned."

    with talking(moody) as server:
        found = sat(client(server, tmp_path), replicates=3)
    board = found.leaderboard().set_index("strategy")
    full = found.answers[found.answers["strategy"] == "full()"]
    expected = full.groupby("replicate")["f1"].mean().std(ddof=1)
    assert board.loc["full()", "f1_sd"] == pytest.approx(expected)
    assert expected > 0


def test_without_a_model_the_same_is_in_view(qa_run: QAResults) -> None:
    """Evidence and answers are those of the metric, on what is really sent."""
    from ctxlab.evaluation.experiment import evaluate

    found = evaluate(
        RECORDINGS, STRATEGIES, 0.6, metrics=[ProbeMetric()], workers=1, progress=False
    )
    plain = found.leaderboard().set_index("strategy")
    board = qa_run.leaderboard().set_index("strategy")
    # The instructions around the question take room, so what is in view with them is never more.
    for score in ("evidence_recall", "answer_containment"):
        assert (board[score] <= plain[score] + 1e-12).all()
    assert board.loc["full()", "evidence_recall"] == plain.loc["full()", "evidence_recall"] == 1


TROUBLE: list[tuple[Action, str]] = [
    (Refusal(429, "0.01"), "unanswered"),
    (500, "unanswered"),
    (Fault.HANG, "unanswered"),
    (Fault.CUT, "unanswered"),
    (NOT_JSON, "unanswered"),
    (Refusal(400, code="context_length_exceeded", says="too long"), "unanswered"),
    ("", "empty"),
    (Said(None), "empty"),
    (Message("assistant", None, (ToolCall("c", "f", "{}"),)), "empty"),
]


@pytest.mark.e2e
@pytest.mark.parametrize(("action", "outcome"), TROUBLE, ids=lambda each: str(each)[:24])
def test_what_is_not_answered_is_counted_and_in_no_score(
    action: Action, outcome: str, tmp_path: Path
) -> None:
    def trouble(call: Call) -> Action:
        return action if "item 0 " in asked_of(call) else honest(call)

    with talking(trouble) as server:
        asked = client(server, tmp_path, timeout=2, concurrency=12)
        found = run_qa(
            RECORDINGS[:3],
            "full",
            0.6,
            answer_model=MODEL,
            judges=JUDGE,
            client=asked,
            progress=False,
        )
    (row,) = found.leaderboard().to_dict("records")
    bad = found.answers[found.answers["probe"].str.endswith("/0")]
    assert set(bad["outcome"]) == {outcome}
    assert set(found.answers["outcome"]) == {outcome, "answered"}
    if outcome == "unanswered":
        assert row["unanswered_rate"] == 3 / 18
        assert row["exact"] == row["f1"] == row["judged_1"] == 1
        assert bad[["exact", "judged_1", "usd"]].isna().all().all()
        assert bad["why"].str.len().min() > 5
    else:
        assert row["unanswered_rate"] == 0
        assert row["exact"] == pytest.approx(12 / 15)
        assert row["judged_1"] == pytest.approx(15 / 18)
        assert row["empty_rate"] == pytest.approx(3 / 18)


@pytest.mark.e2e
def test_a_judge_that_cannot_be_read_gives_no_verdict(tmp_path: Path) -> None:
    def vague(call: Call) -> Action:
        said = honest(call)
        return "Perhaps." if "Reference answers" in call.text and "item 1 " in call.text else said

    with talking(vague) as server:
        found = sat(client(server, tmp_path), judges=JUDGE)
    full = found.answers[found.answers["strategy"] == "full()"]
    none = full["probe"].str.endswith("/1")
    assert full.loc[none, "judged_1"].isna().all()
    assert full.loc[~none, "judged_1"].eq(1).all()
    assert found.leaderboard().set_index("strategy").loc["full()", "judged_1"] == 1


def test_what_a_provider_would_refuse_is_not_asked(tmp_path: Path) -> None:
    call = ToolCall("c1", "look", '{"at": "x"}')
    talk = (
        Message("user", "Look."),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", "It is Paris.", tool_call_id="c1"),
        Message("assistant", "Paris."),
    )

    def orphan(messages: list[Message]) -> list[Message]:
        return [message for message in messages if not message.tool_calls]

    recording = Recording("r", talk, probes=(Probe("q", "Where?", ("Paris",)),))
    with talking("Paris") as server:
        asked = client(server, tmp_path)
        found = run_qa(
            [recording], ["full", orphan], 1000, answer_model=MODEL, client=asked, progress=False
        )
        assert [c.violations for c in server.calls] == [[]]
        (tool,) = server.calls[0].body["tools"]
    assert tool["function"]["name"] == "look"
    assert sorted(found.answers["outcome"]) == ["answered", "invalid"]


@pytest.mark.e2e
def test_who_speaks_stands_in_the_text(tmp_path: Path) -> None:
    with talking(honest) as server:
        sat(client(server, tmp_path))
        said = {key for call in server.calls for m in call.body["messages"] for key in m}
        assert said == {"role", "content"}
        assert "Ann: Order" in server.calls[0].text


def test_a_question_says_what_to_answer_where_nothing_is_said() -> None:
    text = format_question(Probe("q", "Where {unknown}?")).text
    assert text.endswith("Question: Where {unknown}?")
    assert "answer exactly: not mentioned" in text


@pytest.mark.e2e
def test_what_is_foreseen_bounds_what_it_takes(tmp_path: Path) -> None:
    grid = ExperimentGrid.from_arguments(STRATEGIES, 0.6, "gpt-5", 0, ())
    plan = QAPlan(grid, MODEL, (JUDGE,), 2)
    with talking(honest) as server:
        asked = client(server, tmp_path)
        before = plan.estimate_cost(RECORDINGS, asked)
        assert server.attempts == 0
        found = sat(asked, judges=JUDGE, replicates=2)
        calls = found.manifest["calls"]
        assert before[0].questions == sum(c.model == "gpt-4o-mini" for c in server.calls)
        after = plan.estimate_cost(RECORDINGS, asked)
    assert calls[MODEL]["usd"] < before[0].usd
    assert calls[JUDGE]["usd"] < before[1].usd
    assert after[0].known == after[0].questions
    assert after[1].known == after[1].questions == calls[JUDGE]["calls"]
    assert sum(each.usd for each in after) == 0


def test_strategies_that_ask_share_the_cost_limit(tmp_path: Path) -> None:
    def both(call: Call) -> Action:
        return honest(call) if "Question: On" in call.messages[-1].text else "## Goal\nShelves."

    with talking(both) as server:
        asked = client(server, tmp_path)
        found = run_qa(
            RECORDINGS[:2], f"rolling_summary(model='{MODEL}')", 0.4, answer_model=MODEL,
            client=asked, progress=False,
        )  # fmt: skip
        assert found.manifest["calls"][MODEL]["calls"] > len(found.answers)
        with pytest.raises(CostLimitExceeded, match="will not be requested again"):
            run_qa(
                RECORDINGS[2:4], f"rolling_summary(model='{MODEL}')", 0.4, answer_model=MODEL,
                client=asked, max_cost=1e-4, progress=False,
            )  # fmt: skip


def test_what_makes_no_sense_is_said_before_anything_is_asked() -> None:
    scripted = ScriptedClient("x")
    bare = Recording("r", (Message("user", "Hi"), Message("assistant", "Hello")))
    for changes, words in (
        ({"replicates": 0}, "replicates: expected at least 1"),
        ({"max_tokens": 0}, "max_tokens: expected at least 1"),
        ({"judges": ("a", "a")}, "judges: expected different models"),
        ({"answer_model": ""}, "expected the name of a model"),
    ):
        with pytest.raises(SpecError, match=words):
            sat(scripted, **changes)
    with pytest.raises(SpecError, match="no recording has a question"):
        run_qa([bare], "full", 1.0, answer_model=MODEL, client=scripted, progress=False)
    assert scripted.requests == []


@pytest.mark.e2e
def test_a_refusal_says_that_what_was_answered_is_kept(tmp_path: Path) -> None:
    with talking(lambda call: 401 if call.number > 20 else honest(call)) as server:
        with pytest.raises(ModelRequestRejected, match="will not be requested again"):
            sat(client(server, tmp_path))
        kept = server.answered
        server.script = honest
        before = server.attempts
        found = sat(client(server, tmp_path))
        assert server.attempts - before == found.manifest["calls"][MODEL]["calls"] - kept


def test_an_estimate_counts_each_question_once(tmp_path: Path) -> None:
    requests = [Request(MODEL, (Message("user", str(i % 3)),), max_tokens=10) for i in range(6)]
    asked = CachedClient(ScriptedClient(lambda _: "x"), tmp_path)
    first = estimate_requests(requests, asked)
    assert (first.questions, first.known) == (6, 3)
    asked.complete(requests[0])
    second = estimate_requests(requests, asked)
    assert (second.known, second.prompt) == (4, first.prompt * 2 // 3)
    assert second.usd == pytest.approx(first.usd * 2 / 3)
    assert np.isnan(
        estimate_requests([Request(MODEL, requests[0].messages)], cache_only_client(None)).usd
    )


def test_a_paid_client_keeps_folder_and_mode(tmp_path: Path) -> None:
    inner = CachedClient(ScriptedClient("x"), tmp_path, "record")
    paid = build_cost_limited_client(1.0, client=inner)
    assert (paid.folder, paid.mode) == (tmp_path, "record")
    assert build_cost_limited_client(None, "replay").mode == "replay"


def test_on_locomo_a_reader_scores_what_stands_in_its_prompt(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_DATA", str(recorded))
    try:
        first = next(Spec(data=("dataset:locomo",)).recordings())
    except DataMissing as error:
        pytest.skip(str(error))
    speakers = {f"{message.name}: " for message in first.messages}
    known: dict[str, list[str]] = {}
    for probe in first.probes:
        known.setdefault(probe.question, []).extend(probe.answers)

    def read(request: Request) -> str:
        asked = request.messages[-1].text.rsplit("Question: ", 1)[1]
        # Who speaks is written out, so a name would be in view wherever its speaker is.
        before = [m.text for m in request.messages[:-1]]
        for who in speakers:
            before = [text.removeprefix(who) for text in before]
        said = (a for a in known[asked] for text in before if contains_answer(text, a))
        return next(said, "Not mentioned.")

    found = run_qa(
        [first], ["sliding_window()", "oracle()", "nothing"], 0.1, answer_model=MODEL,
        client=ScriptedClient(read), progress=False,
    )  # fmt: skip
    board = found.leaderboard().set_index("strategy")
    for name, row in board.iterrows():
        assert row["contains"] == pytest.approx(row["answer_containment"]), name
        assert row["declined_rate"] == 1
    assert board.loc["oracle()", "evidence_recall"] > 0.9
    assert board.loc["oracle()", "f1"] > 2 * board.loc["sliding_window()", "f1"]


def test_a_run_of_another_kind_is_named_where_it_is_loaded(
    qa_run: QAResults, tmp_path: Path
) -> None:
    qa_run.save(tmp_path / "qa")
    call = ToolCall("c", "look", "{}")
    talk = (Message("user", "go"), Message("assistant", None, tool_calls=(call,)))
    agreed = evaluate_next_action([Recording("r", talk)], "full", 1000, answer_model=MODEL,
                   client=ScriptedClient(Message("assistant", None, tool_calls=(call,))))  # fmt: skip
    agreed.save(tmp_path / "agreed")
    evaluate([Recording("r", talk)], "full", 1000).save(tmp_path / "run")
    for folder, other, said in (
        (
            "agreed",
            QAResults,
            "QA run, got a saved next-action run; use ctxlab.NextActionResults.load",
        ),
        ("qa", NextActionResults, "next-action run, got a saved QA run; use ctxlab.QAResults.load"),
        ("run", QAResults, "QA run, got a saved evaluation; use ctxlab.Results.load"),
        (
            "run",
            NextActionResults,
            "next-action run, got a saved evaluation; use ctxlab.Results.load",
        ),
    ):
        with pytest.raises(ReadError, match=f"expected a saved {said}"):
            other.load(tmp_path / folder)
    assert ctxlab.NextActionResults.load(tmp_path / "agreed").equals(agreed)
