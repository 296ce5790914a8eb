"""Look up the context limit, prices and prompt cache of models, with the source of the data.

There are three sources, in this order: litellm's table, read from its package without importing it;
the families in ``ctxlab.tokens.model_families``; a default with a warning. The limit is the number
of input tokens of a request: litellm's ``max_input_tokens``. (Its ``max_tokens`` means input for
some models and output for others.)
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

_Tokens = TypeVar("_Tokens", bound=Any)

# For unknown models: nearly all hosted models have at least this window and allow such a reply.
_DEFAULT_LIMIT, _DEFAULT_MAX_OUTPUT = 128_000, 4096


class ModelWarning(UserWarning):
    """A model is unknown, so its limit and prices are defaults."""


class CachePolicy(msgspec.Struct, frozen=True):
    """Rules by which a provider's prompt cache serves the unchanged beginning of a request.

    Examples
    --------
    >>> find_model("gpt-4o").cache.cached_tokens(1_500), find_model("gpt-4o").cache.cached_tokens(1_000)
    (1408, 0)
    """

    kind: Literal["none", "automatic", "explicit"] = "none"
    "``explicit``: caches only up to breakpoints that the client sets, as with Anthropic"
    minimum: int = 0
    "tokens; shorter prefixes are not cached"
    granularity: int = 1
    "tokens; the cached length is a multiple of this"
    lifetime: float = 0.0
    "seconds after the last use; the published minimum, which is often exceeded"

    def readable_prefix(self, unchanged: Any, system: Any, previous: Any, newest: Any) -> Any:
        """Return the part of the unchanged prefix that the previous request left readable in the cache.

        An automatic cache can serve any prefix. An explicit cache serves prefixes that end at a
        breakpoint of the client. Breakpoints are assumed where agents set them: after the system
        prompt, after the last message of the previous request, and after the message before that.
        All arguments are numbers or arrays.

        Parameters
        ----------
        unchanged : int or numpy.ndarray
            Tokens at the beginning that are unchanged since the previous request.
        system : int or numpy.ndarray
            Tokens of the system prompt.
        previous : int or numpy.ndarray
            Tokens of the messages of the previous request.
        newest : int or numpy.ndarray
            Tokens of the last message of the previous request.

        Returns
        -------
        int or numpy.ndarray
            Tokens.

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
        """Return the tokens of an unchanged prefix that the cache serves within its lifetime.

        Parameters
        ----------
        prefix_tokens : int or numpy.ndarray
            Tokens of the prefix.

        Returns
        -------
        int or numpy.ndarray
            Tokens.
        """
        long_enough = (prefix_tokens >= self.minimum) * (self.kind != "none")
        return (prefix_tokens - prefix_tokens % self.granularity) * long_enough  # type: ignore[no-any-return]


class Model(msgspec.Struct, frozen=True):
    """Limit, prices and cache of a model."""

    name: str
    "name as requested"
    limit: int = _DEFAULT_LIMIT
    "maximum input tokens of a request"
    max_output: int = _DEFAULT_MAX_OUTPUT
    "maximum output tokens of a reply"
    prices: Prices = Prices()
    "prices per token"
    cache: CachePolicy = CachePolicy()
    "rules of the prompt cache"
    provider: str = ""
    "provider as listed; empty if unknown"
    source: Literal["litellm", "built-in", "default"] = "default"
    "where the data comes from"
    listed_as: str | None = None
    "entry of litellm's table, or pattern of the built-in family, that matched"
    warning: str | None = None
    "what to know before relying on the data"


@functools.cache
def find_model(name: str) -> Model:
    """Look up a model by name, with any gateway prefix, date or tag.

    These spellings are tried in turn: the name; the name without leading ``provider/`` parts,
    removed one by one; the remaining name with the prefixes in ``_PROVIDER_PREFIXES``; the same
    without a trailing date, ``-latest``, ``@version`` or ``:tag``. Case is ignored, and ``4.5``
    equals ``4-5``. Entries for embeddings, images or speech are ignored. No error is raised: an
    unknown name gives a default limit, no prices and a ``ModelWarning``.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    Model
        The model.

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

    Providers other than Anthropic are called in OpenAI's chat format, the format of recordings.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    str
        ``"anthropic"`` for Claude, else ``"openai"``.

    Examples
    --------
    >>> rules_provider("bedrock/anthropic.claude-opus-4-5"), rules_provider("deepseek/deepseek-chat")
    ('anthropic', 'openai')
    """
    return "anthropic" if model_family(name) == "anthropic" else "openai"


