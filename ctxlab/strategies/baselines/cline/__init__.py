"""Baselines of Cline."""

from ctxlab.strategies.baselines.cline.strategies import MODULE_BASELINES

__all__ = ["MODULE_BASELINES"]
