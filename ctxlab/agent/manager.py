"""A context manager is what an agent loop needs: it appends what happens, and sends what it is told.

The strategies are those of the lab, so that what was measured on recordings is what runs.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, SupportsFloat

from ctxlab._utils.humanize import quantity
from ctxlab.context.budget import Budget
from ctxlab.context.context import Context
from ctxlab.context.history import (
    Entry,
    Form,
    History,
)
from ctxlab.context.preview import aside
from ctxlab.context.turns import turn_span
from ctxlab.errors import (
    SpecError,
    StrategyError,
)
from ctxlab.llm import (
    LenientClient,
    LiteLLMClient,
)
from ctxlab.llm.base import (
    Client,
    Spending,
)
from ctxlab.messages.inputs import (
    Given,
    copied,
    plain,
    same,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)
from ctxlab.messages.validation import (
    RULES,
    check,
)
from ctxlab.strategies import (
    Strategy,
    as_strategy,
    models_asked,
    parse,
)
from ctxlab.strategies.base import members
from ctxlab.tokens.counter import (
    DEFAULT_MODEL,
    TokenCounter,
)
from ctxlab.tokens.models import (
    Model,
    find_model,
)
from ctxlab.tokens.profiles import Profile

__all__ = ["SAFE", "ContextManager", "StatelessWarning", "build_messages"]

SAFE = "rolling_summary() | panic()"
"""What is used where no strategy is named: it needs no model, and a request fits unless the system
prompt, the first user message, the summary and the newest four messages are too large together even
with the tool results among them shortened."""

_LOG = logging.getLogger("ctxlab.agent.manager")

_SENTENCES = {
    "panic": "did not fit and was cut in panic, for this request alone",
    "stuck": "does not fit even so: what is never dropped is too large",
    "summary": "a summary stands for older messages",
    "contents": "a list of contents stands for older messages",
    "digest": "a digest stands for older messages",
}
_USUAL = {"summary", "contents", "digest", "compacted: no room", "compacted: pays"}
# The windows of OpenAI's newer models: some lists name them, others what is left for the input beside
# the longest reply, such as 272,000 and 128,000.
_WINDOWS = {128_000, 400_000, 1_050_000}


class StatelessWarning(UserWarning):
    """Nothing is remembered between calls that ask a model, so that each asks it anew."""


class ContextManager:
    """Keeps one live conversation within its budget.

    Messages are OpenAI's chat shape: dicts, objects of its library or litellm's, or ``Message``. They
    are copied, so that neither side sees what the other edits. ``limit``: tokens of the context window,
    also written ``"16k"``; None is the model's. ``reserve``: tokens kept free for the reply, so give
    your ``max_tokens``; None is what the model may say at most, but no more than a tenth of the window,
    and nothing where input and output have limits of their own (gpt-5: 272,000 and 128,000). ``tools``
    (definitions in OpenAI's shape) count.

    ``client``: whom a strategy asks that calls a model; None asks the provider and keeps nothing on
    disk, since a conversation asks nothing twice and what users say should not be kept unasked: give a
    ``ctxlab.llm.CachedClient`` to keep it. A refusal, such as a wrong key, is logged as an error, and
    the strategy does without the model.

    A manager belongs to one conversation, and to one thread at a time. ``request`` may take as long as a
    model takes to answer. Raises ``SpecError`` for a strategy, limit or reserve that is written wrongly.

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
        limit: int | str | None = None,
        reserve: int | str | None = None,
        client: Client | None = None,
        profile: Profile | None = None,
    ) -> None:
        known = find_model(model)
        window = known.limit if limit is None else _tokens("limit", limit, 1)
        kept = _reserve(known, window) if reserve is None else _tokens("reserve", reserve, 0)
        if kept >= window:
            raise SpecError(f"reserve {kept:,} leaves nothing of limit {window:,}")
        self.strategy = parse(strategy) if isinstance(strategy, str) else as_strategy(strategy)
        if past := [each for each in members(self.strategy) if not each.live]:
            name = type(past[0]).__name__
            raise SpecError(
                f"{name} goes by what a recording holds: it can be replayed, not run live"
            )
        self.model = model
        self.tokens = 0
        "tokens of the last request, what is fixed included; 0 before the first"
        self._provider = known.provider
        self._counter = TokenCounter(model, profile)
        if client is None and models_asked(self.strategy):
            client = LiteLLMClient()
        self._client = None if client is None else LenientClient(client)
        self._sent: list[Entry] = []
        self._length = self._heard = 0
        self._said: set[tuple[int, str]] = set()
        self.budget = Budget(window, kept)
        self._begin()
        self.fix(tools=tools)

    def _begin(self) -> None:
        history = History(self._counter)
        history.client = self._client
        self._context = Context(self.budget, history)
        self._given: list[Message | dict[str, Any]] = []

    def fix(self, *, tools: Sequence[Mapping[str, Any]] = (), system: Iterable[Given] = ()) -> None:
        """From the next request on, these definitions and system messages are what each one holds.

        They replace the tools that were given before. They take room and are no part of the history,
        which stays as it is: for frameworks that say them anew at each call, beside the conversation.
        """
        self.tools: tuple[dict[str, Any], ...] = tuple([plain(tool) for tool in tools])
        count = self._counter
        fixed = count.tools(self.tools) + sum(count.message(_message(copied(m))) for m in system)
        self.budget = replace(self.budget, fixed=fixed + count.REPLY)
        self._context.rebudget(self.budget)

    def append(self, message: Given) -> None:
        """The next message of the conversation; it is counted now and never again.

        ``append(response.choices[0].message)`` will do. Raises ``ValueError`` for what is no message.
        """
        copy = copied(message)
        self._context.append(_message(copy))
        self._given.append(copy)

    def extend(self, messages: Iterable[Given]) -> None:
        """Several messages, in order."""
        for message in messages:
            self.append(message)

    def sync(self, messages: Sequence[Given]) -> None:
        """The whole conversation as a framework holds it: what is new is appended.

        Where it is no longer the one that was known, since something was edited or taken back, it
        begins anew, and with it the strategy; ``spent``, ``events`` and the numbers of requests go on.
        """
        known = len(self._given)
        if known > len(messages) or not all(map(same, messages, self._given)):
            before, known = self._context, 0
            self._begin()
            self._context.turn = before.turn
            self._context.events, self._context.spent = before.events, before.spent
        self.extend(messages[known:])

    def request(self) -> list[dict[str, Any]]:
        """What to send now, in OpenAI's shape; each call is one request of the conversation.

        A message that the strategy left alone is sent as it was given, keys of ours (``_…``) apart.
        Logged as warnings, each kind once a conversation: what the strategy reported, such as a panic or
        a summary that a model could not write (``events`` has all of it); a request that is too large
        all the same; and one that a provider would refuse, with the rule of
        ``ctxlab.messages.validation``.
        """
        return [self._wire(entry) for entry in self.prepare()]

    def prepare(self) -> list[Entry]:
        """``request`` with provenance: each message, and the positions of ``history`` it stands for."""
        context = self._context
        number = context.turn
        sent = self.strategy(context)
        self._sent, self._length = list(sent.entries), sent.length
        self.tokens = sent.tokens + self.budget.fixed
        for _, event in context.events[self._heard :]:
            level = logging.INFO if event in _USUAL else logging.WARNING
            self._say(level, event.partition(":")[0], number, _SENTENCES.get(event, event))
        self._heard = len(context.events)
        if sent.excess > 0:
            self._say(
                logging.WARNING, "excess", number, f"is {sent.excess:,} tokens over the budget"
            )
        self._judge(number)
        context.settle(sent)
        return list(self._sent)

    def outlook(self, question: Message) -> list[Entry]:
        """What would be sent if the user said this next; nothing is appended, and nothing stays of it.

        Where the strategy would ask a model, or cannot be asked aside, it is what was sent last and
        what was said since, which the strategy may yet shorten.
        """
        context = self._context
        if not models_asked(self.strategy):
            with suppress(StrategyError):
                return list(self.strategy(aside(context, question)).entries)
        asked = context.history.with_question(context.length, question).entries[-1]
        return [*self._sent, *context.history.entries[self._length : context.length], asked]

    @property
    def history(self) -> History:
        """All messages that were appended; nothing is ever taken out of it."""
        return self._context.history

    @property
    def events(self) -> list[tuple[int, str]]:
        """What the strategy reported: ``(number of the request, what)``; the first request is 0."""
        return self._context.events

    @property
    def spent(self) -> list[Spending]:
        """The strategy's own model calls."""
        return self._context.spent

    @property
    def left_out(self) -> list[int]:
        """Positions of ``history`` that the last request did not hold word for word."""
        kept = {entry.start for entry in self._sent if entry.form is Form.VERBATIM}
        return [position for position in range(self._length) if position not in kept]

    def get_turn(self, number: int) -> list[dict[str, Any]]:
        """The messages of a turn in full, for an agent that saw its line in the contents.

        Turns count from 1; empty where there is none of that number.
        ``ctxlab.context.turns.GET_TURN`` is the tool's definition.
        """
        start, stop = turn_span(self._context.history, number)
        return [message.to_dict() for message in self.history[start:stop]]

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
                return {k: plain(value) for k, value in given.items() if not k.startswith("_")}
        wire: dict[str, Any] = plain(entry.message.to_dict())
        return wire

    def _judge(self, number: int) -> None:
        """Says what a provider would refuse."""
        for name in {found.rule for found in check([entry.message for entry in self._sent])}:
            rule = RULES[name]
            others = self._provider in {"openai", "anthropic"} - rule.providers
            whose = " and ".join(sorted(rule.providers))
            what = f"{whose} would refuse it ({name}: {rule.meaning})"
            self._say(logging.INFO if others else logging.WARNING, name, number, what)

    def _say(self, level: int, kind: str, number: int, what: str) -> None:
        """Logs a kind of thing once; again only for whoever debugs."""
        again = (level, kind) in self._said
        self._said.add((level, kind))
        _LOG.log(logging.DEBUG if again else level, "request %d: %s", number, what)


