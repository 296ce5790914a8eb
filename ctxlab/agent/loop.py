"""The agent asks the model, calls the tools that it wants, and asks again, until it has an answer.

Whatever happens on the way, an interruption included, the conversation stays one that a provider takes:
every call is answered, and what was said is kept.

Source: seed designs "Hybrid session management" (the cap) and "Robustness & Reliability" (10.3, 10.4).
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab._utils.signals import defer_signals
from ctxlab.agent.circuit_breaker import MAX_FAILURES, CircuitBreaker
from ctxlab.agent.context_breakdown import compute_context_breakdown
from ctxlab.agent.events import (
    AgentEvent,
    FinishReason,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnResult,
    collect_result,
)
from ctxlab.agent.manager import ContextManager
from ctxlab.agent.messages import (
    BROKEN_OFF_MARKER,
    CANCELLED_MARKER,
    LIMIT_MARKER,
    message_from_reply,
    partial_answer,
    replace_surrogates,
    result_message,
)
from ctxlab.agent.plan import plan_tool
from ctxlab.agent.tools.result import ToolResult, cancelled_result
from ctxlab.agent.tools.tool import Tool, call_tool, tool_not_found, tools_by_name
from ctxlab.context.turns import GET_TURN_TOOL
from ctxlab.errors import ModelUnavailable, SessionError, SpecError
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Client, Reply, Request, Streamer
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.sessions.base import AgentPlan
from ctxlab.strategies import contents
from ctxlab.strategies.base import walk_strategies

__all__ = [
    "DEFAULT_STRATEGY",
    "MAX_ITERATIONS",
    "Agent",
    "ConversationObserver",
    "SupportsKillAll",
]

DEFAULT_STRATEGY = (
    "file_sessions(follow=False) | tool_result_cap() | tool_stubs() | rolling_summary() | panic()"
)
"""A session for each file that the user opens, results cut at 4000 characters and stubbed once the
turn is over, older messages summarized, and a request that fits."""

MAX_ITERATIONS = 10
"""Calls of the model in one turn at most."""

_LOG = logging.getLogger("ctxlab.agent")


class SupportsKillAll(Protocol):
    """Child processes that tools have started: ``ctxlab.agent.tools.processes.ProcessManager``."""

    def kill_all(self) -> object:
        """Ends all of them, with their children."""
        ...


class ConversationObserver(Protocol):
    """Stores the conversation of an agent as it goes: ``ctxlab.agent.AgentSession``.

    What raises here ends the turn, and what was not taken is no part of the conversation.
    """

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        """Messages that are added to the conversation next; nothing was done yet that relies on them."""
        ...

    def on_plan(self, plan: AgentPlan | None) -> None:
        """The plan that replaces the current one next."""
        ...

    def fetch_turn(self, number: int) -> list[dict[str, Any]]:
        """The messages of a turn in full, for the tool ``get_turn``; turns count from 1."""
        ...


class Agent:
    """A model with tools and a conversation, which a strategy keeps within the context window.

    ``client`` None: the provider is asked through litellm. It also serves a strategy that asks a model.
    ``tools``: functions, or ``Tool``. ``reserve`` None and ``max_tokens`` given: so much is kept free.
    Where the strategy lists ``contents``, the agent has the tool ``get_turn``, unless it is given one.
    ``enable_planning``: it has the tool ``update_plan``, with which it writes down its plan.

    An agent has one turn at a time; another thread may run it, but no two at once. Raises ``SpecError``
    for what is written wrongly. ``ctxlab.agent.AgentSession`` stores the conversation as it goes.
    """

    def __init__(
        self,
        model: str,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        client: Client | None = None,
        strategy: Any = DEFAULT_STRATEGY,
        system: str | None = None,
        limit: int | str | None = None,
        reserve: int | str | None = None,
        max_iterations: int = MAX_ITERATIONS,
        max_tool_failures: int = MAX_FAILURES,
        max_tokens: int | None = None,
        temperature: float | None = None,
        processes: SupportsKillAll | None = None,
        enable_planning: bool = False,
    ) -> None:
        if max_iterations < 1:
            raise SpecError(
                f"max_iterations is {max_iterations}; the model is called at least once"
            )
        self.model = model
        self.system = system
        self.max_iterations = max_iterations
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.processes = processes
        "ended when the user interrupts"
        self.breaker = CircuitBreaker(max_tool_failures)
        self._observer: ConversationObserver | None = None
        self._plan: AgentPlan | None = None
        self._client = client
        all_tools = (
            [*tools, plan_tool(lambda: self.plan, self.set_plan)] if enable_planning else tools
        )
        self.tools = tools_by_name(all_tools)
        "by name"
        kept = max_tokens if reserve is None else reserve
        self.manager = ContextManager(strategy, model, limit=limit, reserve=kept, client=client)
        lists = any(isinstance(each, contents) for each in walk_strategies(self.manager.strategy))
        if lists and "get_turn" not in self.tools:
            about = GET_TURN_TOOL["function"]
            tool = Tool("get_turn", about["description"], about["parameters"], self._get_turn)
            self.tools["get_turn"] = tool
        self.manager.set_fixed(tools=self.tool_definitions)
        self._call_ids: set[str] = set()
        self._open_calls: dict[str, ToolCall] = {}  # calls that have no result yet
        self._unstored: list[Message] = []  # the system prompt, until the first turn
        self._running_turn: weakref.ref[Generator[AgentEvent, None, None]] | None = None
        self._stop_requested = False
        if system:
            self._unstored.append(Message("system", repair_surrogates(system), time=time.time()))
            self._append_message(self._unstored[0])

    def __repr__(self) -> str:
        return f"<Agent {self.model}: {len(self.tools)} tools, {self.manager!r}>"

    @property
    def has_started(self) -> bool:
        """Whether anything was said; a system prompt alone is nothing."""
        return len(self.manager.history) > len(self._unstored)

    @property
    def tool_definitions(self) -> tuple[dict[str, Any], ...]:
        """The tools' definitions in OpenAI's shape."""
        return tuple([tool.definition for tool in self.tools.values()])

    @property
    def observer(self) -> ConversationObserver | None:
        """What was attached; None: the conversation is stored nowhere."""
        return self._observer

    @property
    def plan(self) -> AgentPlan | None:
        """What the agent set out to do, and where it stands."""
        return self._plan

    def attach(self, observer: ConversationObserver, *, plan: AgentPlan | None = None) -> None:
        """From now on ``observer`` is given messages and plans before anything relies on them.

        It also answers ``get_turn``, which otherwise knows the messages that this agent has seen.
        ``plan``: the one that a stored conversation was left with. Raises ``SpecError`` where the
        agent has an observer.
        """
        if self._observer is not None:
            raise SpecError("the agent's conversation is stored already: give a new agent")
        self._observer, self._plan = observer, plan

    def set_plan(self, plan: AgentPlan | None) -> None:
        """Replaces the plan; None: there is none any more."""
        if self._observer is not None:
            self._observer.on_plan(plan)
        self._plan = plan

    def mark_plan(self, *, awaiting_continuation: bool = False, paused: bool = False) -> None:
        """Marks how a turn left the current step of the plan; the observer is not told of it."""
        if (plan := self._plan) is not None and plan.current is not None:
            self._plan = replace(plan, awaiting_continuation=awaiting_continuation, paused=paused)

    def load_history(self, messages: Iterable[Message]) -> None:
        """The conversation so far, as it is resumed; the observer is not told of it.

        System messages at its beginning give way to the agent's own prompt, where it has one. Raises
        ``SpecError`` once something was said.
        """
        if self.has_started:
            raise SpecError("a conversation is begun before its first turn, and once")
        opening = True
        for message in messages:
            opening = opening and message.role == "system"
            if not (opening and self._unstored):
                self._append_message(message)
        self._unstored.clear()

    def run(self, text: str, *, file: str | None = None) -> TurnResult:
        """The whole turn: what came of it once all its events are over. See ``stream``."""
        return collect_result(self.stream(text, file=file))

    def stream(self, text: str, *, file: str | None = None) -> Generator[AgentEvent, None, None]:
        """What happens in a turn, as it happens; begun with the first event that is asked for.

        ``file``: what the user has open. The last event is ``TurnFinished``. Raises
        ``ModelUnavailable`` and ``ModelRequestRejected`` where the model does not answer: the user's
        message stays, and the next turn goes on from there. ``KeyboardInterrupt`` goes on to the
        caller after managed processes were ended, calls without a result were answered as cancelled,
        and text that had come was kept with "[Cancelled]"; closing the iterator early does the same
        and raises nothing. Raises ``SpecError`` for an empty message, for one that is larger than the
        window, and where another turn is under way; one that was left is closed.
        """
        if not text.strip():
            raise SpecError("there is nothing to answer: the message is empty")
        self.cancel()
        user = Message("user", repair_surrogates(text), time=time.time(), file=file)
        self._refuse_too_large(user)
        turn = self._run_turn(user)
        self._running_turn = weakref.ref(turn)
        return turn

    def cancel(self) -> None:
        """Ends a turn that was left in the middle, as closing its iterator does.

        Raises ``SpecError`` where it is being worked on, by a tool or by another thread.
        """
        turn = None if self._running_turn is None else self._running_turn()
        if turn is not None:
            try:
                turn.close()
            except ValueError:
                raise SpecError("the agent is in a turn: let it end first") from None

    def stop(self) -> None:
        """Ends a turn that another thread runs, as Ctrl+C would: at its next step, its processes now."""
        self._stop_requested = True
        if self.processes is not None:
            self.processes.kill_all()

    def context_breakdown(self) -> dict[str, int]:
        """Tokens of the next request by part: system, tools, summary, messages, reserve, free.

        As if the user spoke now, whose words are not counted; they add up to ``limit``, which stands
        last. ``free`` is negative where it does not fit.
        """
        return compute_context_breakdown(self.manager)

    # --- the turn ------------------------------------------------------------------------------

    def _run_turn(self, user: Message) -> Generator[AgentEvent, None, None]:
        said: list[Message] = []
        pieces: list[str] = []
        self.breaker.reset()
        self._stop_requested = False
        try:
            self._cancel_open_calls(said)
            self._store_and_append([*self._unstored, user], said)
            outcome = yield from self._run_steps(said, pieces)
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, GeneratorExit, SystemExit))
            self._clean_up(said, pieces, stopped)
            raise
        yield TurnFinished(outcome)

    def _run_steps(
        self, said: list[Message], pieces: list[str]
    ) -> Generator[AgentEvent, None, TurnResult]:
        usage, usd, text = Usage(), 0.0, ""
        finish: FinishReason = "limit"
        iterations = 0
        while finish == "limit" and iterations < self.max_iterations:
            iterations += 1
            reply = yield from self._request_reply(pieces)
            message, calls = message_from_reply(reply, self._call_ids)
            whole = not "".join(pieces).strip()
            with defer_signals():
                self._store_and_append([message], said)
                pieces.clear()
            usage, usd = _add_usage(usage, reply.usage), usd + reply.usd
            if message.text or not calls:
                text = message.text
            if message.text and whole:
                yield TextDelta(text)
            if not calls:
                finish = "answered"
            for each in calls:
                yield ToolCallStarted(each)
                result = self._call_tool(each)
                self._raise_if_stopped()  # what a stopped tool gave is no result
                self._store_and_append([result_message(each, result)], said)
                yield ToolCallFinished(each, result)
        if finish == "limit":
            mark = LIMIT_MARKER if text else LIMIT_MARKER.lstrip()
            text += mark
            self._store_and_append([Message("assistant", text, time=time.time())], said)
            yield TextDelta(mark)
        return TurnResult(text, finish, iterations, tuple(said), usage, usd)

    def _request_reply(self, pieces: list[str]) -> Generator[AgentEvent, None, Reply]:
        """The model's reply to the conversation so far; ``pieces`` is what has come of its text."""
        if self._client is None:
            self._client = LiteLLMClient()
        request = Request(
            self.model,
            tuple([replace_surrogates(entry.message) for entry in self.manager.request_entries()]),
            self.manager.tools,
            self.max_tokens,
            self.temperature,
        )
        if not isinstance(self._client, Streamer):
            return self._client.complete(request)
        stream = self._client.stream(request)
        close: Any = getattr(stream, "close", None)
        with nullcontext() if close is None else closing(stream):  # type: ignore[type-var]
            for piece in stream:
                self._raise_if_stopped()
                if isinstance(piece, Reply):
                    return piece
                if piece:
                    pieces.append(piece)
                    yield TextDelta(piece)
        raise ModelUnavailable(f"{self.model}: the answer broke off")

    def _refuse_too_large(self, user: Message) -> None:
        """No strategy shortens what the user has just said, and a provider would refuse it."""
        history, budget = self.manager.history, self.manager.budget
        prompts = (each for each in history.entries if each.message.role == "system")
        room = max(0, budget.available - sum(each.tokens for each in prompts))
        if (needed := history.counter.count_message(user)) > room:
            raise SpecError(
                f"the message has {needed:,} tokens, and the context window of {budget.limit:,} has "
                f"room for {room:,}: shorten it, put it into a file that is read part by part, or give "
                "a larger limit"
            )

    def _raise_if_stopped(self) -> None:
        if self._stop_requested:
            raise KeyboardInterrupt

    def _call_tool(self, wanted: ToolCall) -> ToolResult:
        if (refused := self.breaker.blocked_result(wanted.name)) is not None:
            return refused
        tool = self.tools.get(wanted.name)
        result = (
            tool_not_found(wanted.name, self.tools)
            if tool is None
            else call_tool(tool, wanted.arguments)
        )
        self.breaker.record(wanted.name, result)
        return result

    # --- the conversation ----------------------------------------------------------------------

    def _store_and_append(self, messages: list[Message], said: list[Message]) -> None:
        """The observer stores messages, then they are appended: all or none, in spite of Ctrl+C."""
        with defer_signals():
            if self._observer is not None:
                self._observer.on_messages(tuple(messages))
            self._append_messages(messages, said)

    def _append_messages(self, messages: list[Message], said: list[Message]) -> None:
        for message in messages:
            if message in self._unstored:  # it is in its place already
                self._unstored.remove(message)
            else:
                self._append_message(message)
                said.append(message)

    def _append_message(self, message: Message) -> None:
        self.manager.append(message)
        if message.role == "tool":
            self._open_calls.pop(message.tool_call_id or "", None)
        else:
            self._open_calls = {each.id: each for each in message.tool_calls}
            self._call_ids.update(self._open_calls)

    def _cancel_open_calls(self, said: list[Message]) -> None:
        """Calls without a result get one that says so, in their order."""
        for each in list(self._open_calls.values()):
            self._store_and_append([result_message(each, cancelled_result(each.name))], said)

    def _clean_up(self, said: list[Message], pieces: list[str], stopped: bool) -> None:
        """Leaves the conversation whole after the turn was stopped by the user, or failed."""
        if stopped and self.processes is not None:
            try:
                self.processes.kill_all()
            except Exception:
                _LOG.exception("processes that tools started could not be ended")
        with defer_signals():
            try:
                self._cancel_open_calls(said)
                if (
                    message := partial_answer(
                        pieces, CANCELLED_MARKER if stopped else BROKEN_OFF_MARKER
                    )
                ) is not None:
                    self._store_and_append([message], said)
            except SessionError:
                pass  # the session was closed or has gone on elsewhere: what is left is no part of it
            except Exception:
                # What ended the turn goes on to the caller; the next turn answers what is left open.
                _LOG.exception("the end of an interrupted turn could not be stored")
            pieces.clear()

    def _get_turn(self, number: int) -> list[dict[str, Any]]:
        observer = self._observer
        found = self.manager.get_turn(number) if observer is None else observer.fetch_turn(number)
        if not found:
            raise LookupError(f"there is no turn {number}")
        return found


def _add_usage(one: Usage, other: Usage) -> Usage:
    names = Usage.__struct_fields__
    return Usage(*[getattr(one, name) + getattr(other, name) for name in names])
