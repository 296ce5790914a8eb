"""Tests of the controls of the metric, which show if recall can be had by sending names without text."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from generated import conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from replaying import Sent, run

from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.verdict import control_name
from ctxlab.formats import load
from ctxlab.messages.entities import find_entities
from ctxlab.messages.types import Message, Recording, message_text
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import line_list, names_in_place, nothing, parse_strategy
from ctxlab.strategies.registry import METRIC_CONTROLS
from ctxlab.tokens.counter import TokenCounter

LISTS = ("name_list()", "name_list(separator='\\n')", "word_list()", "base64_text()")
KEEP = 10
LIMITS = (8_000, 16_000)
NEAR = 0.02
"difference from ``nothing`` up to which a list counts as no knowledge"


def texts_between(messages: tuple[Message, ...], sent: Sent) -> list[str]:
    """Return the texts of the messages between the head and the newest unit of a request."""
    head, starts = sent.context.history.head_length, sent.context.history.unit_starts
    return [message_text(message) for message in messages[head : starts[sent.position - 1]]]


@pytest.mark.parametrize("spec", [*LISTS, "line_list()"])
@given(messages=conversations(turns=6) | strange_conversations(), limit=limits())
def test_a_list_adds_one_text_to_what_nothing_sends_and_fits_where_nothing_does(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, parse_strategy(spec), limit)
    least, bare = run(prepared, nothing(), limit)
    for tokens, minimum, sent, small in zip(
        trace.tokens, least.tokens, requests, bare, strict=True
    ):
        assert [e.start for e in sent.entries if not e.is_aggregate] == [
            e.start for e in small.entries
        ]
        added = [entry.message for entry in sent.entries if entry.is_aggregate]
        assert len(added) <= 1
        assert tokens <= max(limit, minimum)


@given(messages=conversations(turns=6))
def test_each_list_holds_what_it_says_where_all_of_it_fits(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    for spec in ("name_list()", "word_list()", "base64_text()"):
        _, requests = run(prepared, parse_strategy(spec), 10**6)
        for sent in requests[1:]:
            between = texts_between(messages, sent)
            added = "".join(e.message.text for e in sent.entries if e.is_aggregate)
            if spec == "name_list()":
                names = {entity.text for text in between for entity in find_entities(text)}
                assert all(name in added for name in names)
            elif spec == "word_list()":
                words = {word for text in between for word in re.findall(r"[\w./@~+#-]+", text)}
                assert sorted(words) == added.split()
            else:
                data = [text.encode("utf-8", "backslashreplace") for text in between]
                lines = [base64.b64encode(each).decode() for each in data if 0 < len(each) < 50]
                assert {*lines} <= {*added.split()}


@given(messages=conversations(turns=6))
def test_a_list_of_lines_quotes_earlier_messages_and_shows_each_name(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    _, requests = run(prepare_messages(messages, counter), line_list(), 10**6)
    for sent in requests[1:]:
        between = texts_between(messages, sent)
        said = {line for text in between for line in text.split("\n")}
        tools = {call.name for message in messages for call in message.tool_calls}
        lines = [e.message.text for e in sent.entries if e.is_aggregate and e.message.text]
        for line in (line for text in lines for line in text.split("\n")):
            argument = line.removeprefix(next((t for t in tools if line.startswith(t)), "")).strip()
            assert len(line) <= 160
            assert any(line in each or argument in each for each in said)
        names = {
            e.text for text in between for part in text.split("\n") for e in find_entities(part)
        }
        assert all(name in "\n".join(lines) for name in names if len(name) <= 80)


def test_a_list_of_lines_keeps_the_last_line_that_says_more_than_names(
    counter: TokenCounter,
) -> None:
    talk = (
        Message("user", "go"),
        Message("assistant", "The parser lives in src/parse.py."),
        Message("user", "The lexer, in src/lex.py, is old."),
        Message("assistant", "No, src/parse.py is a script.\nsrc/lex.py"),
        Message("user", "well"),
        Message("assistant", "x"),
    )
    prepared = prepare_messages(talk, counter)
    lines = ["The lexer, in src/lex.py, is old.", "No, src/parse.py is a script."]
    for limit, kept in ((999, lines), (28, lines[1:])):
        sent = run(prepared, line_list(), limit)[1][-1]
        assert [message.text for message in sent.messages] == ["go", "\n".join(kept), "well"]


@given(messages=conversations(turns=6), limit=limits())
def test_names_in_place_keep_order_roles_and_pairs(
    messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, names_in_place(keep=2), limit)
    least, _ = run(prepared, nothing(), limit)
    for tokens, minimum, sent in zip(trace.tokens, least.tokens, requests, strict=True):
        assert find_violations(sent.messages) == []
        assert tokens <= max(limit, minimum)
        for entry in sent.entries:
            said = messages[entry.start]
            assert entry.stop == entry.start + 1
            assert entry.message.role == said.role
            assert [c.id for c in entry.message.tool_calls] == [c.id for c in said.tool_calls]


def test_names_in_place_leave_no_words_that_are_not_names(counter: TokenCounter) -> None:
    talk = (
        Message("user", "go"),
        Message("assistant", "The parser lives in src/parse.py, next to the lexer."),
        Message("user", "plain words only"),
        Message("assistant", "well"),
    )
    sent = run(prepare_messages((*talk, Message("assistant", "x")), counter), names_in_place(), 999)
    last = sent[1][-1]
    assert [message.text for message in last.messages] == ["go", "src/parse.py", "-", "well"]


STRATEGIES = (
    *("full", "nothing", *LISTS, "line_list()"),
    *("names_in_place()", f"names_in_place(keep={KEEP})"),
    f"sliding_window(messages={KEEP})",
)


def check_that_lists_recall_nothing(recordings: Sequence[Recording], limit: float) -> None:
    results = evaluate(recordings, STRATEGIES, limit, "gpt-4o", progress=False)
    board = results.leaderboard()
    scores = dict(zip(board["strategy"], board[HEADLINE_SCORE], strict=True))

    def score(spec: str) -> float:
        return float(scores[repr(parse_strategy(spec))])

    for spec in (*LISTS, "names_in_place()"):
        assert abs(score(spec) - score("nothing")) <= NEAR, spec
    window = score(f"sliding_window(messages={KEEP})")
    assert abs(score(f"names_in_place(keep={KEEP})") - window) <= NEAR
    assert score("full") == 1
    assert score("line_list()") > score("nothing") + 0.1  # a quoted line is held by definition
    names = dict(zip(board["strategy"], board["recall_far"], strict=True))
    assert names[repr(parse_strategy("name_list()"))] > score("nothing") + 0.1
    said = results.verdict(0.0)
    for text in METRIC_CONTROLS:
        assert control_name(repr(parse_strategy(text))) == text.split("(")[0]
        assert text.split("(")[0] not in said


@pytest.mark.properties
def test_a_text_without_its_lines_recalls_what_nothing_recalls() -> None:
    check_that_lists_recall_nothing(list(load("bundled:support-desk"))[:2], 0.6)


@pytest.mark.evals
def test_the_same_holds_for_a_coding_agent() -> None:
    check_that_lists_recall_nothing(list(load("bundled:coding-agent"))[:2], 0.6)


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["claude-code-entireio", "openhands"])
def test_the_same_holds_on_real_recordings(recorded: Path, name: str) -> None:
    if not (recorded / name).is_dir():
        pytest.skip(f"no recordings of {name} in CTXLAB_DATA")
    logs = sorted(load(recorded / name, on_error="skip"), key=lambda log: len(log.messages))
    chosen = [log for log in logs if 50 <= len(log.messages) <= 150][:3]
    check_that_lists_recall_nothing(chosen, 8_000)
