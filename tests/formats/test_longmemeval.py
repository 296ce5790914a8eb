"""Tests of the LongMemEval format: dated chats with one or more questions about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording
from ctxlab.messages.validation import find_violations


def turn(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


ELEMENT: dict[str, Any] = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "How many cats?",
    "answer": 2,
    "question_date": "2023/05/30 (Tue) 10:00",
    "haystack_dates": ["2023/05/21 (Sun) 09:00", "2023/05/20 (Sat) 02:21"],
    "haystack_session_ids": ["s2", "s1"],
    "haystack_sessions": [
        [turn("user", "A second cat."), turn("assistant", "Two!")],
        [
            turn("user", "Hi"),
            turn("assistant", "Yes?", has_answer=False),
            turn("user", "I have a cat.", has_answer=True),
        ],
    ],
    "answer_session_ids": ["s1", "s2"],
}


def read(tmp_path: Path, *elements: Any, **options: Any) -> list[Recording]:
    path = tmp_path / "cats.json"
    path.write_text(json.dumps(list(elements)))
    return list(load(path, **options))


def test_sessions_stand_by_date_and_say_it(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, ELEMENT)
    assert [(m.role, m.content) for m in recording.messages] == [
        ("user", "[2023/05/20 (Sat) 02:21]\nHi"),
        ("assistant", "Yes?"),
        ("user", "I have a cat."),
        ("user", "[2023/05/21 (Sun) 09:00]\nA second cat."),
        ("assistant", "Two!"),
    ]
    assert [m.time for m in recording.messages] == [1684549260.0] * 3 + [1684659600.0] * 2
    assert recording.messages[2].extra == {"session": "s1", "has_answer": True}
    assert (recording.id, recording.cluster) == ("cats/q1", "q1")
    assert recording.meta == {
        key: ELEMENT[key] for key in ("question_id", "question_type", "question_date")
    }


def test_where_a_date_is_no_date_the_order_of_the_file_stays(tmp_path: Path) -> None:
    for dates in (["some day", ELEMENT["haystack_dates"][1]], [], None):
        (recording,) = read(tmp_path, ELEMENT | {"haystack_dates": dates})
        assert recording.messages[-1].content == "I have a cat."
        assert recording.probes[0].evidence == (0, 1, 4)


def test_evidence_are_marked_turns_and_else_the_whole_session(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, ELEMENT)
    (probe,) = recording.probes
    assert probe.evidence == (2, 3, 4)
    assert (probe.id, probe.answers, probe.category) == ("q1", ("2",), "multi-session")
    assert probe.question == "[2023/05/30 (Tue) 10:00]\nHow many cats?"
    (recording,) = read(tmp_path, ELEMENT | {"answer_session_ids": ["s2", "s9"]})
    assert recording.probes[0].evidence == (3, 4)
    assert recording.skipped == {"answer session that is not in the history": 1}


def test_a_question_that_cannot_be_answered_has_no_answer(tmp_path: Path) -> None:
    explained = {"question_id": "q1_abs", "answer": "You spoke of cats only."}
    (recording,) = read(tmp_path, ELEMENT | explained)
    (probe,) = recording.probes
    assert (probe.category, probe.answers, probe.evidence) == ("abstention", (), (2, 3, 4))
    assert recording.cluster == "q1"


def test_a_history_may_have_several_questions(tmp_path: Path) -> None:
    questions = {"questions": ["How many?", "Who?"], "answers": ["2", ["me", "I"]]}
    element = ELEMENT | questions | {"answer_session_ids": [["s1"], ["s2"]]}
    del element["question"], element["answer"]
    (recording,) = read(tmp_path, element)
    assert [(p.id, p.answers, p.evidence, p.category) for p in recording.probes] == [
        ("q1/0", ("2",), (2,), "multi-session"),
        ("q1/1", ("me", "I"), (3, 4), None),
    ]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"haystack_sessions": 3}, "element 1: haystack_sessions must be a list, got int"),
        ({"haystack_sessions": [3]}, "element 1: a session must be a list of turns, got int"),
        ({"haystack_sessions": [[turn("user", "a"), {}]]}, "q1 turn 1: a turn must be an object"),
        ({"haystack_sessions": [[turn("judge", "a")]]}, "q1 turn 0: unknown role 'judge'"),
        ({"question": None}, "q1 question 0: a question must be a string"),
    ],
)
def test_what_is_broken_is_named_by_its_place(
    tmp_path: Path, changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(ReadError, match=where):
        read(tmp_path, ELEMENT, ELEMENT | changes)
    recordings = read(tmp_path, ELEMENT, ELEMENT | changes, on_error="skip")
    assert sum(sum(r.skipped.values()) for r in recordings) >= 1


def test_the_real_histories_are_read_whole(data: Path) -> None:
    first, second = load(data / "longmemeval")
    assert (len(first.messages), len(second.messages)) == (396, 409)
    assert len(first.probes) == len(second.probes) == 9
    assert first.skipped == second.skipped == {}
    assert find_violations(first.messages) == []
    # The second begins with a session that was cut out of a longer chat, at an answer.
    assert [tuple(v) for v in find_violations(second.messages)] == [("starts_with_user", 0)]
    for recording in (first, second):
        times = [message.time or 0.0 for message in recording.messages]
        assert times == sorted(times)
        assert times[0] > 0
        marked = [i for i, m in enumerate(recording.messages) if m.extra.get("has_answer")]
        assert len(marked) == 2
        assert recording.probes[0].evidence == tuple(marked)
        for probe in recording.probes[1:]:
            assert len({recording.messages[i].extra["session"] for i in probe.evidence}) == 1
            assert probe.answers
