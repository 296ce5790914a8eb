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
from ctxlab.tokens.images import model_family
from ctxlab.tokens.model_families import CACHE_RULES, LONG_PROMPT_PRICES, MODEL_FAMILIES
from ctxlab.tokens.prices import Prices, PriceTier, fill_missing_prices

__all__ = [
    "CachePolicy",
    "Model",
    "ModelWarning",
    "find_model",
    "find_model_without_warning",
    "rules_provider",
]


_Tokens = TypeVar("_Tokens", bound=Any)


class ModelWarning(UserWarning):
    """A model is unknown, so that limit and prices are a default."""


class CachePolicy(msgspec.Struct, frozen=True):
    """How a provider's prompt cache serves the unchanged beginning of a request.

    >>> find_model("gpt-4o").cache.cached_tokens(1_500), find_model("gpt-4o").cache.cached_tokens(1_000)
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

    def readable_prefix(
        self,
        unchanged_tokens: Any,
        system_tokens: Any,
        previous_tokens: Any,
        previous_last_tokens: Any,
    ) -> Any:
        """Of an unchanged beginning, what ends where the request before had left something to read.

        An automatic cache serves any beginning. An explicit one serves what ends at a breakpoint that
        the client had set; they are taken to stand where agents set them: behind the system prompt
        (``system_tokens``), and behind the last message of the request before (``previous_tokens``)
        and the one before that (``previous_tokens - previous_last_tokens``). Tokens of messages;
        numbers, or arrays of them.

        >>> find_model("claude-opus-4-5").cache.readable_prefix(900, 100, 1000, 50)
        100
        """
        if self.kind != "explicit":
            return unchanged_tokens
        second = previous_tokens - previous_last_tokens
        last = previous_tokens * (unchanged_tokens >= previous_tokens)
        earlier = second * ((unchanged_tokens < previous_tokens) & (unchanged_tokens >= second))
        return (
            last
            + earlier
            + system_tokens * ((unchanged_tokens < second) & (unchanged_tokens >= system_tokens))
        )

    def cached_tokens(self, prefix_tokens: _Tokens) -> _Tokens:
        """How many tokens of an unchanged prefix the cache serves, if it is still alive.

        A number, or an array of them.
        """
        long_enough = (prefix_tokens >= self.minimum) * (self.kind != "none")
        return (prefix_tokens - prefix_tokens % self.granularity) * long_enough  # type: ignore[no-any-return]


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
    left under the providers of ``_PROVIDER_PREFIXES``; the same without a trailing date, ``-latest``,
    ``@version`` or ``:tag``. Upper case and ``4.5`` for ``4-5`` make no difference. Entries for
    embeddings, images or speech do not answer. A name that nothing answers gets a default limit, no
    prices and a ``ModelWarning``; nothing is ever raised.

    >>> gemini = find_model("openrouter/google/gemini-3-flash-preview")
    >>> gemini.limit, gemini.source
    (1048576, 'litellm')
    """
    model = find_model_without_warning(name)
    if model.source == "default":
        warnings.warn(str(model.warning), ModelWarning, stacklevel=2)
    return model


def rules_provider(name: str) -> str:
    """Whose API rules a request to a model must keep: ``"anthropic"`` for Claude, else ``"openai"``.

    All other providers are reached through OpenAI's chat format, which is what a recording holds.

    >>> rules_provider("bedrock/anthropic.claude-opus-4-5"), rules_provider("deepseek/deepseek-chat")
    ('anthropic', 'openai')
    """
    return "anthropic" if model_family(name) == "anthropic" else "openai"


@functools.cache
def find_model_without_warning(name: str) -> Model:
    """Find a model as ``find_model`` does, without a warning where nobody knows the name.

    >>> model = find_model_without_warning("nobody/knows")
    >>> model.source, model.prices.known
    ('default', False)
    """
    return (
        _from_table(name, _load_price_table(litellm_folder()))
        or _from_family(name)
        or _build_default_model(name)
    )


# --- litellm's table ------------------------------------------------------------------------------

_PRICE_FILE = "model_prices_and_context_window_backup.json"
_CHAT_MODES = {"chat", "responses", "completion"}
# For a model that nobody knows: the window that nearly all of today's hosted models have at least,
# and a reply that nearly all of them allow.
_DEFAULT_LIMIT, _DEFAULT_MAX_OUTPUT = 128_000, 4096

