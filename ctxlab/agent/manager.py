"""Context manager for agent loops: append messages and get the messages to send.

The manager edits a live conversation with the same strategies that the evaluation applies to
recordings.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, SupportsFloat

from ctxlab._utils.humanize import parse_quantity
from ctxlab.context.context import Budget, Context
from ctxlab.context.history import Entry, Form, History
from ctxlab.context.preview import preview_question
from ctxlab.context.stored_results import read_page
from ctxlab.context.turns import TurnLabel, turn_span
from ctxlab.errors import SpecError, StrategyError
from ctxlab.llm import FaultTolerantClient, LiteLLMClient
from ctxlab.llm.base import Client, ModelCall
from ctxlab.llm.reasoning import counted_reasoning
from ctxlab.messages.inputs import MessageInput, copy_message, is_same_message, to_plain_data
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.request_times import request_time
from ctxlab.messages.types import Message, Recording
from ctxlab.messages.validation import RULES, find_violations
from ctxlab.strategies import Strategy, as_strategy, models_used, parse_strategy
from ctxlab.strategies.base import walk_strategies
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.tokens.counter import DEFAULT_MODEL, TokenCounter
from ctxlab.tokens.models import Model, find_model, find_model_without_warning
from ctxlab.tokens.profiles import TokenProfile

SAFE_STRATEGY = "rolling_summary() | panic()"
"""Default strategy, which calls no model and makes nearly every request fit.

