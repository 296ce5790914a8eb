"""Look up the description of a strategy by name: parameters, defaults, source, and use of models."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from ctxlab.errors import UnknownName
from ctxlab.strategies.base import MODEL_PARAMETERS, Pipeline
from ctxlab.strategies.baselines import BASELINES, Baseline
from ctxlab.strategies.baselines.settings import Setting
from ctxlab.strategies.registry import STRATEGIES, is_control

_StrategyKind = Literal["strategy", "control", "baseline"]


@dataclass(frozen=True)
class StrategyParameter:
    """Name, default and meaning of one parameter of a strategy."""

    name: str
    "name of the parameter"
    default: str
    "``repr`` of the default; empty if the parameter is required"
    description: str
    "meaning of the parameter"
    setting: Setting | None = None
    "for a baseline: the setting of the product that corresponds to the parameter; None: unknown"
    written: str = ""
    "for a baseline: what a user of the product writes to set the default"


@dataclass(frozen=True)
class StrategyInfo:
    """Description of a strategy, shown by ``ctxlab strategies`` and in ``docs/strategies.md``."""

    name: str
    "name of the strategy"
    kind: _StrategyKind
    "strategy, control or baseline"
    summary: str
    "one sentence that says what the strategy does"
    parameters: tuple[StrategyParameter, ...]
    "parameters in the order of the signature"
    source: str
    "design note, paper or product that the strategy follows"
    docstring: str
    "complete docstring of the class"
    equivalent: str = ""
    "for a baseline: expression of the strategy that implements it; otherwise empty"
    url: str = ""
    "for a baseline: web page that documents its behaviour; otherwise empty"

    @property
    def model_parameter(self) -> str | None:
        """Name of the parameter with which the strategy calls a model; None if there is none."""
        names = {parameter.name for parameter in self.parameters}
        return next((name for name in MODEL_PARAMETERS if name in names), None)

    @property
    def model_use(self) -> Literal["no", "optional"]:
        """``optional`` if the strategy can call a model, otherwise ``no``."""
        return "optional" if self.model_parameter else "no"

    @property
    def signature(self) -> str:
        """Name and parameters with their defaults, such as ``tool_stubs(keep=None)``."""
        shown = (f"{p.name}={p.default}" if p.default else p.name for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"


def list_strategies() -> list[StrategyInfo]:
    """Return the descriptions of all registered strategies.

    Returns
    -------
    list of StrategyInfo
        One description per name: strategies first, then controls, then baselines.
    """
    named = [strategy_info(name) for name in STRATEGIES]
    ours = sorted(named, key=lambda each: each.kind == "control")
    return [*ours, *(strategy_info(name) for name in BASELINES)]


def strategy_info(name: str) -> StrategyInfo:
    """Return the description of one strategy.

    Parameters
    ----------
    name : str
        Name of a strategy, a control or a baseline.

    Returns
    -------
    StrategyInfo
        Kind, summary, parameters, source and docstring of the strategy.

    Raises
    ------
    UnknownName
        If no strategy has this name.

    Examples
    --------
    >>> strategy_info("tool_stubs").signature, strategy_info("tool_stubs").model_use
    ('tool_stubs(keep=None)', 'no')
    """
    if name in BASELINES:
        return _baseline_info(BASELINES[name])
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, [*STRATEGIES, *BASELINES])
    factory = STRATEGIES[name]
    text = inspect.getdoc(factory) or ""
    parameters = tuple(_parameters(factory))
    kind: _StrategyKind = "control" if is_control(name) else "strategy"
    return StrategyInfo(name, kind, _first_sentence(text), parameters, _source_section(text), text)


def _baseline_info(baseline: Baseline) -> StrategyInfo:
    whole: Any = baseline.strategy
    steps = whole.steps if isinstance(whole, Pipeline) else (whole,)
    meanings = {p.name: p.description for step in steps for p in _parameters(type(step))}
    settings = {each.parameter: each for each in baseline.settings}
    return StrategyInfo(
        name=baseline.name,
        kind="baseline",
        summary=baseline.description,
        parameters=tuple(
            _with_setting(name, value, meanings.get(name, ""), settings.get(name))
            for name, value in baseline.parameters.items()
        ),
        source=baseline.product_version,
        docstring=inspect.getdoc(type(whole)) or "",
        equivalent=repr(whole),
        url=baseline.url,
    )


def _with_setting(
    name: str, value: Any, meaning: str, setting: Setting | None
) -> StrategyParameter:
    written = setting.write(value) if setting else ""
    return StrategyParameter(name, repr(value), meaning, setting, written)


def _parameters(factory: Callable[..., Any]) -> Iterator[StrategyParameter]:
    meanings = _field_descriptions(factory)
    for each in inspect.signature(factory).parameters.values():
        default = "" if each.default is each.empty else repr(each.default)
        yield StrategyParameter(each.name, default, meanings.get(each.name, ""))


@cache
def _field_descriptions(factory: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of the fields of a dataclass, by field name.

    A description is a string literal directly below the field.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(factory))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return {}  # no source file, for example a notebook cell that was deleted
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in pairwise(getattr(tree, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line and without double backticks."""
    first = " ".join(text.split("\n\n")[0].replace("``", "").split())
    return first.split(". ")[0].rstrip(".") + "."


def _source_section(text: str) -> str:
    """Return the text of the ``Source:`` paragraph of a docstring, or an empty string."""
    found = re.search(r"^Sources?: (.*?)(?=\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].replace("``", "").split()).rstrip(".") if found else ""
