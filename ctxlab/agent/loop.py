"""Agent loop: call the model and run the tool calls of its reply, until a reply has no tool calls.

The conversation stays valid for model providers even if a turn fails or is interrupted. Each tool
call gets a result, and text that the model has already sent is kept.
"""

from __future__ import annotations

import logging
import operator
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab._utils.signals import defer_signals
from ctxlab.agent.approval import Approver, changed_meanwhile, refused_result
from ctxlab.agent.circuit_breaker import MAX_FAILURES, CircuitBreaker
from ctxlab.agent.events import (
    AgentEvent,
    ApprovalDecided,
    ApprovalRequired,
    FinishReason,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnResult,
    collect_result,
)
from ctxlab.agent.manager import ContextManager
from ctxlab.agent.memory import SessionMemory, memory_tools
from ctxlab.agent.messages import (
    LIMIT_MARKER,
    message_from_reply,
    partial_answer,
    result_message,
    user_message,
)
from ctxlab.agent.plan import plan_tool
from ctxlab.agent.tools.result import ToolResult, cancelled_result
from ctxlab.agent.tools.tool import Tool, call_tool, tool_not_found, tools_by_name
from ctxlab.context.stored_results import READ_RESULT_TOOL, read_page
from ctxlab.context.turns import GET_TURN_TOOL
from ctxlab.errors import ModelUnavailable, SessionError, SpecError
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import Client, Reply, Request, Streamer
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.sessions.base import AgentPlan
from ctxlab.strategies import contents, models_used, offload
from ctxlab.strategies.base import walk_strategies

DEFAULT_STRATEGY = (
    "file_sessions(follow=False) | tool_result_cap(tail=0.5) | tool_stubs() "
    "| pinned(rolling_summary() | panic(), users=False, systems=False, newest=True)"
)
"""Default strategy of an agent.

It keeps a separate conversation for each file that the user opens. It cuts the middle out of tool
results of more than 4,000 characters and replaces results with stubs after the turn. It summarizes
older messages. If a request is still too large, messages are shortened or dropped until it fits. The
message that the agent is answering and the first one stay as they are, so that a request can exceed a
window of a few thousand tokens."""

MAX_ITERATIONS = 10
"""Maximum number of model calls in one turn."""

_LOG = logging.getLogger("ctxlab.agent")


class SupportsKillAll(Protocol):
    """Object that can end the child processes of tools, such as ``ctxlab.agent.ProcessManager``."""

    def kill_all(self) -> object:
        """End all child processes and their descendants."""


class ConversationObserver(Protocol):
    """Object that receives each message and plan of an agent, such as ``ctxlab.agent.AgentSession``.

    If ``on_messages`` raises an exception, the turn ends, and the messages are not added to the
    conversation. If ``on_plan`` raises an exception, the agent keeps its current plan, and the call
    of the tool ``update_plan`` fails.
    """

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        """Receive new messages before they are added to the conversation.

        Parameters
        ----------
        messages : tuple of Message
            New messages, in the order of the conversation.
        """

    def on_text(self, text: str) -> None:
        """Receive a piece of an answer, before the answer is complete.

        Parameters
        ----------
        text : str
            Text that the model has sent.
        """

    def on_plan(self, plan: AgentPlan | None) -> None:
        """Receive a new plan before it replaces the agent's current plan.

        Parameters
        ----------
        plan : AgentPlan or None
            New plan; None if the agent drops its plan.
        """

    def fetch_turn(self, turn: int | str) -> list[dict[str, Any]]:
        """Return all messages of a turn or of a step; the tool ``get_turn`` calls this method.

        Parameters
        ----------
        turn : int or str
            Number of a turn, such as ``3``, or label of a step, such as ``"3.2"``.

        Returns
        -------
        list of dict
            Messages of the turn or step, in OpenAI's format; empty if it does not exist.
        """

    def fetch_result(self, number: int) -> str | None:
        """Return the whole text of a tool result; the tool ``read_result`` calls this method.

        Parameters
        ----------
        number : int
            Number of the message in the conversation, from 1.

        Returns
        -------
        str or None
            Text of the result; None if there is no tool result with this number.
        """