A request can still be too large if the system prompt, the first user message, the summary and the
newest four messages together exceed the budget after their tool results were shortened."""

CONTEXT_PARTS = ("system", "tools", "summary", "messages", "reserve", "free")
"""Parts of the context window, in display order; their token counts add up to the limit."""

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
    """Warning that each call of ``build_messages`` may call the strategy's model again."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ContextManager:
    r"""Keeps the requests of one live conversation within the token budget.

    Messages are passed in OpenAI's chat format, as dicts or as objects of the openai or litellm
    package, or as ``Message``. They are copied, so later changes to the originals have no effect.

    Use one manager per conversation, and call it from one thread at a time. If the strategy calls a
    model, ``request`` waits for the reply. If the provider rejects the call, for instance because
    of a wrong API key, an error is logged and the strategy continues without the model.

    Parameters
    ----------
    strategy : Strategy, str or callable, optional
        Strategy that edits the context before each request.
    model : str, optional
        Name of the model that receives the requests.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format. Their tokens count toward the budget.
    limit : int or str, optional
        Size of the context window in tokens, such as 16000 or ``"16k"``. None uses the context
        window of the model.
    reserve : int or str, optional
        Number of tokens kept free for the reply, usually the ``max_tokens`` of the requests. None
        uses the model's maximum number of reply tokens or a tenth of the limit, whichever is
        smaller. For models with separate limits for input and output, such as gpt-5 (272,000 and
        128,000 tokens), None uses 0.
    client : Client, optional
        Client that sends the model calls of the strategy. None calls the provider through litellm
        and stores nothing on disk, because replies may contain users' messages. To store the
        replies, pass a ``ctxlab.llm.CachedClient``.
    profile : TokenProfile, optional
        Calibration of the token counts. None uses the built-in calibration.
    clock : callable, optional
        Function that returns the time of a request with a time zone, or None if it is unknown, for
        strategies that depend on time. By default, the clock of the computer.

    Raises
    ------
    SpecError
        If ``strategy``, ``limit`` or ``reserve`` is invalid, or if the strategy works only on
        recordings.

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
        clock: Callable[[], datetime | None] = _utc_now,
    ) -> None:
        # The warning is about the assumed window, so it is not for those who gave a limit.
        known = find_model(model) if limit is None else find_model_without_warning(model)
        window = known.limit if limit is None else _parse_tokens("limit", limit, 1)
        kept = _default_reserve(known, window)
        if reserve is not None:
            kept = _parse_tokens("reserve", reserve, 0)
        if kept >= window:
            raise SpecError(
                f"Expected a reserve below the limit of {window:,} tokens, got {kept:,}; "
                "pass a smaller reserve or a larger limit"
            )
        given = parse_strategy(strategy) if isinstance(strategy, str) else strategy
        self.strategy = as_strategy(given)
        for each in walk_strategies(self.strategy):
            if not each.supports_live:
                name = type(each).__name__
                raise SpecError(f"{name} works only on recordings; choose another strategy")
        self.model = model
        self.tokens = 0
        "number of tokens of the last request, with tool definitions; 0 before the first request"
        self._known_model = known
        source = f"{known.source}, {known.listed_as}" if known.listed_as else known.source
        stated = source if limit is None else "given"
        _LOG.info("context limit of %s: %s tokens (%s)", model, f"{window:,}", stated)
        self._clock = clock
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
        # Count the reasoning that the client sends back with later requests.
        rule = counted_reasoning(self.model)
        history = History(self._counter, model=self._known_model, reasoning=rule)
        history.client = self._client
        self._context = Context(self.budget, history)
        self._input_messages: list[Message | dict[str, Any]] = []

    def set_fixed(
        self, *, tools: Sequence[Mapping[str, Any]] = (), system: Iterable[MessageInput] = ()
    ) -> None:
        """Set the tool definitions and system messages that are sent with every later request.

        Use this method if a framework sends tool definitions and system messages separately from
        the conversation. Their tokens count toward the budget, but the messages are not added to
        ``history`` and not returned by ``request``.

        Parameters
        ----------
        tools : sequence of mapping, optional
            Tool definitions in OpenAI's format, which replace all current tool definitions.
        system : iterable of messages, optional
            System messages, which replace those of an earlier call of this method.
        """
        self.tools: tuple[dict[str, Any], ...] = tuple([to_plain_data(tool) for tool in tools])
        count = self._counter
        prompts = [_to_message(copy_message(message)) for message in system]
        fixed = count.count_tools(self.tools) + sum(map(count.count_message, prompts))
        self.budget = replace(self.budget, fixed=fixed + count.REPLY_TOKENS)
        self._context.set_budget(self.budget)

    def append(self, message: MessageInput) -> None:
        """Append the next message of the conversation, such as ``response.choices[0].message``.

        The tokens of a message are counted only once, when it is appended.

        Parameters
        ----------
        message : Message, dict or object
            Message in OpenAI's format.

        Raises
        ------
        ValueError
            If ``message`` is not a message in OpenAI's format.
        """
        copy = copy_message(message)
        self._context.append(_to_message(copy))
        self._input_messages.append(copy)

    def extend(self, messages: Iterable[MessageInput]) -> None:
        """Append several messages to the conversation.

        Parameters
        ----------
        messages : iterable of messages
            Messages in the order of the conversation.
        """
        for message in messages:
            self.append(message)

    def sync(self, messages: Sequence[MessageInput]) -> None:
        """Append the new messages of a conversation that a framework stores.

        The argument is the whole conversation. Messages that were appended before are skipped. If
        earlier messages were changed or removed, the history and the state of the strategy are
        discarded, and all messages are appended again. ``model_calls`` and ``events`` are kept, and
        the numbering of requests continues.

        Parameters
        ----------
        messages : sequence of messages
            All messages of the conversation, in order.
        """
        known = len(self._input_messages)
        if known > len(messages) or not all(map(is_same_message, messages, self._input_messages)):
            before, known = self._context, 0
            self._reset_context()
            self._context.request_index = before.request_index
            self._context.last_request_time = before.last_request_time
            self._context.events, self._context.model_calls = before.events, before.model_calls
        self.extend(messages[known:])

    def request(self) -> list[dict[str, Any]]:
        """Apply the strategy and return the messages to send to the model.

        Call this method once for each request, because each call counts as one request. Messages
        that the strategy did not change are returned as they were appended, but without keys that
        start with ``_``.

        A warning is logged if the strategy reports a problem, such as a panic truncation or a
        failed summary, if the request exceeds the budget, or if the provider would reject it (see
        ``ctxlab.messages.validation``). After the first warning of a kind, further ones of this
        kind are logged at level DEBUG. ``events`` contains all reports of the strategy.

        Returns
        -------
        list of dict
            Messages to send, in OpenAI's format.
        """
        return [self._to_wire(entry) for entry in self.request_entries()]

    def request_entries(self) -> list[Entry]:
        """Apply the strategy and return an entry for each message to send; see ``request``.

        Returns
        -------
        list of Entry
            Entries in the order of the request. Each contains a message to send and the positions
            in ``history`` of the messages that it represents.
        """
        context = self._context
        number = context.request_index
        if not number:  # a resumed conversation: the times of its messages tell when it was left
            context.last_request_time = self._recorded_request_time()
        context.set_time(self._clock())
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
        """Return the messages that would be sent if the user asked a question next.

        The conversation does not change, because the strategy edits a copy of the context. If the
        strategy uses a model or its state cannot be copied, no strategy is applied. The result then
        consists of the last request, all later messages and the question. In this case, the request
        that is sent later may be shorter than the result.

        Parameters
        ----------
        question : Message
            Next message of the user.

        Returns
        -------
        list of Entry
            Messages of the previewed request, in order.
        """
        context = self._context
        if not models_used(self.strategy):
            with suppress(StrategyError):
                preview = preview_question(context, question)
                preview.set_time(self._clock())
                return list(self.strategy(preview).entries)
        asked = context.history.with_question(context.history_length, question).entries[-1]
        later = context.history.entries[self._sent_length : context.history_length]
        return [*self._sent_entries, *later, asked]

    def compact(self) -> tuple[int, int]:
        """Let the strategy shorten the conversation now, as if the context window were just full.

        No request is sent, and ``history`` keeps all messages. A strategy that shortens nothing in such
        a window changes nothing.

        Returns
        -------
        tuple of (int, int)
            Numbers of tokens of the messages of the next request, before and after.

        Examples
        --------
        >>> manager = ContextManager("rolling_summary() | panic()", "gpt-4o")
        >>> for number in range(40):
        ...     manager.append(Message("user", f"question {number}"))
        ...     manager.append(Message("assistant", f"answer {number}"))
        >>> before, after = manager.compact()
        >>> after < before < 1000, len(manager.history)
        (True, 80)
        """
        before = self._next_tokens()
        full = before + self.budget.fixed + self.budget.reserve
        self._context.set_budget(replace(self.budget, limit=min(self.budget.limit, full)))
        try:
            self.strategy(self._context)
        finally:
            self._context.set_budget(self.budget)
        return before, self._next_tokens()

    def _next_tokens(self) -> int:
        """Return the tokens of the messages that would be sent, without those of the next question."""
        *entries, _ = self.preview(Message("user", "?"))
        return sum(entry.tokens for entry in entries)

    def context_breakdown(self) -> dict[str, int]:
        """Return the number of tokens of each part of the next request.

        The next message is assumed to be a user message, whose own tokens are not counted.

        Returns
        -------
        dict of str to int
            Numbers of tokens with the following keys. ``system``: system prompts and the tokens
            that start the reply. ``tools``: tool definitions. ``summary``: summaries, tables of
            contents and similar messages of the strategy. ``messages``: all other messages.
            ``reserve``: tokens kept free for the reply. ``free``: unused tokens; negative if the
            request does not fit. ``limit``: the context window, which is the sum of all parts.

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
            is_pointer = entry.form is Form.POINTER and message.role != "tool"
            stands_for_older = entry.form is Form.SUMMARY or is_pointer
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
        """All messages of the conversation, including messages that the strategy no longer sends."""
        return self._context.history

    @property
    def events(self) -> list[tuple[int, str]]:
        """Events reported by the strategy, as ``(request index, event)``; indexes start at 0."""
        return self._context.events

    @property
    def model_calls(self) -> list[ModelCall]:
        """Model calls that the strategy has made."""
        return self._context.model_calls

    @property
    def changed_positions(self) -> list[int]:
        """Positions in ``history`` of messages that were changed or left out in the last request."""
        kept = {entry.start for entry in self._sent_entries if entry.is_verbatim}
        return [position for position in range(self._sent_length) if position not in kept]

    def get_turn(self, turn: int | str) -> list[dict[str, Any]]:
        """Return all messages of a turn or of a step.

        A turn is a user message with everything that answers it. A strategy may replace older
        messages by a table of contents. The agent can then fetch them with a tool that calls this
        method. ``ctxlab.context.turns.GET_TURN_TOOL`` is the definition of this tool.

        Parameters
        ----------
        turn : int or str
            Number of a turn, such as ``3``, or label of a step, such as ``"3.2"``.

        Returns
        -------
        list of dict
            Messages of the turn or step, in OpenAI's format; empty if it does not exist.

        Raises
        ------
        SpecError
            If ``turn`` is neither a turn nor a step.

        Examples
        --------
        >>> manager = ContextManager("contents()", "gpt-4o")
        >>> manager.extend([Message(role, role) for role in ("user", "assistant", "assistant")])
        >>> [len(manager.get_turn(each)) for each in (1, "1.2", "9")]
        [3, 1, 0]
        """
        start, stop = turn_span(self._context.history, TurnLabel.parse(turn))
        return [message.to_dict() for message in self.history[start:stop]]

    def find_result(self, number: int) -> str | None:
        """Return the whole text of a tool result by its number; ``read_result`` returns a page of it.

        Parameters
        ----------
        number : int
            Number of the message in the conversation, from 1, as the strategy ``offload`` shows it.

        Returns
        -------
        str or None
            Text of the result; None if there is no tool result with this number.
        """
        position = number - 1 - self.history.message_offset
        if not 0 <= position < len(self.history) or self.history[position].role != "tool":
            return None
        return self.history[position].text

    def read_result(self, number: int, start: int = 1, search: str | None = None) -> str:
        r"""Return a page of a tool result, or the lines of it that contain a text.

        The strategy ``offload`` replaces long tool results by a preview. The agent can then read a
        result with a tool that calls this method.
        ``ctxlab.context.stored_results.READ_RESULT_TOOL`` is the definition of this tool.

        Parameters
        ----------
        number : int
            Number of the result, as the preview shows it.
        start : int, default 1
            Number of the first line to read.
        search : str, optional
            Text to search for; upper and lower case do not matter. None reads all lines.

        Returns
        -------
        str
            A line that says which lines follow and how to continue, and the lines; empty if there is
            no result with this number.

        Examples
        --------
        >>> manager = ContextManager("offload()", "gpt-4o")
        >>> manager.append({"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"})
        >>> manager.read_result(1, start=2)
        '[Result 1, lines 2-2 of 2]\ntwo'
        """
        text = self.find_result(number)
        return "" if text is None else read_page(number, text, start, search)

    def recording(self, id: str) -> Recording:
        """Return the conversation as a recording that can be replayed.

        Parameters
        ----------
        id : str
            Id of the new recording.

        Returns
        -------
        Recording
            Recording with all messages, the tool definitions and the name of the model.
        """
        return Recording(id, tuple(self.history), self.tools, self.model)

    def __repr__(self) -> str:
        """Show the strategy, the number of messages and the number of tokens of the last request."""
        sizes = f"{len(self.history)} messages, {self.tokens:,} of {self.budget.limit:,} tokens"
        return f"<ContextManager {self.strategy!r}: {sizes}>"

    def _recorded_request_time(self) -> datetime | None:
        """Return the time of the request that the last reply in the history answers."""
        history = self.history
        replies = (i for i in reversed(range(len(history))) if history[i].role == "assistant")
        last = next(replies, None)
        return None if last is None else request_time(history, last)

    def _to_wire(self, entry: Entry) -> dict[str, Any]:
        original = self._input_messages[entry.start] if entry.is_verbatim else None
        if isinstance(original, dict):
            return {k: to_plain_data(v) for k, v in original.items() if not k.startswith("_")}
        wire: dict[str, Any] = to_plain_data(entry.message.to_dict())
        return wire

    def _log_violations(self, number: int) -> None:
        """Log each provider rule that the last request violates."""
        messages = [entry.message for entry in self._sent_entries]
        for name in {violation.rule for violation in find_violations(messages)}:
            rule = RULES[name]
            others = self._known_model.provider in {"openai", "anthropic"} - rule.providers
            whose = " and ".join(sorted(rule.providers))
            what = f"{whose} would reject it ({name}: {rule.meaning})"
            self._log_once(logging.INFO if others else logging.WARNING, name, number, what)

    def _log_once(self, level: int, kind: str, number: int, what: str) -> None:
        """Log the first message of each kind at the given level, and later ones at level DEBUG."""
        again = (level, kind) in self._logged_kinds
        self._logged_kinds.add((level, kind))
        _LOG.log(logging.DEBUG if again else level, "request %d: %s", number, what)


