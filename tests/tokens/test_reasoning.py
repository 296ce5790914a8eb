"""Tests of ``ctxlab.tokens.reasoning``."""

from __future__ import annotations

import pytest

from ctxlab.errors import SpecError
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.reasoning import find_reasoning_rule


@pytest.mark.parametrize(
    ("models", "rule"),
    [
        (("claude-opus-4-5-20251101", "claude-sonnet-4.6", "anthropic/claude-fable-5"), "keep"),
        (("claude-mythos-preview", "gpt-5.6-sol", "gpt-6.1-sol", "deepseek-v4-pro"), "keep"),
        (("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-1-20250805"), "current_turn"),
        (("gpt-5-2025-08-07", "gpt-5.5", "gpt-5.3-codex", "o3", "o4-mini"), "current_turn"),
        (("o1", "o3-mini", "gpt-4o", "gemini-3-pro", "deepseek-reasoner", "qwen3"), "clear"),
    ],
)
def test_a_model_has_the_rule_of_its_provider(models: tuple[str, ...], rule: str) -> None:
    assert {find_reasoning_rule(model) for model in models} == {rule}


def test_only_auto_follows_the_model_and_recorded_counts_no_reasoning() -> None:
    rules = {
        mode: CostSettings(reasoning=mode).reasoning_rule("claude-opus-4-5")  # type: ignore[arg-type]
        for mode in ("recorded", "auto", "keep", "current_turn", "clear")
    }
    assert rules == {
        "recorded": "clear",
        "auto": "keep",
        **{rule: rule for rule in ("keep", "current_turn", "clear")},
    }
    with pytest.raises(SpecError, match=r"reasoning: expected recorded, auto, .* got 'all'"):
        CostSettings(reasoning="all")  # type: ignore[arg-type]
