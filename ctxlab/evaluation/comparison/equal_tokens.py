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
from ctxlab.evaluation.experiment import (
    Choice,
    evaluate,
)
from ctxlab.messages.types import (
    Recording,
    several,
)
from ctxlab.tokens.profiles import Profile

__all__ = ["Equal", "equal_tokens"]

_AT_ONCE = 12
_ROUNDS = 5
_CLOSE = 0.002
"relative difference of tokens that is close enough"
_FAR = 0.1
"and that is no match any more; messages are large, so some limits make it send the same"


class Equal(NamedTuple):
    """A limit under which a strategy sends as many tokens as was wanted."""

    limit: int | float
    tokens: float
    "a request, mean, under that limit"
    wanted: float


def equal_tokens(
    recordings: Iterable[Recording],
    strategy: Choice,
    wanted: float,
    model: str | None = None,
    *,
    share: bool = False,
    reserve: int = 0,
    profile: Profile | Iterable[Profile] | None = None,
    progress: bool | None = False,
) -> Equal:
    """The limit under which a strategy sends ``wanted`` tokens a request, in the mean over requests.

    ``share``: search shares of each recording's own length, not tokens. All recordings are held in
    memory. Raises ``SpecError`` for what is no number of tokens, and where no limit gives nearly that
    many: a strategy that does not look at its limit sends the same under any.
    """
    several(recordings)
    recordings = list(recordings)
    if not 0 < wanted < math.inf:
        raise SpecError(
            f"wanted: tokens a request, more than 0, such as the tokens_mean of a leaderboard; not "
            f"{wanted:g}"
        )
    most = 1.0 if share else _longest(recordings, model, profile) + reserve
    low, high = (0.001, 1.0) if share else (float(reserve + 1), float(most))
    best = Equal(high, np.nan, wanted)
    for _ in range(_ROUNDS):
        steps = np.geomspace(low, high, _AT_ONCE)
        limits = list(dict.fromkeys(steps.tolist() if share else [round(s) for s in steps]))
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
        best = min((Equal(x, sent[x], wanted) for x in limits), key=_off)
        if _off(best) <= _CLOSE or len(limits) < 3:
            break
        below = [x for x in limits if sent[x] <= wanted]
        above = [x for x in limits if sent[x] >= wanted and x > max(below, default=0)]
        low, high = max(below, default=low), min(above, default=high)
        if low >= high:
            break
    if _off(best) > _FAR:
        raise SpecError(
            f"no limit makes {strategy!r} send {wanted:,.0f} tokens a request: {best.tokens:,.0f} at "
            f"{best.limit:,.4g} come nearest"
        )
    return best


def _off(found: Equal) -> float:
    return abs(found.tokens - found.wanted) / found.wanted


def _longest(
    recordings: Sequence[Recording], model: str | None, profile: Profile | Iterable[Profile] | None
) -> int:
    """Tokens of the largest request of any recording."""
    board = evaluate(
        recordings, ["full"], [1.0], model, metrics=["usage"], profile=profile, progress=False
    ).leaderboard()
    return int(board["tokens_peak"].max())
