"""Plots of evaluation results. Each function imports matplotlib and returns the axes of the plot."""

from ctxlab.evaluation.plots.context_map import plot_context_map
from ctxlab.evaluation.plots.frontier import plot_frontier
from ctxlab.evaluation.plots.survival import plot_survival

__all__ = ["plot_context_map", "plot_frontier", "plot_survival"]
