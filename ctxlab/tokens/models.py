"""Look up the context limit, prices and prompt cache of models, with the source of the data.

litellm's table is searched first; it is read from the litellm package without importing the package.
Then the table of model families in ``ctxlab.tokens.model_families`` is searched. A model that is in
neither table gets default values and a warning. The context limit is the maximum number of input
tokens of a request, which litellm lists as ``max_input_tokens``. (litellm's ``max_tokens`` is the
input limit of some models and the output limit of others.)
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
from ctxlab.tokens.images import model_family, normalize_model_name
from ctxlab.tokens.model_families import (
    CACHE_RULES,
    LONG_PROMPT_PRICES,
    LONG_WRITE_FACTOR,
    MODEL_FAMILIES,
)
from ctxlab.tokens.prices import Prices, PriceTier, fill_missing_prices

_Tokens = TypeVar("_Tokens", bound=Any)

# For unknown models: nearly all hosted models have at least this window and allow such a reply.
_DEFAULT_LIMIT, _DEFAULT_MAX_OUTPUT = 128_000, 4096


class ModelWarning(UserWarning):
    """Warning that a model is unknown, so a default limit is used, without prices and prompt cache."""


class CachePolicy(msgspec.Struct, frozen=True):
    """Rules of a provider's prompt cache, which stores the beginning (prefix) of requests.

    Examples
    --------
    >>> find_model("gpt-4o").cache.cached_tokens(1_500), find_model("gpt-4o").cache.cached_tokens(1_000)
    (1408, 0)
    """

    kind: Literal["none", "automatic", "explicit"] = "none"
    """``none``: no cache; ``automatic``: all prefixes are cached; ``explicit``: only prefixes up to
    breakpoints that the client sets are cached, as with Anthropic"""
    minimum: int = 0
    "minimum number of tokens of a cached prefix"
    granularity: int = 1
    "the number of cached tokens is a multiple of this number"
    lifetime: float = 0.0
    "seconds that a prefix is kept after its last use; providers often keep it longer"
    long_lifetime: float = 0.0
    """seconds that a prefix is kept if the client pays ``Rates.cache_write_1h`` for it; 0 if the
    provider does not sell a second lifetime"""

    def readable_prefix(self, unchanged: Any, system: Any, previous: Any, newest: Any) -> Any:
        """Return the length of the prefix that a request can read from the cache.

        The previous request has written to the cache. From an automatic cache, any unchanged prefix
        can be read. From an explicit cache, only prefixes that end at a breakpoint of the client can
        be read. Breakpoints are assumed where agents usually set them: after the system prompt,
        after the last message of the previous request, and after the message before that one. All
        arguments are numbers or arrays.

        Parameters
        ----------
        unchanged : int or numpy.ndarray
            Tokens at the beginning of the request that are unchanged since the previous request.
        system : int or numpy.ndarray
            Tokens of the system prompt.
        previous : int or numpy.ndarray
            Tokens of all messages of the previous request.
        newest : int or numpy.ndarray
            Tokens of the last message of the previous request.

        Returns
        -------
        int or numpy.ndarray
            Length of the prefix in tokens, before ``minimum`` and ``granularity`` are applied.

        Examples
        --------
        >>> find_model("claude-opus-4-5").cache.readable_prefix(900, 100, 1000, 50)
        100
        """
        if self.kind != "explicit":
            return unchanged
        second = previous - newest
        last = previous * (unchanged >= previous)
        earlier = second * ((unchanged < previous) & (unchanged >= second))
        return last + earlier + system * ((unchanged < second) & (unchanged >= system))

    def cached_tokens(self, prefix_tokens: _Tokens) -> _Tokens:
        """Return the number of tokens that are read from the cache for an unchanged prefix.

        The number is ``prefix_tokens`` rounded down to a multiple of ``granularity``, or 0 if
        ``prefix_tokens`` is below ``minimum`` or the model has no cache. ``lifetime`` is not checked.

        Parameters
        ----------
        prefix_tokens : int or numpy.ndarray
            Number of tokens of the prefix.

        Returns
        -------
        int or numpy.ndarray
            Number of cached tokens.
        """
        long_enough = (prefix_tokens >= self.minimum) * (self.kind != "none")
        return (prefix_tokens - prefix_tokens % self.granularity) * long_enough  # type: ignore[no-any-return]


class Model(msgspec.Struct, frozen=True):
    """Context limit, prices and prompt cache of a model.

    Examples
    --------
    >>> from ctxlab import find_model
    >>> model = find_model("gpt-5")
    >>> model.provider, model.limit
    ('openai', 272000)
    >>> model.cache.kind, model.cache.minimum
    ('automatic', 1024)
    """

    name: str
    "name that was looked up"
    limit: int = _DEFAULT_LIMIT
    "maximum number of input tokens of a request"
    max_output: int = _DEFAULT_MAX_OUTPUT
    "maximum number of output tokens of a reply"
    prices: Prices = Prices()
    "prices per token"
    cache: CachePolicy = CachePolicy()
    "rules of the prompt cache"
    provider: str = ""
    "name of the provider in the source of the data; empty if unknown"
    source: Literal["litellm", "built-in", "default"] = "default"
    "source of the data: litellm's table, ctxlab's table of families, or default values"
    listed_as: str | None = None
    "matching name in litellm's table, or matching pattern in ctxlab's table; None for default values"
    warning: str | None = None
    "warning for users of the data, for example that the price is unknown; None if there is none"


@functools.cache
def find_model(name: str) -> Model:
    """Look up a model by its name, which may have a gateway prefix, a date or a tag.

    These spellings are looked up in litellm's table, in this order:

    1. the name
    2. the name without its leading ``provider/`` parts, which are removed one by one
    3. the name without these parts, preceded by each prefix in ``_PROVIDER_PREFIXES``
    4. spellings 1 to 3 without a trailing date, ``-latest``, ``@version`` or ``:tag``

    If litellm lists none of them, the table of model families is searched. Case is ignored, and
    ``4.5`` equals ``4-5``. Models for embeddings, images or speech are treated as unknown. An
    unknown model gets a default limit, no prices and a ``ModelWarning``; no exception is raised.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    Model
        Limit, prices and prompt cache of the model, with the source of the data.

    Examples
    --------
    >>> gemini = find_model("openrouter/google/gemini-3-flash-preview")
    >>> gemini.limit, gemini.source
    (1048576, 'litellm')
    """
    model = find_model_without_warning(name)
    if model.source == "default":
        warnings.warn(str(model.warning), ModelWarning, stacklevel=2)
    return model


def rules_provider(name: str) -> str:
    """Return the provider whose API rules apply to requests to a model.

    All models except Claude are called in OpenAI's chat format, which recordings also use.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    str
        ``"anthropic"`` for Claude, ``"openai"`` for all other models.

    Examples
    --------
    >>> rules_provider("bedrock/anthropic.claude-opus-4-5"), rules_provider("deepseek/deepseek-chat")
    ('anthropic', 'openai')
    """
    return "anthropic" if model_family(name) == "anthropic" else "openai"


@functools.cache
def find_model_without_warning(name: str) -> Model:
    """Look up a model like ``find_model``, without a warning if the model is unknown.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    Model
        Limit, prices and prompt cache of the model, with the source of the data.

    Examples
    --------
    >>> model = find_model_without_warning("nobody/knows")
    >>> model.source, model.prices.known
    ('default', False)
    """
    listed = _from_table(name, _load_price_table(litellm_folder()))
    return listed or _from_family(name) or _build_default_model(name)


# --- litellm's table ------------------------------------------------------------------------------

_PRICE_FILE = "model_prices_and_context_window_backup.json"
_CHAT_MODES = {"chat", "responses", "completion"}

# Prefixes under which a name without a prefix may be listed. The developers of models come first,
# because their prices are the reference; hosts follow.
_PROVIDER_PREFIXES = (
    *("openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "moonshot", "dashscope"),
    *("zai", "minimax", "meta_llama", "vercel_ai_gateway/anthropic", "vercel_ai_gateway/openai"),
    *("vercel_ai_gateway/xai", "vercel_ai_gateway", "vertex_ai", "azure", "azure_ai", "groq"),
    *("together_ai", "deepinfra", "novita", "fireworks_ai/accounts/fireworks/models", "ollama"),
)
_VERSION_SUFFIX = re.compile(r"(-latest|-\d{4}-\d\d-\d\d|-\d{8}|-\d{4}|@[^/]*|:[^/:]*)$")


# Providers whose higher prices apply to prompts of exactly the threshold, too; as in litellm.
_INCLUSIVE_PROVIDERS = {"xai"}


class _ListedCosts(msgspec.Struct):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    cache_creation_input_token_cost_above_1hr: float | None = None
    range: list[float] = []


_COST_KEYS = _ListedCosts.__struct_fields__[:5]
_THRESHOLD_KEY = re.compile(rf"({'|'.join(_COST_KEYS)})_above_(\d+)(k?)_tokens")


class _ListedModel(_ListedCosts):
    # The table contains integers both as 4096 and as 4096.0.
    mode: str | None = None
    litellm_provider: str = ""
    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    prompt_cache_min_tokens: float | None = None
    tiered_pricing: list[_ListedCosts] = []


_PriceTable: TypeAlias = dict[str, tuple[str, msgspec.Raw]]
"""Normalized name → the name in litellm's table and the undecoded JSON object of the model."""


