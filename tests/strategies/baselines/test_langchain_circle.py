"""Tests for all baselines of LangChain, LangMem, deepagents, litellm and LlamaIndex."""

from __future__ import annotations

import pickle

import pytest
from generated import conversations, limits, prepare_messages
from hypothesis import given
from replaying import run

from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy
from ctxlab.strategies.baselines import BASELINES
from ctxlab.tokens.counter import TokenCounter

FAMILIES = ("deepagents", "langchain", "langmem", "litellm", "llama_index")
SPECS = [
    "deepagents(summary_tokens=30)",
    "deepagents(trigger=('messages', 5), keep=('messages', 2), summary_tokens=30)",
    "langchain.clear_tool_uses(trigger=40, keep=1)",
    "langchain.clear_tool_uses(trigger=20, keep=0, clear_tool_inputs=True, clear_at_least=30)",
    "langchain.summarization(trigger=('fraction', 0.5), keep=('fraction', 0.2))",
    "langchain.summarization(trigger=('messages', 5), keep=('messages', 2))",
    "langchain.trim_messages()",
    "langchain.trim_messages(max_tokens=90, start_on='human', include_system=True)",
    "langmem.summarize(max_tokens=120, max_tokens_before_summary=40, max_summary_tokens=50)",
    "litellm.trim_messages()",
    "litellm.trim_messages(max_tokens=80)",
    "llama_index.memory(token_limit=60, token_flush_size=20)",
]


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=conversations(), limit=limits())
def test_totals_are_true_and_a_replay_ends_the_same_twice(
    spec: str, messages: tuple[Message, ...], limit: int, counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    first, again = (run(prepared, spec, limit) for _ in range(2))
    assert first[0].tokens == again[0].tokens
    assert [r.messages for r in first[1]] == [r.messages for r in again[1]]
    for tokens, request in zip(first[0].tokens, first[1], strict=True):
        assert tokens == sum(map(counter.count_message, request.messages)) + prepared.fixed_tokens


@pytest.mark.parametrize("spec", SPECS)
def test_the_text_form_gives_the_strategy_back(spec: str) -> None:
    strategy = parse_strategy(spec)
    assert parse_strategy(repr(strategy)) == strategy == pickle.loads(pickle.dumps(strategy))


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("spec", SPECS)
@given(messages=conversations())
def test_what_comes_after_it_in_a_pipeline_gets_true_totals(
    spec: str, messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    prepared = prepare_messages(messages, counter)
    trace, requests = run(prepared, f"tool_result_cap(chars=60) | {spec} | panic()", 400)
    for tokens, request in zip(trace.tokens, requests, strict=True):
        assert tokens == sum(map(counter.count_message, request.messages)) + prepared.fixed_tokens


@pytest.mark.parametrize(
    "check",
    [
        f"{baseline.name}({options})"
        for baseline in BASELINES.values()
        if baseline.name.split(".")[0] in FAMILIES
        for options in baseline.conformance_options
    ],
)
def test_every_check_of_a_baseline_can_be_read(check: str) -> None:
    assert repr(parse_strategy(check)).startswith(check.partition("(")[0])
