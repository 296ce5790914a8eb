"""A model's limit and prices come with the word of where they are from, and a guess says so.

Three sources, in this order: litellm's own table, read from its package without importing it; the
families in ``ctxlab.tokens.model_families``; a default with a warning. The limit is what a request
may hold: litellm's ``max_input_tokens`` (its ``max_tokens`` is the input here and the output there).
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from ctxlab.tokens.encodings import litellm_folder
from ctxlab.tokens.images import family_of
from ctxlab.tokens.model_families import (
    CACHES,
    FAMILIES,
    LONG,
)
from ctxlab.tokens.prices import (
    Prices,
    Tier,
    filled,
)

__all__ = ["CachePolicy", "Model", "ModelWarning", "find_model", "look_up_model", "rules_for"]


_Tokens = TypeVar("_Tokens", bound=Any)


class ModelWarning(UserWarning):
    """A model is unknown, so that limit and prices are a default."""


class CachePolicy(msgspec.Struct, frozen=True):
    """How a provider's prompt cache serves the unchanged beginning of a request.

    >>> find_model("gpt-4o").cache.served(1_500), find_model("gpt-4o").cache.served(1_000)
    (1408, 0)
    """

    kind: Literal["none", "automatic", "explicit"] = "none"
    "explicit: only up to breakpoints that the client sets, as with Anthropic"
    minimum: int = 0
    "a shorter beginning is not cached; tokens"
    granularity: int = 1
    "the served length is a multiple of this; tokens"
    lifetime: float = 0.0
    "seconds after the last use; the least that is published, and often kept longer"
    paid_writes: bool = False
    "a written token costs more than a plain input token"

    def reached(self, unchanged: Any, opening: Any, whole: Any, newest: Any) -> Any:
        """Of an unchanged beginning, what ends where the request before had left something to read.

        An automatic cache serves any beginning. An explicit one serves what ends at a breakpoint that
        the client had set; they are taken to stand where agents set them: behind the system prompt
        (``opening``), and behind the last message of the request before (``whole``) and the one before
        that (``whole - newest``). Tokens of messages; numbers, or arrays of them.

        >>> find_model("claude-opus-4-5").cache.reached(900, 100, 1000, 50)
        100
        """
        if self.kind != "explicit":
            return unchanged
        second = whole - newest
        last = whole * (unchanged >= whole)
        earlier = second * ((unchanged < whole) & (unchanged >= second))
        return last + earlier + opening * ((unchanged < second) & (unchanged >= opening))

    def served(self, prefix: _Tokens) -> _Tokens:
        """How many tokens of an unchanged prefix the cache serves, if it is still alive.

        A number, or an array of them.
        """
        long_enough = (prefix >= self.minimum) * (self.kind != "none")
        return (prefix - prefix % self.granularity) * long_enough  # type: ignore[no-any-return]


class Model(msgspec.Struct, frozen=True):
    """What is known of a model."""

    name: str
    "as it was asked for"
    limit: int
    "input tokens that one request may hold"
    max_output: int
    prices: Prices
    cache: CachePolicy
    provider: str
    source: Literal["litellm", "built-in", "default"]
    listed_as: str | None = None
    "the entry of litellm's table, or the pattern of the built-in family, that answered"
    warning: str | None = None
    "what to know before trusting the figures"


@functools.cache
def find_model(name: str) -> Model:
    """The model that a name stands for, whatever gateways, dates or tags the name carries.

    Tried in turn: the name; the name with leading ``provider/`` parts taken off one by one; what is
    left under the providers of ``_HOMES``; the same without a trailing date, ``-latest``,
    ``@version`` or ``:tag``. Upper case and ``4.5`` for ``4-5`` make no difference. Entries for
    embeddings, images or speech do not answer. A name that nothing answers gets a default limit, no
    prices and a ``ModelWarning``; nothing is ever raised.

    >>> gemini = find_model("openrouter/google/gemini-3-flash-preview")
    >>> gemini.limit, gemini.source
    (1048576, 'litellm')
    """
    model = look_up_model(name)
    if model.source == "default":
        warnings.warn(str(model.warning), ModelWarning, stacklevel=2)
    return model


def rules_for(name: str) -> str:
    """Whose API rules a request to a model must keep: ``"anthropic"`` for Claude, else ``"openai"``.

    All other providers are reached through OpenAI's chat format, which is what a recording holds.

    >>> rules_for("bedrock/anthropic.claude-opus-4-5"), rules_for("deepseek/deepseek-chat")
    ('anthropic', 'openai')
    """
    return "anthropic" if family_of(name) == "anthropic" else "openai"


@functools.cache
def look_up_model(name: str) -> Model:
    """Find a model as ``find_model`` does, without a warning where nobody knows the name.

    >>> look_up_model("nobody/knows").source, look_up_model("nobody/knows").prices.known
    ('default', False)
    """
    return _from_table(name, _table(litellm_folder())) or _from_family(name) or _default(name)


# --- litellm's table ------------------------------------------------------------------------------

_TABLE = "model_prices_and_context_window_backup.json"
_CHAT = {"chat", "responses", "completion"}
# For a model that nobody knows: the window that nearly all of today's hosted models have at least,
# and a reply that nearly all of them allow.
_LIMIT, _OUTPUT = 128_000, 4096

# Where a bare name may be listed: makers first, since their prices are the reference, then hosts.
_HOMES = (
    *("openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "moonshot", "dashscope"),
    *("zai", "minimax", "meta_llama", "vercel_ai_gateway/anthropic", "vercel_ai_gateway/openai"),
    *("vercel_ai_gateway/xai", "vercel_ai_gateway", "vertex_ai", "azure", "azure_ai", "groq"),
    *("together_ai", "deepinfra", "novita", "fireworks_ai/accounts/fireworks/models", "ollama"),
)
_SUFFIX = re.compile(r"(-latest|-\d{4}-\d\d-\d\d|-\d{8}|-\d{4}|@[^/]*|:[^/:]*)$")


_COSTS = (
    *("input_cost_per_token", "output_cost_per_token"),
    *("cache_read_input_token_cost", "cache_creation_input_token_cost"),
)
_ABOVE = re.compile(rf"({'|'.join(_COSTS)})_above_(\d+)(k?)_tokens")
# Who bills the higher prices from the threshold on, and not only above it; as litellm's calculator.
_INCLUSIVE = {"xai"}


class _Costs(msgspec.Struct):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    range: list[float] = []


class _Entry(_Costs):
    # Whole numbers stand in the table as 4096 and as 4096.0.
    mode: str | None = None
    litellm_provider: str = ""
    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    prompt_cache_min_tokens: float | None = None
    tiered_pricing: list[_Costs] = []


_Table: TypeAlias = dict[str, tuple[str, msgspec.Raw]]
"""Spelling → the name as listed and its entry, not yet decoded."""


@functools.cache
def _table(folder: Path | None) -> _Table:
    """The table in litellm's folder; empty without litellm."""
    try:
        text = (folder / _TABLE).read_bytes() if folder else b"{}"
        listed = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):
        return {}
    return {_spelling(name): (name, entry) for name, entry in reversed(listed.items())}