class Agent:
    """Agent that answers a user's messages by calling a model and tools.

    A context strategy keeps each request within the model's context window. An agent runs one turn
    at a time; a turn can run in any thread. If the pipeline in ``strategy`` includes the strategy
    ``contents`` or ``offload``, the agent also gets the tool ``get_turn`` or ``read_result``, unless
    ``tools`` contains a tool with that name. Use ``ctxlab.agent.AgentSession`` to store the
    conversation.

    Parameters
    ----------
    model : str
        Name of the model, such as ``"gpt-4o"``.
    tools : iterable of Tool or callable, optional
        Tools that the model may call. Functions are converted by ``tool_from_function``.
    client : Client, optional
        Client that sends requests to the model, both for the agent and for the strategy. By
        default, a ``LiteLLMClient``.
    strategy : Strategy, str or callable, optional
        Context strategy that decides which messages each request contains.
    system : str, optional
        System prompt.
    limit : int or str, optional
        Size of the model's context window in tokens; see ``ContextManager``.
    reserve : int or str, optional
        Number of tokens kept free for the reply. None uses ``max_tokens`` if it is given, and
        otherwise the default of ``ContextManager``.
    max_iterations : int, optional
        Maximum number of model calls in one turn.
    max_tool_failures : int, optional
        Number of consecutive failures after which a tool is blocked for the rest of the turn. With
        0, no tool is blocked.
    max_tokens : int, optional
        Maximum number of tokens of each reply.
    temperature : float, optional
        Sampling temperature; None uses the provider's default.
    processes : SupportsKillAll, optional
        Object that ends the child processes of the tools when a turn is interrupted.
    enable_planning : bool, optional
        If True, the agent gets the tool ``update_plan`` to write down its plan.
    approver : Approver, optional
        Object that asks the user before a tool changes something. None allows all calls.
    enable_memory : bool, optional
        If True, the agent gets the tools ``session_contents``, ``search_sessions`` and ``get_turn``,
        which read this and earlier sessions of the store of its ``AgentSession``.

    Raises
    ------
    SpecError
        If a parameter is invalid.
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
        approver: Approver | None = None,
        enable_memory: bool = False,
    ) -> None:
        if max_iterations < 1:
            raise SpecError(f"Expected max_iterations of 1 or more, got {max_iterations}")
        self.model = model
        self.system = system
        self.max_iterations = max_iterations
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.processes = processes
        self.breaker = CircuitBreaker(max_tool_failures)
        self.approver = approver
        "object that asks the user before a tool changes something; None allows all calls"
        self.observer: ConversationObserver | None = None
        "observer that receives new messages and plans; None if none is attached"
        self._plan: AgentPlan | None = None
        self._client = client
        self.tools = tools_by_name(tools)
        "tools that the model may call, by name"
        if enable_planning:
            planning = plan_tool(lambda: self.plan, self.set_plan)
            self.tools = tools_by_name([*self.tools.values(), planning])
        self.memory: SessionMemory | None = None
        "sessions that the memory tools read; None if none is attached"
        if enable_memory:
            self.tools = tools_by_name([*self.tools.values(), *memory_tools(lambda: self.memory)])
        kept = max_tokens if reserve is None else reserve
        self.manager = ContextManager(strategy, model, limit=limit, reserve=kept, client=client)
        for kind, definition, function in (
            (contents, GET_TURN_TOOL, self._get_turn),
            (offload, READ_RESULT_TOOL, self._read_result),
        ):
            if any(isinstance(each, kind) for each in walk_strategies(self.manager.strategy)):
                about = definition["function"]
                tool = Tool(
                    about["name"],
                    about["description"],
                    about["parameters"],
                    function,
                    read_only=True,
                )
                self.tools.setdefault(tool.name, tool)
        self.manager.set_fixed(tools=self.tool_definitions)
        self._call_ids: set[str] = set()
        self._open_calls: dict[str, ToolCall] = {}  # tool calls without a result, by id
        self._unstored: list[Message] = []  # the system prompt, until the first turn stores it
        self._said: list[Message] = []  # messages that the current turn added
        self._pieces: list[str] = []  # text of an incomplete reply, received so far
        self._running_turn: weakref.ref[Generator[AgentEvent, None, None]] | None = None
        self._stop_requested = False
        self._running: Tool | None = None
        if system:
            self._unstored.append(Message("system", repair_surrogates(system), time=time.time()))
            self._append_message(self._unstored[0])

    def __repr__(self) -> str:
        """Show the model, the number of tools and the context manager."""
        return f"<Agent {self.model}: {len(self.tools)} tools, {self.manager!r}>"

    @property
    def has_started(self) -> bool:
        """True if the conversation contains more than the agent's system prompt."""
        return len(self.manager.history) > len(self._unstored)

    @property
    def has_unstored_prompt(self) -> bool:
        """True if the observer gets the system prompt together with the first turn."""
        return bool(self._unstored)

    @property
    def tool_definitions(self) -> tuple[dict[str, Any], ...]:
        """Tool definitions in OpenAI's format, as sent to the model."""
        return tuple([tool.definition for tool in self.tools.values()])

    @property
    def plan(self) -> AgentPlan | None:
        """Current plan of the agent; None if it has no plan."""
        return self._plan

    def attach(self, observer: ConversationObserver, *, plan: AgentPlan | None = None) -> None:
        """Attach an observer that receives new messages and plans before the agent uses them.

        The tools ``get_turn`` and ``read_result`` then read from the observer. Without an observer,
        they read from the messages in the agent's memory.

        Parameters
        ----------
        observer : ConversationObserver
            Observer to attach.
        plan : AgentPlan, optional
            Plan with which the agent continues.

        Raises
        ------
        SpecError
            If the agent already has an observer.
        """
        if self.observer is not None:
            raise SpecError("the agent already has an observer; use a new agent")
        self.observer, self._plan = observer, plan

    def set_plan(self, plan: AgentPlan | None) -> None:
        """Replace the agent's plan and pass the new plan to the observer.

        Parameters
        ----------
        plan : AgentPlan or None
            New plan; None drops the current plan.
        """
        if self.observer is not None:
            self.observer.on_plan(plan)
        self._plan = plan

    def mark_plan(self, *, awaiting_continuation: bool = False, paused: bool = False) -> None:
        """Mark the plan as waiting for the user to continue, or as paused, after a turn.

        A plan without a current step is neither. Nothing happens if the agent has no plan. The changed
        plan is not passed to the observer.

        Parameters
        ----------
        awaiting_continuation : bool, optional
            True if the turn reached the maximum number of model calls.
        paused : bool, optional
            True if the turn was interrupted or failed.
        """
        if (plan := self._plan) is not None:
            goes_on = plan.current is not None
            self._plan = replace(
                plan,
                awaiting_continuation=goes_on and awaiting_continuation,
                paused=goes_on and paused,
            )

    def load_history(self, messages: Iterable[Message]) -> None:
        """Load an earlier conversation, which the next turn continues.

        If the agent has a system prompt, the system messages at the start of ``messages`` are
        skipped. The messages are not passed to the observer.

        Parameters
        ----------
        messages : iterable of Message
            Messages of the earlier conversation, in order.

        Raises
        ------
        SpecError
            If the agent already has messages.
        """
        if self.has_started:
            raise SpecError("the agent already has a conversation; use a new agent")
        opening = True
        for message in messages:
            opening = opening and message.role == "system"
            if not (opening and self._unstored):
                self._append_message(message)
        self._unstored.clear()

    def run(self, text: str, *, file: str | None = None, images: Sequence[str] = ()) -> TurnResult:
        """Run a turn and return its result; see ``stream``.

        Parameters
        ----------
        text : str
            Text of the user's message.
        file : str, optional
            Path of the file that the user has open. It is stored with the message, for
            strategies such as ``file_sessions``.
        images : sequence of str, optional
            URLs of images that the message contains; see ``ctxlab.agent.images``.

        Returns
        -------
        TurnResult
            Result of the turn.
        """
        return collect_result(self.stream(text, file=file, images=images))

    def stream(
        self, text: str, *, file: str | None = None, images: Sequence[str] = ()
    ) -> Generator[AgentEvent, None, None]:
        """Run a turn and yield its events; the turn starts when the first event is requested.

        If the model does not reply, the iterator raises ``ModelUnavailable`` or
        ``ModelRequestRejected``. The user's message stays in the conversation, and the next turn
        continues after it.

        On ``KeyboardInterrupt``, the child processes of tools are ended. Each tool call without a
        result gets a result that reports the cancellation. Text that the model has already sent is
        stored, followed by "[Cancelled]". Then the exception is raised again. Closing the iterator
        early has the same effects, without an exception. If the caller stopped reading the
        iterator of the previous turn before its end, that iterator is closed first.

        Parameters
        ----------
        text : str
            Text of the user's message.
        file : str, optional
            Path of the file that the user has open. It is stored with the message, for
            strategies such as ``file_sessions``.
        images : sequence of str, optional
            URLs of images that the message contains; see ``ctxlab.agent.images``.

        Returns
        -------
        generator of AgentEvent
            Events of the turn; the last one is ``TurnFinished``.

        Raises
        ------
        SpecError
            If the message is empty or larger than the context window, or if another turn is
            running.
        """
        if not text.strip():
            raise SpecError(f"Expected a non-empty message, got {text!r}")
        self.cancel()
        user = user_message(repair_surrogates(text), images, file)
        self._refuse_too_large(user)
        turn = self._run_turn(user)
        self._running_turn = weakref.ref(turn)
        return turn

    def cancel(self) -> None:
        """Cancel an unfinished turn by closing the iterator that ``stream`` returned.

        Raises
        ------
        SpecError
            If the turn is running at this moment, in another thread or in a tool that calls this
            method.
        """
        turn = None if self._running_turn is None else self._running_turn()
        if turn is not None:
            try:
                turn.close()
            except ValueError:
                raise SpecError("the agent is running a turn; wait until it ends") from None

    def stop(self) -> None:
        """Stop a turn that runs in another thread, with the same effects as Ctrl+C.

        The child processes of tools and calls of MCP servers are ended at once. The turn itself ends
        when the next piece of text arrives or the current tool call returns; its iterator then raises
        ``KeyboardInterrupt``.
        """
        self._stop_requested = True
        running = self._running
        if running is not None and running.cancel is not None:
            running.cancel()
        if self.processes is not None:
            self.processes.kill_all()

    def context_breakdown(self) -> dict[str, int]:
        """Return the number of tokens of each part of the next request.

        ``ContextManager.context_breakdown`` describes the parts.

        Returns
        -------
        dict of str to int
            Numbers of tokens with the keys ``system``, ``tools``, ``summary``, ``messages``,
            ``reserve`` and ``free``, and their sum with the key ``limit``. ``free`` is negative if
            the request does not fit.
        """
        return self.manager.context_breakdown()

    def _run_turn(self, user: Message) -> Generator[AgentEvent, None, None]:
        self._said, self._pieces, self._stop_requested = [], [], False
        self.breaker.reset()
        try:
            self._cancel_open_calls()
            self._store_and_append(*self._unstored, user)
            outcome = yield from self._run_steps()
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, GeneratorExit, SystemExit))
            if stopped:
                _LOG.info("interrupted by the user")
            self._clean_up(stopped)
            raise
        yield TurnFinished(outcome)

    def _run_steps(self) -> Generator[AgentEvent, None, TurnResult]:
        usage, usd, text = Usage(), 0.0, ""
        finish: FinishReason = "limit"
        iterations = 0
        while finish == "limit" and iterations < self.max_iterations:
            iterations += 1
            reply = yield from self._request_reply()
            message, calls = message_from_reply(reply, self._call_ids)
            shown = "".join(self._pieces).strip()
            with defer_signals():
                self._store_and_append(message)
                self._pieces.clear()
            counts = map(msgspec.structs.astuple, (usage, reply.usage))
            usage, usd = Usage(*map(operator.add, *counts)), usd + reply.usd
            if message.text or not calls:
                text = message.text
            if message.text and not shown:
                yield TextDelta(text)
            if not calls:
                finish = "answered"
            for call in calls:
                yield ToolCallStarted(call)
                result = yield from self._approve_and_call(call)
                self._raise_if_stopped()  # the output of a stopped tool is discarded
                self._store_and_append(result_message(call, result))
                yield ToolCallFinished(call, result)
        if finish == "limit":
            mark = LIMIT_MARKER if text else LIMIT_MARKER.lstrip()
            text += mark
            # The conversation contains the text before the mark already.
            self._store_and_append(Message("assistant", mark.lstrip(), time=time.time()))
            yield TextDelta(mark)
        return TurnResult(text, finish, iterations, tuple(self._said), usage, usd)

    def _request_reply(self) -> Generator[AgentEvent, None, Reply]:
        """Request a reply from the model, yield its text as events, and return the reply."""
        if self._client is None:
            self._client = LiteLLMClient(patience=0)
        messages = [_replace_surrogates(entry.message) for entry in self.manager.request_entries()]
        limits = self.max_tokens, self.temperature
        request = Request(self.model, tuple(messages), self.manager.tools, *limits)
        if not isinstance(self._client, Streamer):
            return self._client.complete(request)
        stream = self._client.stream(request)
        with closing(stream) if isinstance(stream, Generator) else nullcontext():
            for piece in stream:
                self._raise_if_stopped()
                if isinstance(piece, Reply):
                    return piece
                if piece:
                    self._pieces.append(piece)
                    if self.observer is not None:
                        self.observer.on_text(piece)
                    yield TextDelta(piece)
        raise ModelUnavailable(f"{self.model}: the stream ended during the reply; try again")

    def _refuse_too_large(self, user: Message) -> None:
        """Raise ``SpecError`` if a user's message does not fit into the context window.

        Strategies do not shorten such a message, nor those at the beginning of the conversation.
        """
        history, budget = self.manager.history, self.manager.budget
        prompts = (each for each in history.entries if each.message.role == "system")
        room = max(0, budget.available - sum(each.tokens for each in prompts))
        needed = history.counter.count_message(user)
        if needed <= room < 2 * needed and not models_used(self.manager.strategy):
            sent = sum(each.tokens for each in self.manager.preview(user))
            room = max(0, budget.available - (sent - needed))
        if needed > room:
            held = f"the context window of {budget.limit:,} has room for {room:,}"
            advice = "shorten the message, refer to a file instead, or set a larger limit"
            raise SpecError(f"the message has {needed:,} tokens, but {held}; {advice}")

    def _raise_if_stopped(self) -> None:
        if self._stop_requested:
            raise KeyboardInterrupt

    def _approve_and_call(self, call: ToolCall) -> Generator[AgentEvent, None, ToolResult]:
        """Ask the user about a call if necessary, make it, and return its result."""
        if (blocked := self.breaker.blocked_result(call.name)) is not None:
            return blocked
        if (tool := self.tools.get(call.name)) is None:
            result = tool_not_found(call.name, self.tools)
        else:
            stopped = yield from self._approve(tool, call)
            result = self._call(tool, call) if stopped is None else stopped
        self.breaker.record(call.name, result, call.arguments)
        return result

    def _call(self, tool: Tool, call: ToolCall) -> ToolResult:
        self._running = tool
        try:
            self._raise_if_stopped()
            return call_tool(tool, call.arguments)
        finally:
            self._running = None

    def _approve(
        self, tool: Tool, call: ToolCall
    ) -> Generator[AgentEvent, None, ToolResult | None]:
        """Ask the user about a call if necessary. Return None if the tool may be called."""
        if self.approver is None:
            return None
        request = self.approver.request(tool, call)
        if request is None or isinstance(request, ToolResult):
            return request
        if self.approver.can_ask:
            yield ApprovalRequired(request)
        decision = self.approver.decide(request)
        self._raise_if_stopped()
        yield ApprovalDecided(request, decision)
        return changed_meanwhile(request) if decision.allowed else refused_result(decision)

    def _store_and_append(self, *messages: Message) -> None:
        """Pass messages to the observer, then append them to the conversation.

        Ctrl+C is delayed until both steps are done.
        """
        with defer_signals():
            if self.observer is not None:
                self.observer.on_messages(messages)
            for message in messages:
                if message in self._unstored:  # __init__ has appended it
                    self._unstored.remove(message)
                else:
                    self._append_message(message)
                    self._said.append(message)

    def _append_message(self, message: Message) -> None:
        self.manager.append(message)
        if message.role == "tool":
            self._open_calls.pop(message.tool_call_id or "", None)
        else:
            self._open_calls = {each.id: each for each in message.tool_calls}
            self._call_ids.update(self._open_calls)

    def _cancel_open_calls(self) -> None:
        """Add a result that reports the cancellation to each tool call that has no result."""
        for call in list(self._open_calls.values()):
            self._store_and_append(result_message(call, cancelled_result(call.name)))

    def _clean_up(self, stopped: bool) -> None:
        """Complete the conversation after a turn failed or was stopped.

        Missing tool results and the partial answer are added. If ``stopped`` is True, the child
        processes of tools are ended.
        """
        if stopped and self.processes is not None:
            try:
                self.processes.kill_all()
            except Exception:
                _LOG.exception("cannot end the processes that tools started")
        with defer_signals():
            try:
                self._cancel_open_calls()
                if (message := partial_answer(self._pieces, stopped)) is not None:
                    self._store_and_append(message)
            except SessionError:
                pass  # the session was closed or continued elsewhere, so the rest is not stored
            except Exception:
                # The caller receives the first error. The next turn adds missing tool results.
                _LOG.exception("cannot store the end of an interrupted turn")
            self._pieces.clear()

    def _get_turn(self, turn: int | str) -> list[dict[str, Any]]:
        observer = self.observer
        found = self.manager.get_turn(turn) if observer is None else observer.fetch_turn(turn)
        if not found:
            raise LookupError(f"the conversation has no turn or step {turn}")
        return found

    def _read_result(self, number: int, start: int = 1, search: str | None = None) -> str:
        observer = self.observer
        find = self.manager.find_result if observer is None else observer.fetch_result
        text = find(number)
        if text is None:
            raise LookupError(f"there is no tool result {number}")
        return read_page(number, text, start, search)


def _replace_surrogates(message: Message) -> Message:
    """Replace lone surrogates in the text of a message. A strategy that decodes JSON may add them."""
    content = message.content
    if not isinstance(content, str) or (said := repair_surrogates(content)) == content:
        return message
    return message.replace(content=said)
