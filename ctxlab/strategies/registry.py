"""Registry of strategies by name, and the parser of strategy expressions.

A strategy expression, such as ``tool_stubs(keep=3) | panic``, names strategies with their
parameters. Expressions are used on the command line, in experiment files and in Python.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from typing import Any

from ctxlab.errors import SpecError, UnknownName
from ctxlab.strategies.base import BaseStrategy, Pipeline, Strategy, as_strategy
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.upstream import find_peer

_MODULES = {
    "full": "controls",
    "sliding_window": "windows",
    "chunked_window": "windows",
    "first_and_last": "middle_out",
    "middle_out": "middle_out",
    "tool_result_cap": "tool_result_cap",
    "offload": "offload",
    "tool_stubs": "tool_stubs",
    "observation_mask": "observation_mask",
    "rolling_summary": "rolling_summary",
    "file_sessions": "file_sessions",
    "contents": "table_of_contents",
    "retrieval": "retrieval",
    "excerpt_memory": "excerpt_memory",
    "in_batches": "triggers.in_batches",
    "when_it_pays": "triggers.when_it_pays",
    "on_expiry": "triggers.on_expiry",
    "idle": "triggers.idle",
    "background": "triggers.background",
    "recent_images": "recent_images",
    "shorten_arguments": "truncate_arguments",
    "stale_results": "stale_results",
    "pinned": "pinned",
    "panic": "panic",
    "recorded": "recorded",
    "nothing": "controls",
    "random_drop": "controls",
    "random_decay": "controls",
    "message_oracle": "controls",
    "oracle": "controls",
    "name_list": "metric_controls",
    "word_list": "metric_controls",
    "names_in_place": "metric_controls",
    "base64_text": "metric_controls",
    "line_list": "metric_controls",
}
"Strategy name → module of ``ctxlab.strategies`` that defines the strategy."

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    name: getattr(importlib.import_module(f"ctxlab.strategies.{module}"), name)
    for name, module in _MODULES.items()
}

METRIC_CONTROLS: tuple[str, ...] = (
    "name_list()",
    "word_list()",
    "names_in_place()",
    "base64_text()",
    "line_list()",
)
"Controls that attack recall as a metric (``-s metric_controls``): names, words or quoted lines."

CONTROLS = frozenset(
    name
    for name, module in _MODULES.items()
    if module in ("controls", "metric_controls", "recorded")
)
"Names of the control strategies. They are bounds in a comparison and are never recommended."

DEFAULT_LINEUP: tuple[str, ...] = (
    "full",
    "sliding_window() | panic()",
    "in_batches(sliding_window()) | panic()",
    "in_batches(observation_mask(keep=10) | sliding_window()) | panic()",
    "on_expiry(observation_mask(keep=10) | sliding_window()) | panic()",
    "offload() | in_batches(sliding_window()) | panic()",
    "rolling_summary() | panic()",
    "contents() | panic()",
    "excerpt_memory() | panic()",
    "excerpt_memory(target=0.8, share=0.7) | panic()",
    "nothing",
    "random_drop()",
    "message_oracle()",
    "oracle",
)
"""Strategies that an evaluation compares by default: pipelines that an agent can use, and controls.

