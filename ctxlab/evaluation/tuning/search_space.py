"""Search spaces: strategies as strings, with alternatives in square brackets.

``observation_mask(keep=[1, 3, 10]) | panic`` describes three strategies, one for each value of
``keep``. A range is another way to write a list: ``keep=range(1, 10, 4)`` is ``keep=[1, 5, 9]``. A
step of a pipeline can be a list of alternatives too:
``[observation_mask(keep=[3, 10]), tool_stubs(keep=3)] | panic`` describes three strategies.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ctxlab.errors import SpecError
from ctxlab.strategies import Strategy, parse_strategy
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.registry import parse_to_ast

CandidateConfiguration: TypeAlias = tuple[Strategy, float]
"""Configuration to try: a strategy, and a limit in tokens or as a fraction of each recording."""

_SHRINK_STEPS = "[sliding_window, in_batches(sliding_window, target=[0.3, 0.5])] | panic"
"""steps added to strategies that ignore the budget: ``sliding_window`` drops a few messages before each
request, and ``in_batches`` drops many messages at once, but rarely"""

DEFAULT_SPACES: dict[str, str] = {
    "sliding_window": "sliding_window(tokens=[None, 4000, 8000, 16000, 32000, 64000]) | panic",
    "in_batches": (
        "[in_batches([sliding_window, observation_mask(keep=[1, 3, 10]) | sliding_window], "
        "trigger=[0.7, 0.9, 1.0], target=[0.2, 0.35, 0.5, 0.65]), "
        "in_batches(observation_mask(keep=[3, 10]), trigger=0, tokens=[10000, 30000]) "
        "| sliding_window] | panic"
    ),
    "chunked_window": f"chunked_window(max_history=[10, 20, 40, 80, 160]) | {_SHRINK_STEPS}",
    "tool_stubs": f"tool_stubs(keep=[1, 3, 5, 10, 20, 40]) | {_SHRINK_STEPS}",
    "observation_mask": f"observation_mask(keep=[1, 3, 5, 10, 20, 40]) | {_SHRINK_STEPS}",
    "when_it_pays": f"when_it_pays(observation_mask(keep=[1, 3, 5, 10, 20])) | {_SHRINK_STEPS}",
    "on_expiry": (
        f"on_expiry(observation_mask(keep=[3, 10, 20]), trigger=[0.25, 0.5]) | {_SHRINK_STEPS}"
    ),
    "tool_result_cap": f"tool_result_cap(chars=[1000, 2000, 4000, 8000, 16000]) | {_SHRINK_STEPS}",
    "rolling_summary": (
        "rolling_summary(trigger=[0.7, 0.9], target=[0.3, 0.5, 0.7], keep_recent=[5, 10, 20, 40]) "
        "| panic"
    ),
    "contents": "contents(trigger=[0.7, 0.9], target=[0.3, 0.5, 0.7], share=[0.05, 0.1, 0.2]) | panic",
}
"""Search spaces that ``tune`` uses by default, by name. None of their strategies calls a model."""

_MAX_UNSAMPLED = 10_000
"maximum number of configurations to search if ``trials`` is None"


@dataclass(frozen=True)
class SearchSpace:
    """Sequence of the strategies that a string with alternatives describes.

    The order is that of nested loops: the last list of alternatives varies fastest. Each strategy
    is created when it is accessed. ``SpecError`` is raised if the string is not a valid strategy, a
    list of alternatives is empty, or a range is empty or has arguments other than integers.

    Examples
    --------
    >>> space = SearchSpace("in_batches(observation_mask(keep=[3, 10]), trigger=[0.7, 0.9])")
    >>> len(space), space[1]
    (4, in_batches(observation_mask(keep=3), trigger=0.9))
    >>> list(SearchSpace("[tool_stubs, sliding_window(messages=range(10, 31, 10))] | panic"))[1:3]
    [sliding_window(messages=10) | panic(), sliding_window(messages=20) | panic()]
    """

    text: str
    "strategy as a string, with alternatives in square brackets"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if the strategies cannot be counted, for example if they are too many."""
        try:
            len(self)
        except RecursionError:
            raise SpecError(
                f"the search space {self.text[:60]!r}… is nested too deeply; use fewer brackets"
            ) from None
        except OverflowError:
            raise SpecError(
                f"the search space {self.text!r} has too many configurations; use shorter lists"
            ) from None

    def __len__(self) -> int:
        """Return the number of strategies."""
        return self._count(self._tree)

    def __getitem__(self, index: int) -> Strategy:
        """Return the strategy at an index. Raise ``SpecError`` if the strategy is not valid."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        text = ast.unparse(self._select_alternatives(self._tree, index))
        try:
            return parse_strategy(text)
        except SpecError as error:
            where = "" if len(self) == 1 else f" in the search space {self.text!r}"
            raise SpecError(f"{text}{where}: {error}") from None

    def __iter__(self) -> Iterator[Strategy]:
        """Iterate over the strategies, and create each one when it is reached."""
        return (self[index] for index in range(len(self)))

    @cached_property
    def _tree(self) -> ast.expr:
        return parse_to_ast(self.text)

    def _count(self, node: ast.expr) -> int:
        if (values := self._range_values(node)) is not None:
            return len(values)
        sizes = [self._count(child) for child in _alternative_slots(node)]
        if isinstance(node, ast.List):
            if not sizes:
                raise self._error_at(node, "expected at least one alternative, got []")
            return sum(sizes)
        return prod(sizes)

    def _select_alternatives(self, node: ast.expr, index: int) -> ast.expr:
        """Return the expression of a strategy, with one alternative in place of each list.

        ``index`` is the index of the strategy in the search space.
        """
        if (values := self._range_values(node)) is not None:
            return ast.Constant(values[index])
        children = _alternative_slots(node)
        sizes = [self._count(child) for child in children]
        if isinstance(node, ast.List):
            for child, size in zip(children, sizes, strict=True):
                if index < size:
                    return self._select_alternatives(child, index)
                index -= size
        places = np.unravel_index(index, sizes)
        picked = zip(children, map(int, places), strict=True)
        return _replace_slots(node, [self._select_alternatives(*each) for each in picked])

    def _range_values(self, node: ast.expr) -> range | None:
        """Return the numbers of an expression ``range(…)``; None for any other expression."""
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "range"):
            return None
        try:
            values = range(*map(ast.literal_eval, node.args))
        except (ValueError, TypeError):
            values = range(0)
        if node.keywords or not values:
            raise self._error_at(
                node, f"expected a range of one or more integers, got {ast.unparse(node)}"
            )
        return values

    def _error_at(self, node: ast.expr, what: str) -> SpecError:
        before = len(self.text) - len(self.text.lstrip())
        where = f"character {before + node.col_offset + 1}"
        return SpecError(f"{what}, at {where} of the search space {self.text!r}")


def parse_spaces(spaces: str | SearchSpace | Iterable[str | SearchSpace]) -> list[SearchSpace]:
    """Convert names and strings to search spaces.

    Parameters
    ----------
    spaces : str, SearchSpace or iterable of them
        Names of ``DEFAULT_SPACES`` or of baselines (their default and ``Baseline.variants``),
        strategies as strings with alternatives, or ``SearchSpace`` objects.

    Returns
    -------
    list of SearchSpace
        Search spaces in the given order, without duplicates.

    Raises
    ------
    SpecError
        If an element is not a valid search space.

    Examples
    --------
    >>> spaces = ["when_it_pays", "tool_stubs(keep=[1, 3]) | panic", "codex"]
    >>> [len(space) for space in parse_spaces(spaces)]
    [15, 2, 6]
    """
    one = isinstance(spaces, (str, SearchSpace)) or not isinstance(spaces, Iterable)
    items: Iterable[Any] = [spaces] if one else spaces
    found = {}
    for each in items:
        if not isinstance(each, (str, SearchSpace)):
            raise SpecError(
                f"spaces: expected a string such as 'tool_stubs(keep=[1, 3]) | panic', got {each!r}; "
                "refer to your own strategy by its dotted path, such as 'mine.last_ten'"
            )
        text = each.text if isinstance(each, SearchSpace) else _expand_name(each)
        found[text] = SearchSpace(text)
    return list(found.values())


def _expand_name(text: str) -> str:
    """Return the search space that a name stands for; any other text unchanged."""
    if text in DEFAULT_SPACES:
        return DEFAULT_SPACES[text]
    if text in BASELINES:
        return f"[{', '.join(map(repr, BASELINES[text].variants()))}]"
    return text


def sample_configurations(
    spaces: Sequence[SearchSpace], limits: Sequence[float], trials: int | None = None, seed: int = 0
) -> list[CandidateConfiguration]:
    """List the configurations of search spaces under limits, or draw some of them at random.

    The draws are divided equally between the search spaces. If a space has fewer configurations
    than its share, the larger spaces get the remaining draws. Duplicates are removed.

    Parameters
    ----------
    spaces : sequence of SearchSpace
        Search spaces with the strategies.
    limits : sequence of float
        Limits in tokens, or as fractions of each recording's length.
    trials : int, optional
        Number of configurations to draw. None lists all of them.
    seed : int, default 0
        Random seed of the draws.

    Returns
    -------
    list of (Strategy, float)
        Strategy and limit of each configuration.

    Raises
    ------
    SpecError
        If ``trials`` is None and there are more than 10,000 configurations, or if ``trials`` is
        less than 1.
    """
    sizes = [len(space) * len(limits) for space in spaces]
    if trials is None and sum(sizes) > _MAX_UNSAMPLED:
        raise SpecError(
            f"expected at most {_MAX_UNSAMPLED:,} configurations, got {sum(sizes):,} configurations; "
            "pass trials=N to try N random ones"
        )
    if trials is not None and trials < 1:
        raise SpecError(f"trials must be at least 1, got {trials}")
    chance = random.Random(seed)
    found: dict[CandidateConfiguration, None] = {}
    for space, size, share in zip(spaces, sizes, _allocate_draws(sizes, trials), strict=True):
        places = range(size) if share == size else sorted(chance.sample(range(size), share))
        for place in places:
            of, index = divmod(place, len(space))
            found[space[index], limits[of]] = None
    return list(found)


def _allocate_draws(sizes: Sequence[int], trials: int | None) -> list[int]:
    """Divide the draws between search spaces as equally as the sizes of the spaces allow."""
    shares = list(sizes)
    left = sum(sizes) if trials is None else trials
    for rank, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[place] = min(sizes[place], left // (len(sizes) - rank))
        left -= shares[place]
    return shares


def _alternative_slots(node: ast.expr) -> list[ast.expr]:
    """Return the subexpressions that can contain alternatives, in the order of the string."""
    match node:
        case ast.List(elts):
            return elts
        case ast.Call(_, args, keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.BinOp(left, ast.BitOr(), right):
            return [left, right]
    return []


def _replace_slots(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """Return a copy of an expression with ``parts`` in place of its ``_alternative_slots``."""
    match node:
        case ast.Call(func, args, keywords):
            values = zip(keywords, parts[len(args) :], strict=True)
            named = [ast.keyword(keyword.arg, value) for keyword, value in values]
            return ast.Call(func, parts[: len(args)], named)
        case ast.BinOp(_, ast.BitOr() as pipe, _):
            return ast.BinOp(parts[0], pipe, parts[1])
    return node
