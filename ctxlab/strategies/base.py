"""Base classes of context strategies.

A strategy is a callable that edits the context before each request to the model. A pipeline of
strategies is also a strategy.

Strategies are frozen dataclasses, so they can be hashed, pickled, compared and printed. Their class
names are lower case, so that an expression such as ``tool_stubs(keep=3)`` has the same meaning in
Python, in an experiment file and on the command line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Form, Rewrite
from ctxlab.errors import SpecError
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message

MODEL_PARAMETERS = ("model", "embedding")
"""Names of the parameters with which strategies name a model that they call."""

SEEDS = 5
"""Number of seeds over which an evaluation averages a random strategy without a seed."""

_FUNCTION_TYPES = (FunctionType, BuiltinFunctionType, MethodType, partial)


@runtime_checkable
class Strategy(Protocol):
    """Protocol of strategies: callables that take a context and return the context to send.

    Examples
    --------
    >>> import ctxlab
    >>> class newest_only:
    ...     def __call__(self, context):
    ...         if context.first_droppable < context.last_unit_start:
    ...             context.drop(context.first_droppable, context.last_unit_start)
    ...         return context
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> ctxlab.replay(recording, newest_only(), 8000).sent(-1).table["role"].tolist()
    ['system', 'user', 'assistant', 'tool']
    """

    def __call__(self, context: Context, /) -> Context:
        """Edit the context in place and return it, or return an edited copy for this request."""


class BaseStrategy:
    """Base class of strategies, with the ``|`` operator, the ``repr`` and parameter checks."""

    supports_live: ClassVar[bool] = True
    """True if the strategy works in a live conversation; False if it needs data of a recording,
    such as the next action, or only tests a metric"""
    deployable: ClassVar[bool] = True
    "False if the strategy serves only for comparison and must never be recommended"
    needs_tool: ClassVar[str] = ""
    "name of the tool with which the agent reads what the strategy removed; empty if it needs none"

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter has a wrong type or is negative."""
        name = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not _matches_annotation(value, str(field.type)):
                raise SpecError(f"{name}: expected {field.type} for {field.name}, got {value!r}")
            if isinstance(value, (int, float)) and value < 0:
                raise SpecError(f"{name}: expected 0 or more for {field.name}, got {value!r}")

    def __or__(self, other: Strategy | Callable[..., Any]) -> Pipeline:
        """Return a pipeline that runs this strategy first and then ``other``."""
        return Pipeline((*_pipeline_steps(self), *_pipeline_steps(as_strategy(other))))

    def __ror__(self, other: Callable[..., Any]) -> Pipeline:
        """Return a pipeline that runs the plain function ``other`` first and then this strategy."""
        return Pipeline((*_pipeline_steps(as_strategy(other)), *_pipeline_steps(self)))

    def __repr__(self) -> str:
        """Return the strategy as an expression, with the parameters that differ from their defaults."""
        values = [(f, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        shown = (f"{f.name}={value!r}" for f, value in values if value != f.default)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __call__(self, context: Context, /) -> Context:
        """Edit the context in place and return it, or return an edited copy for this request."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Pipeline(BaseStrategy):
    """Strategies that run one after another, each on the context that the previous one returned.

    Examples
    --------
    >>> from ctxlab import observation_mask, panic
    >>> pipeline = observation_mask(keep=3) | panic()
    >>> pipeline
    observation_mask(keep=3) | panic()
    >>> len(pipeline.steps), type(pipeline).__name__
    (2, 'Pipeline')
    """

    steps: tuple[Strategy, ...]
    "strategies in the order in which they run"

    def __call__(self, context: Context, /) -> Context:
        """Run the strategies in order and return the context that the last one returned."""
        for step in self.steps:
            context = step(context)
        return context

    def __repr__(self) -> str:
        """Return the expressions of the strategies, joined by ``|``."""
        return " | ".join(map(repr, self.steps))


@dataclass(frozen=True, repr=False)
class FunctionStrategy(BaseStrategy):
    """Strategy that calls a plain function with the messages and sends the messages it returns.

    The function may leave out, change and add messages. A returned message that equals a message of
    the input counts as unchanged. If input messages between two unchanged messages are missing, the
    new messages in their place count as rewritten versions of them. The result is used for one
    request. For the next request, the function receives the whole conversation again.
    """

    function: Callable[[list[Message]], Sequence[Message]]
    "function that takes the messages of the request and returns the messages to send"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with the messages that the function returns."""
        made = self.function(context.messages)
        messages = [m if isinstance(m, Message) else message_from_dict(m) for m in made]
        return fork_with_messages(context, messages)

    def __repr__(self) -> str:
        """Return the name of the function."""
        return getattr(self.function, "__name__", repr(self.function))


def as_strategy(value: Any) -> Strategy:
    """Convert a plain function to a strategy; a strategy is returned unchanged.

    Parameters
    ----------
    value : Strategy or callable
        A strategy, or a function from a list of messages to a list of messages.

    Returns
    -------
    Strategy
        The given strategy, or a ``FunctionStrategy`` that calls the function.

    Raises
    ------
    SpecError
        If ``value`` is a string, a class, or cannot be called.

    Examples
    --------
    >>> as_strategy(lambda messages: messages[-10:]) | as_strategy(lambda messages: messages)
    <lambda> | <lambda>
    """
    if isinstance(value, _FUNCTION_TYPES):
        return FunctionStrategy(value)
    if isinstance(value, type) or not callable(value):
        raise SpecError(
            f"expected a strategy, got {value!r}; pass an instance such as tool_stubs(), or a function; "
            "parse_strategy converts an expression such as 'tool_stubs()'"
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


def seeded_strategies(strategy: Strategy) -> tuple[Strategy, ...]:
    """Return the strategies with fixed seeds whose results an evaluation averages.

    Parameters
    ----------
    strategy : Strategy
        Any strategy.

    Returns
    -------
    tuple of Strategy
        If the strategy or one that it contains has a parameter ``seed`` that is None: copies with
        the seeds 0 to 4. Otherwise only the strategy itself.

    Examples
    --------
    >>> from ctxlab.strategies import parse_strategy
    >>> seeded_strategies(parse_strategy("random_drop() | panic()"))[:2]
    (random_drop(seed=0) | panic(), random_drop(seed=1) | panic())
    >>> seeded_strategies(parse_strategy("panic()"))
    (panic(),)
    """
    if all(getattr(each, "seed", 0) is not None for each in walk_strategies(strategy)):
        return (strategy,)
    return tuple(_fill(strategy, "seed", seed) for seed in range(SEEDS))


def _fill(value: Any, parameter: str, filling: Any) -> Any:
    """Return a strategy, or a tuple of strategies, with a value for a parameter wherever it is None."""
    if isinstance(value, tuple):
        return tuple(_fill(each, parameter, filling) for each in value)
    if not isinstance(value, BaseStrategy):
        return value
    given = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
    changed = {name: _fill(each, parameter, filling) for name, each in given.items()}
    if parameter in given and given[parameter] is None:
        changed[parameter] = filling
    return replace(value, **changed)  # type: ignore[type-var]


def models_used(*strategies: Any) -> tuple[str, ...]:
    """Return the names of the models that strategies call: values of ``MODEL_PARAMETERS``.

    Parameters
    ----------
    *strategies : Strategy
        Strategies to search. The strategies that they contain are searched too.

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
    asked = (getattr(each, key, None) for each in walked for key in MODEL_PARAMETERS)
    return tuple(dict.fromkeys(model for model in asked if isinstance(model, str)))


def with_summary_model(strategy: Any, model: str) -> Any:
    """Return a copy of a strategy that writes its summaries with a model.

    Parameters
    ----------
    strategy : Strategy
        Any strategy.
    model : str
        Name of the model. Strategies with a parameter ``model`` that is None get it, also those that the
        strategy contains. Strategies that name a model keep it.

    Returns
    -------
    Strategy
        The copy.

    Examples
    --------
    >>> from ctxlab.strategies import parse_strategy
    >>> with_summary_model(parse_strategy("tool_stubs() | rolling_summary() | panic()"), "gpt-5-nano")
    tool_stubs() | rolling_summary(model='gpt-5-nano') | panic()
    """
    return _fill(strategy, "model", model)


def tools_needed(*strategies: Any) -> tuple[str, ...]:
    """Return the names of the tools that an agent needs for strategies: their ``needs_tool``.

    Parameters
    ----------
    *strategies : Strategy
        Strategies to search. The strategies that they contain are searched too.

    Returns
    -------
    tuple of str
        Names of tools without duplicates.

    Examples
    --------
    >>> from ctxlab.strategies import parse_strategy
    >>> tools_needed(parse_strategy("offload() | contents() | panic()"))
    ('read_result', 'get_turn')
    """
    named = (getattr(each, "needs_tool", "") for each in walk_strategies(*strategies))
    return tuple(dict.fromkeys(filter(None, named)))


def fork_with_messages(context: Context, messages: Sequence[Message]) -> Context:
    """Return a copy of a context whose next request consists of the given messages.

    Messages that are also in the context keep their positions in the history and their form, such as
    verbatim or stub. New messages have the form ``rewritten``.

    Parameters
    ----------
    context : Context
        The context to copy.
    messages : sequence of Message
        All messages of the next request.

    Returns
    -------
    Context
        Copy of the context with the given messages. The copy is used for the next request only.
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
    """Return the positions of the tool results in the history of a context.

    Parameters
    ----------
    context : Context
        Context of a conversation. For a ``Branch``, such as the messages about one file in
        ``file_sessions``, only the results that were added to the branch are returned.

    Returns
    -------
    sequence of int
        Positions in the history, ascending. They may include results that are not yet appended to
        the context, because a replay knows the whole history in advance.
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
    """Rewrite the older tool results of a context, and keep the newest ones.

    Each tool result is processed once, at the first request at which it is not among the ``keep``
    newest results.

    Parameters
    ----------
    context : Context
        The context to edit.
    strategy : BaseStrategy
        Strategy that makes the edit. The number of processed results is stored in
        ``context.strategy_state`` with the strategy as its key.
    function : Rewrite
        Function that returns the new message, or None to leave the message unchanged.
    form : Form
        Form of the rewritten entries.
    keep : int, default 0
        Number of newest tool results to keep.
    before : int, optional
        Position in the history. Results at this position and later are not rewritten. None: the
        end of the context.

    Returns
    -------
    Context
        The same context, edited in place.
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
    """Return the index after the head of a context and the summaries that follow the head.

    The head is the system prompt and the first user message. Tables of contents count as summaries.

    Parameters
    ----------
    context : Context
        Context after any number of edits.

    Returns
    -------
    int
        Index of the first entry that is neither part of the head nor one of these summaries.
    """
    entries, index = context.entries, context.first_droppable
    while index < len(entries) and entries[index].form in (Form.SUMMARY, Form.POINTER):
        index += 1
    return index


_Messages: TypeAlias = Sequence[Message]
_PLAIN_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def _matches_annotation(value: Any, annotation: str) -> bool:
    """Return False if a value does not have the annotated type. Only simple annotations are checked."""
    names = annotation.split(" | ")
    if not {*names} <= {*_PLAIN_TYPES, "None"}:
        return not isinstance(value, BaseStrategy) or "Strategy" in annotation
    return any(value is None if n == "None" else isinstance(value, _PLAIN_TYPES[n]) for n in names)


def _pipeline_steps(strategy: Any) -> tuple[Strategy, ...]:
    return strategy.steps if isinstance(strategy, Pipeline) else (strategy,)


def _changed_ranges(old: _Messages, new: _Messages) -> Iterator[tuple[int, int, _Messages]]:
    """Yield the edits that turn the list ``old`` into the list ``new``, in order of position.

    Each edit ``(start, stop, messages)`` replaces ``old[start:stop]`` by ``messages``.
    """
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
