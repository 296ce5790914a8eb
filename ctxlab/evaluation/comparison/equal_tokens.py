"""Two strategies are compared fairly where they send as many tokens: this finds the limit for that.

What a strategy sends grows with its limit, so the limit is searched between bounds, several at a time:
they share one count of the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import StrategyLike, evaluate
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.tokens.profiles import TokenProfile

__all__ = ["EqualTokensLimit", "find_equal_tokens_limit"]

_LIMITS_PER_ROUND = 12
_MAX_ROUNDS = 5
_CLOSE_TOLERANCE = 0.002
"relative difference of tokens that is close enough"
_MATCH_TOLERANCE = 0.1
"and that is no match any more; messages are large, so some limits make it send the same"


class EqualTokensLimit(NamedTuple):
    """A limit under which a strategy sends as many tokens as was wanted."""

    limit: int | float
    tokens: float
    "a request, mean, under that limit"
    target_tokens: float


def find_equal_tokens_limit(
    recordings: Iterable[Recording],
    strategy: StrategyLike,
    target_tokens: float,
    model: str | None = None,
    *,
    as_share: bool = False,
    reserve: int = 0,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    progress: bool | None = False,
) -> EqualTokensLimit:
    """The limit under which a strategy sends ``target_tokens`` tokens a request, in the mean over
    requests.

    ``as_share``: search shares of each recording's own length, not tokens. All recordings are held in
    memory. Raises ``SpecError`` for what is no number of tokens, and where no limit gives nearly that
    many: a strategy that does not look at its limit sends the same under any.
    """
    check_recordings(recordings)
    recordings = list(recordings)
    if not 0 < target_tokens < math.inf:
        raise SpecError(
            "target_tokens: tokens a request, more than 0, such as the tokens_mean of a leaderboard; "
            f"not {target_tokens:g}"
        )
    most = 1.0 if as_share else _largest_request_tokens(recordings, model, profile) + reserve
    low, high = (0.001, 1.0) if as_share else (float(reserve + 1), float(most))
    best = EqualTokensLimit(high, np.nan, target_tokens)
    for _ in range(_MAX_ROUNDS):
        steps = np.geomspace(low, high, _LIMITS_PER_ROUND)
        limits = list(dict.fromkeys(steps.tolist() if as_share else [round(s) for s in steps]))
        board = evaluate(
            recordings,
            [strategy],
            limits,
            model,
            reserve=reserve,
            metrics=["usage"],
            profile=profile,
            progress=progress,
        ).leaderboard()
        sent = dict(zip(board["limit"], board["tokens_mean"], strict=True))
        best = min(
            (EqualTokensLimit(x, sent[x], target_tokens) for x in limits), key=_relative_error
        )
        if _relative_error(best) <= _CLOSE_TOLERANCE or len(limits) < 3:
            break
        below = [x for x in limits if sent[x] <= target_tokens]
        above = [x for x in limits if sent[x] >= target_tokens and x > max(below, default=0)]
        low, high = max(below, default=low), min(above, default=high)
        if low >= high:
            break
    if _relative_error(best) > _MATCH_TOLERANCE:
        raise SpecError(
            f"no limit makes {strategy!r} send {target_tokens:,.0f} tokens a request: "
            f"{best.tokens:,.0f} at {best.limit:,.4g} come nearest"
        )
    return best


def _relative_error(found: EqualTokensLimit) -> float:
    return abs(found.tokens - found.target_tokens) / found.target_tokens


def _largest_request_tokens(
    recordings: Sequence[Recording],
    model: str | None,
    profile: TokenProfile | Iterable[TokenProfile] | None,
) -> int:
    """Tokens of the largest request of any recording."""
    board = evaluate(
        recordings, ["full"], [1.0], model, metrics=["usage"], profile=profile, progress=False
    ).leaderboard()
    return int(board["tokens_peak"].max())
