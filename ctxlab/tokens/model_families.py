"""Published data of model families, as of the end of 2026: windows, prices, caches, images, reasoning.

This module contains only data, which the other modules of this package read. Each table has one row per
family of models. A row begins with a regular expression that is searched in the name of the model,
in lower case and with dashes instead of dots between digits (``gpt-4-1``). The first matching row of
a table applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

_Usd: TypeAlias = float | None
_CacheKind: TypeAlias = Literal["none", "automatic", "explicit"]
_ImageRule: TypeAlias = Literal["fitted_patches", "budgeted_patches", "tiles", "crops", "levels"]

MODEL_FAMILIES: tuple[tuple[str, str, int, int, _Usd, _Usd, _Usd, _Usd], ...] = (
    # anthropic
    ("claude-(instant|2)", "anthropic", 100_000, 4096, 8, 24, None, None),
    ("claude-3-opus", "anthropic", 200_000, 4096, 15, 75, 1.5, 18.75),
    ("claude-3-haiku", "anthropic", 200_000, 4096, 0.25, 1.25, 0.03, 0.3),
    ("claude-3-5-haiku", "anthropic", 200_000, 8192, 0.8, 4, 0.08, 1),
    ("claude.*haiku", "anthropic", 200_000, 64_000, 1, 5, 0.1, 1.25),
    ("claude-opus-4(-[01])?(?!-?[2-9])", "anthropic", 200_000, 32_000, 15, 75, 1.5, 18.75),
    ("claude.*opus", "anthropic", 200_000, 64_000, 5, 25, 0.5, 6.25),
    ("claude", "anthropic", 200_000, 8192, 3, 15, 0.3, 3.75),
    # openai
    ("gpt-oss", "openai", 131_072, 32_768, None, None, None, None),
    ("gpt-[5-9].*(mini|nano)", "openai", 272_000, 128_000, 0.25, 2, 0.025, None),
    ("gpt-[5-9]|codex", "openai", 272_000, 128_000, 1.25, 10, 0.125, None),
    ("gpt-4-1", "openai", 1_047_576, 32_768, 2, 8, 0.5, None),
    ("gpt-4o-mini", "openai", 128_000, 16_384, 0.15, 0.6, 0.075, None),
    ("gpt-4(o|-5)|chatgpt", "openai", 128_000, 16_384, 2.5, 10, 1.25, None),
    ("gpt-4-(turbo|1106|0125|vision)", "openai", 128_000, 4096, 10, 30, None, None),
    ("gpt-4-32k", "openai", 32_768, 4096, 60, 120, None, None),
    ("gpt-4", "openai", 8192, 4096, 30, 60, None, None),
    ("gpt-3-?5", "openai", 16_385, 4096, 0.5, 1.5, None, None),
    (r"\bo1-preview", "openai", 128_000, 32_768, 15, 60, 7.5, None),
    (r"\bo1-mini", "openai", 128_000, 65_536, 1.1, 4.4, 0.55, None),
    (r"\bo[34]-mini", "openai", 200_000, 100_000, 1.1, 4.4, 0.275, None),
    (r"\bo1\b", "openai", 200_000, 100_000, 15, 60, 7.5, None),
    (r"\bo[34]\b", "openai", 200_000, 100_000, 2, 8, 0.5, None),
    # google
    ("gemini-1-0|gemini-pro$", "gemini", 30_720, 2048, 0.5, 1.5, None, None),
    ("gemini-(1-5|2-0)-flash", "gemini", 1_048_576, 8192, 0.1, 0.4, 0.025, None),
    ("gemini.*flash", "gemini", 1_048_576, 65_536, 0.3, 2.5, 0.03, None),
    ("gemini", "gemini", 1_048_576, 65_536, 1.25, 10, 0.125, None),
    ("gemma-?[34]", "gemini", 131_072, 8192, None, None, None, None),
    ("gemma", "gemini", 8192, 8192, None, None, None, None),
    # others, with the prices of the developer's own API
    ("deepseek", "deepseek", 131_072, 8192, 0.28, 0.42, 0.028, None),
    ("grok-code", "xai", 256_000, 256_000, 0.2, 1.5, 0.02, None),
    ("grok", "xai", 131_072, 131_072, 3, 15, 0.75, None),
    ("kimi-k2-[5-9]", "moonshot", 262_144, 262_144, 0.6, 3, 0.1, None),
    ("kimi|moonshot", "moonshot", 131_072, 131_072, 0.6, 2.5, 0.15, None),
    ("codestral|devstral", "mistral", 128_000, 128_000, 0.3, 0.9, None, None),
    ("(mistral|magistral)-(large|medium)", "mistral", 128_000, 128_000, 2, 6, None, None),
    ("mistral|mixtral|magistral", "mistral", 32_768, 32_768, None, None, None, None),
    ("qwen-?3", "dashscope", 131_072, 16_384, None, None, None, None),
    ("qwen|qwq", "dashscope", 32_768, 8192, None, None, None, None),
    (r"llama-?(4|3-[1-4](?!\d*b))", "meta_llama", 128_000, 4096, None, None, None, None),
    ("llama-?3", "meta_llama", 8192, 4096, None, None, None, None),
    ("llama", "meta_llama", 4096, 4096, None, None, None, None),
    ("glm-?[45]", "zai", 128_000, 96_000, 0.6, 2.2, 0.11, None),
    ("minimax", "minimax", 196_608, 8192, 0.3, 1.2, 0.03, 0.375),
    ("command-(r|a)", "cohere", 128_000, 4096, 2.5, 10, None, None),
)
"""Rows with: pattern, provider, maximum input tokens, maximum output tokens, and the prices in USD per
million tokens of input, output, cache reads and cache writes. A price is None if the provider
publishes none or if it depends on the host. Source: the providers' model and price pages. If the
models of a family differ, a common and conservative value is given."""

LONG_PROMPT_PRICES: tuple[tuple[str, int, float, float], ...] = (
    ("gemini(?!.*flash)", 200_001, 2, 1.5),
)
"""Families with higher prices for long prompts. Rows with: pattern, minimum prompt length in tokens for
the higher prices, factor for input prices (cached or not), factor for output prices. Source: Google,
"Gemini Developer API pricing"."""

CACHE_RULES: tuple[tuple[str, _CacheKind, int, int, float, float], ...] = (
    ("claude.*(haiku-4-5|opus-4-[56])", "explicit", 4096, 1, 300, 3600),
    ("claude.*(opus-4-7|3-haiku|3-5-haiku)", "explicit", 2048, 1, 300, 3600),
    ("claude.*((opus|fable|mythos)-5|(sonnet|haiku)-5-5)", "explicit", 512, 1, 300, 3600),
    ("claude", "explicit", 1024, 1, 300, 3600),
    ("gemini-2-5", "automatic", 2048, 1, 300, 0),
    ("gemini", "automatic", 4096, 1, 300, 0),
    ("^deepseek ", "automatic", 64, 64, 3600, 0),
    ("", "automatic", 1024, 128, 300, 0),
)
"""Rules of prompt caches. Rows with: pattern, and the fields of ``CachePolicy``: kind, minimum and
granularity in tokens, lifetime and longer lifetime in seconds. The pattern is searched in the provider
and the name of the model, separated by a space. Sources:

