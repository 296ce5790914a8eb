"""Default context strategies of products and libraries, reimplemented in ctxlab.

Each module or subpackage lists the baselines of one product in ``MODULE_BASELINES``. A baseline
consists of a strategy, the version of the product whose behaviour it reproduces, and the URL of the
original code. If the original package can be installed, ``ctxlab.strategies.upstream`` runs its
code. ``nox -s peers`` then checks that both implementations send the same messages.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ctxlab.errors import SpecError
from ctxlab.strategies.baselines.base import Baseline, NamedStrategy

__all__ = ["BASELINES", "Baseline", "NamedStrategy", "newest_baselines"]


def _load_baselines() -> dict[str, Baseline]:
    """Collect the baselines of all modules and subpackages of this package, by name."""
    table: dict[str, Baseline] = {}
    for family in iter_modules(__path__, f"{__name__}."):
        for baseline in getattr(import_module(family.name), "MODULE_BASELINES", ()):
            if baseline.name in table:
                raise SpecError(f"two baselines are called {baseline.name!r}; rename one of them")
            table[baseline.name] = baseline
    return table


BASELINES: dict[str, Baseline] = _load_baselines()


def newest_baselines() -> tuple[str, ...]:
    """Return the names of all baselines, without those of superseded versions.

    Returns
    -------
    tuple of str
        Names in alphabetical order of the products.
    """
    return tuple(name for name, each in BASELINES.items() if not each.superseded_by)