@functools.cache
def find_model_without_warning(name: str) -> Model:
    """Look up a model like ``find_model``, but do not warn if it is unknown.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    Model
        The model.

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

# Prefixes under which a bare name may be listed: makers first, because their prices are the
# reference, then hosts.
_PROVIDER_PREFIXES = (
    *("openai", "anthropic", "gemini", "deepseek", "xai", "mistral", "moonshot", "dashscope"),
    *("zai", "minimax", "meta_llama", "vercel_ai_gateway/anthropic", "vercel_ai_gateway/openai"),
    *("vercel_ai_gateway/xai", "vercel_ai_gateway", "vertex_ai", "azure", "azure_ai", "groq"),
    *("together_ai", "deepinfra", "novita", "fireworks_ai/accounts/fireworks/models", "ollama"),
)
_VERSION_SUFFIX = re.compile(r"(-latest|-\d{4}-\d\d-\d\d|-\d{8}|-\d{4}|@[^/]*|:[^/:]*)$")


# Providers whose higher prices apply at the threshold already, not only above it; as in litellm.
_INCLUSIVE_PROVIDERS = {"xai"}


class _ListedCosts(msgspec.Struct):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    range: list[float] = []


_COST_KEYS = _ListedCosts.__struct_fields__[:4]
_THRESHOLD_KEY = re.compile(rf"({'|'.join(_COST_KEYS)})_above_(\d+)(k?)_tokens")


class _ListedModel(_ListedCosts):
    # The table has integers as 4096 and as 4096.0.
    mode: str | None = None
    litellm_provider: str = ""
    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    prompt_cache_min_tokens: float | None = None
    tiered_pricing: list[_ListedCosts] = []


_PriceTable: TypeAlias = dict[str, tuple[str, msgspec.Raw]]
"""Normalized name → the name as listed and its undecoded entry."""


@functools.cache
def _load_price_table(folder: Path | None) -> _PriceTable:
    """Return the table in litellm's folder; empty without litellm."""
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
            reason = f"litellm lists it with mode {entry.mode}, not as a chat model"
            return _build_default_model(name, reason)
        if entry.max_input_tokens:
            steps = _steps_by_range(entry) or _steps_by_threshold(entry, figures)
            return _build_listed_model(name, listed_as, entry, steps)
    return None


_PriceSteps: TypeAlias = list[tuple[int, list[float | None]]]
"""First prompt length in tokens and its costs in the order of ``_COST_KEYS``; ascending."""


def _steps_by_range(entry: _ListedModel) -> _PriceSteps:
    """Return the steps of ``tiered_pricing``; a tier starts one token after its lower bound."""
    priced = (t for t in entry.tiered_pricing if t.input_cost_per_token is not None)
    ranged = sorted((t for t in priced if len(t.range) == 2), key=lambda t: t.range[0])
    for tier in ranged:
        if tier.output_cost_per_token is None:
            tier.output_cost_per_token = entry.output_cost_per_token
    return [(int(tier.range[0]) + 1, _get_costs(tier)) for tier in ranged]


def _steps_by_threshold(entry: _ListedModel, figures: dict[str, Any]) -> _PriceSteps:
    """Return the plain prices and those above each threshold; missing prices carry over."""
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
    tiers = (PriceTier(*fill_missing_prices(*c), start) for start, c in more if costs[0])
    prices, cache = Prices(*fill_missing_prices(*costs), above=tuple(tiers)), CachePolicy()
    if costs[2] is not None:
        cache = _build_cache_policy(maker, listed, entry.prompt_cache_min_tokens)
    output = int(entry.max_output_tokens or min(_DEFAULT_MAX_OUTPUT, limit))
    warning = None if prices.known else f"litellm lists no price for {name}, so its cost is unknown"
    return Model(name, limit, output, prices, cache, maker, "litellm", listed, warning)


def _iter_name_variants(name: str) -> Iterator[str]:
    """Yield the keys under which to look up a name, the most literal first."""
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
            prices, cache = _family_prices(spelling, per_million), CachePolicy()
            if per_million[2] is not None:
                cache = _build_cache_policy(provider, name)
            warning = f"{name} is not in litellm's table; limit and prices are those of its family"
            warning += "" if prices.known else ", which has no price, so its cost is unknown"
            return Model(name, limit, output, prices, cache, provider, "built-in", pattern, warning)
    return None


def _family_prices(spelling: str, per_million: Sequence[float | None]) -> Prices:
    input, output, read, write = fill_missing_prices(*per_million)

    def times(into: float, out: float) -> tuple[float, float, float, float]:
        return input * into / 1e6, output * out / 1e6, read * into / 1e6, write * into / 1e6

    dearer = [row for row in LONG_PROMPT_PRICES if input and re.search(row[0], spelling)]
    return Prices(*times(1, 1), above=tuple(PriceTier(*times(x, y), n) for _, n, x, y in dearer))


def _build_cache_policy(provider: str, name: str, minimum: float | None = None) -> CachePolicy:
    """Return the policy of a model that has a cache."""
    maker = f"{provider} {_normalize_name(name)}"
    rule = next(rule for rule in CACHE_RULES if re.search(rule[0], maker))
    _, kind, usual, granularity, lifetime = rule
    return CachePolicy(kind, int(minimum or usual), granularity, lifetime)


def _build_default_model(name: str, reason: str = "neither litellm nor ctxlab knows it") -> Model:
    assumed = f"a limit of {_DEFAULT_LIMIT:,} tokens, no prices and no prompt cache"
    advice = "Give the name that its provider lists, or a limit in tokens."
    return Model(name, warning=f"model {name!r}: {reason}; assuming {assumed}. {advice}")
