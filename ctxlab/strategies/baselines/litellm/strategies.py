"""Baseline of litellm, which shortens messages in the middle until the request fits."""

from __future__ import annotations

from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.litellm.trim import trim_messages

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "litellm.trim_messages",
        trim_messages(),
        "litellm 1.106.2",
        "https://github.com/BerriAI/litellm/blob/v1.106.2/litellm/utils.py",
        "Keeps the newest messages in 0.75 of the window, shortens those that do not fit in "
        "the middle, continues with older messages that fit, and separates calls from results. "
        "A call without text that does not fit raises an error, and then everything is sent "
        "untrimmed. It counts tokens as its tokenizer for OpenAI's models does, in pieces of "
        "1,024 characters; for other models ctxlab's vocabulary is used, and images are "
        "counted by ctxlab.",
        ("", "max_tokens=4000", "max_tokens=1500"),
    ),
)
