"""A strategy is a callable that edits a context before each request; pipelines are strategies too.

A strategy is a frozen dataclass of parameters, so it can be hashed, pickled, compared and printed as
it is written. Its class is written in lower case, as the text form is: ``tool_stubs(keep=3)`` means the
same in Python, in an experiment file and on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, Protocol, runtime_checkable

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Form, Rewrite
from ctxlab.errors import SpecError
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message

_FUNCTION_TYPES = (FunctionType, BuiltinFunctionType, MethodType, partial)

__all__ = [
    "BaseStrategy",
    "FunctionStrategy",
    "Pipeline",
    "Strategy",
    "as_strategy",
    "fork_with_messages",
    "models_used",
    "rewrite_tool_results",
    "tool_result_positions",
    "walk_strategies",
]


@runtime_checkable
class Strategy(Protocol):
    """Edits the context in place and returns it, or returns a fork for this request alone."""

    def __call__(self, context: Context, /) -> Context: ...


class BaseStrategy:
    """What strategies share: ``a | b``, printing as written, and parameters that are checked."""

    supports_live: ClassVar[bool] = True
    "it can manage a conversation that goes on, since it needs nothing that only a recording has"

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not _matches_annotation(value, str(field.type)):
                raise SpecError(f"{name}: {field.name} is {value!r}; it is to be {field.type}")
            if isinstance(value, (int, float)) and value < 0:
                raise SpecError(f"{name}: {field.name} is {value!r}; it cannot be negative")

    def __or__(self, other: Strategy | Callable[..., Any]) -> Pipeline:
        return Pipeline((*_pipeline_steps(self), *_pipeline_steps(as_strategy(other))))

    def __ror__(self, other: Callable[..., Any]) -> Pipeline:
        return Pipeline((*_pipeline_steps(as_strategy(other)), *_pipeline_steps(self)))

    def __repr__(self) -> str:
        shown = (
            f"{f.name}={value!r}"
            for f in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, f.name)) != f.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __call__(self, context: Context, /) -> Context:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Pipeline(BaseStrategy):
    """Strategies one after the other; once one forks, those after it edit the fork."""

    steps: tuple[Strategy, ...]

    def __call__(self, context: Context, /) -> Context:
        for step in self.steps:
            context = step(context)
        return context

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.steps))


@dataclass(frozen=True, repr=False)
class FunctionStrategy(BaseStrategy):
    """A plain function from a list of messages to a list of messages, as a strategy.

    What it leaves alone is recognised by identity or equality; what it changes stands for the gap that
    it fills. Its result lasts for one request, since it is given the whole conversation each time.
    """

    function: Callable[[list[Message]], Sequence[Message]]

    def __call__(self, context: Context, /) -> Context:
        wanted = self.function(context.messages)
        return fork_with_messages(
            context, [m if isinstance(m, Message) else message_from_dict(m) for m in wanted]
        )

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def as_strategy(value: Any) -> Strategy:
    """A strategy as it is; a plain function of a list of messages wrapped in ``FunctionStrategy``.

    >>> as_strategy(lambda messages: messages[-10:]) | as_strategy(lambda messages: messages)
    <lambda> | <lambda>
    """
    if isinstance(value, _FUNCTION_TYPES):
        return FunctionStrategy(value)
    if isinstance(value, type) or not callable(value):
        raise SpecError(
            f"{value!r} is no strategy: expected tool_stubs(keep=3), a function, or text"
        )
    return value  # type: ignore[no-any-return]


def walk_strategies(*strategies: Any) -> Iterator[BaseStrategy]:
    """Strategies, each followed by those that it is made of; functions are left out.

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
                yield from (
                    walk_strategies(*value) if isinstance(value, tuple) else walk_strategies(value)
                )


def models_used(*strategies: Any) -> tuple[str, ...]:
    """Models that strategies call themselves: their fields ``model`` and ``embedding``, where set.

    >>> from ctxlab.strategies import parse_strategy
    >>> models_used(parse_strategy("tool_stubs() | panic()"))
    ()
    """
    asked = (
        value
        for strategy in walk_strategies(*strategies)
        for field in fields(strategy)  # type: ignore[arg-type]
        if field.name in ("model", "embedding")
        and isinstance(value := getattr(strategy, field.name), str)
    )
    return tuple(dict.fromkeys(asked))


def fork_with_messages(context: Context, messages: Sequence[Message]) -> Context:
    """A fork that holds what a list of messages says; what was left alone keeps its provenance."""
    fork = context.fork()
    for start, stop, new in reversed(list(_changed_ranges(fork.messages, messages))):
        _apply_change(fork, start, stop, new)
    return fork


def tool_result_positions(context: Context) -> Sequence[int]:
    """Positions of the tool results that were appended to a context; those of a branch are its own.

    They may reach further than the context does, where the history does.
    """
    return (
        context.result_positions
        if isinstance(context, Branch)
        else context.history.result_positions
    )


def rewrite_tool_results(
    context: Context, strategy: BaseStrategy, stop: int, function: Rewrite, form: Form
) -> None:
    """Rewrites tool results among the first ``stop`` of ``tool_result_positions``.

    A strategy looks at each result once.
    """
    done = context.strategy_state.get(strategy, 0)
    if stop <= done:
        return
    for position in tool_result_positions(context)[done:stop]:
        index = context.find_index(position)
        if index is not None and context.entries[index].message.role == "tool":
            context.rewrite(index, function, form)
    context.strategy_state[strategy] = stop


_PLAIN_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def _matches_annotation(value: Any, annotation: str) -> bool:
    """Whether a parameter is what its annotation says, as far as that names plain types."""
    names = annotation.split(" | ")
    if not {*names} <= {*_PLAIN_TYPES, "None"}:
        return not isinstance(value, BaseStrategy) or "Strategy" in annotation
    return any(value is None if n == "None" else isinstance(value, _PLAIN_TYPES[n]) for n in names)


def _pipeline_steps(strategy: Any) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Pipeline) else (strategy,)


def _changed_ranges(
    old: Sequence[Message], new: Sequence[Message]
) -> Iterator[tuple[int, int, Sequence[Message]]]:
    """``old[start:stop]`` became ``new`` wherever the two differ; kept messages keep their order."""
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


def _apply_change(fork: Context, start: int, stop: int, new: Sequence[Message]) -> None:
    if stop - start == len(new):
        for offset, message in enumerate(new):
            fork.replace(start + offset, message, Form.REWRITTEN)
        return
    if start == stop or not new:
        if start < stop:
            fork.drop(start, stop)
        for message in reversed(new):
            fork.insert(start, message, Form.REWRITTEN)
        return
    fork.fold(start, stop, new[0], Form.REWRITTEN)
    for message in reversed(new[1:]):
        fork.insert(start + 1, message, Form.REWRITTEN)
