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

from ctxlab._utils.humanize import parse_quantity
from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Entry, Form, History
from ctxlab.context.preview import preview_question
from ctxlab.context.turns import turn_span
from ctxlab.errors import SpecError, StrategyError
from ctxlab.llm import FaultTolerantClient, LiteLLMClient
from ctxlab.llm.base import Client, ModelCall
from ctxlab.messages.inputs import MessageInput, copy_message, is_same_message, to_plain_data
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording
from ctxlab.messages.validation import RULES, find_violations
from ctxlab.strategies import Strategy, as_strategy, models_used, parse_strategy
from ctxlab.strategies.base import walk_strategies
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter
from ctxlab.tokens.models import Model, find_model
from ctxlab.tokens.profiles import TokenProfile

__all__ = ["SAFE_STRATEGY", "ContextManager", "StatelessWarning", "build_messages"]

SAFE_STRATEGY = "rolling_summary() | panic()"
"""What is used where no strategy is named: it needs no model, and a request fits unless the system
prompt, the first user message, the summary and the newest four messages are too large together even
with the tool results among them shortened."""

_LOG = logging.getLogger("ctxlab.agent.manager")

_EVENT_TEXTS = {
    "panic": "did not fit and was cut in panic, for this request alone",
    "stuck": "does not fit even so: what is never dropped is too large",
    "summary": "a summary stands for older messages",
    "contents": "a list of contents stands for older messages",
    "digest": "a digest stands for older messages",
}
_ROUTINE_EVENTS = {"summary", "contents", "digest", "compacted: no room", "compacted: pays"}
# The windows of OpenAI's newer models: some lists name them, others what is left for the input beside
# the longest reply, such as 272,000 and 128,000.
_FULL_WINDOWS = {128_000, 400_000, 1_050_000}


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
        strategy: Strategy | str | Callable[..., Any] = SAFE_STRATEGY,
        model: str = DEFAULT_MODEL,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        limit: int | str | None = None,
        reserve: int | str | None = None,
        client: Client | None = None,
        profile: TokenProfile | None = None,
    ) -> None:
        known = find_model(model)
        window = known.limit if limit is None else _parse_tokens("limit", limit, 1)
        kept = (
            _default_reserve(known, window)
            if reserve is None
            else _parse_tokens("reserve", reserve, 0)
        )
        if kept >= window:
            raise SpecError(f"reserve {kept:,} leaves nothing of limit {window:,}")
        self.strategy = (
            parse_strategy(strategy) if isinstance(strategy, str) else as_strategy(strategy)
        )
        if past := [each for each in walk_strategies(self.strategy) if not each.supports_live]:
            name = type(past[0]).__name__
            raise SpecError(
                f"{name} goes by what a recording holds: it can be replayed, not run live"
            )
        self.model = model
        self.tokens = 0
        "tokens of the last request, what is fixed included; 0 before the first"
        self._provider = known.provider
        self._known_model = known
        self._counter = TokenCounter(model, profile)
        if client is None and models_used(self.strategy):
            client = LiteLLMClient()
        self._client = None if client is None else FaultTolerantClient(client)
        self._sent_entries: list[Entry] = []
        self._sent_length = self._logged_events = 0
        self._logged_kinds: set[tuple[int, str]] = set()
        self.budget = Budget(window, kept)
        self._reset_context()
        self.set_fixed(tools=tools)

    def _reset_context(self) -> None:
        history = History(self._counter, model=self._known_model)
        history.client = self._client
        self._context = Context(self.budget, history)
        self._input_messages: list[Message | dict[str, Any]] = []

    def set_fixed(
        self, *, tools: Sequence[Mapping[str, Any]] = (), system: Iterable[MessageInput] = ()
    ) -> None:
        """From the next request on, these definitions and system messages are what each one holds.

        They replace the tools that were given before. They take room and are no part of the history,
        which stays as it is: for frameworks that say them anew at each call, beside the conversation.
        """
        self.tools: tuple[dict[str, Any], ...] = tuple([to_plain_data(tool) for tool in tools])
        count = self._counter
        fixed = count.count_tools(self.tools) + sum(
            count.count_message(_to_message(copy_message(m))) for m in system
        )
        self.budget = replace(self.budget, fixed=fixed + count.REPLY_TOKENS)
        self._context.set_budget(self.budget)

    def append(self, message: MessageInput) -> None:
        """The next message of the conversation; it is counted now and never again.

        ``append(response.choices[0].message)`` will do. Raises ``ValueError`` for what is no message.
        """
        copy = copy_message(message)
        self._context.append(_to_message(copy))
        self._input_messages.append(copy)

    def extend(self, messages: Iterable[MessageInput]) -> None:
        """Several messages, in order."""
        for message in messages:
            self.append(message)

    def sync(self, messages: Sequence[MessageInput]) -> None:
        """The whole conversation as a framework holds it: what is new is appended.

        Where it is no longer the one that was known, since something was edited or taken back, it
        begins anew, and with it the strategy; ``model_calls``, ``events`` and the numbers of requests
        go on.
        """
        known = len(self._input_messages)
        if known > len(messages) or not all(map(is_same_message, messages, self._input_messages)):
            before, known = self._context, 0
            self._reset_context()
            self._context.request_index = before.request_index
            self._context.events, self._context.model_calls = before.events, before.model_calls
        self.extend(messages[known:])

    def request(self) -> list[dict[str, Any]]:
        """What to send now, in OpenAI's shape; each call is one request of the conversation.

        A message that the strategy left alone is sent as it was given, keys of ours (``_…``) apart.
        Logged as warnings, each kind once a conversation: what the strategy reported, such as a panic or
        a summary that a model could not write (``events`` has all of it); a request that is too large
        all the same; and one that a provider would refuse, with the rule of
        ``ctxlab.messages.validation``.
        """
        return [self._to_wire(entry) for entry in self.request_entries()]

    def request_entries(self) -> list[Entry]:
        """``request`` with provenance: each message, and the positions of ``history`` it stands for."""
        context = self._context
        number = context.request_index
        sent = self.strategy(context)
        self._sent_entries, self._sent_length = list(sent.entries), sent.history_length
        self.tokens = sent.tokens + self.budget.fixed
        for _, event in context.events[self._logged_events :]:
            level = logging.INFO if event in _ROUTINE_EVENTS else logging.WARNING
            self._log_once(level, event.partition(":")[0], number, _EVENT_TEXTS.get(event, event))
        self._logged_events = len(context.events)
        if sent.excess > 0:
            self._log_once(
                logging.WARNING, "excess", number, f"is {sent.excess:,} tokens over the budget"
            )
        self._log_violations(number)
        context.commit_request(sent)
        return list(self._sent_entries)

    def preview(self, question: Message) -> list[Entry]:
        """What would be sent if the user said this next; nothing is appended, and nothing stays of it.

        Where the strategy would ask a model, or cannot work on a copy of the context, it is what was
        sent last and what was said since, which the strategy may yet shorten.
        """
        context = self._context
        if not models_used(self.strategy):
            with suppress(StrategyError):
                return list(self.strategy(preview_question(context, question)).entries)
        asked = context.history.with_question(context.history_length, question).entries[-1]
        return [
            *self._sent_entries,
            *context.history.entries[self._sent_length : context.history_length],
            asked,
        ]

    @property
    def history(self) -> History:
        """All messages that were appended; nothing is ever taken out of it."""
        return self._context.history

    @property
    def events(self) -> list[tuple[int, str]]:
        """What the strategy reported: ``(number of the request, what)``; the first request is 0."""
        return self._context.events

    @property
    def model_calls(self) -> list[ModelCall]:
        """The strategy's own model calls."""
        return self._context.model_calls

    @property
    def changed_positions(self) -> list[int]:
        """Positions of ``history`` that the last request did not hold word for word."""
        kept = {entry.start for entry in self._sent_entries if entry.form is Form.VERBATIM}
        return [position for position in range(self._sent_length) if position not in kept]

    def get_turn(self, number: int) -> list[dict[str, Any]]:
        """The messages of a turn in full, for an agent that saw its line in the contents.

        Turns count from 1; empty where there is none of that number.
        ``ctxlab.context.turns.GET_TURN_TOOL`` is the tool's definition.
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

    def _to_wire(self, entry: Entry) -> dict[str, Any]:
        if entry.form is Form.VERBATIM:
            original = self._input_messages[entry.start]
            if not isinstance(original, Message):
                return {
                    k: to_plain_data(value)
                    for k, value in original.items()
                    if not k.startswith("_")
                }
        wire: dict[str, Any] = to_plain_data(entry.message.to_dict())
        return wire

    def _log_violations(self, number: int) -> None:
        """Says what a provider would refuse."""
        for name in {
            found.rule for found in find_violations([entry.message for entry in self._sent_entries])
        }:
            rule = RULES[name]
            others = self._provider in {"openai", "anthropic"} - rule.providers
            whose = " and ".join(sorted(rule.providers))
            what = f"{whose} would refuse it ({name}: {rule.meaning})"
            self._log_once(logging.INFO if others else logging.WARNING, name, number, what)

    def _log_once(self, level: int, kind: str, number: int, what: str) -> None:
        """Logs a kind of thing once; again only for whoever debugs."""
        again = (level, kind) in self._logged_kinds
        self._logged_kinds.add((level, kind))
        _LOG.log(logging.DEBUG if again else level, "request %d: %s", number, what)


def build_messages(
    system_prompt: str | None,
    messages: Sequence[MessageInput],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    strategy: Strategy | str | Callable[..., Any] = SAFE_STRATEGY,
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
    if asked := models_used(manager.strategy):
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


def _to_message(copy: Message | dict[str, Any]) -> Message:
    return copy if isinstance(copy, Message) else message_from_dict(copy)


def _parse_tokens(name: str, written: object, least: int) -> int:
    """A number of tokens as people write one."""
    value, unit = (parse_quantity(written) if isinstance(written, str) else (written, "")) or (
        None,
        "",
    )
    if isinstance(value, SupportsFloat) and not isinstance(value, bool) and not unit:
        number = float(value)
        if number.is_integer() and number >= least:
            return int(number)
    raise SpecError(f"{name} is {written!r}; write tokens, {least} or more, as 16000 or '16k'")


def _default_reserve(known: Model, window: int) -> int:
    """What to keep free for the reply where nobody says."""
    apart = known.limit + known.max_output in _FULL_WINDOWS and known.limit not in _FULL_WINDOWS
    named = re.search("gpt-[5-9]|codex", f"{known.name} {known.listed_as}".lower())
    if apart and named and window <= known.limit:
        return 0  # the reply has a room of its own
    return min(known.max_output, window // 10)
