"""Baselines of LangChain."""

from ctxlab.strategies.baselines.langchain.strategies import MODULE_BASELINES

__all__ = ["MODULE_BASELINES"]
