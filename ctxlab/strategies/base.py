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
from ctxlab.context.history import (
    Form,
    Rewrite,
)
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial)

__all__ = [
    "Base",
    "Function",
    "Pipeline",
    "Strategy",
    "as_strategy",
    "members",
    "models_asked",
    "results_of",
    "rewrite_results",
    "sent_as",
]


@runtime_checkable
class Strategy(Protocol):
    """Edits the context in place and returns it, or returns a fork for this request alone."""

    def __call__(self, context: Context, /) -> Context: ...


class Base:
    """What strategies share: ``a | b``, printing as written, and parameters that are checked."""

    live: ClassVar[bool] = True
    "it can manage a conversation that goes on, since it needs nothing that only a recording has"

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not _is_one_of(value, str(field.type)):
                raise SpecError(f"{name}: {field.name} is {value!r}; it is to be {field.type}")
            if isinstance(value, (int, float)) and value < 0:
                raise SpecError(f"{name}: {field.name} is {value!r}; it cannot be negative")

    def __or__(self, other: Strategy | Callable[..., Any]) -> Pipeline:
        return Pipeline((*_parts(self), *_parts(as_strategy(other))))

    def __ror__(self, other: Callable[..., Any]) -> Pipeline:
        return Pipeline((*_parts(as_strategy(other)), *_parts(self)))

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
class Pipeline(Base):
    """Strategies one after the other; once one forks, those after it edit the fork."""

    steps: tuple[Strategy, ...]

    def __call__(self, context: Context, /) -> Context:
        for step in self.steps:
            context = step(context)
        return context

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.steps))


@dataclass(frozen=True, repr=False)
class Function(Base):
    """A plain function from a list of messages to a list of messages, as a strategy.

    What it leaves alone is recognised by identity or equality; what it changes stands for the gap that
    it fills. Its result lasts for one request, since it is given the whole conversation each time.
    """

    function: Callable[[list[Message]], Sequence[Message]]

    def __call__(self, context: Context, /) -> Context:
        wanted = self.function(context.messages)
        return sent_as(
            context, [m if isinstance(m, Message) else Message.from_dict(m) for m in wanted]
        )

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def as_strategy(what: Any) -> Strategy:
    """A strategy as it is; a plain function of a list of messages wrapped in ``Function``.

    >>> as_strategy(lambda messages: messages[-10:]) | as_strategy(lambda messages: messages)
    <lambda> | <lambda>
    """
    if isinstance(what, _FUNCTIONS):
        return Function(what)
    if isinstance(what, type) or not callable(what):
        raise SpecError(
            f"{what!r} is no strategy: expected tool_stubs(keep=3), a function, or text"
        )
    return what  # type: ignore[no-any-return]


def members(*strategies: Any) -> Iterator[Base]:
    """Strategies, each followed by those that it is made of; functions are left out.

    >>> from ctxlab.strategies import parse
    >>> [repr(each) for each in members(parse("when_it_pays(tool_stubs()) | panic()"))][1:]
    ['when_it_pays(tool_stubs())', 'tool_stubs()', 'panic()']
    """
    for strategy in strategies:
        if isinstance(strategy, Base):
            yield strategy
            for field in fields(strategy):  # type: ignore[arg-type]
                value = getattr(strategy, field.name)
                yield from members(*value) if isinstance(value, tuple) else members(value)


def models_asked(*strategies: Any) -> tuple[str, ...]:
    """Models that strategies call themselves: their fields ``model`` and ``embedding``, where set.

    >>> from ctxlab.strategies import parse
    >>> models_asked(parse("tool_stubs() | panic()"))
    ()
    """
    asked = (
        value
        for strategy in members(*strategies)
        for field in fields(strategy)  # type: ignore[arg-type]
        if field.name in ("model", "embedding")
        and isinstance(value := getattr(strategy, field.name), str)
    )
    return tuple(dict.fromkeys(asked))


def sent_as(context: Context, wanted: Sequence[Message]) -> Context:
    """A fork that holds what a list of messages says; what was left alone keeps its provenance."""
    fork = context.fork()
    for start, stop, new in reversed(list(_gaps(fork.messages, wanted))):
        _fill(fork, start, stop, new)
    return fork


def results_of(context: Context) -> Sequence[int]:
    """Positions of the tool results that were appended to a context; those of a branch are its own.

    They may reach further than the context does, where the history does.
    """
    return context.results if isinstance(context, Branch) else context.history.results


def rewrite_results(
    context: Context, owner: Base, upto: int, function: Rewrite, form: Form
) -> None:
    """Rewrites the first ``upto`` of ``results_of`` the context, each looked at once by its owner."""
    done = context.notes.get(owner, 0)
    if upto <= done:
        return
    for position in results_of(context)[done:upto]:
        index = context.find(position)
        if index is not None and context.entries[index].message.role == "tool":
            context.rewrite(index, function, form)
    context.notes[owner] = upto


_PLAIN: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def _is_one_of(value: Any, types: str) -> bool:
    """Whether a parameter is what its annotation says, as far as that names plain types."""
    names = types.split(" | ")
    if not {*names} <= {*_PLAIN, "None"}:
        return not isinstance(value, Base) or "Strategy" in types
    return any(value is None if n == "None" else isinstance(value, _PLAIN[n]) for n in names)


def _parts(strategy: Any) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Pipeline) else (strategy,)


def _gaps(
    old: Sequence[Message], new: Sequence[Message]
) -> Iterator[tuple[int, int, Sequence[Message]]]:
    """``old[start:stop]`` became ``made`` wherever the two differ; kept messages keep their order."""
    places: dict[int, list[int]] = {}
    for i, message in enumerate(old):
        places.setdefault(id(message), []).append(i)
    i = j = 0
    for k, message in enumerate(new):
        at = next((p for p in places.get(id(message), ()) if p >= i), None)
        if at is None:
            at = next((p for p in range(i, len(old)) if old[p] == message), None)
        if at is None:
            continue
        if at > i or k > j:
            yield i, at, new[j:k]
        i, j = at + 1, k + 1
    if i < len(old) or j < len(new):
        yield i, len(old), new[j:]


def _fill(fork: Context, start: int, stop: int, new: Sequence[Message]) -> None:
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
