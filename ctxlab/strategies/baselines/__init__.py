"""What products and libraries do by default, each under its own name; a family is a file or folder here.

A baseline is data: the strategy that it is, the version that it imitates, and where that can be read.
Where the package installs, ``ctxlab.strategies.upstream`` runs the real code, and ``nox -s peers``
compares the two message by message.
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
"""Modules of this folder; each has its baselines in ``MODULE_BASELINES``."""


def _load_baselines() -> dict[str, Baseline]:
    table: dict[str, Baseline] = {}
    for family in _MODULES:
        for baseline in import_module(f"{__name__}.{family}").MODULE_BASELINES:
            if baseline.name in table:
                raise SpecError(f"two baselines are called {baseline.name}")
            table[baseline.name] = baseline
    return table


BASELINES: dict[str, Baseline] = _load_baselines()