- Anthropic, "Prompt caching": a request is cached up to the breakpoints that the client sets. The
  cache is kept for five minutes after its last use, or for an hour if the client pays for that.
- Google, "Context caching" of the Gemini API, implicit caching: no lifetime is published.
- DeepSeek, "Context Caching": storage units of 64 tokens, which are deleted after hours to days.
- OpenAI, "Prompt caching": prefixes of 1,024 tokens or more are cached in steps of 128 tokens and kept
  for five to ten minutes after their last use. Many models may keep a prefix for up to 24 hours, but
  this is not guaranteed and not assumed.
- Other providers that have a price for cached tokens, and publish no rules, are assumed to work like
  OpenAI."""

LONG_WRITE_FACTOR = 2.0
"""Price of a token that the cache keeps for the longer lifetime, divided by the input price, for models
without a listed price. Source: Anthropic, "Prompt caching"."""

NEW_CLAUDE = r"claude.*(opus-4-[7-9]|(opus|sonnet|haiku|fable|mythos)-[5-9])(?!\d)"
"""Claude Opus 4.7 and all later models. They split text into more tokens, and see larger images."""

IMAGE_RULES: tuple[tuple[str, _ImageRule, Mapping[str, Any]], ...] = (
    # anthropic
    (NEW_CLAUDE, "fitted_patches", {"tokens": 4784, "edge": 2576}),
    ("claude|anthropic", "fitted_patches", {"tokens": 1568, "edge": 1568}),
    # openai
    (
        r"gpt-([6-9]|5-[6-9](?!\d))",
        "budgeted_patches",
        {"factor": 1.2, "high": (2_500, 65_535), "auto": (30_000, 65_535)},
    ),
    (
        r"gpt-5-5(?!\d)",
        "budgeted_patches",
        {"factor": 1.2, "high": (2_500, 2048), "auto": (10_000, 6000)},
    ),
    (
        r"gpt-5-4(?!\d)",
        "budgeted_patches",
        {"factor": 1.2, "original": (10_000, 6000), "auto": (2_500, 2048)},
    ),
    (r"gpt-5-[23](?!\d)", "budgeted_patches", {"factor": 1.2, "auto": (6_144, 2048)}),
    ("gpt-(5.*|4-1-)mini", "budgeted_patches", {"factor": 1.62, "auto": (6_144, 2048)}),
    ("gpt-(5|4-1)-nano", "budgeted_patches", {"factor": 2.46, "auto": (6_144, 2048)}),
    (r"\bo4-mini", "budgeted_patches", {"factor": 1.72, "auto": (6_144, 2048)}),
    ("gpt-5", "tiles", {"base": 70, "tile": 140}),
    ("gpt-4o-mini", "tiles", {"base": 2833, "tile": 5667}),
    ("computer-use-preview", "tiles", {"base": 65, "tile": 129}),
    (r"\bo[13]\b", "tiles", {"base": 75, "tile": 150}),
    # google
    (
        "gemini-[3-9]",
        "levels",
        {"low": 280, "medium": 560, "auto": 1120, "ultra_high": 2240},
    ),
    ("gemini", "crops", {"tokens": 258, "small": 384, "side": 768}),
    ("", "tiles", {"base": 85, "tile": 170}),
)
"""Rules for the tokens of images. Rows with: pattern, name of the rule in ``ctxlab.tokens.images``, and
its parameters. ``auto`` holds for each level of detail that has no parameter of its own. Sources, read
in November 2026:

