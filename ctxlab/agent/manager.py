"""A context manager for agent loops: append messages, get the request to send.

The strategies are those of the evaluation, so an agent runs exactly what was measured on
recordings.
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
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter
from ctxlab.tokens.models import Model, find_model
from ctxlab.tokens.profiles import TokenProfile

SAFE_STRATEGY = "rolling_summary() | panic()"
"""Default strategy: needs no model and makes nearly every request fit.

A request can still be too large if the system prompt, the first user message, the summary and the
newest four messages exceed the budget together, even with their tool results shortened."""

CONTEXT_PARTS = ("system", "tools", "summary", "messages", "reserve", "free")
"""The parts of the context window, in display order; together they add up to the limit."""

_LOG = logging.getLogger("ctxlab.agent.manager")

_EVENT_TEXTS = {
    "panic": "did not fit, so panic() cut it, for this request only",
    "stuck": "still does not fit: the messages that are never dropped are too large",
    "summary": "a summary replaces older messages",
    "contents": "a table of contents replaces older messages",
    "digest": "a digest replaces older messages",
}
_ROUTINE_EVENTS = {"summary", "contents", "digest", "compacted: no room", "compacted: pays"}
# Context windows of OpenAI's newer models. Some model lists give the window; others give the
# limits of input and output separately, such as 272,000 and 128,000.
_FULL_WINDOWS = {128_000, 400_000, 1_050_000}


class StatelessWarning(UserWarning):
    """Nothing is remembered between calls of a function, so each call may ask a model again."""


class ContextManager:
    r"""Keeps one live conversation within its budget.

    Messages are in OpenAI's chat format: dicts, objects of OpenAI's library or litellm's, or
    ``Message``. They are copied, so later edits of the originals have no effect.

    A manager belongs to one conversation and to one thread at a time. ``request`` may take as long
    as a model takes to reply, if the strategy calls one. If that call is rejected, for instance
    because of a wrong key, an error is logged and the strategy continues without the model.

    Parameters
    ----------
    strategy : Strategy, str or callable, optional
        The strategy.
    model : str, optional
        Name of the model that the requests are for.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format; they are counted.
    limit : int or str, optional
        The model's context window in tokens, also written ``"16k"``; None uses the model's own.
    reserve : int or str, optional
        Tokens kept for the reply; pass your ``max_tokens``. None uses the model's maximum, at most
        a tenth of the window. It is 0 for models with separate limits for input and output (gpt-5:
        272,000 and 128,000).
    client : Client, optional
        Client for a strategy that calls a model. None calls the provider and stores nothing on
        disk, because users' messages should not be stored unasked; pass a
        ``ctxlab.llm.CachedClient`` to store the replies.
    profile : TokenProfile, optional
        Calibration of the token counts.

    Raises
    ------
    SpecError
        If strategy, limit or reserve are not valid, or if the strategy works on recordings only.

    Examples
    --------
    >>> manager = ContextManager("tool_stubs(keep=0) | panic()", "gpt-4o")
    >>> manager.append({"role": "user", "content": "Read a.py"})
    >>> call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    >>> manager.append({"role": "assistant", "content": None, "tool_calls": [call]})
    >>> manager.append({"role": "tool", "tool_call_id": "c1", "content": "x = 1\n" * 500})
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
        kept = _default_reserve(known, window)
        if reserve is not None:
            kept = _parse_tokens("reserve", reserve, 0)
        if kept >= window:
            raise SpecError(f"Expected a reserve below the limit of {window:,}, got {kept:,}")
        given = parse_strategy(strategy) if isinstance(strategy, str) else strategy
        self.strategy = as_strategy(given)
        for each in walk_strategies(self.strategy):
            if not each.supports_live:
                name = type(each).__name__
                raise SpecError(f"{name} needs a recording and cannot run live; choose another")
        self.model = model
        self.tokens = 0
        "tokens of the last request, fixed parts included; 0 before the first"
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
        """Set the tool definitions and system messages that are part of every request from now on.

        They take tokens of the budget but are not part of the history, which does not change. This
        is for frameworks that pass them with each call, separate from the conversation.

        Parameters
        ----------
        tools : sequence of mapping, optional
            Tool definitions in OpenAI's format; they replace the current ones.
        system : iterable of messages, optional
            System messages; they replace the current ones.
        """
        self.tools: tuple[dict[str, Any], ...] = tuple([to_plain_data(tool) for tool in tools])
        count = self._counter
        prompts = [_to_message(copy_message(message)) for message in system]
        fixed = count.count_tools(self.tools) + sum(map(count.count_message, prompts))
        self.budget = replace(self.budget, fixed=fixed + count.REPLY_TOKENS)
        self._context.set_budget(self.budget)

    def append(self, message: MessageInput) -> None:
        """Append the next message of the conversation, such as ``response.choices[0].message``.

        Its tokens are counted now and never again.

        Parameters
        ----------
        message : Message, dict or object
            The message.

        Raises
        ------
        ValueError
            If it is not a message.
        """
        copy = copy_message(message)
        self._context.append(_to_message(copy))
        self._input_messages.append(copy)

    def extend(self, messages: Iterable[MessageInput]) -> None:
        """Append several messages.

        Parameters
        ----------
        messages : iterable of messages
            The messages, in order.
        """
        for message in messages:
            self.append(message)

    def sync(self, messages: Sequence[MessageInput]) -> None:
        """Update to the whole conversation as a framework holds it; new messages are appended.

        If earlier messages were edited or removed, the conversation and the strategy start again;
        ``model_calls``, ``events`` and the numbering of requests continue.

        Parameters
        ----------
        messages : sequence of messages
            All messages of the conversation.
        """
        known = len(self._input_messages)
        if known > len(messages) or not all(map(is_same_message, messages, self._input_messages)):
            before, known = self._context, 0
            self._reset_context()
            self._context.request_index = before.request_index
            self._context.events, self._context.model_calls = before.events, before.model_calls
        self.extend(messages[known:])

    def request(self) -> list[dict[str, Any]]:
        """Return the messages to send now; each call is one request of the conversation.

        A message that the strategy left unchanged is returned as it was appended, without private
        keys (``_…``). The following is logged as a warning, each kind once per conversation: a
        report of the strategy, such as a panic or a failed summary (``events`` has all of them); a
        request over the budget; and a request that a provider would reject, with the rule of
        ``ctxlab.messages.validation``.

        Returns
        -------
        list of dict
            Messages in OpenAI's format.
        """
        return [self._to_wire(entry) for entry in self.request_entries()]

    def request_entries(self) -> list[Entry]:
        """Return the messages to send now, with their provenance; see ``request``.

        Returns
        -------
        list of Entry
            Each message with the positions in ``history`` that it stands for.
        """
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
            over = f"is {sent.excess:,} tokens over the budget"
            self._log_once(logging.WARNING, "excess", number, over)
        self._log_violations(number)
        context.commit_request(sent)
        return list(self._sent_entries)

    def preview(self, question: Message) -> list[Entry]:
        """Return the messages that would be sent if the user said this next; nothing changes.

        If the strategy would call a model, or cannot work on a copy of the context, the result is
        the last request plus all later messages, which the strategy may still shorten.

        Parameters
        ----------
        question : Message
            The user's next message.

        Returns
        -------
        list of Entry
            Messages of the request.
        """
        context = self._context
        if not models_used(self.strategy):
            with suppress(StrategyError):
                return list(self.strategy(preview_question(context, question)).entries)
        asked = context.history.with_question(context.history_length, question).entries[-1]
        later = context.history.entries[self._sent_length : context.history_length]
        return [*self._sent_entries, *later, asked]

    def context_breakdown(self) -> dict[str, int]:
        """Return the tokens of the next request by part.

        The counts assume that the user speaks next; that message itself is not counted.

        Returns
        -------
        dict of str to int
            ``system``: system prompts, and the tokens that open the reply. ``tools``: tool
            definitions. ``summary``: messages that stand for older ones, tables of contents
            included. ``messages``: all other messages. ``reserve``: tokens kept for the reply.
            ``free``: the rest; negative if the request does not fit. ``limit``: the model's context
            window, the sum of all parts.

        Examples
        --------
        >>> manager = ContextManager("panic()", "gpt-4o", limit=1000, reserve=100)
        >>> manager.append(Message("system", "Be brief."))
        >>> manager.append(Message("user", "hello world"))
        >>> manager.context_breakdown()
        {'system': 10, 'tools': 0, 'summary': 0, 'messages': 6, 'reserve': 100, 'free': 884, \
'limit': 1000}
        """
        budget, opening = self.budget, self._counter.REPLY_TOKENS
        users = [message for message in self.history if message.role == "user"]
        question = Message("user", "?", file=users[-1].file if users else None)
        found = dict.fromkeys(CONTEXT_PARTS, 0)
        for entry in self.preview(question):
            message = entry.message
            stands_for_older = entry.form in (Form.SUMMARY, Form.POINTER)
            if stands_for_older or ENGINE_MESSAGE_KEY in message.extra:
                found["summary"] += entry.tokens
            elif message is not question:
                found["system" if message.role == "system" else "messages"] += entry.tokens
        found["tools"] = budget.fixed - opening
        found["system"] += opening
        found["reserve"] = budget.reserve
        found["free"] = budget.limit - sum(found.values())
        return found | {"limit": budget.limit}

    @property
    def history(self) -> History:
        """All appended messages; none is ever removed."""
        return self._context.history

    @property
    def events(self) -> list[tuple[int, str]]:
        """Reports of the strategy as ``(index of the request, event)``; the first request is 0."""
        return self._context.events

    @property
    def model_calls(self) -> list[ModelCall]:
        """The strategy's own model calls."""
        return self._context.model_calls

    @property
    def changed_positions(self) -> list[int]:
        """Positions in ``history`` that the last request did not contain verbatim."""
        kept = {entry.start for entry in self._sent_entries if entry.form is Form.VERBATIM}
        return [position for position in range(self._sent_length) if position not in kept]

    def get_turn(self, number: int) -> list[dict[str, Any]]:
        """Return all messages of a turn, for an agent that saw its line in the table of contents.

        The definition of a tool for this is ``ctxlab.context.turns.GET_TURN_TOOL``.

        Parameters
        ----------
        number : int
            Number of the turn, from 1.

        Returns
        -------
        list of dict
            Messages in OpenAI's format; empty if there is no such turn.
        """
        start, stop = turn_span(self._context.history, number)
        return [message.to_dict() for message in self.history[start:stop]]

    def recording(self, id: str) -> Recording:
        """Return the conversation as a recording, which can be replayed.

        Parameters
        ----------
        id : str
            Id of the recording.

        Returns
        -------
        Recording
            The recording.
        """
        return Recording(id, tuple(self.history), self.tools, self.model)

    def __repr__(self) -> str:
        """Show the strategy and the size of the conversation and of the last request."""
        sizes = f"{len(self.history)} messages, {self.tokens:,} of {self.budget.limit:,} tokens"
        return f"<ContextManager {self.strategy!r}: {sizes}>"

    def _to_wire(self, entry: Entry) -> dict[str, Any]:
        original = self._input_messages[entry.start] if entry.form is Form.VERBATIM else None
        if isinstance(original, dict):
            return {k: to_plain_data(v) for k, v in original.items() if not k.startswith("_")}
        wire: dict[str, Any] = to_plain_data(entry.message.to_dict())
        return wire

    def _log_violations(self, number: int) -> None:
        """Log the rules of providers that the request violates."""
        messages = [entry.message for entry in self._sent_entries]
        for name in {violation.rule for violation in find_violations(messages)}:
            rule = RULES[name]
            others = self._known_model.provider in {"openai", "anthropic"} - rule.providers
            whose = " and ".join(sorted(rule.providers))
            what = f"{whose} would reject it ({name}: {rule.meaning})"
            self._log_once(logging.INFO if others else logging.WARNING, name, number, what)

    def _log_once(self, level: int, kind: str, number: int, what: str) -> None:
        """Log the first message of a kind at its level, and the others at level debug."""
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
    """Build the messages to send from a system prompt and a whole conversation, without any memory.

    This is for loops that keep their messages themselves. A strategy with memory, such as a growing
    summary, starts again at each call. A strategy that calls a model may therefore call it every
    time once the conversation is long, which a ``StatelessWarning`` says; use
    ``ContextManager.sync`` instead.

    Parameters
    ----------
    system_prompt : str or None
        The system prompt.
    messages : sequence of messages
        All messages of the conversation.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format.
    strategy : Strategy, str or callable, optional
        The strategy.
    model : str, optional
        Name of the model that the request is for.
    **options : object
        Further parameters of ``ContextManager``.

    Returns
    -------
    list of dict
        Messages in OpenAI's format.

    Examples
    --------
    >>> [m["role"] for m in build_messages("Be brief.", [{"role": "user", "content": "hi"}])]
    ['system', 'user']
    """
    manager = ContextManager(strategy, model, tools=tools, **options)
    if asked := models_used(manager.strategy):
        advice = "use ContextManager.sync(messages), which keeps earlier replies"
        what = f"{' and '.join(asked)} may be called again each time; {advice}"
        warnings.warn(f"build_messages has no memory: {what}", StatelessWarning, stacklevel=2)
    if system_prompt is not None:
        manager.append({"role": "system", "content": system_prompt})
    manager.extend(messages)
    return manager.request()


def _to_message(copy: Message | dict[str, Any]) -> Message:
    return copy if isinstance(copy, Message) else message_from_dict(copy)


def _parse_tokens(name: str, written: object, least: int) -> int:
    """Parse a number of tokens, such as 16000 or "16k"."""
    value, unit = written, ""
    if isinstance(written, str):
        value, unit = parse_quantity(written) or (None, "")
    if isinstance(value, SupportsFloat) and not isinstance(value, bool) and not unit:
        number = float(value)
        if number.is_integer() and number >= least:
            return int(number)
    raise SpecError(f"Expected {name} in tokens, {least} or more, such as '16k', got {written!r}")


def _default_reserve(known: Model, window: int) -> int:
    """Return the default number of tokens kept for the reply."""
    apart = known.limit + known.max_output in _FULL_WINDOWS and known.limit not in _FULL_WINDOWS
    named = re.search("gpt-[5-9]|codex", f"{known.name} {known.listed_as}".lower())
    if apart and named and window <= known.limit:
        return 0  # the reply has a limit of its own
    return min(known.max_output, window // 10)
