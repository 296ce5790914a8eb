"""Find out from its logs under which conditions an agent works: product, window, model and cache.

Each fact says where it comes from: ``given`` by the caller, ``logged``, from the ``model data``, the
``product``'s documentation, or a ``default`` of ctxlab. An evaluation has one context window, so
only the recordings with the window of most requests are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.messages.types import Recording
from ctxlab.strategies.baselines import BASELINES, Baseline
from ctxlab.strategies.baselines.settings import RequestSizes
from ctxlab.tokens.cache_timeline import AS_RECORDED, CacheTtl
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import find_model_without_warning
from ctxlab.tokens.profiles import TokenProfile

Origin: TypeAlias = Literal["given", "logged", "model data", "product", "default"]

_RESERVE = 16_000
"tokens that are kept free for the reply if the logs do not contain the size of replies"
_RESERVE_STEP = 1_000
_WINDOW_STEP = 100_000
"a window of unknown size is the longest logged request, rounded up to a multiple of this"
_LONG_SHARE = 0.1
"share of the requests whose recordings are not considered when thresholds are derived from lengths"


class Fact(NamedTuple):
    """Something that a recommendation assumes about the agent."""

    name: str
    "what it is about, such as ``window``"
    value: str
    "value in words"
    origin: Origin
    "where the value comes from"


@dataclass(frozen=True)
class AgentSetup:
    """Conditions under which the recorded agent works, and the recordings to which they apply."""

    baseline: Baseline
    "baseline of the product"
    recordings: tuple[Recording, ...]
    "recordings to replay"
    left_out: dict[str, int]
    "number of recordings that are not replayed, by reason"
    window: int
    "context window in tokens"
    reserve: int
    "tokens of the window that are kept free for the reply"
    sizes: RequestSizes
    "sizes of the requests"
    facts: tuple[Fact, ...]
    "product, window, reserve, model and lifetime of the cache, with their origins"


class _LogFacts(NamedTuple):
    """Facts about the agent that one recording contains."""

    model: str
    "model that counts its tokens"
    longest: int
    "tokens of its longest request, with those that no log contains"
    head: int
    "tokens that each of its requests has"
    billed: int
    "largest billed input of a request; 0 without bills"
    reply: int
    "largest billed output of a reply"
    written: int
    "tokens written to the prompt cache"
    written_1h: int
    "tokens of these that the cache keeps for an hour"


def find_product(recordings: Iterable[Recording]) -> Baseline:
    """Return the baseline of the product that wrote most of the recorded requests.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings with the formats of their logs.

    Returns
    -------
    Baseline
        Newest baseline of the product.

    Raises
    ------
    SpecError
        If no recording is a log of a product that has a baseline.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> said = Message("user", "Hi"), Message("assistant", "Hello")
    >>> find_product([Recording("a", said, format="codex")]).name
    'codex'
    """
    by_format = _baselines_by_format()
    requests: Counter[str] = Counter()
    for each in recordings:
        requests[each.format or "unknown"] += len(each.request_positions)
    known = [name for name, _ in requests.most_common() if name in by_format]
    if not known:
        raise SpecError(
            f"expected logs of {', '.join(sorted(by_format))}, got the format "
            f"{' and '.join(requests) or 'of no recording'}; name the product"
        )
    return by_format[known[0]]


def _baselines_by_format() -> dict[str, Baseline]:
    return {name: each for each in BASELINES.values() for name in each.formats}


def parse_product(name: str) -> Baseline:
    """Return the baseline of a product that a user names, such as ``claude-code``.

    Parameters
    ----------
    name : str
        Name of a baseline, with hyphens or underscores, or of a format of logs.

    Returns
    -------
    Baseline
        Baseline of the product.

    Raises
    ------
    SpecError
        If there is no such baseline, or if a product has several and the name does not say which.

    Examples
    --------
    >>> parse_product("Claude-Code").name, parse_product("openhands-sdk").name
    ('claude_code', 'openhands.default')
    """
    spelled = name.strip().lower()
    if found := _baselines_by_format().get(spelled):
        return found
    spelled = spelled.replace("-", "_")
    newest = [each for each, baseline in BASELINES.items() if not baseline.superseded_by]
    several = [each for each in newest if each.startswith(f"{spelled}.")]
    if several and spelled not in BASELINES:
        raise SpecError(
            f"expected one strategy of {name}, got several; choose {' or '.join(several)}"
        )
    if spelled not in BASELINES:
        require_known("product", spelled, newest)
    return BASELINES[spelled]


def find_agent_setup(
    recordings: Sequence[Recording],
    product: str | None = None,
    window: int | None = None,
    model: str | None = None,
    *,
    reserve: int | None = None,
    cache_ttl: CacheTtl = "recorded",
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    workers: int | None = None,
) -> AgentSetup:
    """Find out from recordings under which conditions their agent works.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings of the agent.
    product : str, optional
        Name of the product. None takes the one whose logs have most requests, and leaves out others.
    window : int, optional
        Context window in tokens. None takes the logged one, that of the product, or the input limit of
        the model.
    model : str, optional
        Model that counts and prices all recordings. None takes the model of each recording.
    reserve : int, optional
        Tokens to keep free for the reply. None takes the size of the longest logged reply.
    cache_ttl : {"recorded", "5m", "1h"}, default "recorded"
        Lifetime of cache writes.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.
    workers : int, optional
        Number of processes.

    Returns
    -------
    AgentSetup
        Conditions and recordings.

    Raises
    ------
    SpecError
        If the product is unknown, or no recording has requests and a known price.
    """
    left_out: Counter[str] = Counter()

    def keep(some: list[Recording], chosen: Iterable[bool], reason: str) -> list[Recording]:
        kept = [each for each, is_kept in zip(some, chosen, strict=True) if is_kept]
        if len(kept) < len(some):
            left_out[reason] += len(some) - len(kept)
        return kept

    every = list(recordings)
    kept = keep(every, (bool(each.request_positions) for each in every), "without a model call")
    baseline = parse_product(product) if product else find_product(kept)
    if not product:
        kept = keep(kept, [r.format in baseline.formats for r in kept], "of other products")
    choice = ModelChoice.from_options(model, profile)
    priced = [find_model_without_warning(choice.model_name_for(r)).prices.known for r in kept]
    unpriced = {
        choice.model_name_for(r) for r, is_known in zip(kept, priced, strict=True) if not is_known
    }
    if not any(priced):
        raise SpecError(
            f"expected recordings of a model with a known price, got {', '.join(sorted(unpriced))}; "
            "name a model that is priced alike"
            if kept
            else f"expected recordings with model calls, got none in {len(every):,}"
        )
    kept = keep(kept, priced, "of a model without a known price")
    facts = list(
        map_parallel(partial(_read_facts, choice), kept, workers, lambda r: len(r.messages))
    )
    windows = _find_windows(kept, facts, baseline, window)
    size, origin = _most_requests(kept, windows)
    alike = [found == size for found, _ in windows]
    facts = [each for each, is_alike in zip(facts, alike, strict=True) if is_alike]
    kept = keep(kept, alike, "with another context window")
    room, room_origin = _find_reserve(facts, size, reserve)
    longest = min(size, _usual_longest(kept, facts))
    head = min(round(median(each.head for each in facts)), longest)
    known: tuple[Fact, ...] = (
        Fact(
            "product", baseline.product_version.partition(",")[0], "given" if product else "logged"
        ),
        Fact("window", f"{size:,} tokens", origin),
        Fact("reserve", f"{room:,} tokens", room_origin),
        _describe_models(kept, choice),
        _describe_cache(facts, cache_ttl),
    )
    sizes = RequestSizes(size, longest, head)
    return AgentSetup(baseline, tuple(kept), dict(left_out), size, room, sizes, known)


def _read_facts(choice: ModelChoice, recording: Recording) -> _LogFacts:
    prepared = PreparedRecording(recording, choice.counter_for(recording), costs=AS_RECORDED)
    history, unlogged = prepared.history, prepared.priced_fixed_tokens
    used = [recording.messages[place].usage for place in prepared.request_positions]
    usages = [usage for usage in used if usage is not None]
    return _LogFacts(
        choice.model_name_for(recording),
        prepared.longest_request_tokens + unlogged,
        history.tokens_before[history.head_length] + prepared.fixed_tokens + unlogged,
        max((usage.total_input for usage in usages), default=0),
        max((usage.output for usage in usages), default=0),
        sum(usage.cache_write for usage in usages),
        sum(usage.cache_write_1h for usage in usages),
    )


def _usual_longest(recordings: Sequence[Recording], facts: Sequence[_LogFacts]) -> int:
    """Return the length that only recordings with a tenth of the requests exceed."""
    sizes = sorted(
        (each.longest, len(r.request_positions)) for r, each in zip(recordings, facts, strict=True)
    )
    enough = (1 - _LONG_SHARE) * sum(count for _, count in sizes)
    reached = accumulate(count for _, count in sizes)
    return next(size for (size, _), sum_ in zip(sizes, reached, strict=True) if sum_ >= enough)


_Window: TypeAlias = tuple[int, Origin]


def _find_windows(
    recordings: Sequence[Recording],
    facts: Sequence[_LogFacts],
    baseline: Baseline,
    window: int | None,
) -> list[_Window]:
    """Return the context window of each recording, and where it comes from."""
    longest: dict[str, int] = {}  # requests that were sent; a history with compactions was not
    for recording, each in zip(recordings, facts, strict=True):
        sent = each.billed or (0 if recording.compactions else each.longest)
        longest[each.model] = max(longest.get(each.model, 0), sent)

    def find(recording: Recording, model: str) -> _Window:
        logged = recording.meta.get("context_window")
        if window is not None:
            return window, "given"
        if isinstance(logged, int) and logged > 0:
            return logged, "logged"
        found = find_model_without_warning(model)
        if baseline.window is not None and longest[model] <= baseline.window <= found.limit:
            return baseline.window, "product"
        if longest[model] > found.limit:
            return -(-longest[model] // _WINDOW_STEP) * _WINDOW_STEP, "logged"
        return found.limit, "default" if found.source == "default" else "model data"

    return [find(r, each.model) for r, each in zip(recordings, facts, strict=True)]


def _most_requests(recordings: Sequence[Recording], windows: Sequence[_Window]) -> _Window:
    requests: Counter[int] = Counter()
    for recording, (size, _) in zip(recordings, windows, strict=True):
        requests[size] += len(recording.request_positions)
    size = requests.most_common(1)[0][0]
    return next(each for each in windows if each[0] == size)


def _find_reserve(facts: Sequence[_LogFacts], window: int, reserve: int | None) -> _Window:
    if reserve is not None:
        return reserve, "given"
    longest = max(each.reply for each in facts)
    if not longest:
        return min(_RESERVE, window // 10), "default"
    return min(-(-longest // _RESERVE_STEP) * _RESERVE_STEP, window // 4), "logged"


def _describe_models(recordings: Sequence[Recording], choice: ModelChoice) -> Fact:
    if choice.model:
        return Fact("model", choice.model, "given")
    names = Counter(choice.model_name_for(each) for each in recordings)
    shown = ", ".join(f"{name} ({count:,})" for name, count in names.most_common(3))
    shown = next(iter(names)) if len(names) == 1 else shown
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Fact(
        "model", f"{shown}{more}", "logged" if any(r.model for r in recordings) else "default"
    )


def _describe_cache(facts: Sequence[_LogFacts], cache_ttl: CacheTtl) -> Fact:
    """Describe how long the prompt cache keeps what a request writes."""
    name = "cache writes"
    if cache_ttl != "recorded":
        return Fact(name, {"5m": "5 minutes", "1h": "1 hour"}[cache_ttl], "given")
    cache = find_model_without_warning(Counter(f.model for f in facts).most_common(1)[0][0]).cache
    if cache.kind == "none":
        return Fact(name, "no prompt cache", "model data")
    if not cache.long_lifetime:
        return Fact(name, f"{cache.lifetime / 60:.0f} minutes", "model data")
    written, written_1h = (sum(f.written for f in facts), sum(f.written_1h for f in facts))
    if not written:
        return Fact(name, "5 minutes", "default")
    share = written_1h / written
    kept = "1 hour" if share > 0.99 else "5 minutes" if share < 0.01 else f"1 hour for {share:.0%}"
    return Fact(name, kept, "logged")
