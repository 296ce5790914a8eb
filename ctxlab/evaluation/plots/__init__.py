"""Plots. Each function imports matplotlib and returns the axes of the plot."""

from ctxlab.evaluation.plots.bills import plot_bills
from ctxlab.evaluation.plots.contents import plot_contents
from ctxlab.evaluation.plots.context_map import plot_context_map
from ctxlab.evaluation.plots.cost import plot_cost, plot_equal_knowledge
from ctxlab.evaluation.plots.differences import plot_differences
from ctxlab.evaluation.plots.frontier import plot_frontier
from ctxlab.evaluation.plots.recall import plot_recall_by_distance, plot_recordings
from ctxlab.evaluation.plots.request_sizes import plot_request_sizes, plot_size_distribution
from ctxlab.evaluation.plots.survival import plot_canaries, plot_survival
from ctxlab.evaluation.plots.tuning import plot_tuning

__all__ = [
    "plot_bills",
    "plot_canaries",
    "plot_contents",
    "plot_context_map",
    "plot_cost",
    "plot_differences",
    "plot_equal_knowledge",
    "plot_frontier",
    "plot_recall_by_distance",
    "plot_recordings",
    "plot_request_sizes",
    "plot_size_distribution",
    "plot_survival",
    "plot_tuning",
]