# Where a bare name may be listed: makers first, since their prices are the reference, then hosts.
_PROVIDER_PREFIXES = (
    *("openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "moonshot", "dashscope"),
    *("zai", "minimax", "meta_llama", "vercel_ai_gateway/anthropic", "vercel_ai_gateway/openai"),
    *("vercel_ai_gateway/xai", "vercel_ai_gateway", "vertex_ai", "azure", "azure_ai", "groq"),
    *("together_ai", "deepinfra", "novita", "fireworks_ai/accounts/fireworks/models", "ollama"),
)
_VERSION_SUFFIX = re.compile(r"(-latest|-\d{4}-\d\d-\d\d|-\d{8}|-\d{4}|@[^/]*|:[^/:]*)$")


_COST_KEYS = (
    *("input_cost_per_token", "output_cost_per_token"),
    *("cache_read_input_token_cost", "cache_creation_input_token_cost"),
)
_THRESHOLD_KEY = re.compile(rf"({'|'.join(_COST_KEYS)})_above_(\d+)(k?)_tokens")
# Who bills the higher prices from the threshold on, and not only above it; as litellm's calculator.
_INCLUSIVE_PROVIDERS = {"xai"}


class _ListedCosts(msgspec.Struct):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    range: list[float] = []


class _ListedModel(_ListedCosts):
    # Whole numbers stand in the table as 4096 and as 4096.0.
    mode: str | None = None
    litellm_provider: str = ""
    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    prompt_cache_min_tokens: float | None = None
    tiered_pricing: list[_ListedCosts] = []


_PriceTable: TypeAlias = dict[str, tuple[str, msgspec.Raw]]
"""Spelling → the name as listed and its entry, not yet decoded."""


@functools.cache
def _load_price_table(folder: Path | None) -> _PriceTable:
    """The table in litellm's folder; empty without litellm."""
    try:
        text = (folder / _PRICE_FILE).read_bytes() if folder else b"{}"
        listed = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):
        return {}
    return {_normalize_name(name): (name, entry) for name, entry in reversed(listed.items())}


def _from_table(name: str, table: _PriceTable) -> Model | None:
    for spelling in _iter_name_variants(name):
        if spelling not in table:
            continue
        listed_as, raw = table[spelling]
        try:
            figures = msgspec.json.decode(raw, type=dict[str, Any])
            entry = msgspec.convert(figures, _ListedModel)
        except msgspec.DecodeError:
            continue
        if entry.mode not in _CHAT_MODES:
            return _build_default_model(
                name, f"litellm lists it under {entry.mode}, not as a chat model"
            )
        if entry.max_input_tokens:
            steps = _steps_by_range(entry) or _steps_by_threshold(entry, figures)
            return _build_listed_model(name, listed_as, entry, steps)
    return None


_PriceSteps: TypeAlias = list[tuple[int, list[float | None]]]
"""From how many tokens of prompt on which costs hold, in the order of ``_COST_KEYS``; rising."""


def _steps_by_range(entry: _ListedModel) -> _PriceSteps:
    """Of ``tiered_pricing``, which comes before all else; a tier starts behind its lower end."""
    priced = [t for t in entry.tiered_pricing if t.input_cost_per_token is not None]
    ranged = sorted((t for t in priced if len(t.range) == 2), key=lambda t: t.range[0])
    for tier in ranged:
        if tier.output_cost_per_token is None:
            tier.output_cost_per_token = entry.output_cost_per_token
    return [(int(tier.range[0]) + 1, _get_costs(tier)) for tier in ranged]


def _steps_by_threshold(entry: _ListedModel, figures: dict[str, Any]) -> _PriceSteps:
    """Of the plain prices, and of those for prompts above a size; what that leaves out stays."""
    found: dict[int, dict[str, float]] = {}
    for key, value in figures.items():
        if (match := _THRESHOLD_KEY.fullmatch(key)) and isinstance(value, float | int):
            cost, size, thousands = match.groups()
            found.setdefault(int(size) * (1000 if thousands else 1), {})[cost] = value
    steps, costs = [(0, _get_costs(entry))], _get_costs(entry)
    for size in sorted(found):
        costs = [found[size].get(key, cost) for key, cost in zip(_COST_KEYS, costs, strict=True)]
        steps.append((size + (entry.litellm_provider not in _INCLUSIVE_PROVIDERS), costs))
    return steps


