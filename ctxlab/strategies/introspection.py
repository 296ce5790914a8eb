"""What is known of a strategy by its name: parameters, defaults, source, and whether it asks a model."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from ctxlab.errors import UnknownName
from ctxlab.strategies.base import Pipeline
from ctxlab.strategies.baselines import BASELINES, Baseline
from ctxlab.strategies.registry import CONTROLS, STRATEGIES

__all__ = ["StrategyInfo", "StrategyParameter", "list_strategies", "strategy_info"]

_StrategyKind = Literal["strategy", "control", "baseline"]


@dataclass(frozen=True)
class StrategyParameter:
    """One parameter as it is written, and what it means."""

    name: str
    default: str
    "as it is written; empty where it must be given"
    description: str


@dataclass(frozen=True)
class StrategyInfo:
    """A strategy as the tables and the manual show it."""

    name: str
    kind: _StrategyKind
    summary: str
    "what it does, in a sentence"
    parameters: tuple[StrategyParameter, ...]
    source: str
    "the seed, paper or product that it follows"
    model_use: Literal["no", "optional"]
    "whether it asks a model: only where the parameter ``model`` or ``embedding`` names one"
    docstring: str
    "the whole docstring"
    equivalent: str = ""
    "a baseline in terms of ctxlab"
    url: str = ""
    "where a baseline's behaviour can be read"

    @property
    def signature(self) -> str:
        """How it is written, with its defaults."""
        shown = (f"{p.name}={p.default}" if p.default else p.name for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"


def list_strategies() -> list[StrategyInfo]:
    """Every strategy in the tables: strategies, controls, then the baselines."""
    named = [strategy_info(name) for name in STRATEGIES]
    ours = sorted(named, key=lambda each: each.kind == "control")
    return [*ours, *(strategy_info(name) for name in BASELINES)]


def strategy_info(name: str) -> StrategyInfo:
    """What is known of one; raises ``UnknownName``.

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
    return StrategyInfo(
        name,
        "control" if name in CONTROLS else "strategy",
        _first_sentence(text),
        parameters,
        _source_section(text),
        _model_use(parameters),
        text,
    )


def _baseline_info(baseline: Baseline) -> StrategyInfo:
    whole: Any = baseline.strategy
    steps = whole.steps if isinstance(whole, Pipeline) else (whole,)
    meanings = {p.name: p.description for step in steps for p in _parameters(type(step))}
    parameters = tuple(
        StrategyParameter(name, repr(value), meanings.get(name, ""))
        for name, value in baseline.parameters.items()
    )
    return StrategyInfo(
        baseline.name,
        "baseline",
        baseline.description,
        parameters,
        baseline.product_version,
        _model_use(parameters),
        inspect.getdoc(type(whole)) or "",
        repr(whole),
        baseline.url,
    )


def _model_use(parameters: tuple[StrategyParameter, ...]) -> Literal["no", "optional"]:
    return "optional" if {p.name for p in parameters} & {"model", "embedding"} else "no"


def _parameters(factory: Callable[..., Any]) -> Iterator[StrategyParameter]:
    meanings = _field_descriptions(factory)
    if not is_dataclass(factory):
        for each in inspect.signature(factory).parameters.values():
            empty = each.default is inspect.Parameter.empty
            yield StrategyParameter(each.name, "" if empty else repr(each.default), "")
        return
    defaults = inspect.signature(factory).parameters
    for field in fields(factory):
        default = defaults[field.name].default
        empty = default is inspect.Parameter.empty
        yield StrategyParameter(
            field.name, "" if empty else repr(default), meanings.get(field.name, "")
        )


@cache
def _field_descriptions(factory: Callable[..., Any]) -> dict[str, str]:
    """The bare strings below a dataclass's fields."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(factory))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return {}  # made without a file, as in a notebook's cell that is gone
    found: dict[str, str] = {}
    last = None
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last] = " ".join(str(node.value.value).split())
            last = None
        else:
            last = None
    return found


def _first_sentence(text: str) -> str:
    """The first sentence of a docstring."""
    first = " ".join(text.split("\n\n")[0].replace("``", "").split())
    return first.split(". ")[0].rstrip(".") + "."


def _source_section(text: str) -> str:
    """What stands behind ``Source:``."""
    found = re.search(r"^Sources?: (.*?)(?=\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].replace("``", "").split()).rstrip(".") if found else ""
