"""Baselines of LangChain: trimming messages, summarising, and clearing tool results."""

from ctxlab.strategies.baselines.langchain.strategies import MODULE_BASELINES

__all__ = ["MODULE_BASELINES"]
