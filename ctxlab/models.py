"""A model's limit and prices come with the word of where they are from, and a guess says so.

Three sources, in this order: litellm's own table, read from its package without importing it; the
families in ``ctxlab.model_data``; a default with a warning. The limit is what a request may hold:
litellm's ``max_input_tokens`` (its ``max_tokens`` is the input here and the output there).
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from ctxlab.conversation import Usage
from ctxlab.model_data import CACHES, FAMILIES
from ctxlab.vocabulary import litellm_folder

__all__ = ["CachePolicy", "Model", "ModelWarning", "Prices", "find_model"]


_Tokens = TypeVar("_Tokens", bound=Any)


class ModelWarning(UserWarning):
    """A model is unknown, so that limit and prices are a default."""


class Prices(msgspec.Struct, frozen=True):
    """What a token costs, in USD; 0.0 where no price is known.

    These are base prices: a surcharge for long requests (above 200,000 tokens or so at some
    providers) and discounts for batches or at night are left out.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    "the input price where the provider publishes no other"
    cache_write: float = 0.0
    "what a written token costs in all, so never less than the input price"

    @property
    def known(self) -> bool:
        """Whether there is a price to go by."""
        return self.input > 0

    def cost(self, usage: Usage) -> float:
        """What a call cost in USD; nan where no price is known.

        >>> Prices(2e-6, 8e-6, cache_read=5e-7).cost(Usage(1_000, cache_read=2_000, output=500))
        0.007
        """
        if not self.known:
            return math.nan
        return (
            usage.input * self.input
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
            + usage.output * self.output
        )


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
    model = _from_table(name, _table(litellm_folder())) or _from_family(name) or _default(name)
    if model.source == "default":
        warnings.warn(str(model.warning), ModelWarning, stacklevel=2)
    return model


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


class _Entry(msgspec.Struct):
    # Whole numbers stand in the table as 4096 and as 4096.0.
    mode: str | None = None
    litellm_provider: str = ""
    max_input_tokens: float | None = None
    max_output_tokens: float | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    prompt_cache_min_tokens: float | None = None
    tiered_pricing: list[_Entry] = []


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
            entry = msgspec.json.decode(raw, type=_Entry)
        except msgspec.DecodeError:
            continue
        if entry.mode not in _CHAT:
            return _default(name, f"litellm lists it under {entry.mode}, not as a chat model")
        if entry.max_input_tokens:
            return _listed(name, listed_as, entry, entry.max_input_tokens)
    return None


def _listed(name: str, listed_as: str, entry: _Entry, limit: float) -> Model:
    priced = entry
    if entry.input_cost_per_token is None and entry.tiered_pricing:
        priced = entry.tiered_pricing[0]
    prices = _prices(
        priced.input_cost_per_token,
        priced.output_cost_per_token,
        priced.cache_read_input_token_cost,
        priced.cache_creation_input_token_cost,
    )
    cached = priced.cache_read_input_token_cost is not None
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


def _prices(
    input: float | None, output: float | None, read: float | None, write: float | None
) -> Prices:
    """Prices with the gaps filled: no cache price means the input price.

    A write of 0.0 is the table's way to say "nothing extra", and a few Azure entries hold the read
    price in its place: a written token still costs what an input token costs.
    """
    plain = input or 0.0
    return Prices(plain, output or 0.0, plain if read is None else read, max(write or 0.0, plain))


# --- families and caches --------------------------------------------------------------------------


def _from_family(name: str) -> Model | None:
    spelling = _spelling(name)
    for pattern, provider, limit, output, *per_million in FAMILIES:
        if re.search(pattern, spelling):
            prices = _prices(*(None if p is None else p / 1e6 for p in per_million))
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
