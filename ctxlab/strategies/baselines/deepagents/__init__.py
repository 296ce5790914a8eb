"""Baselines of deepagents: a summary when the window is nearly full, and files for long results."""

from ctxlab.strategies.baselines.deepagents import offload, summarization

__all__ = ["MODULE_BASELINES"]

MODULE_BASELINES = (*summarization.MODULE_BASELINES, *offload.MODULE_BASELINES)
