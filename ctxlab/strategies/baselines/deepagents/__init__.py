"""Baselines of LangChain's Deep Agents."""

from ctxlab.strategies.baselines.deepagents.strategies import MODULE_BASELINES

__all__ = ["MODULE_BASELINES"]