@functools.cache
def _load_price_table(folder: Path | None) -> _PriceTable:
    """Read litellm's table of models from ``folder``; return an empty dict if this fails."""
    try:
        text = (folder / _PRICE_FILE).read_bytes() if folder else b"{}"
        listed = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):
        return {}
    return {normalize_model_name(name): (name, entry) for name, entry in reversed(listed.items())}


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
            reason = f"litellm lists it with mode {entry.mode}, not as a chat model"
            return _build_default_model(name, reason)
        if entry.max_input_tokens:
            steps = _steps_by_range(entry) or _steps_by_threshold(entry, figures)
            return _build_listed_model(name, listed_as, entry, steps)
    return None


_FilledPrices: TypeAlias = tuple[float, float, float, float, float]
"""Prices of input, output, cache reads, cache writes, and cache writes for an hour."""

_PriceSteps: TypeAlias = list[tuple[int, list[float | None]]]
"""Ascending price steps: minimum prompt length in tokens, and prices in the order of ``_COST_KEYS``."""


def _steps_by_range(entry: _ListedModel) -> _PriceSteps:
    """Return the price steps that litellm lists in ``tiered_pricing``.

    Each step starts one token above the lower bound of its range.
    """
    priced = (t for t in entry.tiered_pricing if t.input_cost_per_token is not None)
    ranged = sorted((t for t in priced if len(t.range) == 2), key=lambda t: t.range[0])
    for tier in ranged:
        if tier.output_cost_per_token is None:
            tier.output_cost_per_token = entry.output_cost_per_token
    return [(int(tier.range[0]) + 1, _get_costs(tier)) for tier in ranged]


