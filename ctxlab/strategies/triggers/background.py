"""Wrapper that prepares a compaction ahead of time and installs it some requests later."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.context.preview import copy_strategy_state
from ctxlab.errors import SpecError
from ctxlab.strategies.base import Strategy, walk_strategies
from ctxlab.strategies.triggers.base import (
    DEFAULT_TRIGGER,
    WrapperStrategy,
    check_target,
    retry_above,
    run_with_target,
    trigger_tokens,
)


@dataclass(frozen=True, repr=False)
class background(WrapperStrategy):
    """Runs another strategy on a copy of the context, and installs its result some requests later.

    When the context exceeds ``start``, the strategy edits a copy of it with the budget ``target``. The
    conversation continues unchanged, as if a model was still writing a summary. After ``requests``
    requests, or as soon as the context exceeds ``block``, the prepared edits replace the messages that
    were copied. Messages that were appended since stay as they are. If the context exceeds ``block``
    and nothing is prepared, the strategy runs at once.

    The model of the strategy is called when the edits are prepared, so its cost belongs to that
    request. In a live conversation this request waits for the model. Events of the strategy are
    reported when the edits are installed.

    The installed edits are permanent, also those of a strategy or function that returns a fork, which
    otherwise edits only one request. Put ``panic`` and ``retrieval`` after this wrapper instead. If
    another strategy drops or folds copied messages before the installation, the prepared edits are
    discarded, which is reported as an event.

    If the context is still above ``start`` after the installation, an event is reported, and the next
    preparation waits as ``in_batches`` does.

    Source: GitHub Copilot CLI, which compacts in the background at 80 % of the context window and waits
    for the compaction at 95 %.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.windows import sliding_window
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(12)]
    >>> context = Context(Budget(83), History(TokenCounter("gpt-4o"), said))
    >>> strategy = background(sliding_window(), start=0.7)
    >>> for length in (8, 9, 10, 11):
    ...     context.advance(length)
    ...     context.commit_request(strategy(context))
    ...     print(context.tokens, context.messages[1].content)
    56 line 1
    63 line 1
    42 line 5
    49 line 5
    """

    strategy: Strategy
    "strategy that removes tokens"
    start: float = DEFAULT_TRIGGER
    """size of the context above which edits are prepared: up to 1, a share of the available tokens;
    above 1, a number of tokens of the messages"""
    block: float = 0.95
    "size of the context above which edits are installed at once, given in the same way as ``start``"
    target: float = 0.5
    "budget of the strategy, given in the same way as ``start``"
    requests: int = 1
    "number of requests between the preparation of edits and their installation"

    def __post_init__(self) -> None:
        """Raise SpecError if ``target``, ``start`` and ``block`` are not in ascending order."""
        super().__post_init__()
        check_target(self, self.target, "start", self.start)
        if self.start > self.block and (self.start <= 1) == (self.block <= 1):
            raise SpecError(
                f"background: expected start <= block ({self.block}), got start {self.start}"
            )

    def __call__(self, context: Context, /) -> Context:
        """Prepare or install edits if the context exceeds a threshold."""
        state: _State = context.strategy_state.get(self, _State())
        level = trigger_tokens(context, self.start)
        at_once = self.requests == 0 or context.tokens > trigger_tokens(context, self.block)
        prepared = state.prepared
        if prepared is None:
            if context.tokens <= level:
                context.strategy_state.pop(self, None)
                return context
            if context.tokens <= min(state.above, context.available):
                return context
            if not at_once:
                context.strategy_state[self] = _State(prepared=self._prepare(context))
                return context
        elif not at_once and context.request_index < prepared.request_index + self.requests:
            return context
        context.strategy_state.pop(self, None)
        if prepared is not None and not _install(context, prepared):
            context.report("background: discarded, because the messages were edited meanwhile")
            prepared = None
            if not at_once:
                return context
        if prepared is None:
            self._run_now(context)
        if context.tokens > level:
            context.report("background: still above start")
            above = retry_above(context.tokens, context.available)
            context.strategy_state[self] = _State(above)
        return context

    def _run_now(self, context: Context) -> None:
        """Run the strategy on the context itself, which takes less time than a copy."""
        sent = run_with_target(context, self.target, self.strategy)
        if sent is not context:
            self._check_no_branch(sent)
            context.adopt(context.entries, sent.entries, sent.maybe_invalid)
            context.strategy_state.update(sent.strategy_state)

    def _check_no_branch(self, sent: Context) -> None:
        if sent.is_persistent:
            raise SpecError(
                f"{self.strategy!r} cannot run on a copy of the conversation; put it before "
                "background, not inside"
            )

    def _prepare(self, context: Context) -> _Prepared:
        """Run the strategy on a copy of the context, which only the model calls of the run show."""
        own = copy(context)  # not a fork, which would forget the positions of a branch
        own.entries, own.events = context.entries.copy(), []
        own.is_fork, own.is_persistent = True, False
        before = copy_strategy_state(context, own)
        own.strategy_state = before.copy()
        sent = run_with_target(own, self.target, self.strategy)
        self._check_no_branch(sent)
        mine = set(walk_strategies(self.strategy))
        after = {**own.strategy_state, **sent.strategy_state}
        changed = {
            key: value
            for key, value in after.items()
            if _owner(key) in mine or before.get(key, before) is not value
        }
        removed = tuple(before.keys() - after.keys())
        events = tuple(event for _, event in own.events)
        return _Prepared(
            context.request_index,
            tuple(context.entries),
            tuple(sent.entries),
            sent.maybe_invalid,
            changed,
            removed,
            events,
        )


class _Prepared(NamedTuple):
    """Edits of a strategy that are not yet installed."""

    request_index: int
    "request before which the edits were prepared"
    before: tuple[Entry, ...]
    "entries of the context at that time"
    entries: tuple[Entry, ...]
    "entries of the context that the strategy returned"
    maybe_invalid: bool
    "value of ``maybe_invalid`` of this context"
    changed: dict[Any, Any]
    "data in ``strategy_state`` that the strategy changed"
    removed: tuple[Any, ...]
    "keys that the strategy removed from ``strategy_state``"
    events: tuple[str, ...]
    "events that the strategy reported"


class _State(NamedTuple):
    """State of the wrapper between requests."""

    above: int = 0
    "size of the context above which edits are prepared again; 0: at ``start``"
    prepared: _Prepared | None = None
    "edits that wait for their installation"


def _install(context: Context, prepared: _Prepared) -> bool:
    """Install prepared edits; return False if the context no longer has the messages."""
    if not context.adopt(prepared.before, prepared.entries, prepared.maybe_invalid):
        return False
    for key in prepared.removed:
        context.strategy_state.pop(key, None)
    context.strategy_state.update(prepared.changed)
    for event in prepared.events:
        context.report(event)
    return True


def _owner(key: Any) -> Any:
    """Return the strategy of a key of ``strategy_state``: the key, or its first element."""
    return key[0] if isinstance(key, tuple) and key else key
