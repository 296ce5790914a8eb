"""Default strategies of products and libraries, each under its own name.

A family is a module or a folder here. A baseline consists of a strategy, the version of the product
that it imitates, and the URL of the original code. If the package can be installed,
``ctxlab.strategies.upstream`` runs the original code, and ``nox -s peers`` compares the two message
by message.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ctxlab.errors import SpecError
from ctxlab.strategies.baselines.base import Baseline, NamedStrategy

__all__ = ["BASELINES", "Baseline", "NamedStrategy"]


def _load_baselines() -> dict[str, Baseline]:
    """Load ``MODULE_BASELINES`` of every module and folder here, in alphabetical order."""
    table: dict[str, Baseline] = {}
    for family in iter_modules(__path__, f"{__name__}."):
        for baseline in getattr(import_module(family.name), "MODULE_BASELINES", ()):
            if baseline.name in table:
                raise SpecError(f"two baselines have the name {baseline.name}; rename one of them")
            table[baseline.name] = baseline
    return table


BASELINES: dict[str, Baseline] = _load_baselines()