def _steps_by_threshold(entry: _ListedModel, figures: dict[str, Any]) -> _PriceSteps:
    """Return the regular prices and the prices above each threshold.

    litellm lists these prices under keys such as ``input_cost_per_token_above_200k_tokens``. A price
    that is missing above a threshold is taken from the step below.
    """
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


def _build_listed_model(name: str, listed: str, entry: _ListedModel, steps: _PriceSteps) -> Model:
    limit, maker = int(entry.max_input_tokens or 0), entry.litellm_provider
    (_, costs), *more = steps
    cache = CachePolicy()
    if costs[2] is not None:
        cache = _build_cache_policy(maker, listed, entry.prompt_cache_min_tokens)
    tiers = (PriceTier(*_fill_prices(cache, *c), start) for start, c in more if costs[0])
    prices = Prices(*_fill_prices(cache, *costs), above=tuple(tiers))
    output = int(entry.max_output_tokens or min(_DEFAULT_MAX_OUTPUT, limit))
    warning = None if prices.known else f"litellm lists no price for {name}, so its cost is unknown"
    return Model(name, limit, output, prices, cache, maker, "litellm", listed, warning)


def _iter_name_variants(name: str) -> Iterator[str]:
    """Yield the spellings under which a model is looked up, starting with its full name."""
    rest = normalize_model_name(name)
    while True:
        parts = rest.split("/")
        tails = ["/".join(parts[start:]) for start in range(len(parts))]
        yield from tails
        yield from (f"{home}/{tail}" for home in _PROVIDER_PREFIXES for tail in tails[-2:])
        shorter = _VERSION_SUFFIX.sub("", rest)
        if shorter == rest:
            return
        rest = shorter


# --- families and caches --------------------------------------------------------------------------


def _from_family(name: str) -> Model | None:
    spelling = normalize_model_name(name)
    for pattern, provider, limit, output, *per_million in MODEL_FAMILIES:
        if re.search(pattern, spelling):
            cache = CachePolicy()
            if per_million[2] is not None:
                cache = _build_cache_policy(provider, name)
            prices = _family_prices(spelling, _fill_prices(cache, *per_million))
            warning = f"{name} is not in litellm's table; the limit and prices of its family apply"
            warning += "" if prices.known else "; the family has no price, so the cost is unknown"
            return Model(name, limit, output, prices, cache, provider, "built-in", pattern, warning)
    return None


def _fill_prices(
    cache: CachePolicy,
    input: float | None,
    output: float | None,
    read: float | None,
    write: float | None,
    long_write: float | None = None,
) -> _FilledPrices:
    """Fill in the missing prices of a model with a given cache."""
    if long_write is None and cache.long_lifetime:
        long_write = (input or 0.0) * LONG_WRITE_FACTOR
    return fill_missing_prices(input, output, read, write, long_write)


def _family_prices(spelling: str, per_million: Sequence[float]) -> Prices:
    input, output, *caching = per_million

    def times(into: float, out: float) -> _FilledPrices:
        read, write, long_write = (price * into / 1e6 for price in caching)
        return input * into / 1e6, output * out / 1e6, read, write, long_write

    dearer = [row for row in LONG_PROMPT_PRICES if input and re.search(row[0], spelling)]
    return Prices(*times(1, 1), above=tuple(PriceTier(*times(x, y), n) for _, n, x, y in dearer))


def _build_cache_policy(provider: str, name: str, minimum: float | None = None) -> CachePolicy:
    """Return the cache policy of a model whose provider has a prompt cache.

    ``minimum`` replaces the usual minimum number of tokens of a cached prefix.
    """
    maker = f"{provider} {normalize_model_name(name)}"
    rule = next(rule for rule in CACHE_RULES if re.search(rule[0], maker))
    _, kind, usual, granularity, *lifetimes = rule
    return CachePolicy(kind, int(minimum or usual), granularity, *lifetimes)


def _build_default_model(name: str, reason: str = "not in litellm's or ctxlab's table") -> Model:
    assumed = f"a limit of {_DEFAULT_LIMIT:,} tokens, no prices and no prompt cache"
    advice = "Use the model name that the provider lists, or set a limit in tokens."
    return Model(name, warning=f"model {name!r}: {reason}; assuming {assumed}. {advice}")