def _from_table(name: str, table: _Table) -> Model | None:
    for spelling in _spellings(name):
        if spelling not in table:
            continue
        listed_as, raw = table[spelling]
        try:
            figures = msgspec.json.decode(raw, type=dict[str, Any])
            entry = msgspec.convert(figures, _Entry)
        except msgspec.DecodeError:
            continue
        if entry.mode not in _CHAT:
            return _default(name, f"litellm lists it under {entry.mode}, not as a chat model")
        if entry.max_input_tokens:
            steps = _by_range(entry) or _by_threshold(entry, figures)
            return _listed(name, listed_as, entry, steps)
    return None


_Steps: TypeAlias = list[tuple[int, list[float | None]]]
"""From how many tokens of prompt on which costs hold, in the order of ``_COSTS``; rising."""


def _by_range(entry: _Entry) -> _Steps:
    """Of ``tiered_pricing``, which comes before all else; a tier starts behind its lower end."""
    priced = [t for t in entry.tiered_pricing if t.input_cost_per_token is not None]
    ranged = sorted((t for t in priced if len(t.range) == 2), key=lambda t: t.range[0])
    for tier in ranged:
        if tier.output_cost_per_token is None:
            tier.output_cost_per_token = entry.output_cost_per_token
    return [(int(tier.range[0]) + 1, _costs(tier)) for tier in ranged]


