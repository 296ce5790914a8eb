"""Plots show results and return the axes they drew on; matplotlib is loaded when one is drawn."""

from ctxlab.evaluation.plots.context_map import context_map
from ctxlab.evaluation.plots.frontier import frontier
from ctxlab.evaluation.plots.survival import cliff

__all__ = ["cliff", "context_map", "frontier"]
