"""Default strategies of products and libraries, each under its own name.

A family is a module or a folder here. A baseline consists of a strategy, the version of the product
that it imitates, and the URL of the original code. If the package can be installed,
``ctxlab.strategies.upstream`` runs the original code, and ``nox -s peers`` compares the two message
by message.
"""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.strategies.baselines.base import Baseline, NamedStrategy

__all__ = ["BASELINES", "Baseline", "NamedStrategy"]

_MODULES: tuple[str, ...] = (
    "adk",
    "ag2",
    "agent_framework.strategies",
    "aider",
    "anthropic",
    "autogen",
    "claude_code",
    "cline.strategies",
    "codex",
    "complexity_trap",
    "deepagents.strategies",
    "gemini_cli",
    "goose",
    "inspect",
    "langchain.strategies",
    "langmem",
    "letta",
    "litellm.strategies",
    "llama_index",
    "openai_agents",
    "opencode",
    "openhands",
    "pydantic_ai",
    "roo",
    "semantic_kernel",
    "strands",
    "swe_agent",
    "vercel",
)
"Modules of this folder; each lists its baselines in ``MODULE_BASELINES``."


def _load_baselines() -> dict[str, Baseline]:
    table: dict[str, Baseline] = {}
    for family in _MODULES:
        for baseline in import_module(f"{__name__}.{family}").MODULE_BASELINES:
            if baseline.name in table:
                raise SpecError(f"two baselines have the name {baseline.name}; rename one of them")
            table[baseline.name] = baseline
    return table


BASELINES: dict[str, Baseline] = _load_baselines()