def _by_threshold(entry: _Entry, figures: dict[str, Any]) -> _Steps:
    """Of the plain prices, and of those for prompts above a size; what that leaves out stays."""
    found: dict[int, dict[str, float]] = {}
    for key, value in figures.items():
        if (match := _ABOVE.fullmatch(key)) and isinstance(value, float | int):
            cost, size, thousands = match.groups()
            found.setdefault(int(size) * (1000 if thousands else 1), {})[cost] = value
    steps, costs = [(0, _costs(entry))], _costs(entry)
    for size in sorted(found):
        costs = [found[size].get(key, cost) for key, cost in zip(_COSTS, costs, strict=True)]
        steps.append((size + (entry.litellm_provider not in _INCLUSIVE), costs))
    return steps


def _costs(listed: _Costs) -> list[float | None]:
    return [getattr(listed, key) for key in _COSTS]


def _listed(name: str, listed_as: str, entry: _Entry, steps: _Steps) -> Model:
    limit = entry.max_input_tokens or 0
    (_, costs), *more = steps
    prices = Prices(
        *filled(*costs), above=tuple(Tier(*filled(*c), start) for start, c in more if costs[0])
    )
    cached = costs[2] is not None
    maker = f"{entry.litellm_provider} {_spelling(listed_as)}"
    warning = None if prices.known else f"{name} has no price in litellm's table: no cost is known"
    return Model(
        name=name,
        limit=int(limit),
        max_output=int(entry.max_output_tokens or min(_OUTPUT, limit)),
        prices=prices,
        cache=_policy(maker, prices, entry.prompt_cache_min_tokens) if cached else CachePolicy(),
        provider=entry.litellm_provider,
        source="litellm",
        listed_as=listed_as,
        warning=warning,
    )


def _spellings(name: str) -> Iterator[str]:
    """The keys to look a name up by, the most literal first."""
    rest = _spelling(name)
    while True:
        parts = rest.split("/")
        tails = ["/".join(parts[start:]) for start in range(len(parts))]
        yield from tails
        yield from (f"{home}/{tail}" for home in _HOMES for tail in tails[-2:])
        shorter = _SUFFIX.sub("", rest)
        if shorter == rest:
            return
        rest = shorter


def _spelling(name: str) -> str:
    return re.sub(r"(?<=\d)\.(?=\d)", "-", name.strip().lower())


# --- families and caches --------------------------------------------------------------------------


def _from_family(name: str) -> Model | None:
    spelling = _spelling(name)
    for pattern, provider, limit, output, *per_million in FAMILIES:
        if re.search(pattern, spelling):
            prices = _family_prices(spelling, per_million)
            maker = f"{provider} {spelling}"
            return Model(
                name=name,
                limit=limit,
                max_output=output,
                prices=prices,
                cache=CachePolicy() if per_million[2] is None else _policy(maker, prices),
                provider=provider,
                source="built-in",
                listed_as=pattern,
                warning=f"{name} is not in litellm's table: these are the figures of its family"
                + ("" if prices.known else ", which has no price, so no cost is known"),
            )
    return None


def _family_prices(spelling: str, per_million: Sequence[float | None]) -> Prices:
    input, output, read, write = filled(*per_million)

    def times(into: float, out: float) -> tuple[float, float, float, float]:
        return input * into / 1e6, output * out / 1e6, read * into / 1e6, write * into / 1e6

    above = (Tier(*times(x, y), n) for family, n, x, y in LONG if re.search(family, spelling))
    return Prices(*times(1, 1), above=tuple(above) if input else ())


def _policy(maker: str, prices: Prices, minimum: float | None = None) -> CachePolicy:
    """The cache of a model that has one; ``maker`` is its provider and its name."""
    rule = next(rule for rule in CACHES if re.search(rule[0], maker))
    _, kind, usual, granularity, lifetime = rule
    # More than a rounding error of the table above the input price.
    paid = prices.cache_write > 1.01 * prices.input
    return CachePolicy(kind, int(minimum or usual), granularity, lifetime, paid)


def _default(name: str, reason: str = "neither litellm nor ctxlab knows it") -> Model:
    warning = (
        f"model {name!r}: {reason}; assuming {_LIMIT:,} tokens of context, no prices and no prompt "
        "cache. Give the name as its provider lists it, or a limit in tokens."
    )
    return Model(
        name=name,
        limit=_LIMIT,
        max_output=_OUTPUT,
        prices=Prices(),
        cache=CachePolicy(),
        provider="",
        source="default",
        warning=warning,
    )
