"""Tests of summaries by a model: limits, summaries in parts, checks, and the fallback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from generated import conversations, history_of, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Form
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm.base import Reply, Request
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER, fold_into_summary, summarize
from ctxlab.strategies.summaries.llm import SummaryWarning, load_prompt
from ctxlab.strategies.summaries.structured import extract_structured_summary
from ctxlab.strategies.summaries.transcript import format_transcript
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

SMALL = "gpt-4"
"""A window of 8,192 tokens."""

COUNTER = TokenCounter(SMALL)


def context_of(client: ScriptedClient | None, *messages: Message) -> Context:
    history = history_of(list(messages), COUNTER)
    history.client = client
    context = Context(Budget(10**6), history)
    context.advance(len(messages))
    return context


def talk(count: int, words: int = 60) -> list[Message]:
    return [
        Message("user" if i % 2 else "assistant", f"marker{i}x " + f"thing{i} is so " * words)
        for i in range(count)
    ]


def asked_within_the_window(client: ScriptedClient) -> None:
    for request in client.requests:
        used = COUNTER.count_request(request.messages)
        assert request.max_tokens
        assert used + request.max_tokens <= 0.8 * find_model(SMALL).limit


def short(request: Request) -> str:
    """Scripted model whose summary contains the markers of its prompt."""
    return " ".join(re.findall(r"marker\d+x", request.messages[1].text)) or "Nothing was said."


def kind(request: Request) -> str:
    return "merge" if "<summaries>" in request.messages[1].text else "read"


# --- seed 002, 10.7 -------------------------------------------------------------------------------


@given(
    messages=conversations(turns=6) | strange_conversations(),
    times=st.sampled_from([1, 12]),
    tokens=st.sampled_from([1, 40, 400, 3000]),
    previous=st.sampled_from(["", "- user: " + "what was said before " * 30]),
)
@pytest.mark.filterwarnings("ignore::ctxlab.strategies.summaries.llm.SummaryWarning")
def test_seed_002_10_7_the_summary_prompt_is_counted_and_stays_below_80_percent_of_the_window(
    messages: tuple[Message, ...], times: int, tokens: int, previous: str
) -> None:
    """Seed 002, section 10.7."""
    client = ScriptedClient(short)
    context = context_of(client)
    said = summarize(context, previous, messages * times, tokens, SMALL)
    asked_within_the_window(client)
    assert COUNTER.count_text(said) <= tokens
    assert len(context.model_calls) == len(client.requests) > 0


def test_seed_002_10_7_one_message_beyond_a_call_is_cut_in_the_middle_with_a_warning() -> None:
    client = ScriptedClient(short)
    huge = Message("user", "marker1x first " + "fill " * 30_000 + "last marker2x")
    context = context_of(client)
    with pytest.warns(SummaryWarning, match="summary input cut: 1 of 1 messages too long for"):
        said = summarize(context, "", [huge], 400, SMALL)
    asked_within_the_window(client)
    assert said == "marker1x marker2x"
    assert (0, "summary input cut: 1 of 1 messages too long for gpt-4") in context.events
    assert "characters left out]" in client.requests[0].messages[1].text


def test_a_window_too_small_for_any_summary_is_said_and_nothing_is_asked() -> None:
    client = ScriptedClient(short)
    context = context_of(client)
    previous = "word " * 7000  # the summary so far alone is larger than a call
    said = summarize(context, previous, talk(4), 400, SMALL)
    assert client.requests == []
    assert said == summarize(context_of(None), previous, talk(4), 400)
    assert context.events == [
        (0, "summary fallback: the context window of gpt-4 is too small for a summary")
    ]


# --- what a model is given ------------------------------------------------------------------------


def test_one_call_extends_the_summary_so_far_by_the_transcript() -> None:
    client = ScriptedClient("The summary.")
    call = ToolCall("c1", "read", '{"path": "src/io.py"}')
    messages = [
        Message("user", ({"type": "text", "text": "See"}, {"type": "image_url"})),
        Message("assistant", "I read it.", tool_calls=(call,)),
        Message("tool", "x" * 9000, tool_call_id="c1"),
    ]
    context = context_of(client)
    assert summarize(context, "What was before.", messages, 400, SMALL) == "The summary."
    (request,) = client.requests
    rules, body = request.messages
    assert (rules.role, body.role) == ("system", "user")
    assert "at most 300 words" in rules.text
    assert body.text.startswith("<summary_so_far>\nWhat was before.\n</summary_so_far>\n")
    result = format_transcript(messages)[2]
    assert body.text.endswith(
        "<conversation>\n[user]\nSee\n[image_url]\n[assistant]\nI read it.\n"
        f'calls read({{"path": "src/io.py"}})\n{result}\n</conversation>'
    )
    assert result.startswith("[result of read]\nxxx")
    assert "[… 6000 characters left out]" in result


def test_a_prompt_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("Only numbers, in {words} words.")
    client = ScriptedClient("Seven.")
    summarize(context_of(client), "", talk(2), 400, SMALL, str(own))
    assert client.requests[0].messages[0].text == "Only numbers, in 300 words."


def test_a_prompt_that_is_nowhere_names_those_that_there_are() -> None:
    with pytest.raises(
        SpecError, match=r"unknown prompt 'sumary' .* structured, summary or the path"
    ):
        load_prompt("sumary")


# --- in parts -------------------------------------------------------------------------------------


def test_what_exceeds_one_call_is_summarized_in_parts_and_merged_with_the_summary_so_far() -> None:
    client = ScriptedClient(short)
    context = context_of(client)
    said = summarize(context, "marker999x", messages := talk(40, 100), 1000, SMALL)
    asked_within_the_window(client)
    *parts, merge = client.requests
    assert [kind(request) for request in client.requests] == ["read"] * len(parts) + ["merge"]
    assert len(parts) > 2
    # Each message is in one part, in order, and the summary so far is with the merge alone.
    seen = [m for request in parts for m in re.findall(r"marker\d+x", request.messages[1].text)]
    assert seen == [message.text.split()[0] for message in messages]
    assert "marker999x" in merge.messages[1].text
    assert said == " ".join(["marker999x", *seen])
    assert context.events == []
    assert len(context.model_calls) == len(client.requests)


@pytest.mark.properties
def test_parts_that_exceed_one_merge_are_merged_in_several_steps() -> None:
    def long(request: Request) -> str:
        body = request.messages[1].text
        found = re.findall(r"marker\d+x", body)
        filler = "".join(
            f"{found[0]} was {i} " for i in range(9 if kind(request) == "merge" else 200)
        )
        return " ".join(found[:1] + found[-1:]) + "\n" + filler

    client = ScriptedClient(long)
    context = context_of(client)
    said = summarize(context, "", talk(400, 100), 1500, SMALL)
    asked_within_the_window(client)
    steps = [kind(request) for request in client.requests]
    assert steps == sorted(steps, reverse=True)
    assert steps.count("merge") > 2
    assert said.startswith("marker0x")


def test_a_part_that_fails_is_written_without_the_model_alone() -> None:
    def third_fails(request: Request) -> str | Exception:
        if kind(request) == "read" and len(client.requests) == 3:
            return ModelUnavailable("busy", attempts=4)
        return short(request)

    client = ScriptedClient(third_fails)
    context = context_of(client)
    summarize(context, "", talk(40, 100), 3000, SMALL)
    parts = sum(kind(request) == "read" for request in client.requests)
    assert context.events == [(0, f"summary fallback: part 3 of {parts}: busy")]
    merge = client.requests[-1].messages[1].text
    assert "[part 1]\nmarker0x marker1x " in merge
    third = client.requests[2].messages[1].text.split("\n")[2].split()[0]
    assert f"[part 3]\n- assistant: {third} thing" in merge
    assert [spent.attempts for spent in context.model_calls][2] == 4


def test_where_no_part_is_answered_the_summary_is_the_one_without_a_model() -> None:
    client = ScriptedClient(lambda _: ModelUnavailable("busy"))
    context = context_of(client)
    messages = talk(40, 100)
    said = summarize(context, "- before", messages, 400, SMALL)
    assert said == summarize(context_of(None), "- before", messages, 400)
    (event,) = context.events
    assert event[1].startswith("summary fallback: no part could be summarised; part 1 of ")
    assert all(kind(request) == "read" for request in client.requests)


# --- what is no summary ---------------------------------------------------------------------------

NONSENSE: dict[str, tuple[str | Reply | Exception, str]] = {
    "empty": (" \n ", "the summary is empty"),
    "thought": ("<think>Hm, what was asked?", "the summary is empty"),
    "nothing": (Reply(Message("assistant", None), finish="length"), "finish reason length"),
    "filtered": (
        Reply(Message("assistant", "The user"), finish="content_filter"),
        "content filter stopped",
    ),
    "repeating": ("and then " * 300, "the summary repeats itself"),
    "stuck": ("All went well. " + "ha" * 800, "the summary repeats itself"),
    "long": (" ".join(f"word{i}" for i in range(5000)), "not shorter than its source"),
    "unavailable": (ModelUnavailable("gpt-4 gave no answer"), "gpt-4 gave no answer"),
}  # fmt: skip


@pytest.mark.parametrize("prompt", ["summary", "structured"])
@pytest.mark.parametrize(("answer", "why"), NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_summary_is_rejected_and_one_is_written_without_the_model(
    answer: str | Reply | Exception, why: str, prompt: str
) -> None:
    context = context_of(ScriptedClient(answer), *talk(12))
    without = context_of(None, *talk(12))
    assert fold_into_summary(context, 1, 11, 300, SMALL, prompt)
    assert fold_into_summary(without, 1, 11, 300, None, prompt)
    assert context.messages == without.messages
    assert context.messages[1].text.startswith(SUMMARY_HEADER)
    (fallback, done) = (event for _, event in context.events)
    assert fallback.startswith("summary fallback: ")
    assert why in fallback
    assert done == "summary"
    assert len(context.model_calls) == 1


def test_a_refusal_goes_through() -> None:
    context = context_of(ScriptedClient(ModelRequestRejected("wrong key")), *talk(12))
    with pytest.raises(ModelRequestRejected, match="wrong key"):
        fold_into_summary(context, 1, 11, 300, SMALL)


def test_a_summary_over_its_tokens_is_cut_at_a_line_and_that_is_reported() -> None:
    lines = [f"- step {i} was done with result {i * i}" for i in range(40)]
    context = context_of(ScriptedClient("\n".join(lines)))
    said = summarize(context, "", talk(20, 20), 120, SMALL)
    assert 60 < COUNTER.count_text(said) <= 120
    assert said.split("\n") == lines[: said.count("\n") + 1]
    used = COUNTER.count_text("\n".join(lines))
    assert context.events == [(0, f"summary cut: it had {used} tokens, but only 120 are allowed")]


@given(st.text(min_size=1), st.integers(1, 60))
def test_no_summary_of_a_model_is_over_its_tokens(answer: str, tokens: int) -> None:
    context = context_of(ScriptedClient(answer * 9))
    assert COUNTER.count_text(summarize(context, "", talk(12), tokens, SMALL)) <= tokens


def test_what_a_model_thinks_before_it_writes_is_no_part_of_the_summary() -> None:
    context = context_of(ScriptedClient("<think>\nFirst …\n</think>\n\nThe summary."))
    assert summarize(context, "", talk(2), 100, SMALL) == "The summary."


def test_structured_without_a_model_is_the_digest() -> None:
    messages = [Message("assistant", None, tool_calls=(ToolCall("c", "read", '{"path": "a.py"}'),))]
    said = summarize(context_of(None), "## Goal\n- Fix it", messages, 200, None, "structured")
    assert said == extract_structured_summary("## Goal\n- Fix it", messages, 800)


def test_a_fold_extends_the_summary_that_stands_there() -> None:
    client = ScriptedClient("First summary.", "Second summary.")
    context = context_of(client, *talk(20))
    assert fold_into_summary(context, 1, 8, 300, SMALL)
    assert fold_into_summary(context, 1, 9, 300, SMALL)
    assert [entry.form for entry in context.entries[:3]] == [
        Form.VERBATIM, Form.SUMMARY, Form.VERBATIM,
    ]  # fmt: skip
    assert context.messages[1].text == SUMMARY_HEADER + "Second summary."
    assert (context.entries[1].start, context.entries[1].stop) == (1, 15)
    body = client.requests[1].messages[1].text
    assert body.startswith("<summary_so_far>\nFirst summary.\n</summary_so_far>\n")
    assert SUMMARY_HEADER.strip() not in body
