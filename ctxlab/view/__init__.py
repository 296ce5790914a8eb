"""Plots show results and return the axes they drew on; matplotlib is loaded when one is drawn."""

from ctxlab.view.cliff import cliff
from ctxlab.view.context_map import context_map
from ctxlab.view.frontier import frontier

__all__ = ["cliff", "context_map", "frontier"]
