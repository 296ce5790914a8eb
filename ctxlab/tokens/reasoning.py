"""Decide which hidden reasoning of earlier replies a request contains.

Reasoning models write hidden reasoning before a reply. Clients send it back with later requests, and the
provider keeps it, drops it after the current turn, or ignores it. A turn begins with a message of the
user and includes all tool calls until the next one. The rules of the providers and their sources are in
``ctxlab.tokens.model_families.REASONING_RULES``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, TypeAlias

from ctxlab.tokens.images import normalize_model_name
from ctxlab.tokens.model_families import REASONING_RULES

ReasoningRule: TypeAlias = Literal["keep", "current_turn", "clear"]
"""Hidden reasoning that a request contains: that of all replies, of the current turn, or none."""

ReasoningMode: TypeAlias = Literal["recorded", "auto", "keep", "current_turn", "clear"]
"""Setting of an evaluation: a rule; ``auto`` for the rule of the model; or ``recorded``, see
``ctxlab.tokens.cache_timeline.CostSettings``."""


@cache
def find_reasoning_rule(model: str) -> ReasoningRule:
    """Return which hidden reasoning a request to a model contains, by the rules of its provider.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    {"keep", "current_turn", "clear"}
        Rule of the model; ``clear`` if none is known.

    Examples
    --------
    >>> [find_reasoning_rule(name) for name in ("claude-opus-4.5", "gpt-5.5", "gemini-3-pro")]
    ['keep', 'current_turn', 'clear']
    """
    name = normalize_model_name(model)
    return next((rule for pattern, rule in REASONING_RULES if re.search(pattern, name)), "clear")