def build_messages(
    system_prompt: str | None,
    messages: Sequence[Given],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    strategy: Strategy | str | Callable[..., Any] = SAFE,
    model: str = DEFAULT_MODEL,
    **options: Any,
) -> list[dict[str, Any]]:
    """The messages to send, from a system prompt and a whole conversation, with nothing remembered.

    For loops that keep their messages themselves; ``options`` are those of ``ContextManager``. A
    strategy that remembers, such as a summary that grows, begins anew at each call. One that asks a
    model therefore asks it at every call once the conversation is long: that is warned of
    (``StatelessWarning``); use ``ContextManager.sync`` for it. Source: seed design "Robustness", 10.5
    and 10.8 (``build_messages_for_llm``).

    >>> [m["role"] for m in build_messages("Be brief.", [{"role": "user", "content": "hi"}])]
    ['system', 'user']
    """
    manager = ContextManager(strategy, model, tools=tools, **options)
    if asked := models_asked(manager.strategy):
        warnings.warn(
            f"build_messages remembers nothing, so {' and '.join(asked)} may be asked anew at every "
            "call; ContextManager.sync(messages) keeps what was answered",
            StatelessWarning,
            stacklevel=2,
        )
    if system_prompt is not None:
        manager.append({"role": "system", "content": system_prompt})
    manager.extend(messages)
    return manager.request()


def _message(copy: Message | dict[str, Any]) -> Message:
    return copy if isinstance(copy, Message) else Message.from_dict(copy)


def _tokens(name: str, written: object, least: int) -> int:
    """A number of tokens as people write one."""
    value, unit = (quantity(written) if isinstance(written, str) else (written, "")) or (None, "")
    if isinstance(value, SupportsFloat) and not isinstance(value, bool) and not unit:
        number = float(value)
        if number.is_integer() and number >= least:
            return int(number)
    raise SpecError(f"{name} is {written!r}; write tokens, {least} or more, as 16000 or '16k'")


def _reserve(known: Model, window: int) -> int:
    """What to keep free for the reply where nobody says."""
    apart = known.limit + known.max_output in _WINDOWS and known.limit not in _WINDOWS
    named = re.search("gpt-[5-9]|codex", f"{known.name} {known.listed_as}".lower())
    if apart and named and window <= known.limit:
        return 0  # the reply has a room of its own
    return min(known.max_output, window // 10)