def _get_costs(listed: _ListedCosts) -> list[float | None]:
    return [getattr(listed, key) for key in _COST_KEYS]


def _build_listed_model(
    name: str, listed_as: str, entry: _ListedModel, steps: _PriceSteps
) -> Model:
    limit = entry.max_input_tokens or 0
    (_, costs), *more = steps
    prices = Prices(
        *fill_missing_prices(*costs),
        above=tuple(PriceTier(*fill_missing_prices(*c), start) for start, c in more if costs[0]),
    )
    cached = costs[2] is not None
    maker = f"{entry.litellm_provider} {_normalize_name(listed_as)}"
    warning = None if prices.known else f"{name} has no price in litellm's table: no cost is known"
    return Model(
        name=name,
        limit=int(limit),
        max_output=int(entry.max_output_tokens or min(_DEFAULT_MAX_OUTPUT, limit)),
        prices=prices,
        cache=_build_cache_policy(maker, prices, entry.prompt_cache_min_tokens)
        if cached
        else CachePolicy(),
        provider=entry.litellm_provider,
        source="litellm",
        listed_as=listed_as,
        warning=warning,
    )


def _iter_name_variants(name: str) -> Iterator[str]:
    """The keys to look a name up by, the most literal first."""
    rest = _normalize_name(name)
    while True:
        parts = rest.split("/")
        tails = ["/".join(parts[start:]) for start in range(len(parts))]
        yield from tails
        yield from (f"{home}/{tail}" for home in _PROVIDER_PREFIXES for tail in tails[-2:])
        shorter = _VERSION_SUFFIX.sub("", rest)
        if shorter == rest:
            return
        rest = shorter


def _normalize_name(name: str) -> str:
    return re.sub(r"(?<=\d)\.(?=\d)", "-", name.strip().lower())


# --- families and caches --------------------------------------------------------------------------


def _from_family(name: str) -> Model | None:
    spelling = _normalize_name(name)
    for pattern, provider, limit, output, *per_million in MODEL_FAMILIES:
        if re.search(pattern, spelling):
            prices = _family_prices(spelling, per_million)
            maker = f"{provider} {spelling}"
            return Model(
                name=name,
                limit=limit,
                max_output=output,
                prices=prices,
                cache=CachePolicy()
                if per_million[2] is None
                else _build_cache_policy(maker, prices),
                provider=provider,
                source="built-in",
                listed_as=pattern,
                warning=f"{name} is not in litellm's table: these are the figures of its family"
                + ("" if prices.known else ", which has no price, so no cost is known"),
            )
    return None


def _family_prices(spelling: str, per_million: Sequence[float | None]) -> Prices:
    input, output, read, write = fill_missing_prices(*per_million)

    def times(into: float, out: float) -> tuple[float, float, float, float]:
        return input * into / 1e6, output * out / 1e6, read * into / 1e6, write * into / 1e6

    above = (
        PriceTier(*times(x, y), n)
        for family, n, x, y in LONG_PROMPT_PRICES
        if re.search(family, spelling)
    )
    return Prices(*times(1, 1), above=tuple(above) if input else ())


def _build_cache_policy(maker: str, prices: Prices, minimum: float | None = None) -> CachePolicy:
    """The cache of a model that has one; ``maker`` is its provider and its name."""
    rule = next(rule for rule in CACHE_RULES if re.search(rule[0], maker))
    _, kind, usual, granularity, lifetime = rule
    # More than a rounding error of the table above the input price.
    paid = prices.cache_write > 1.01 * prices.input
    return CachePolicy(kind, int(minimum or usual), granularity, lifetime, paid)


def _build_default_model(name: str, reason: str = "neither litellm nor ctxlab knows it") -> Model:
    warning = (
        f"model {name!r}: {reason}; assuming {_DEFAULT_LIMIT:,} tokens of context, no prices and no "
        "prompt cache. Give the name as its provider lists it, or a limit in tokens."
    )
    return Model(
        name=name,
        limit=_DEFAULT_LIMIT,
        max_output=_DEFAULT_MAX_OUTPUT,
        prices=Prices(),
        cache=CachePolicy(),
        provider="",
        source="default",
        warning=warning,
    )
