"""Tests of the comparison of replies and answers by SQuAD's rules, in several scripts."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxlab.evaluation.answer_matching import (
    contains_answer,
    exact_match,
    normalize_answer,
    token_f1,
)

WORDS = st.lists(st.text(string.ascii_letters, min_size=1, max_size=6), max_size=6).map(" ".join)
PLAIN = st.text(string.ascii_letters + " ,;'!?-_()\n", max_size=60)


def by_squad(text: str) -> str:
    """Normalize an answer as ``normalize_answer`` in SQuAD's evaluation script does."""
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1_by_squad(reply: str, answer: str) -> float:
    said, wanted = by_squad(reply).split(), by_squad(answer).split()
    same = sum((Counter(said) & Counter(wanted)).values())
    if not said or not wanted:
        return float(said == wanted)
    if same == 0:
        return 0.0
    precision, recall = same / len(said), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


@given(PLAIN)
def test_plain_english_is_normalised_as_squad_does_it(text: str) -> None:
    assume("--" not in text and by_squad(text))
    assert normalize_answer(text) == by_squad(text)


@given(WORDS, WORDS)
def test_f1_of_plain_words_is_that_of_squad(reply: str, answer: str) -> None:
    assume(by_squad(reply) and by_squad(answer))
    assert token_f1(reply, [answer]) == pytest.approx(f1_by_squad(reply, answer))


@given(st.text(max_size=40))
def test_a_normalised_text_is_its_own_normal_form(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once
    assert "  " not in once
    assert once == once.strip()


@given(st.text(max_size=30), st.text(max_size=30))
def test_an_exact_reply_has_an_f1_of_one_and_holds_its_answer(reply: str, answer: str) -> None:
    assert 0 <= token_f1(reply, [answer]) <= 1
    assert token_f1(reply, [answer]) == token_f1(answer, [reply])
    if exact_match(reply, [answer]):
        assert token_f1(reply, [answer]) == 1
        assert contains_answer(reply, answer) == bool(normalize_answer(answer))


@given(WORDS, WORDS, WORDS)
def test_an_answer_between_other_words_is_found(before: str, answer: str, after: str) -> None:
    assume(by_squad(answer) and any(w not in ("a", "an", "the") for w in answer.lower().split()))
    assert contains_answer(f"{before} {answer}. {after}", answer.upper())


@given(st.text(max_size=30), st.lists(st.text(max_size=10), min_size=1, max_size=3))
def test_the_best_of_several_answers_counts(reply: str, answers: list[str]) -> None:
    assert token_f1(reply, answers) == max(token_f1(reply, [answer]) for answer in answers)
    assert exact_match(reply, answers) == any(exact_match(reply, [answer]) for answer in answers)


@pytest.mark.parametrize(
    ("said", "normal"),
    [
        ("1,000 dollars", "1000 dollars"),
        ("1,2,3", "1 2 3"),
        ("3.5", "3.5"),
        ("It is 3.5.", "it is 3.5"),
        ("10:30", "10 30"),
        ("2019–2020", "2019 2020"),
        ("2023-05-08", "2023 05 08"),
        ("$5", "5"),
        ("50%", "50"),
        ("５", "5"),
        ("½", "1 2"),
        ("U.S.", "us"),
        ("don’t", "dont"),
        ("Café", "café"),
        ("Cafe\u0301", "café"),
        ("Paris—the city…yes", "paris city yes"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("¿Qué?", "qué"),
        ("the", "the"),
        ("A", "a"),
        ("?!", ""),
        ("", ""),
    ],
)
def test_numbers_and_marks_of_other_scripts_are_normalised(said: str, normal: str) -> None:
    assert normalize_answer(said) == normal


def test_a_number_is_not_another_number() -> None:
    assert not exact_match("35", ["3.5"])
    assert not exact_match("1030", ["10:30"])
    assert not contains_answer("version 3.5", "5")
    assert contains_answer("it cost 1,250 in all", "1250")


def test_words_are_found_whole_and_scripts_without_spaces_by_the_character() -> None:
    assert not contains_answer("naïveté", "naïve")
    assert contains_answer("我住在巴黎。", "巴黎")
    assert not contains_answer("我住在巴黎。", "京都")
    assert token_f1("巴黎", ["巴黎市"]) == pytest.approx(0.8)
    assert contains_answer("파리에 살아요", "파리")


def test_nothing_holds_an_empty_answer() -> None:
    assert not contains_answer("anything", "")
    assert not contains_answer("anything", "?")
    assert token_f1("anything", []) == 0
    assert not exact_match("anything", [])