- Anthropic, "Vision": patches of 28 px after shrinking the image to the given numbers of tokens and
  pixels.
- OpenAI, "Images and vision" (the version of September 2026): patches of 32 px after shrinking the
  image to a number of patches and of pixels, times a factor; or tiles of 512 px. From GPT-5.5 on,
  ``auto`` equals ``original``; from GPT-5.6 on, images of more than 30,000 patches are rejected. The
  page names no factor for GPT-5.2 to 5.6 and GPT-6; programs that reserve tokens by it use 1.2, and the
  data set JOHNISKING/image-token-cost on Hugging Face measured 1.2 for GPT-5.5 and GPT-6. No factor is
  published for codex-mini; that of GPT-5 mini is used.
- Google, "Media resolution" of the Gemini API: Gemini 3 and 4 have a maximum per level. Measured images
  stay up to 6 % below it. "Understand and count tokens": Gemini 2 bills 258 tokens per 768 px crop.
- The last row is OpenAI's rule for GPT-4o and GPT-4.1. It is applied to all other models, whose
  developers bill images in many ways."""

REASONING_RULES: tuple[tuple[str, Literal["keep", "current_turn", "clear"]], ...] = (
    (NEW_CLAUDE, "keep"),
    (r"claude.*((opus-4-[56]|sonnet-4-[6-9])(?!\d)|mythos)", "keep"),
    ("claude|anthropic", "current_turn"),
    (r"gpt-([6-9]|5-[6-9](?!\d))", "keep"),
    (r"\bo1\b|\bo[13]-mini|o1-preview", "clear"),
    (r"gpt-5|codex|\bo[34]\b|\bo4-mini", "current_turn"),
    ("gemini", "clear"),
    ("deepseek-(v[4-9]|flash)", "keep"),
    ("deepseek-v3-2", "current_turn"),
)
"""Rules that say how much of the hidden reasoning that a client sends back is counted: pattern, and

- ``keep``: all of it.
- ``current_turn``: that of the replies since the last message of the user, so of a loop of tool calls.
  The provider drops that of earlier turns.
- ``clear``: none of it. This is also assumed for models that are in no row.

Sources, read in November 2026:

- Anthropic, "Extended thinking" and "Context windows": thinking must be sent back unchanged within a
  turn. Claude Opus 4.5 and models numbered 4.6 and higher keep that of earlier turns and bill it as
  input; Sonnet 4.5, Haiku 4.5 and earlier models drop it.
- OpenAI, "Reasoning models" and the cookbook "Better performance from reasoning models": reasoning items
  are used within a turn from o3 and o4-mini on, if the client sends them back in the Responses API, and
  ignored by o1 and o3-mini. From GPT-5.6 on, ``reasoning.context`` chooses between the current turn and
  all turns, and by default all turns are kept. The Chat Completions API drops all reasoning.
- Google, "Thought signatures": the client sends back signatures and not thoughts. Signatures count as
  input, but their number of tokens is not published.
- DeepSeek, "Thinking mode": V4 requires the reasoning of all turns with tool calls. V3.2 requires it
  within a turn; earlier models reject it.

The bills of recorded sessions agree, of Claude Code with Opus 4.5 and later models and with Sonnet 4.5,
and of Codex with GPT-5, 5.1 and 5.3 to 5.6. A bill of Codex grows by exactly the reasoning of each
reply. With the models of ``current_turn``, it falls by that of the whole turn at the next message of the
user."""
