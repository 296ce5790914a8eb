"""Baselines of Microsoft Agent Framework."""

from ctxlab.strategies.baselines.agent_framework.strategies import MODULE_BASELINES

__all__ = ["MODULE_BASELINES"]