The pipelines are those that are on or near the frontier of cost against held recall, and the window
that most libraries have. All but ``full`` fit the budget wherever the head does: they end with
``panic``, which shortens requests that are still too large. Masks and offloading run in batches,
because an edit at each request costs more than it saves. Strategies for special purposes, such as
``recorded``, ``recent_images`` and ``file_sessions``, are not included, nor are ``random_decay``, the
controls of the metric, and ``retrieval``, which takes milliseconds per request."""

_PEER_PREFIX = re.compile(r"\bpeer:(?=[a-z_])")


def is_control(name: str) -> bool:
    """Check if a registered strategy serves only for comparison.

    Parameters
    ----------
    name : str
        Name of a strategy, without parameters.

    Returns
    -------
    bool
        True if the name is in ``CONTROLS``, or if the class of the strategy says that it is not
        deployable or does not work in a live conversation.

    Examples
    --------
    >>> is_control("oracle"), is_control("sliding_window")
    (True, False)
    """
    made = STRATEGIES.get(name)
    if name in CONTROLS:
        return True
    return (
        isinstance(made, type)
        and issubclass(made, BaseStrategy)
        and not (made.deployable and made.supports_live)
    )


def register_strategy(name: str, strategy: Callable[..., Strategy]) -> None:
    """Add a strategy to the registry.

    Parameters
    ----------
    name : str
        Name in strategy expressions, such as ``"my_window"``.
    strategy : callable
        Class or function that returns a strategy. It is called with the parameters that are given
        in the expression.

    Raises
    ------
    SpecError
        If another strategy or baseline has this name.
    """
    if name in STRATEGIES or name in BASELINES:
        raise SpecError(f"the strategy name {name!r} is already taken; choose another name")
    STRATEGIES[name] = strategy


def parse_strategy(text: str) -> Strategy:
    """Create a strategy from an expression such as ``tool_stubs(keep=3) | panic``.

    An expression consists of strategy names, literal parameters and ``|``. It is not evaluated as
    Python code. A dotted path, such as ``mypackage.tricks.last_ten``, imports a strategy class or a
    plain function. ``repr`` of the result is an equal expression in normalised form.

    Parameters
    ----------
    text : str
        Strategy expression.

    Returns
    -------
    Strategy
        The strategy; a ``Pipeline`` if the expression contains ``|`` at its top level.

    Raises
    ------
    SpecError
        If the expression or a parameter is invalid.
    UnknownName
        If the expression contains a name that is not registered.

    Examples
    --------
    >>> parse_strategy("tool_stubs(keep=3)|panic")
    tool_stubs(keep=3) | panic()
    """
    return _build_strategy(parse_to_ast(text), text)


def parse_to_ast(text: str) -> ast.expr:
    """Parse a strategy expression into a Python syntax tree, without looking up its names.

    Parameters
    ----------
    text : str
        Strategy expression.

    Returns
    -------
    ast.expr
        Syntax tree of the expression.

    Raises
    ------
    SpecError
        If the string does not have the syntax of a Python expression.
    """
    try:
        return ast.parse(_PEER_PREFIX.sub("peer.", text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        example = "tool_stubs(keep=3) | panic()"
        raise SpecError(f"cannot parse the strategy {text!r}; expected e.g. {example}") from None


def is_builtin(text: str) -> bool:
    """Return True if a strategy expression contains only strategies and baselines of ctxlab.

    Nothing is imported, so the expression may come from a file that is not trusted.

    Parameters
    ----------
    text : str
        Strategy expression.

    Returns
    -------
    bool
        False if the expression names anything else, or cannot be parsed.

    Examples
    --------
    >>> is_builtin("in_batches(tool_stubs(keep=3)) | panic"), is_builtin("mypackage.tricks.last_ten")
    (True, False)
    """
    try:
        waiting: list[ast.AST] = [parse_to_ast(text)]
    except SpecError:
        return False
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute):
            if ast.unparse(node) not in {*STRATEGIES, *BASELINES}:
                return False
        else:
            waiting += ast.iter_child_nodes(node)
    return True


def _build_strategy(tree: ast.expr, text: str) -> Strategy:
    steps = [_build_step(node, text) for node in _split_pipeline(tree)]
    return steps[0] if len(steps) == 1 else Pipeline(tuple(steps))


def _split_pipeline(node: ast.expr) -> list[ast.expr]:
    steps: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        steps.insert(0, node.right)
        node = node.left
    return [node, *steps]


def _build_step(node: ast.expr, text: str) -> Strategy:
    call = node if isinstance(node, ast.Call) else None
    name = _dotted_name(call.func if call else node, text)
    factory = STRATEGIES.get(name) or BASELINES.get(name)
    if factory is None and name.startswith("peer."):
        factory = find_peer(name.removeprefix("peer."))
    if factory is None:
        factory = _import_strategy(name)
        if not (isinstance(factory, type) and issubclass(factory, BaseStrategy)):
            if call:  # an expression must not be able to call arbitrary imported objects
                raise SpecError(f"{name} is not a strategy class; omit the parentheses after it")
            return as_strategy(factory)
    given = call.keywords if call else []
    try:
        args = [_parse_value(each, text) for each in (call.args if call else ())]
        keywords = {each.arg or "**": _parse_value(each.value, text) for each in given}
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise SpecError(f"expected literals or strategies as parameters in {text!r}") from None
    if len(keywords) < len(given):
        raise SpecError(f"a parameter has two values in {text!r}; remove one of them")
    try:
        return as_strategy(factory(*args, **keywords))
    except TypeError as error:
        what = str(error).rpartition("__init__() ")[2]
        raise SpecError(f"{name} {what}; see `ctxlab strategies` for its parameters") from None


def _parse_value(node: ast.expr, text: str) -> Any:
    """Return the value of a parameter, which is a literal or a strategy."""
    match node:
        case ast.Call() | ast.Name() | ast.Attribute() | ast.BinOp(op=ast.BitOr()):
            return _build_strategy(node, text)
    return ast.literal_eval(node)


def _dotted_name(node: ast.expr, text: str) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise SpecError(f"expected the name of a strategy, got {ast.unparse(node)!r} in {text!r}")
    return ".".join((node.id, *parts))


def _import_strategy(name: str) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")
    if not module:
        raise UnknownName("strategy", name, [*STRATEGIES, *BASELINES])
    if module in {known.partition(".")[0] for known in BASELINES}:
        raise UnknownName("baseline", name, BASELINES)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"cannot import the strategy {name!r}: {error}") from None
    if not callable(found):
        raise SpecError(f"expected {name} to be a strategy, got a {type(found).__name__}")
    return found  # type: ignore[no-any-return]
