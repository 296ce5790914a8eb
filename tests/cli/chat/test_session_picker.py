"""Tests of the session picker: it accepts a number, the start of an id, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ctxlab.cli.chat.session_picker import (
    MAX_LISTED,
    QUESTION,
    choose_session,
    parse_session_choice,
    session_choices_table,
)
from ctxlab.cli.render.format import render_to_text
from ctxlab.errors import CtxlabError
from ctxlab.sessions.base import Session

SESSIONS = [
    Session(f"{n:x}0e4f{n}", title=f"Task {n}", model="gpt-5-mini", updated=1.79e9 - n, messages=n)
    for n in range(12)
]


def answering(*answers: str) -> Callable[[str], str]:
    waiting: Iterator[str] = iter(answers)

    def ask(question: str) -> str:
        assert question == QUESTION
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return ask


@pytest.mark.parametrize("answer", ["", "  ", "n", "new"])
def test_nothing_is_a_new_session(answer: str) -> None:
    """Seed 004, picker: resume one of them, or start a new session."""
    assert parse_session_choice(SESSIONS, answer) is None


def test_the_end_of_input_is_no_answer() -> None:
    with pytest.raises(EOFError):
        choose_session(SESSIONS, answering(), lambda line: None)


def test_a_number_or_the_beginning_of_an_id_is_that_session() -> None:
    assert parse_session_choice(SESSIONS, "1") is SESSIONS[0]
    assert parse_session_choice(SESSIONS, " 9 ") is SESSIONS[8]
    assert parse_session_choice(SESSIONS, "b0e") is SESSIONS[11]
    assert parse_session_choice(SESSIONS, "10e4f") is SESSIONS[1]


@pytest.mark.parametrize(
    "answer", ["0", "10", "0012", "-1", "1.5", "x", "9999999999999999999999", "\x1b[A", "²"]
)
def test_what_is_no_answer_is_told_and_asked_again(answer: str) -> None:
    with pytest.raises(CtxlabError, match="from 1 to 9"):
        parse_session_choice(SESSIONS, answer)
    told: list[str] = []
    assert choose_session(SESSIONS, answering(answer, "2"), told.append) is SESSIONS[1]
    assert len(told) == 1
    assert "\x1b" not in told[0]


def test_an_id_that_begins_several_is_none() -> None:
    several = [Session("abc1"), Session("abc2")]
    with pytest.raises(CtxlabError, match="is the beginning of 2 ids"):
        parse_session_choice(several, "abc")


def test_the_list_says_title_time_messages_model_and_id_and_how_many_more() -> None:
    """Seed 004, list: title, model and when it was updated are listed."""
    lines = render_to_text(session_choices_table(SESSIONS)).splitlines()
    assert lines[0].split() == ["session", "updated", "messages", "model", "id"]
    assert lines[2].split()[:3] == ["2", "Task", "1"]
    assert lines[2].split()[-3:] == ["1", "gpt-5-mini", SESSIONS[1].id]
    assert len(lines) == MAX_LISTED + 2
    assert lines[-1].startswith("and 3 older sessions; to resume one, type its id (see ctxlab ")
    assert "older" not in render_to_text(session_choices_table(SESSIONS[:MAX_LISTED]))


@pytest.mark.parametrize("columns", [60, 80])
def test_sessions_that_are_called_alike_are_told_apart_by_what_can_be_typed(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = [
        Session(f"{n}f8fad5b-d9cb-469f-a165-70867728950e", title="Fix the parser", model="m" * 30)
        for n in range(4)
    ]
    monkeypatch.setattr("ctxlab.cli.render.format.output_width", lambda: columns)
    lines = render_to_text(session_choices_table(alike)).splitlines()
    assert len(lines) == 5
    assert all(len(line) <= columns for line in lines)
    for session, line in zip(alike, lines[1:], strict=True):
        assert "Fix the parser" in line
        assert parse_session_choice(alike, line.split()[-1]) is session
