"""Base classes of context strategies.

A strategy is a callable that edits a context before each request. A pipeline of strategies is a
strategy too.

Strategies are frozen dataclasses, so they can be hashed, pickled, compared and printed. Their class
names are lower case, so that the text form and the Python form are the same: ``tool_stubs(keep=3)``
has one meaning in Python, in an experiment file and on the command line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Form, Rewrite
from ctxlab.errors import SpecError
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message

_FUNCTION_TYPES = (FunctionType, BuiltinFunctionType, MethodType, partial)


@runtime_checkable
class Strategy(Protocol):
    """A callable that edits a context in place, or returns a fork of it for one request."""

    def __call__(self, context: Context, /) -> Context:
        """Return the context to send: the given one, edited, or a fork of it."""


class BaseStrategy:
    """Base class of strategies: the ``|`` operator, the ``repr`` and the parameter checks."""

    supports_live: ClassVar[bool] = True
    """True if the strategy works in a live conversation; False if it needs data that only a
    recording has"""

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter has a wrong type or is negative."""
        name = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not _matches_annotation(value, str(field.type)):
                raise SpecError(f"{name}: {field.name} is {value!r}; expected {field.type}")
            if isinstance(value, (int, float)) and value < 0:
                raise SpecError(f"{name}: {field.name} must not be negative, got {value!r}")

    def __or__(self, other: Strategy | Callable[..., Any]) -> Pipeline:
        """Return a pipeline that runs this strategy first."""
        return Pipeline((*_pipeline_steps(self), *_pipeline_steps(as_strategy(other))))

    def __ror__(self, other: Callable[..., Any]) -> Pipeline:
        """Return a pipeline that runs a plain function first."""
        return Pipeline((*_pipeline_steps(as_strategy(other)), *_pipeline_steps(self)))

    def __repr__(self) -> str:
        """Return the text form, with the parameters that differ from their defaults."""
        values = [(f, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        shown = (f"{f.name}={value!r}" for f, value in values if value != f.default)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __call__(self, context: Context, /) -> Context:
        """Edit the context, or return an edited fork of it."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Pipeline(BaseStrategy):
    """Strategies that run one after another; after one returns a fork, the rest edit the fork."""

    steps: tuple[Strategy, ...]
    "strategies in the order in which they run"

    def __call__(self, context: Context, /) -> Context:
        """Run the steps, each on the context that the previous one returned."""
        for step in self.steps:
            context = step(context)
        return context

    def __repr__(self) -> str:
        """Return the text forms of the steps."""
        return " | ".join(map(repr, self.steps))


@dataclass(frozen=True, repr=False)
class FunctionStrategy(BaseStrategy):
    """A function from a list of messages to a list of messages, wrapped as a strategy.

    Messages that the function returns unchanged are recognised by identity or equality. Changed
    messages stand for the originals in the gap that they fill. The result lasts for one request,
    because the function gets the whole conversation each time.
    """

    function: Callable[[list[Message]], Sequence[Message]]
    "function that takes the messages of the request and returns the messages to send"

    def __call__(self, context: Context, /) -> Context:
        """Return a fork with the messages that the function returns."""
        made = self.function(context.messages)
        messages = [m if isinstance(m, Message) else message_from_dict(m) for m in made]
        return fork_with_messages(context, messages)

    def __repr__(self) -> str:
        """Return the name of the function."""
        return getattr(self.function, "__name__", repr(self.function))


def as_strategy(value: Any) -> Strategy:
    """Return a strategy as it is, or wrap a plain function in ``FunctionStrategy``.

    Parameters
    ----------
    value : Strategy or callable
        A strategy, or a function from a list of messages to a list of messages.

    Returns
    -------
    Strategy
        The strategy.

    Raises
    ------
    SpecError
        If ``value`` is a class or cannot be called.

    Examples
    --------
    >>> as_strategy(lambda messages: messages[-10:]) | as_strategy(lambda messages: messages)
    <lambda> | <lambda>
    """
    if isinstance(value, _FUNCTION_TYPES):
        return FunctionStrategy(value)
    if isinstance(value, type) or not callable(value):
        raise SpecError(
            f"expected a strategy, got {value!r}; pass tool_stubs(), a function, or text"
        )
    return value  # type: ignore[no-any-return]


def walk_strategies(*strategies: Any) -> Iterator[BaseStrategy]:
    """Yield strategies and the strategies that they contain, depth first.

    Parameters
    ----------
    *strategies : Strategy
        Strategies to walk. Plain callables are skipped.

    Yields
    ------
    BaseStrategy
        Each strategy, followed by the strategies in its fields.

    Examples
    --------
    >>> from ctxlab.strategies import parse_strategy
    >>> pipeline = parse_strategy("when_it_pays(tool_stubs()) | panic()")
    >>> [repr(each) for each in walk_strategies(pipeline)][1:]
    ['when_it_pays(tool_stubs())', 'tool_stubs()', 'panic()']
    """
    for strategy in strategies:
        if isinstance(strategy, BaseStrategy):
            yield strategy
            for field in fields(strategy):  # type: ignore[arg-type]
                value = getattr(strategy, field.name)
                yield from walk_strategies(*(value if isinstance(value, tuple) else (value,)))


def models_used(*strategies: Any) -> tuple[str, ...]:
    """Return the models that strategies call: their ``model`` and ``embedding`` fields that are set.

    Parameters
    ----------
    *strategies : Strategy
        Strategies to search, with the strategies that they contain.

    Returns
    -------
    tuple of str
        Model names without duplicates, in order of appearance.

    Examples
    --------
    >>> from ctxlab.strategies import parse_strategy
    >>> models_used(parse_strategy("tool_stubs() | panic()"))
    ()
    """
    walked = walk_strategies(*strategies)
    asked = (getattr(each, key, None) for each in walked for key in ("model", "embedding"))
    return tuple(dict.fromkeys(model for model in asked if isinstance(model, str)))


def fork_with_messages(context: Context, messages: Sequence[Message]) -> Context:
    """Return a fork of a context that holds the given messages.

    Unchanged messages keep their provenance.

    Parameters
    ----------
    context : Context
        The context to fork.
    messages : sequence of Message
        Messages that the fork should hold.

    Returns
    -------
    Context
        The fork.
    """
    fork = context.fork()
    for start, stop, new in reversed(list(_changed_ranges(fork.messages, messages))):
        if stop - start == len(new):
            for index, message in enumerate(new, start):
                fork.replace(index, message)
            continue
        if start < stop and new:
            fork.fold(start, stop, new[0], Form.REWRITTEN)
            start, new = start + 1, new[1:]
        elif start < stop:
            fork.drop(start, stop)
        for message in reversed(new):
            fork.insert(start, message, Form.REWRITTEN)
    return fork


def tool_result_positions(context: Context) -> Sequence[int]:
    """Return the history positions of the tool results that were appended to a context.

    Parameters
    ----------
    context : Context
        A context. A branch has positions of its own.

    Returns
    -------
    sequence of int
        Positions, ascending. They may lie past the end of the context if its history is longer.
    """
    return (context if isinstance(context, Branch) else context.history).result_positions


def rewrite_tool_results(
    context: Context,
    strategy: BaseStrategy,
    function: Rewrite,
    form: Form,
    keep: int = 0,
    before: int | None = None,
) -> Context:
    """Rewrite all tool results but the newest.

    A strategy sees each result once; later calls start after the results already seen.

    Parameters
    ----------
    context : Context
        The context to edit.
    strategy : BaseStrategy
        The strategy under which the progress is stored in the context.
    function : Rewrite
        Function that returns the new message, or None to leave the message unchanged.
    form : Form
        The form that rewritten entries get.
    keep : int, default 0
        Number of newest tool results to keep.
    before : int, optional
        Position in the history before which results are rewritten. None: all of the context.

    Returns
    -------
    Context
        The context.
    """
    positions, done = tool_result_positions(context), context.strategy_state.get(strategy, 0)
    stop = bisect_left(positions, context.history_length if before is None else before) - keep
    for position in positions[done : max(done, stop)]:
        index = context.find_index(position)
        if index is not None and context.entries[index].message.role == "tool":
            context.rewrite(index, function, form)
    if stop > done:
        context.strategy_state[strategy] = stop
    return context


def summaries_end(context: Context) -> int:
    """Return the index after the head and the summaries or contents that follow it.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Index of an entry.
    """
    entries, index = context.entries, context.first_droppable
    while index < len(entries) and entries[index].form in (Form.SUMMARY, Form.POINTER):
        index += 1
    return index


_Messages: TypeAlias = Sequence[Message]
_PLAIN_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def _matches_annotation(value: Any, annotation: str) -> bool:
    """Return True if a value has the annotated type; annotations other than plain types pass."""
    names = annotation.split(" | ")
    if not {*names} <= {*_PLAIN_TYPES, "None"}:
        return not isinstance(value, BaseStrategy) or "Strategy" in annotation
    return any(value is None if n == "None" else isinstance(value, _PLAIN_TYPES[n]) for n in names)


def _pipeline_steps(strategy: Any) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Pipeline) else (strategy,)


def _changed_ranges(old: _Messages, new: _Messages) -> Iterator[tuple[int, int, _Messages]]:
    """Yield ``(start, stop, new)``: the replacements that turn ``old`` into ``new``, in order."""
    places: dict[int, list[int]] = {}
    for i, message in enumerate(old):
        places.setdefault(id(message), []).append(i)
    i = j = 0
    for k, message in enumerate(new):
        index = next((p for p in places.get(id(message), ()) if p >= i), None)
        if index is None:
            index = next((p for p in range(i, len(old)) if old[p] == message), None)
        if index is None:
            continue
        if index > i or k > j:
            yield i, index, new[j:k]
        i, j = index + 1, k + 1
    if i < len(old) or j < len(new):
        yield i, len(old), new[j:]
