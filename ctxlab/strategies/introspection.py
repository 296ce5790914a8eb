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
from ctxlab.strategies.baselines import (
    BASELINES,
    Baseline,
)
from ctxlab.strategies.registry import (
    CONTROLS,
    STRATEGIES,
)

__all__ = ["About", "Parameter", "about", "catalogue"]

_Kind = Literal["strategy", "control", "baseline"]


@dataclass(frozen=True)
class Parameter:
    """One parameter as it is written, and what it means."""

    name: str
    default: str
    "as it is written; empty where it must be given"
    meaning: str


@dataclass(frozen=True)
class About:
    """A strategy as the tables and the manual show it."""

    name: str
    kind: _Kind
    claim: str
    "what it does, in a sentence"
    parameters: tuple[Parameter, ...]
    source: str
    "the seed, paper or product that it follows"
    model: Literal["no", "optional"]
    "whether it asks a model: only where the parameter ``model`` or ``embedding`` names one"
    text: str
    "the whole docstring"
    written_as: str = ""
    "a baseline in terms of ctxlab"
    link: str = ""
    "where a baseline's behaviour can be read"

    @property
    def signature(self) -> str:
        """How it is written, with its defaults."""
        shown = (f"{p.name}={p.default}" if p.default else p.name for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"


def catalogue() -> list[About]:
    """Every strategy in the tables: strategies, controls, then the baselines."""
    named = [about(name) for name in STRATEGIES]
    ours = sorted(named, key=lambda each: each.kind == "control")
    return [*ours, *(about(name) for name in BASELINES)]


def about(name: str) -> About:
    """What is known of one; raises ``UnknownName``.

    >>> about("tool_stubs").signature, about("tool_stubs").model
    ('tool_stubs(keep=None)', 'no')
    """
    if name in BASELINES:
        return _of_baseline(BASELINES[name])
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, [*STRATEGIES, *BASELINES])
    factory = STRATEGIES[name]
    text = inspect.getdoc(factory) or ""
    parameters = tuple(_parameters(factory))
    return About(
        name,
        "control" if name in CONTROLS else "strategy",
        _claim(text),
        parameters,
        _source(text),
        _asks(parameters),
        text,
    )


def _of_baseline(baseline: Baseline) -> About:
    whole: Any = baseline.strategy
    steps = whole.steps if isinstance(whole, Pipeline) else (whole,)
    meanings = {p.name: p.meaning for step in steps for p in _parameters(type(step))}
    parameters = tuple(
        Parameter(name, repr(value), meanings.get(name, ""))
        for name, value in baseline.parameters.items()
    )
    return About(
        baseline.name,
        "baseline",
        baseline.says,
        parameters,
        baseline.imitates,
        _asks(parameters),
        inspect.getdoc(type(whole)) or "",
        repr(whole),
        baseline.source,
    )


def _asks(parameters: tuple[Parameter, ...]) -> Literal["no", "optional"]:
    return "optional" if {p.name for p in parameters} & {"model", "embedding"} else "no"


def _parameters(factory: Callable[..., Any]) -> Iterator[Parameter]:
    meanings = _meanings(factory)
    if not is_dataclass(factory):
        for each in inspect.signature(factory).parameters.values():
            empty = each.default is inspect.Parameter.empty
            yield Parameter(each.name, "" if empty else repr(each.default), "")
        return
    defaults = inspect.signature(factory).parameters
    for field in fields(factory):
        default = defaults[field.name].default
        empty = default is inspect.Parameter.empty
        yield Parameter(field.name, "" if empty else repr(default), meanings.get(field.name, ""))


@cache
def _meanings(factory: Callable[..., Any]) -> dict[str, str]:
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


def _claim(text: str) -> str:
    """The first sentence of a docstring."""
    first = " ".join(text.split("\n\n")[0].replace("``", "").split())
    return first.split(". ")[0].rstrip(".") + "."


def _source(text: str) -> str:
    """What stands behind ``Source:``."""
    found = re.search(r"^Sources?: (.*?)(?=\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].replace("``", "").split()).rstrip(".") if found else ""
