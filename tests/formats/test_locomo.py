"""Tests of the LoCoMo format: a chat of two people becomes one of user and assistant, with probes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats import load
from ctxlab.messages.types import Recording
from ctxlab.messages.validation import find_violations


def turn(speaker: str, id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"speaker": speaker, "dia_id": id, "text": text, **more}


PICTURE = {"img_url": ["http://x/y.jpg"], "blip_caption": "a lake", "query": "lake"}
CHAT: dict[str, Any] = {
    "speaker_a": "Bob",
    "speaker_b": "Ann",
    "session_10_date_time": "9:05 am on 3 May, 2022",
    "session_10": [turn("Bob", "D10:1", "Home."), turn("Bob", "D10:2", "At last.")],
    "session_2_date_time": "1:56 pm on 1 May, 2022",
    "session_2": [turn("Ann", "D2:1", "Hi!"), turn("Bob", "D2:2", "See!", **PICTURE)],
    "session_11_date_time": "1:00 am on 4 May, 2022",
}


def sample(*questions: Any, **changes: Any) -> dict[str, Any]:
    return {"qa": list(questions), "conversation": CHAT | changes, "sample_id": "conv-1"}


def read(tmp_path: Path, *samples: Any, **options: Any) -> list[Recording]:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(list(samples)))
    return list(load(path, **options))


def asked(category: int, *evidence: str, **answer: Any) -> dict[str, Any]:
    return {"question": "Who?", "category": category, "evidence": list(evidence), **answer}


def test_sessions_stand_by_number_and_who_speaks_first_is_the_user(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, sample())
    said = [(m.role, m.name, m.content) for m in recording.messages]
    assert said == [
        ("user", "Ann", "[1:56 pm on 1 May, 2022]\nHi!"),
        ("assistant", "Bob", "See!\n[shares a picture: a lake]"),
        ("assistant", "Bob", "[9:05 am on 3 May, 2022]\nHome."),
        ("assistant", "Bob", "At last."),
    ]
    assert recording.id == "chats/conv-1"
    assert recording.meta == {"sample_id": "conv-1", "speaker_a": "Bob", "speaker_b": "Ann"}
    assert find_violations(recording.messages) == []


def test_the_date_of_a_session_is_the_time_of_its_turns(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, sample(session_10_date_time="one day"))
    assert [m.time for m in recording.messages] == [1651413360.0, 1651413360.0, None, None]
    assert recording.messages[2].content == "[one day]\nHome."
    extra = {"dia_id": "D2:2", "img_url": ["http://x/y.jpg"], "query": "lake"}
    assert recording.messages[1].extra == extra


@pytest.mark.parametrize(
    ("written", "evidence", "lost"),
    [
        (["D2:2", "D2:1", "D2:2"], (0, 1), 0),
        (["D2:1; D10:02"], (0, 3), 0),
        (["D:2:2"], (1,), 0),
        (["D2:1 D9:9", "D"], (0,), 2),
        ([], (), 0),
    ],
)
def test_evidence_is_a_position_for_each_id_that_names_a_turn(
    tmp_path: Path, written: list[str], evidence: tuple[int, ...], lost: int
) -> None:
    (recording,) = read(tmp_path, sample(asked(4, *written, answer="Ann")))
    (probe,) = recording.probes
    assert probe.evidence == evidence
    assert recording.skipped == ({"evidence that names no turn": lost} if lost else {})


@pytest.mark.parametrize(
    ("category", "answer", "name", "answers"),
    [
        (1, "a, b", "multi-hop", ("a, b",)),
        (2, 2022, "temporal", ("2022",)),
        (3, "Yes; she said so", "open-domain", ("Yes",)),
        (4, "a; b", "single-hop", ("a; b",)),
        (5, "No", "adversarial", ()),
    ],
)
def test_categories_have_names_and_what_cannot_be_answered_has_no_answer(
    tmp_path: Path, category: int, answer: Any, name: str, answers: tuple[str, ...]
) -> None:
    (recording,) = read(tmp_path, sample(asked(category, "D2:1", answer=answer)))
    (probe,) = recording.probes
    assert (probe.id, probe.question, probe.position) == ("conv-1/0", "Who?", None)
    assert (probe.category, probe.answers) == (name, answers)


def test_a_broken_turn_or_question_costs_only_itself(tmp_path: Path) -> None:
    broken = [turn("Ann", "D2:1", "Hi!"), {"speaker": "Bob"}, turn("Bob", "D2:3", "Yes")]
    content = sample({"answer": 1}, asked(4, "D2:3", answer="x"), session_2=broken)
    with pytest.raises(ReadError, match="conv-1 turn 1: 'text' is missing"):
        read(tmp_path, content)
    (recording,) = read(tmp_path, content, on_error="skip")
    assert [message.name for message in recording.messages] == ["Ann", "Bob", "Bob", "Bob"]
    assert [probe.evidence for probe in recording.probes] == [(1,)]
    assert sum(recording.skipped.values()) == 2


def test_a_broken_sample_costs_only_itself(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="element 1: conversation must be an object, got NoneType"):
        read(tmp_path, sample(), {"qa": []})
    assert len(read(tmp_path, sample(), 17, sample(session_2=1), sample(), on_error="skip")) == 2


@pytest.mark.properties
def test_the_real_chats_are_read_whole(data: Path) -> None:
    recordings = list(load(data / "locomo"))
    assert len(recordings) == 7
    assert all(recording.cluster is None for recording in recordings)
    lengths = sorted(len(recording.messages) for recording in recordings)
    assert (lengths[3], lengths[-1]) == (663, 689)
    assert [len(r.probes) for r in recordings] == [199, 105, 193, 260, 242, 158, 190]
    for recording in recordings:
        times = [message.time for message in recording.messages]
        assert times == sorted(time for time in times if time is not None)
        assert len({message.name for message in recording.messages}) == 2
        assert find_violations(recording.messages) == []
    probes = [probe for recording in recordings for probe in recording.probes]
    assert Counter(probe.category for probe in probes) == {
        "multi-hop": 192,
        "temporal": 214,
        "open-domain": 66,
        "single-hop": 563,
        "adversarial": 312,
    }
    assert all(bool(probe.answers) == (probe.category != "adversarial") for probe in probes)
    # Of the 1,834 strings here (2,815 in all ten chats), five match no id as written: one is two ids,
    # one has a colon too many, "D" is none, and two name turns that do not exist.
    lost = sum((Counter(recording.skipped) for recording in recordings), Counter())
    assert lost == {"evidence that names no turn": 3}
    # Every piece of evidence is the turn that is named, whatever is said before it.
    for source, recording in zip(originals(data), recordings, strict=True):
        for asked, probe in zip(source["qa"], recording.probes, strict=True):
            named = {recording.messages[i].extra["dia_id"] for i in probe.evidence}
            assert named >= {id for id in asked["evidence"] if id in ids_of(recording)}


def originals(data: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads(
        (data / "locomo" / "locomo10.first7.json").read_text()
    )
    return content


def ids_of(recording: Recording) -> set[str]:
    return {message.extra["dia_id"] for message in recording.messages}
