"""Find the limit under which a strategy sends a given number of tokens, for a fair comparison.

The tokens that a strategy sends grow with its limit. The limit is bracketed by a search that
evaluates several limits at a time, because they share the token counts of the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import StrategyLike, evaluate
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.tokens.profiles import TokenProfile

_LIMITS_PER_ROUND = 12
_MAX_ROUNDS = 5
_CLOSE_TOLERANCE = 0.002
"relative difference of tokens at which the search stops"
_MATCH_TOLERANCE = 0.1
"relative difference of tokens that is not a match; it is wide because messages are large"


class EqualTokensLimit(NamedTuple):
    """A limit under which a strategy sends as many tokens as the target."""

    limit: int | float
    "tokens, or a fraction of each recording"
    tokens: float
    "mean tokens per request under that limit"
    target_tokens: float
    "the tokens per request that were asked for"


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
    """Find the limit under which a strategy sends ``target_tokens`` tokens per request on average.

    All recordings are held in memory.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings.
    strategy : Strategy, str or callable
        The strategy.
    target_tokens : float
        Mean tokens per request, such as ``tokens_mean`` of a leaderboard.
    model : str, optional
        Model whose tokenizer applies. None takes the model of each recording.
    as_share : bool, default False
        Search fractions of each recording's length instead of tokens.
    reserve : int, default 0
        Tokens kept for the reply.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibration of token counts by model family.
    progress : bool, optional
        Show a progress bar.

    Returns
    -------
    EqualTokensLimit
        The limit, and the tokens that the strategy sends under it.

    Raises
    ------
    SpecError
        If ``target_tokens`` is not valid, or no limit comes close to it. A strategy that does not
        read its budget sends the same under every limit.
    """
    check_recordings(recordings)
    recordings = list(recordings)
    if not 0 < target_tokens < math.inf:
        raise SpecError(
            f"target_tokens: expected a positive number such as tokens_mean, got {target_tokens:g}"
        )
    replay = partial(evaluate, recordings, model=model, metrics=["usage"], profile=profile)
    low, high = 0.001, 1.0
    if not as_share:
        longest = replay("full", 1.0, progress=False).leaderboard()["tokens_peak"].max()
        low, high = float(reserve + 1), float(int(longest) + reserve)
    best = EqualTokensLimit(high, np.nan, target_tokens)
    for _ in range(_MAX_ROUNDS):
        steps = np.geomspace(low, high, _LIMITS_PER_ROUND)
        limits = list(dict.fromkeys(steps.tolist() if as_share else [round(s) for s in steps]))
        board = replay([strategy], limits, reserve=reserve, progress=progress).leaderboard()
        sent = dict(zip(board["limit"], board["tokens_mean"], strict=True))
        tried = [EqualTokensLimit(x, sent[x], target_tokens) for x in limits]
        best = min(tried, key=_relative_error)
        if _relative_error(best) <= _CLOSE_TOLERANCE or len(limits) < 3:
            break
        below = [x for x in limits if sent[x] <= target_tokens]
        above = [x for x in limits if sent[x] >= target_tokens and x > max(below, default=0)]
        low, high = max(below, default=low), min(above, default=high)
        if low >= high:
            break
    if _relative_error(best) > _MATCH_TOLERANCE:
        raise SpecError(
            f"no limit makes {strategy!r} send {target_tokens:,.0f} tokens per request; "
            f"the nearest is {best.tokens:,.0f} at {best.limit:,.4g}"
        )
    return best


def _relative_error(found: EqualTokensLimit) -> float:
    return abs(found.tokens - found.target_tokens) / found.target_tokens
