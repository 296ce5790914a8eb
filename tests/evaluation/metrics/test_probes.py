"""Tests of evidence recall: it equals a plain search of each request, and controls bound it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from generated import FACTS, conversations, limits
from hypothesis import given
from hypothesis import strategies as st
from replaying import strategies

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.answer_matching import contains_answer
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.engine import PreparedRecording, replay_trace, replay_traces
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.probes import ProbeMetric, measure_probe_visibility
from ctxlab.evaluation.replay import replay
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.llm import ScriptedClient
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Message, Probe, Recording, Usage, message_text
from ctxlab.strategies import Strategy, parse_strategy
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.counter import TokenCounter

SAID = (
    Message("user", "I moved to Lisbon in 2019."),
    Message("assistant", "Nice! " + "How do you like it there? " * 20),
    Message("user", "Very much. My dog is called Rex."),
    Message("assistant", "Rex sounds sweet. " * 20),
    Message("user", "Bye"),
    Message("assistant", "Bye!"),
)
PROBES = (
    Probe("where", "Where does she live?", ("Lisbon",), (0,), category="fact"),
    Probe("dog", "What is the dog called?", ("the Rex", "Max"), (2, 3), category="fact"),
    Probe("cat", "What is the cat called?", (), (2,), category="adversarial"),
    Probe("early", "Where has she moved to?", ("Lisbon",), (0, 2), position=2),
    Probe("open", "Is she happy?", ("very happy",)),
)
TALK = Recording("talk", SAID, probes=PROBES)


def judged(spec: str | Strategy, limit: int = 10**6) -> dict[str, list[float]]:
    counter = TokenCounter("gpt-4o")
    prepared = PreparedRecording(TALK, counter)
    strategy = parse_strategy(spec) if isinstance(spec, str) else spec
    columns = ProbeMetric().measure(
        prepared, [replay_trace(prepared, strategy, prepared.make_budget(limit))]
    )
    return {name: column[0].tolist() for name, column in columns.items()}


@st.composite
def probed(draw: st.DrawFn) -> Recording:
    """A conversation with questions; some answers occur in it by chance."""
    messages = draw(conversations())
    places = st.integers(0, len(messages) - 1)
    probe = st.builds(
        Probe,
        id=st.just("q"),
        question=st.sampled_from(["Who is Mia Li?", "What of src/io.py?", "Why?"]),
        answers=st.lists(st.sampled_from((*FACTS, "the", "")), max_size=2).map(tuple),
        evidence=st.lists(places, max_size=3, unique=True).map(tuple),
        position=st.none() | places,
    )
    probes = draw(st.lists(probe, min_size=1, max_size=4))
    return Recording("r", messages, probes=tuple(probes))


@given(recording=probed(), strategy=strategies(), limit=limits())
def test_what_is_found_is_what_stands_in_the_request(
    recording: Recording, strategy: Strategy, limit: int, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(recording, counter)
    trace = replay_trace(prepared, strategy, prepared.make_budget(limit))
    seen = measure_probe_visibility(prepared, [trace])
    for number, (probe, entries) in enumerate(
        zip(prepared.probes, trace.preview_entries, strict=True)
    ):
        sent = [entry.message for entry in entries]
        assert seen.request_tokens[0, number] == counter.count_request(sent)
        place = prepared.probe_position(number)
        others = [e for e in entries if not (e.start == place and e.stop > place)]
        texts = [message_text(entry.message) for entry in others]
        answered = any(contains_answer(text, answer) for text in texts for answer in probe.answers)
        assert seen.answer_in_view[0, number] == answered
        share = [in_view_by_eye(recording, probe, at, others) for at in probe.evidence]
        assert seen.evidence_in_view[0, number] == (sum(share) / len(share) if share else 0)
        fetched = [
            not there and any(e.form.fetchable and e.start <= at < e.stop for e in others)
            for at, there in zip(probe.evidence, share, strict=True)
        ]
        assert seen.evidence_fetchable[0, number] == (sum(fetched) / len(fetched) if fetched else 0)


def in_view_by_eye(recording: Recording, probe: Probe, at: int, entries: list[Entry]) -> bool:
    original = recording.messages[at]
    said = message_text(original).strip()
    for entry in entries:
        text = message_text(entry.message)
        own = (entry.start, entry.stop) == (at, at + 1)
        if own and entry.form is Form.VERBATIM:
            return True
        made = entry.form is not Form.VERBATIM
        stands = entry.start <= at < entry.stop or entry.start == entry.stop
        if made and stands and said and said in text:
            return True
        kept = [a for a in probe.answers if contains_answer(message_text(original), a)]
        if made and own and kept and any(contains_answer(text, a) for a in probe.answers):
            return True
    return False


def test_full_history_holds_all_evidence_and_the_first_question_stands_where_it_is_put() -> None:
    columns = judged("full")
    # The requests are those before messages 1, 3 and 5; a question at 2 belongs to the second.
    assert columns["questions"] == [0, 1, 4]
    assert columns["evidenced"] == [0, 1, 3]
    assert columns["evidence_seen"] == [0, 0.5, 3]  # at its place the second was not said yet
    assert columns["answerable"] == [0, 1, 3]
    assert columns["answer_seen"] == [0, 1, 2]  # nobody says "very happy"
    assert columns["question_over"] == columns["unseen"] == [0, 0, 0]
    assert columns["evidence_pointed"] == columns["question_own"] == [0, 0, 0]


def test_the_question_itself_is_no_answer(counter: TokenCounter) -> None:
    probe = Probe("q", "Is it Rome or Paris?", ("Paris",))
    prepared = PreparedRecording(
        Recording("r", (Message("user", "hi"), Message("assistant", "")), probes=(probe,)), counter
    )
    for spec in ("full", "nothing", "retrieval()"):
        assert not measure_probe_visibility(
            prepared, [replay_trace(prepared, parse_strategy(spec), prepared.make_budget(99))]
        ).answer_in_view.any()


@dataclass(frozen=True, repr=False)
class shows(BaseStrategy):
    """Strategy that replaces a message by a text with a given form."""

    text: str
    form: str
    at: int = 2
    upto: int = 3

    def __call__(self, context: Context, /) -> Context:
        if context.history_length > self.upto:
            fork, message = context.fork(), Message("user", self.text)
            if self.upto > self.at + 1:
                fork.fold(self.at, self.upto, message, Form(self.form))
            else:
                fork.replace(self.at, message, Form(self.form))
            return fork
        return context


@pytest.mark.parametrize(
    ("text", "form", "upto", "dog"),
    [
        ("Very much. My dog is called Rex. (shortened)", "rewritten", 3, 1.0),
        ("[… called Rex]", "truncated", 3, 1.0),  # it held an answer, and still does
        ("[… called]", "truncated", 3, 0.5),
        ("They spoke of Rex.", "summary", 4, 0.0),  # a summary must say all of it
        ("Said was: Very much. My dog is called Rex. And more.", "summary", 4, 0.5),
        ("1. Very much.", "pointer", 4, 0.0),
    ],
)
def test_evidence_is_in_view_as_the_docstring_says(
    text: str, form: str, upto: int, dog: float, counter: TokenCounter
) -> None:
    prepared = PreparedRecording(TALK, counter)
    trace = replay_trace(prepared, shows(text, form, 2, upto), prepared.make_budget(10**6))
    seen = measure_probe_visibility(prepared, [trace])
    assert seen.evidence_in_view[0, 1] == dog
    assert seen.evidence_fetchable[0, 1] == (1 - dog if form == "pointer" else 0)
    # The reply says the name too, where it is not folded away with what it answers.
    assert seen.answer_in_view[0, 1] == (upto == 3 or "Rex" in text)


def test_a_request_that_is_too_large_is_told() -> None:
    columns = judged("full", 60)
    assert columns["question_over"] == [0, 1, 4]
    assert judged("nothing", 60)["question_over"] == [0, 0, 0]


def test_what_a_question_made_the_strategy_ask_is_a_column_of_its_own(
    counter: TokenCounter,
) -> None:
    reply = Reply(Message("assistant", "Rex."), Usage(input=100, output=5), 0.5)
    # Every request just does without a summary, and with a question more it does not.
    limit = int(counter.count_request(SAID[:-1]) / 0.9) + 1
    results = evaluate(
        [Recording("talk", SAID, probes=PROBES[:3])],
        "rolling_summary(0.9, 0.5, 1, model='gpt-4o-mini', tokens=9)",
        limit,
        "gpt-4o",
        client=ScriptedClient(*[reply] * 3),
    )
    board = results.leaderboard()
    assert board["strategy_tokens"].tolist() == [0]
    assert board["question_own"].tolist() == [315]
    assert results.manifest["calls"]["gpt-4o-mini"]["calls"] == 3


def test_questions_are_put_only_where_they_are_measured(counter: TokenCounter) -> None:
    called: list[int] = []

    def listening(messages: list[Message]) -> list[Message]:
        called.append(len(messages))
        return messages

    for metrics, calls in (("usage", 3), (("usage", "probes"), 3 + len(PROBES))):
        called.clear()
        evaluate([TALK], listening, 999, metrics=metrics, workers=1)
        assert len(called) == calls


def test_a_recording_without_questions_has_no_score() -> None:
    board = evaluate([Recording("a", SAID)], "full", 999, metrics="probes").leaderboard()
    assert board["questions"].tolist() == [0]
    assert (
        board[["evidence_recall", "answer_containment", "question_tokens_mean"]]
        .isna()
        .all(axis=None)
    )


def test_scores_are_means_over_questions() -> None:
    board = evaluate([TALK], ("full", "nothing"), 10**6, metrics="probes").leaderboard()
    assert board["evidence_recall"].tolist() == [3.5 / 4, (0.5 + 1) / 4]
    assert board["answer_containment"].tolist() == [3 / 4, 2 / 4]


def test_chance_is_where_an_answer_stands_without_the_evidence() -> None:
    # Of the dog nothing is left but its name, in a greeting; the cat has no answer.
    said = (SAID[0], Message("assistant", "Ok."), SAID[2], SAID[3], Message("user", "Hi, Rex!"))
    talk = Recording("talk", (*said, Message("assistant", "Bye!")), probes=PROBES[1:3])
    for spec, unseen, answered in (("nothing", 1, 0), ("full", 0, 0)):
        columns = replay(talk, spec, 10**6, "gpt-4o").requests
        assert (columns["unseen"].sum(), columns["unseen_answer"].sum()) == (unseen, answered)
    columns = replay(talk, "sliding_window(messages=3)", 10**6, "gpt-4o").requests
    assert (columns["unseen"].sum(), columns["unseen_answer"].sum()) == (1, 1)


def test_a_close_up_has_a_row_a_question() -> None:
    frame = replay(TALK, "nothing", 10**6, "gpt-4o").probes
    assert frame["id"].tolist() == [probe.id for probe in PROBES]
    assert frame["request"].tolist() == [2, 2, 2, 1, 2]
    assert frame["position"].tolist() == [6, 6, 6, 2, 6]
    assert frame["answer"].tolist() == [True, False, pd.NA, True, False]
    assert np.array_equal(frame["evidence"], [1, 0, 0, 0.5, np.nan], equal_nan=True)
    assert frame.groupby("category")["evidence"].mean().to_dict() == {"adversarial": 0, "fact": 0.5}
    assert replay(Recording("a", SAID), "full", 99).probes.empty


def test_budgets_that_share_a_replay_share_what_is_found(counter: TokenCounter) -> None:
    prepared = PreparedRecording(TALK, counter)
    traces = replay_traces(
        prepared,
        [parse_strategy("tool_stubs()")],
        [prepared.make_budget(100), prepared.make_budget(10**6)],
    )
    columns = ProbeMetric().measure(prepared, traces)
    assert traces[0].context is traces[1].context
    assert columns["question_over"].tolist() == [[0, 1, 4], [0, 0, 0]]
    for name in set(columns) - {"question_over"}:
        assert columns[name][0].tolist() == columns[name][1].tolist()


@cache
def on(folder: Path, limits: tuple[int, ...]) -> Results:
    if not folder.is_dir():
        pytest.skip(f"no recordings of {folder.name} beside the others")
    recordings = list(load(folder))
    return evaluate(
        recordings, (*DEFAULT_LINEUP, "retrieval()"), limits, metrics=("probes",), workers=1
    )


@pytest.mark.parametrize("name", ["locomo", "longmemeval"])
def test_on_real_questions_the_controls_bound_the_strategies(recorded: Path, name: str) -> None:
    results = on(recorded / name, (4000, 16_000))
    board = results.leaderboard().set_index(["limit", "strategy"])
    evidence, answer = board["evidence_recall"].unstack(), board["answer_containment"].unstack()
    assert METRICS["probes"]
    assert (evidence["full()"] == 1).all()
    assert (evidence["nothing()"] < 0.05).all()
    assert (answer["nothing()"] < 0.05).all()
    fit = board["question_overflow_rate"].unstack() == 0
    for strategy in evidence:
        assert (answer[strategy] <= answer["full()"]).all()
        assert (evidence[strategy] <= evidence["oracle()"])[fit[strategy]].all()
        assert evidence[strategy].is_monotonic_increasing
    window = "sliding_window() | panic()"
    assert (fit["oracle()"] & fit[window] & fit["retrieval()"]).all()
    assert (evidence["retrieval()"] > evidence[window]).all()
    known = board["evidence_recall_low"].notna()
    assert known.any() == (results.cluster_count >= MIN_CLUSTERS)
    if known.any():  # there is no interval only where all conversations are alike
        assert set(board["evidence_recall"][~known]) <= {0.0, 1.0}
    assert (board["evidence_recall_low"] <= board["evidence_recall"])[known].all()


def test_questions_are_summed_one_after_the_other_with_any_number_of_threads() -> None:
    messages = [Message("user", f"fact {number}") for number in range(9)]
    shares = [1 + number % 7 for number in range(199)]
    probes = tuple(
        Probe(f"q{number}", "Why?", evidence=tuple(range(count)), position=1)
        for number, count in enumerate(shares)
    )
    recording = Recording("many", (*messages, Message("assistant", "yes")), probes=probes)
    expected = 0.0
    for count in shares:
        expected += 1 / count
    found = evaluate([recording], ("full", "panic()"), 10**6, workers=1, metrics=["probes"])
    assert found.requests["evidence_seen"].tolist() == [expected, expected]
