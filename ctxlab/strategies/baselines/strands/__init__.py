"""Baselines of Strands: two conversation managers, and the context manager ``auto``."""

from ctxlab.strategies.baselines.strands import context_manager, conversation_managers

__all__ = ["MODULE_BASELINES"]

MODULE_BASELINES = (*conversation_managers.MODULE_BASELINES, *context_manager.MODULE_BASELINES)
