"""Tests for all baselines: their data is complete, and they run with their parameters.

``nox -s peers`` compares baselines with their upstream packages. The tests of products without a
package are in ``tests/strategies/baselines``.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import fields
from typing import Any

import pytest
from generated import TOOLS, conversations, limits, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from known_baselines import ACTING
from replaying import Sent, run
from small_talk import COUNTER, firsts, last, steps, task

from ctxlab.errors import ModelUnavailable, SpecError, UnknownName
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.formats import load
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.base import Pipeline
from ctxlab.strategies.baselines import BASELINES

NAMES = tuple(BASELINES)
LIMIT = 6000

IDLE = {"mini_swe_agent": "it sends everything"}
"""Baselines that do nothing, and are known to."""

TASKLESS = "the user's first message goes with what is old, and an assistant's begins the request"

BREAKS: dict[str, tuple[frozenset[str], str]] = {
    name: (frozenset(rules.split()), reason)
    for name, rules, reason in (
        ("adk.compaction", "starts_with_user", "its summary is the assistant's"),
        ("ag2.sliding_window", "starts_with_user", TASKLESS),
        ("ag2.token_budget", "starts_with_user", TASKLESS),
        ("agent_framework.context_window", "starts_with_user", TASKLESS),
        ("agent_framework.sliding_window", "starts_with_user", TASKLESS),
        ("agent_framework.truncation", "starts_with_user", TASKLESS),
        ("agent_framework.summarization", "starts_with_user", "its summary is the assistant's"),
        ("autogen.buffered", "starts_with_user", TASKLESS),
        ("autogen.token_limited", "orphaned_result unanswered_call", "drops the middle message"),
        ("langchain.trim_messages", "orphaned_result starts_with_user", "cuts wherever it fits"),
        (
            "langmem.summarize",
            "orphaned_result starts_with_user empty_request",
            "cuts between the results of parallel calls; its summary is a system message",
        ),
        (
            "litellm.trim_messages",
            "orphaned_result starts_with_user unanswered_call",
            "takes and leaves single messages as they fit",
        ),
        ("openai.truncation_auto", "starts_with_user", TASKLESS),
        ("openhands.amortized", "starts_with_user", TASKLESS),
        ("pydantic_ai.sliding", "starts_with_user", TASKLESS),
        ("semantic_kernel.truncation", "starts_with_user", TASKLESS),
        ("semantic_kernel.summarization", "starts_with_user", "its summary is the assistant's"),
        ("strands.sliding", "starts_with_user", TASKLESS),
    )
}
"""Rules that a product breaks on the bundled logs, and why; all others send valid requests only."""


SMALL = (
    "aider(max_chat_history_tokens=300)",
    "anthropic.clear_tool_uses(trigger=300, clear_tool_inputs=True)",
    "anthropic.clear_tool_uses(trigger=100, clear_at_least=200, keep=1)",
    "anthropic.compaction(trigger=300)",
    "claude_code(headroom=400, output_chars=40, preview_chars=20, idle_tokens=60, idle_minutes=5.0)",
    "claude_code(clear_minutes=1.0, keep_results=1) | panic()",
    "claude_code.v2_1_20",
    "cline(preserve_recent_tokens=100)",
    "cline.basic",
    "codex",
    "codex(user_tokens=60) | tool_stubs(keep=1)",
    "complexity_trap.masking(n=1)",
    "complexity_trap.summary(summarize_every=1, keep_last_m_turns=0)",
    "complexity_trap.hybrid(summarize_every=2, keep_last_m_turns=2, n=1)",
    "copilot_cli",
    "deepseek(headroom_tokens=50)",
    "gemini_cli(tool_tokens=50, tool_chars=100, protection_tokens=9, min_prunable_tokens=9)",
    "goose",
    "goose(tool_call_cutoff=0)",
    "goose | panic()",
    "hermes(protect_last_n=2)",
    "letta",
    "openclaw(keep_recent_tokens=50, mid_turn=True, ttl=0)",
    "openclaw.api_key(min_trigger=40, keep_recent_tokens=50)",
    "pi(reserve_tokens=50, keep_recent_tokens=50)",
    "opencode(preserve_recent_tokens=99, prune=True, prune_protect=9, prune_minimum=5)",
    "roo(max_tokens=50)",
    "roo(max_tokens=50, auto_condense_context=False)",
    "swe_agent.last_5(n=1, polling=2)",
    "vercel.prune_messages(tool_calls='before-last-3-messages')",
    "vercel.prune_messages(tool_calls='all')",
)
"""Baselines that never break a pair, with parameters that act on small conversations."""


@pytest.fixture(scope="module")
def prepared_recordings() -> list[PreparedRecording]:
    chosen = (next(iter(load(f"bundled:{name}"))) for name in ("coding-agent", "support-desk"))
    return [PreparedRecording(recording, COUNTER) for recording in chosen]


def acting(name: str) -> str:
    return f"{name}({ACTING.get(name, '')})"


def another(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2
    return value


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_imitates_where_that_can_be_read_and_what_it_does(name: str) -> None:
    baseline = BASELINES[name]
    assert baseline.name == name
    assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)?", name)
    assert re.search(r"\d", baseline.product_version), "a version, a commit or a date"
    assert re.fullmatch(r"https://\S+", baseline.url)
    assert baseline.description.rstrip().endswith(".")
    assert baseline.package or not baseline.conformance_options


@pytest.mark.parametrize("name", NAMES)
def test_it_says_for_each_parameter_where_the_product_sets_it(name: str) -> None:
    baseline = BASELINES[name]
    named = [each.parameter for each in baseline.settings]
    assert sorted(named) == sorted(baseline.parameters)
    for setting in baseline.settings:
        default = baseline.parameters[setting.parameter]
        assert bool(setting.write(default)) == (setting.kind is not None)
        assert setting.kind is None or setting.name
        assert setting.kind is not None or setting.note


@pytest.mark.parametrize("name", NAMES)
def test_it_is_written_by_its_name_and_is_a_value(name: str) -> None:
    strategy = parse_strategy(name)
    assert repr(strategy) == f"{name}()"
    for text in (name, f"{name}()", f"{name} | panic()", acting(name)):
        one = parse_strategy(text)
        assert parse_strategy(repr(one)) == one
        assert hash(parse_strategy(repr(one))) == hash(one)
        assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_can_be_changed_and_reaches_the_strategy(name: str) -> None:
    baseline = BASELINES[name]
    for parameter, default in baseline.parameters.items():
        value = another(default)
        changed = baseline(**{parameter: value})
        assert f"{parameter}={value!r}" in repr(changed)
        assert parse_strategy(repr(changed)) == changed
        inner = changed.strategy
        steps: Any = inner.steps if isinstance(inner, Pipeline) else (inner,)
        assert value in [
            getattr(step, parameter)
            for step in steps
            if parameter in {field.name for field in fields(step)}
        ]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_that_it_lacks_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"{name} has no parameter 'kepe'")):
        parse_strategy(f"{name}(kepe=3)")


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UnknownName, match=r"swe_agent\.last_5"):
        parse_strategy("swe_agent.last_6")


def test_one_that_asks_a_model_says_so_by_a_parameter_that_is_off() -> None:
    for baseline in BASELINES.values():
        if "model" in baseline.parameters:
            assert baseline.parameters["model"] is None, baseline.name


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", NAMES)
def test_it_replays_real_conversations_and_its_tokens_are_a_fresh_count(
    name: str, prepared_recordings: list[PreparedRecording]
) -> None:
    acted = False
    for prepared in prepared_recordings:
        tools = list(prepared.recording.tools)
        trace, requests = run(prepared, acting(name), LIMIT)
        assert len(requests) == len(prepared.request_positions)
        for tokens, faults, sent in zip(
            trace.tokens, trace.violation_counts, requests, strict=True
        ):
            assert tokens == COUNTER.count_request(sent.messages, tools)
            assert bool(faults) == bool(find_violations(sent.messages, prepared.provider))
            acted = acted or sent.messages != list(prepared.recording.messages[: sent.position])
    assert acted != (name in IDLE)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", NAMES)
def test_it_sends_no_invalid_request_unless_its_product_is_known_to(
    name: str, prepared_recordings: list[PreparedRecording]
) -> None:
    broken: set[str] = set()
    for prepared in prepared_recordings:
        assert prepared.valid
        _, requests = run(prepared, acting(name), LIMIT)
        broken |= {fault.rule for sent in requests for fault in find_violations(sent.messages)}
    assert broken == BREAKS.get(name, (frozenset(), ""))[0]


def test_what_is_listed_is_there() -> None:
    for table in (ACTING, IDLE, BREAKS):
        assert set(table) <= set(NAMES)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", NAMES)
def test_a_replay_gives_the_same_again_and_two_at_once_do_not_meet(
    name: str, prepared_recordings: list[PreparedRecording]
) -> None:
    messages = [*task(25), Message("user", "And now?"), *task(9)[2:]]
    spec = acting(name)
    assert last(spec, messages, 1500) == last(spec, messages, 1500)
    one, other = (run(prepared_recordings[1], spec, limit)[0].tokens for limit in (LIMIT, LIMIT))
    assert one == other


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SMALL)
@given(
    messages=conversations() | strange_conversations(),
    limit=limits(),
    reserve=st.sampled_from([0, 0, 50]),
)
def test_whatever_the_conversation_pairs_stay_whole_and_tokens_are_true(
    spec: str, messages: tuple[Message, ...], limit: int, reserve: int
) -> None:
    prepared = prepare_messages(messages, COUNTER, TOOLS)
    trace, requests = run(prepared, spec, prepared.make_budget(limit, reserve))
    for tokens, faults, sent in zip(trace.tokens, trace.violation_counts, requests, strict=True):
        assert tokens == COUNTER.count_request(sent.messages, TOOLS)
        assert bool(faults) == bool(find_violations(sent.messages))
        starts = [entry.start for entry in sent.entries]
        assert starts == sorted(starts)
        if not find_violations(messages[: sent.position]):
            assert not find_violations(sent.messages)


ASKING = tuple(name for name in NAMES if "model" in BASELINES[name].parameters)

JUDGING = {
    *(
        "aider",
        "anthropic.compaction",
        "claude_code",
        "claude_code.v2_1_20",
        "cline",
        "codex",
        "codex.local",
        "gemini_cli",
        "goose",
        "letta",
        "openai.compact",
    ),
    *("copilot_cli", "deepseek", "deepseek.v0_1", "hermes", "letta.v0_16_4", "letta.v0_16_8"),
    *("openclaw", "openclaw.api_key", "pi", "pi.v0_80"),
    *("complexity_trap.summary", "complexity_trap.hybrid", "opencode", "roo"),
}
"""Those that reject a summary which repeats itself or saves nothing; all others take any."""


def asked(name: str, prepared: PreparedRecording, answer: Any) -> tuple[Trace, list[Sent]]:
    """Replay a baseline with a model that always gives the same answer."""
    options = ", ".join(filter(None, (ACTING.get(name), "model='gpt-4o'")))
    client = ScriptedClient(lambda _: answer)
    trace, requests = run(
        PreparedRecording(prepared.recording, COUNTER, client), f"{name}({options})", LIMIT
    )
    assert client.requests
    assert len(trace.context.model_calls) == len(client.requests)
    return trace, requests


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", ASKING)
def test_what_a_model_wrote_is_sent_word_for_word(
    name: str, prepared_recordings: list[PreparedRecording]
) -> None:
    summary = "Goal: fix HAT136.\n\n* Next: run the *tests*."
    trace, requests = asked(name, prepared_recordings[0], summary)
    assert any(summary in text for sent in requests for text in sent.texts)
    assert not any("fallback" in event for _, event in trace.context.events)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("name", [name for name in ASKING if name not in JUDGING])
def test_where_the_product_judges_no_summary_any_will_do(
    name: str, prepared_recordings: list[PreparedRecording]
) -> None:
    summary = "and so on, and so forth; " * 300
    _, requests = asked(name, prepared_recordings[0], summary)
    assert any(summary.strip() in text for sent in requests for text in sent.texts)


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("answer", [ModelUnavailable("busy"), " \n"])
@pytest.mark.parametrize("name", ASKING)
def test_where_no_model_answers_the_lines_are_extracted_and_that_is_reported(
    name: str, answer: Any, prepared_recordings: list[PreparedRecording]
) -> None:
    said = {message.text for message in prepared_recordings[0].recording.messages}
    trace, requests = asked(name, prepared_recordings[0], answer)
    texts = {text for sent in requests for text in sent.texts} - said
    assert any(re.search(r"^- (user|assistant|bash|\w+\()", text, re.MULTILINE) for text in texts)
    fallbacks = [event for _, event in trace.context.events if "fallback" in event]
    assert fallbacks
    for event in fallbacks:
        assert event.startswith("summary fallback: ")
        assert answer == " \n" or event.endswith("busy")


@pytest.mark.parametrize(
    "spec",
    [
        "anthropic.clear_tool_uses(trigger=2, keep=2)",
        "langchain.clear_tool_uses(trigger=1, keep=2)",
        "openhands.masking(attention_window=4)",
        "swe_agent.last_5(n=2)",
    ],
)
def test_behind_sessions_it_counts_the_results_of_the_session(spec: str) -> None:
    def work(file: str, first: int, number: int) -> list[Message]:
        return [message.replace(file=file) for message in steps(number, first)]

    talk = [*task(0), *work("a.py", 0, 3), *work("b.py", 3, 6), *work("a.py", 9, 1)]
    sent = last(f"file_sessions(carry=0) | {spec}", talk, 9000)
    kept = [text for text in firsts(sent) if text.startswith("result")]
    assert kept == ["result 2", "result 9"]
