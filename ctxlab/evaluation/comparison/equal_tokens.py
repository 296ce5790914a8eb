"""Find the limit under which a strategy sends a given number of tokens.

Strategies that send equally many tokens can be compared fairly. A strategy sends more tokens under a
higher limit, so the search narrows a range of limits in rounds. It evaluates several limits in each
round, because the tokens of the recordings are then counted only once per round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import StrategyLike
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.tokens.profiles import TokenProfile

_LIMITS_PER_ROUND = 12
_MAX_ROUNDS = 5
_CLOSE_TOLERANCE = 0.002
"the search stops if the number of tokens differs from the target by at most this fraction"
_MATCH_TOLERANCE = 0.1
"largest accepted difference, as a fraction of the target; it is wide because messages are large"


class EqualTokensLimit(NamedTuple):
    """Limit under which a strategy sends about the target number of tokens per request."""

    limit: int | float
    "limit in tokens, or as a fraction of each recording's length"
    tokens: float
    "mean tokens per request under this limit"
    target_tokens: float
    "requested mean tokens per request"


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

    All recordings are kept in memory during the search.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay.
    strategy : Strategy, str or callable
        Strategy to find a limit for.
    target_tokens : float
        Mean tokens per request, such as ``tokens_mean`` of a leaderboard.
    model : str, optional
        Model whose tokenizer counts the tokens. None uses the model of each recording.
    as_share : bool, default False
        If True, find a fraction of each recording's length. If False, find a number of tokens.
    reserve : int, default 0
        Tokens kept for the reply.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.

    Returns
    -------
    EqualTokensLimit
        The best limit, and the tokens that the strategy sends under it.

    Raises
    ------
    SpecError
        If ``target_tokens`` is not a positive number, or if the tokens sent differ from it by more
        than 10 % under every limit. This can happen because a strategy that ignores its budget sends
        the same tokens under every limit.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.find_equal_tokens_limit([recording], "sliding_window()", 5000)
    >>> abs(found.tokens - found.target_tokens) < 100
    True
    """
    check_recordings(recordings)
    recordings = list(recordings)
    if not 0 < target_tokens < math.inf:
        raise SpecError(
            f"target_tokens: expected a positive number of tokens per request, got {target_tokens:g}; "
            "use for example the tokens_mean of a strategy in the leaderboard"
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
            f"the nearest is {best.tokens:,.0f} tokens under the limit {best.limit:,.4g}"
        )
    return best


def _relative_error(found: EqualTokensLimit) -> float:
    return abs(found.tokens - found.target_tokens) / found.target_tokens