def build_messages(
    system_prompt: str | None,
    messages: Sequence[MessageInput],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    strategy: Strategy | str | Callable[..., Any] = SAFE_STRATEGY,
    model: str = DEFAULT_MODEL,
    **options: Any,
) -> list[dict[str, Any]]:
    """Build the messages of one request from a system prompt and a whole conversation.

    Use this function in loops that store the conversation themselves. No state is kept between
    calls, so a strategy with state, such as ``rolling_summary``, starts anew in each call. A
    strategy that uses a model may therefore call the model in every call of this function. For such
    a strategy, a ``StatelessWarning`` is issued; use ``ContextManager.sync`` instead.

    Parameters
    ----------
    system_prompt : str or None
        System prompt; None adds no system prompt.
    messages : sequence of messages
        All messages of the conversation, in order.
    tools : sequence of mapping, optional
        Tool definitions in OpenAI's format. Their tokens count toward the budget.
    strategy : Strategy, str or callable, optional
        Strategy that edits the context.
    model : str, optional
        Name of the model that receives the request.
    **options : object
        Further keyword arguments of ``ContextManager``.

    Returns
    -------
    list of dict
        Messages to send, in OpenAI's format.

    Examples
    --------
    >>> [m["role"] for m in build_messages("Be brief.", [{"role": "user", "content": "hi"}])]
    ['system', 'user']
    """
    manager = ContextManager(strategy, model, tools=tools or (), **options)
    if asked := models_used(manager.strategy):
        advice = "use ContextManager.sync(messages), which keeps the model's earlier replies"
        what = f"{' and '.join(asked)} may be called again for every request; {advice}"
        warnings.warn(f"build_messages keeps no state: {what}", StatelessWarning, stacklevel=2)
    if system_prompt is not None:
        manager.append({"role": "system", "content": system_prompt})
    manager.extend(messages)
    return manager.request()


def _to_message(copy: Message | dict[str, Any]) -> Message:
    return copy if isinstance(copy, Message) else message_from_dict(copy)


def _parse_tokens(name: str, written: object, least: int) -> int:
    """Convert a number of tokens, such as 16000 or "16k", to an int.

    Raise ``SpecError`` if ``written`` is not a whole number of at least ``least``. ``name`` is the
    name of the option in the error message.
    """
    value, unit = written, ""
    if isinstance(written, str):
        value, unit = parse_quantity(written) or (None, "")
    if isinstance(value, SupportsFloat) and not isinstance(value, bool) and not unit:
        number = float(value)
        if number.is_integer() and number >= least:
            return int(number)
    raise SpecError(
        f"Expected {name} of {least} or more tokens, such as 16000 or '16k', got {written!r}"
    )


def _default_reserve(known: Model, window: int) -> int:
    """Return the number of tokens that are kept free for the reply by default."""
    apart = known.limit + known.max_output in _FULL_WINDOWS and known.limit not in _FULL_WINDOWS
    named = re.search("gpt-[5-9]|codex", f"{known.name} {known.listed_as}".lower())
    if apart and named and window <= known.limit:
        return 0  # the model has a separate limit for the reply
    return min(known.max_output, window // 10)
