"""State of the provider's prompt cache at each request of a recording, and lifetime of its writes.

Both depend on the client, the provider and the clock, and not on the strategy. They are therefore the
same for all strategies that are replayed on a recording. How much a request reads from a cache that is
still there depends on the strategy; see ``ctxlab.evaluation.metrics.cost``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ctxlab.errors import SpecError
from ctxlab.messages.types import Recording
from ctxlab.tokens.billing import billed_input_tokens
from ctxlab.tokens.models import CachePolicy
from ctxlab.tokens.reasoning import ReasoningMode, ReasoningRule, find_reasoning_rule

FloatArray: TypeAlias = NDArray[np.float64]

CacheTtl: TypeAlias = Literal["recorded", "5m", "1h"]
"""Lifetime of cache writes: five minutes, an hour, or as the bills of the recording show."""

_SERVED_SHARE = 0.5
"""A request found the cache of its conversation if it read more than this share of the request before
it. In practice it reads nearly everything, or only what other conversations left in the cache."""


@dataclass(frozen=True)
class CostSettings:
    """Assumptions about the prompt cache, the unlogged tokens and the hidden reasoning of a replay.

    Raises ``SpecError`` if a value is invalid; the message starts with the name of the field.

    Examples
    --------
    >>> CostSettings(cache_ttl="1h", fixed=25_000)
    CostSettings(cache_ttl='1h', fixed=25000, fixed_in_limit=False, reasoning='recorded')
    """

    cache_ttl: CacheTtl = "recorded"
    """lifetime of cache writes, for providers that sell two. ``recorded`` takes from the bills which
    lifetime was paid, and which requests found no cache; without bills, it equals ``5m``"""
    fixed: int | Literal["recorded"] = "recorded"
    """tokens of each request that no log contains (system prompt and tool definitions) and that its
    price includes. ``recorded`` estimates them from the bills; without bills, they are 0"""
    fixed_in_limit: bool = False
    """also count these tokens in the limit, as a context window does. They are 25,000 to 50,000 tokens
    of a coding agent, so a small limit has no room for them"""
    reasoning: ReasoningMode = "recorded"
    """hidden reasoning of earlier replies that requests contain: ``keep``, ``current_turn`` or
    ``clear``, see ``ctxlab.tokens.reasoning``; ``auto``: by the rule of the model's provider. It counts
    towards the limit and is priced. With ``recorded``, token counts do not include it, and the cost
    includes the recorded text of all replies if ``fixed`` is ``recorded`` and the bills apply"""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.cache_ttl not in (known := get_args(CacheTtl)):
            raise SpecError(f"cache_ttl: expected {', '.join(known)}, got {self.cache_ttl!r}")
        is_count = type(self.fixed) is int and self.fixed >= 0
        if not is_count and self.fixed != "recorded":
            raise SpecError(f"fixed: expected recorded or 0 or more tokens, got {self.fixed!r}")
        if self.reasoning not in (modes := get_args(ReasoningMode)):
            raise SpecError(f"reasoning: expected {', '.join(modes)}, got {self.reasoning!r}")

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """Return which hidden reasoning the token counts of requests to a model include.

        Parameters
        ----------
        model : str
            Name of the model.

        Returns
        -------
        {"keep", "current_turn", "clear"}
            The rule; ``clear`` if ``reasoning`` is ``recorded``.

        Examples
        --------
        >>> CostSettings(reasoning="auto").reasoning_rule("claude-opus-4-8")
        'keep'
        """
        if self.reasoning == "auto":
            return find_reasoning_rule(model)
        return "clear" if self.reasoning == "recorded" else self.reasoning


AS_RECORDED = CostSettings()
"""Default settings: everything that the bills of a recording tell is taken from them."""


class CacheTimeline(NamedTuple):
    """State of the prompt cache at each request of a recording, as arrays of shape ``(requests,)``."""

    warm: NDArray[np.bool_]
    "True if the cache still contains the previous request; the first element is False"
    shared: FloatArray
    """tokens at the beginning of the request that the cache contains although it does not contain the
    previous request: a system prompt and tool definitions that other conversations have sent"""
    long_share: FloatArray
    "share of the written tokens that the cache keeps for the longer of its lifetimes, from 0 to 1"


def build_cache_timeline(
    recording: Recording, positions: Sequence[int], cache: CachePolicy, ttl: CacheTtl
) -> CacheTimeline:
    """Find out which requests of a recording find the prompt cache, and how long it keeps their writes.

    By the rules, a request finds the cache if the time since the previous request does not exceed the
    lifetime of the writes before. A request without a known time finds it.

    With ``recorded``, the bills of the recording come before the rules. They show the lifetime of
    the writes, and which requests did not find the previous request although no compaction removed it.
    Such requests, and the first one, still read the tokens that other conversations left in the cache.
    Nothing else is taken from the bills.

    Parameters
    ----------
    recording : Recording
        Recording with the times, and with the bills if ``ttl`` is ``recorded``.
    positions : sequence of int
        Positions of the replies to the requests.
    cache : CachePolicy
        Rules of the cache. ``ttl`` selects a lifetime only if the provider sells two.
    ttl : {"recorded", "5m", "1h"}
        Lifetime of cache writes.

    Returns
    -------
    CacheTimeline
        State of the cache at each request.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> talk = [Message(r, time=t) for t in (0.0, 600.0) for r in ("user", "assistant")]
    >>> claude = CachePolicy("explicit", lifetime=300, long_lifetime=3600)
    >>> [
    ...     build_cache_timeline(Recording("a", tuple(talk)), (1, 3), claude, ttl).warm.tolist()
    ...     for ttl in ("5m", "1h")
    ... ]
    [[False, False], [False, True]]
    """
    times = [recording.messages[place].time for place in positions]
    stamps = np.array([np.nan if time is None else time for time in times], dtype=np.float64)
    shares = np.full(len(stamps), float(ttl == "1h"))
    if ttl == "recorded":
        shares = _recorded_long_shares(recording, positions)
    shares *= bool(cache.long_lifetime)
    lifetimes = np.where(np.roll(shares, 1) > 0.5, cache.long_lifetime, cache.lifetime)
    warm = ~(np.diff(stamps, prepend=np.nan) > lifetimes)
    warm[:1] = False
    shared = np.zeros(len(stamps))
    if ttl == "recorded":
        served, missed, read = _recorded_states(recording, positions)
        warm = (warm | served) & ~missed
        shared = np.where(missed, read, shared)
    return CacheTimeline(warm, shared, shares)


def _recorded_long_shares(recording: Recording, positions: Sequence[int]) -> FloatArray:
    """Return the share of one-hour writes in the billed writes of each request.

    A request without billed writes gets the share of the request before it, and the first requests
    that of the first one with writes. Without any billed writes, the shares are 0.
    """
    shares = np.full(len(positions), np.nan)
    for number, place in enumerate(positions):
        usage = recording.messages[place].usage
        if usage and usage.cache_write:
            shares[number] = usage.cache_write_1h / usage.cache_write
    known = np.flatnonzero(~np.isnan(shares))
    if not len(known):
        return np.zeros(len(positions))
    last = np.searchsorted(known, np.arange(len(positions)), side="right") - 1
    found: FloatArray = shares[known[last.clip(0)]]
    return found


def _recorded_states(
    recording: Recording, positions: Sequence[int]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], FloatArray]:
    """Return which requests found the previous one in the cache by their bills, and which did not.

    The bills do not tell if one of the two requests is not billed, or if a compaction came between
    them. Both arrays are then False. The third array contains the billed cache reads.
    """
    billed = billed_input_tokens(recording)
    total = np.array([billed.get(place, np.nan) for place in positions], dtype=np.float64)
    usages = [recording.messages[place].usage for place in positions]
    read = np.array([usage.cache_read if usage else 0 for usage in usages], dtype=np.float64)
    before = np.roll(total, 1)
    before[:1] = np.nan
    served = read > _SERVED_SHARE * before
    compacted = np.searchsorted(positions, [c.position for c in recording.compactions])
    same = (
        total > _SERVED_SHARE * before
    )  # otherwise the product dropped a part, unless it is logged
    same[compacted[compacted < len(same)]] = False
    missed = ~served & same
    missed[:1] = ~np.isnan(total[:1])
    tells = bool(read.any())  # some formats contain no cache reads
    return served & tells, missed & tells, read
