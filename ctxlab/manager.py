"""A context manager is what an agent loop needs: it appends what happens, and sends what it is told.

The strategies are those of the lab, so that what was measured on recordings is what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ctxlab.budget import Budget
from ctxlab.client import Client, Spending
from ctxlab.context import Context
from ctxlab.conversation import Message, Recording
from ctxlab.history import Entry, Form, History
from ctxlab.llm import default_client
from ctxlab.models import find_model
from ctxlab.profiles import Profile
from ctxlab.strategies import Strategy, as_strategy, models_asked, parse
from ctxlab.tokens import DEFAULT_MODEL, TokenCounter

__all__ = ["SAFE", "ContextManager", "build_messages"]

SAFE = "rolling_summary() | panic()"
"""What is used where no strategy is named: it needs no model, and what it sends fits."""

_LOG = logging.getLogger("ctxlab.manager")

_Given: TypeAlias = Message | Mapping[str, Any]


class ContextManager:
    """Keeps one live conversation within its budget.

    Messages are OpenAI's chat dicts or ``Message``. ``limit``: tokens of the context window; None is the
    model's. ``reserve``: tokens kept free for the reply; None is what the model may say at most, but no
    more than a tenth of the window. ``tools`` (definitions in OpenAI's shape) count. ``client``: whom a
    strategy asks that calls a model; None asks the provider. Raises ``SpecError`` for a strategy that
    is written wrongly.

    >>> manager = ContextManager("tool_stubs(keep=0) | panic()", "gpt-4o")
    >>> manager.append({"role": "user", "content": "Read a.py"})
    >>> call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> manager.append({"role": "assistant", "content": None, "tool_calls": [call]})
    >>> manager.append({"role": "tool", "tool_call_id": "c1", "content": "x = 1\\n" * 500})
    >>> [len(message["content"] or "") < 300 for message in manager.request()]
    [True, True, True]
    >>> manager.tokens < 300, len(manager.history)
    (True, 3)
    """

    def __init__(
        self,
        strategy: Strategy | str | Callable[..., Any] = SAFE,
        model: str = DEFAULT_MODEL,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        limit: int | None = None,
        reserve: int | None = None,
        client: Client | None = None,
        profile: Profile | None = None,
    ) -> None:
        known = find_model(model)
        window = known.limit if limit is None else limit
        self.strategy = parse(strategy) if isinstance(strategy, str) else as_strategy(strategy)
        self.model = model
        self.tools = tuple(dict(tool) for tool in tools)
        self._counter = TokenCounter(model, profile)
        self._client = client
        if client is None and models_asked(self.strategy):
            self._client = default_client()
        self.budget = Budget(
            window,
            min(known.max_output, window // 10) if reserve is None else reserve,
            self._counter.tools(self.tools) + self._counter.REPLY,
        )
        self._begin()

    def _begin(self) -> None:
        history = History(self._counter)
        history.client = self._client
        self._context = self._sent = Context(self.budget, history)
        self._given: list[_Given] = []
        self._heard = 0

    def append(self, message: _Given) -> None:
        """The next message of the conversation; it is counted now and never again.

        Raises ``ValueError`` for a dict that is no message.
        """
        self._context.append(_message(message))
        self._given.append(message)

    def extend(self, messages: Iterable[_Given]) -> None:
        """Several messages, in order."""
        for message in messages:
            self.append(message)

    def sync(self, messages: Sequence[_Given]) -> None:
        """The whole conversation as a framework holds it: what is new is appended.

        Where it is no longer the one that was known, since something was edited or taken back, it
        begins anew, and with it the strategy.
        """
        known = len(self._given)
        if list(messages[:known]) != self._given:
            self._begin()
            known = 0
        self.extend(messages[known:])

    def request(self) -> list[dict[str, Any]]:
        """What to send now, in OpenAI's shape; each call is one request of the conversation.

        A message that the strategy left alone is sent as it was given, keys of ours (``_…``) apart.
        What the strategy reported, such as a panic or a summary that a model could not write, and a
        request that is too large all the same, is logged as a warning.
        """
        return [self._wire(entry) for entry in self.prepare()]

    def prepare(self) -> list[Entry]:
        """``request`` with provenance: each message, and the positions of ``history`` it stands for."""
        context = self._context
        self._sent = sent = self.strategy(context)
        for _, event in context.events[self._heard :]:
            _LOG.log(logging.INFO if event == "summary" else logging.WARNING, "%s", event)
        self._heard = len(context.events)
        if sent.excess > 0:
            _LOG.warning("the request is %d tokens over the budget", sent.excess)
        entries = list(sent.entries)
        context.settle(sent)
        return entries

    @property
    def tokens(self) -> int:
        """Tokens of the last request, tool definitions included."""
        return self._sent.tokens + self.budget.fixed

    @property
    def history(self) -> Sequence[Message]:
        """All messages that were appended; nothing is ever taken out of it."""
        return self._context.history

    @property
    def events(self) -> list[tuple[int, str]]:
        """What the strategy reported: ``(number of the request, what)``."""
        return self._context.events

    @property
    def spent(self) -> list[Spending]:
        """The strategy's own model calls."""
        return self._context.spent

    @property
    def left_out(self) -> list[int]:
        """Positions of ``history`` that the last request did not hold word for word."""
        sent = self._sent
        kept = {entry.start for entry in sent.entries if entry.form is Form.VERBATIM}
        return [position for position in range(sent.length) if position not in kept]

    def recording(self, id: str) -> Recording:
        """The conversation as a recording, which the lab replays."""
        return Recording(id, tuple(self.history), self.tools, self.model)

    def __repr__(self) -> str:
        return (
            f"<ContextManager {self.strategy!r}: {len(self.history)} messages, "
            f"{self.tokens:,} of {self.budget.limit:,} tokens>"
        )

    def _wire(self, entry: Entry) -> dict[str, Any]:
        if entry.form is Form.VERBATIM:
            given = self._given[entry.start]
            if not isinstance(given, Message):
                return {key: value for key, value in given.items() if not key.startswith("_")}
        return entry.message.to_dict()


def build_messages(
    system_prompt: str | None,
    messages: Sequence[_Given],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    strategy: Strategy | str | Callable[..., Any] = SAFE,
    model: str = DEFAULT_MODEL,
    **options: Any,
) -> list[dict[str, Any]]:
    """The messages to send, from a system prompt and a whole conversation, with nothing remembered.

    For loops that keep their messages themselves; ``options`` are those of ``ContextManager``. A
    strategy that remembers, such as a summary that grows, begins anew at each call. Source: seed
    design "Robustness", 10.5 and 10.8 (``build_messages_for_llm``).

    >>> [m["role"] for m in build_messages("Be brief.", [{"role": "user", "content": "hi"}])]
    ['system', 'user']
    """
    manager = ContextManager(strategy, model, tools=tools, **options)
    if system_prompt is not None:
        manager.append({"role": "system", "content": system_prompt})
    manager.extend(messages)
    return manager.request()


def _message(message: _Given) -> Message:
    return message if isinstance(message, Message) else Message.from_dict(message)
