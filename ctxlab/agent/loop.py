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
from typing import Any, Protocol

from ctxlab._utils.jsonio import well_formed
from ctxlab._utils.signals import held
from ctxlab.agent.circuit_breaker import (
    FAILURES,
    Breaker,
)
from ctxlab.agent.context_breakdown import parts_of
from ctxlab.agent.events import (
    Called,
    Done,
    Event,
    Finish,
    Outcome,
    Returned,
    TextPiece,
    outcome_of,
)
from ctxlab.agent.manager import ContextManager
from ctxlab.agent.messages import (
    BROKEN,
    CANCELLED_MARK,
    LIMIT_MARK,
    cut_off,
    message_of,
    result_message,
    sendable,
)
from ctxlab.agent.plan import plan_tool
from ctxlab.agent.tools.result import (
    ToolResult,
    cancelled,
)
from ctxlab.agent.tools.tool import (
    Tool,
    call,
    not_found,
    toolbox,
)
from ctxlab.context.turns import GET_TURN
from ctxlab.errors import (
    ModelUnavailable,
    SessionError,
    SpecError,
)
from ctxlab.llm import LiteLLMClient
from ctxlab.llm.base import (
    Client,
    Reply,
    Request,
    Streamer,
)
from ctxlab.messages.types import (
    Message,
    ToolCall,
    Usage,
)
from ctxlab.sessions.base import Plan
from ctxlab.strategies import contents
from ctxlab.strategies.base import members

__all__ = ["DEFAULT_STRATEGY", "MAX_ITERATIONS", "Agent", "Managed"]

DEFAULT_STRATEGY = (
    "file_sessions(follow=False) | tool_result_cap() | tool_stubs() | rolling_summary() | panic()"
)
"""A session for each file that the user opens, results cut at 4000 characters and stubbed once the
turn is over, older messages summarized, and a request that fits."""

MAX_ITERATIONS = 10
"""Calls of the model in one turn at most."""

_LOG = logging.getLogger("ctxlab.agent")


class Managed(Protocol):
    """Child processes that tools have started: ``ctxlab.agent.tools.processes.Processes``."""

    def kill_all(self) -> object:
        """Ends all of them, with their children."""
        ...


class Agent:
    """A model with tools and a conversation, which a strategy keeps within the context window.

    ``client`` None: the provider is asked through litellm. It also serves a strategy that asks a model.
    ``tools``: functions, or ``Tool``. ``reserve`` None and ``max_tokens`` given: so much is kept free.
    Where the strategy lists ``contents``, the agent has the tool ``get_turn``, unless it is given one.
    ``plans``: it has the tool ``update_plan``, with which it writes down what it set out to do.

    An agent has one turn at a time; another thread may run it, but no two at once. Raises ``SpecError``
    for what is written wrongly. ``ctxlab.agent.Live`` stores the conversation as it goes.
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
        failures: int = FAILURES,
        max_tokens: int | None = None,
        temperature: float | None = None,
        processes: Managed | None = None,
        plans: bool = False,
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
        self.breaker = Breaker(failures)
        self.heard: Callable[[tuple[Message, ...]], None] | None = None
        "is given each message before anything is done that relies on it, so that a store has it first"
        self.fetch_turn: Callable[[int], list[dict[str, Any]]] | None = None
        "what ``get_turn`` answers with; None: from the messages that this agent has seen"
        self.plan: Plan | None = None
        "what it set out to do, and where it stands"
        self.planned: Callable[[Plan | None], None] | None = None
        "is given a plan before it is relied on, as ``heard`` is given messages"
        self._client = client
        given = [*tools, plan_tool(lambda: self.plan, self.keep_plan)] if plans else tools
        self.tools = toolbox(given)
        "by name"
        kept = max_tokens if reserve is None else reserve
        self.manager = ContextManager(strategy, model, limit=limit, reserve=kept, client=client)
        lists = any(isinstance(each, contents) for each in members(self.manager.strategy))
        if lists and "get_turn" not in self.tools:
            about = GET_TURN["function"]
            tool = Tool("get_turn", about["description"], about["parameters"], self._get_turn)
            self.tools["get_turn"] = tool
        self.manager.fix(tools=self.definitions)
        self._ids: set[str] = set()
        self._open: dict[str, ToolCall] = {}  # calls that have no result yet
        self._unheard: list[Message] = []  # the system prompt, until the first turn
        self._running: weakref.ref[Generator[Event, None, None]] | None = None
        self._stopping = False
        if system:
            self._unheard.append(Message("system", well_formed(system), time=time.time()))
            self._keep(self._unheard[0])

    def __repr__(self) -> str:
        return f"<Agent {self.model}: {len(self.tools)} tools, {self.manager!r}>"

    @property
    def begun(self) -> bool:
        """Whether anything was said; a system prompt alone is nothing."""
        return len(self.manager.history) > len(self._unheard)

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """The tools' definitions in OpenAI's shape."""
        return tuple([tool.definition for tool in self.tools.values()])

    def keep_plan(self, plan: Plan | None) -> None:
        """Another plan, or none."""
        if self.planned is not None:
            self.planned(plan)
        self.plan = plan

    def begin(self, messages: Iterable[Message]) -> None:
        """The conversation so far, as it is resumed; ``heard`` is not told of it.

        System messages at its beginning give way to the agent's own prompt, where it has one. Raises
        ``SpecError`` once something was said.
        """
        if self.begun:
            raise SpecError("a conversation is begun before its first turn, and once")
        opening = True
        for message in messages:
            opening = opening and message.role == "system"
            if not (opening and self._unheard):
                self._keep(message)
        self._unheard.clear()

    def turn(self, text: str, *, file: str | None = None) -> Outcome:
        """The whole turn: what came of it once all its events are over. See ``stream``."""
        return outcome_of(self.stream(text, file=file))

    def stream(self, text: str, *, file: str | None = None) -> Generator[Event, None, None]:
        """What happens in a turn, as it happens; begun with the first event that is asked for.

        ``file``: what the user has open. The last event is ``Done``. Raises ``ModelUnavailable`` and
        ``ModelRefused`` where the model does not answer: the user's message stays, and the next turn
        goes on from there. ``KeyboardInterrupt`` goes on to the caller after managed processes were
        ended, calls without a result were answered as cancelled, and text that had come was kept with
        "[Cancelled]"; closing the iterator early does the same and raises nothing. Raises ``SpecError``
        for an empty message, for one that is larger than the window, and where another turn is under
        way; one that was left is closed.
        """
        if not text.strip():
            raise SpecError("there is nothing to answer: the message is empty")
        self.cancel()
        user = Message("user", well_formed(text), time=time.time(), file=file)
        self._refuse_too_large(user)
        turn = self._turn(user)
        self._running = weakref.ref(turn)
        return turn

    def cancel(self) -> None:
        """Ends a turn that was left in the middle, as closing its iterator does.

        Raises ``SpecError`` where it is being worked on, by a tool or by another thread.
        """
        turn = None if self._running is None else self._running()
        if turn is not None:
            try:
                turn.close()
            except ValueError:
                raise SpecError("the agent is in a turn: let it end first") from None

    def stop(self) -> None:
        """Ends a turn that another thread runs, as Ctrl+C would: at its next step, its processes now."""
        self._stopping = True
        if self.processes is not None:
            self.processes.kill_all()

    def parts(self) -> dict[str, int]:
        """Tokens of the next request by part: system, tools, summary, messages, reserve, free.

        As if the user spoke now, whose words are not counted; they add up to ``limit``, which stands
        last. ``free`` is negative where it does not fit.
        """
        return parts_of(self.manager)

    # --- the turn ------------------------------------------------------------------------------

    def _turn(self, user: Message) -> Generator[Event, None, None]:
        said: list[Message] = []
        pieces: list[str] = []
        self.breaker.reset()
        self._stopping = False
        try:
            self._answer_open(said)
            self._say([*self._unheard, user], said)
            outcome = yield from self._steps(said, pieces)
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, GeneratorExit, SystemExit))
            self._clean_up(said, pieces, stopped)
            raise
        yield Done(outcome)

    def _steps(self, said: list[Message], pieces: list[str]) -> Generator[Event, None, Outcome]:
        usage, usd, text = Usage(), 0.0, ""
        finish: Finish = "limit"
        iterations = 0
        while finish == "limit" and iterations < self.max_iterations:
            iterations += 1
            reply = yield from self._ask(pieces)
            message, calls = message_of(reply, self._ids)
            whole = not "".join(pieces).strip()
            with held():
                self._say([message], said)
                pieces.clear()
            usage, usd = _sum(usage, reply.usage), usd + reply.usd
            if message.text or not calls:
                text = message.text
            if message.text and whole:
                yield TextPiece(text)
            if not calls:
                finish = "answered"
            for each in calls:
                yield Called(each)
                result = self._call(each)
                self._heed()  # what a stopped tool gave is no result
                self._say([result_message(each, result)], said)
                yield Returned(each, result)
        if finish == "limit":
            mark = LIMIT_MARK if text else LIMIT_MARK.lstrip()
            text += mark
            self._say([Message("assistant", text, time=time.time())], said)
            yield TextPiece(mark)
        return Outcome(text, finish, iterations, tuple(said), usage, usd)

    def _ask(self, pieces: list[str]) -> Generator[Event, None, Reply]:
        """The model's reply to the conversation so far; ``pieces`` is what has come of its text."""
        if self._client is None:
            self._client = LiteLLMClient()
        request = Request(
            self.model,
            tuple([sendable(entry.message) for entry in self.manager.prepare()]),
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
                self._heed()
                if isinstance(piece, Reply):
                    return piece
                if piece:
                    pieces.append(piece)
                    yield TextPiece(piece)
        raise ModelUnavailable(f"{self.model}: the answer broke off")

    def _refuse_too_large(self, user: Message) -> None:
        """No strategy shortens what the user has just said, and a provider would refuse it."""
        history, budget = self.manager.history, self.manager.budget
        prompts = (each for each in history.entries if each.message.role == "system")
        room = max(0, budget.available - sum(each.tokens for each in prompts))
        if (needed := history.counter.message(user)) > room:
            raise SpecError(
                f"the message has {needed:,} tokens, and the context window of {budget.limit:,} has "
                f"room for {room:,}: shorten it, put it into a file that is read part by part, or give "
                "a larger limit"
            )

    def _heed(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt

    def _call(self, wanted: ToolCall) -> ToolResult:
        if (refused := self.breaker.blocked(wanted.name)) is not None:
            return refused
        tool = self.tools.get(wanted.name)
        result = (
            not_found(wanted.name, self.tools) if tool is None else call(tool, wanted.arguments)
        )
        self.breaker.count(wanted.name, result)
        return result

    # --- the conversation ----------------------------------------------------------------------

    def _say(self, messages: list[Message], said: list[Message]) -> None:
        """Messages are heard, then kept: either is done for all of them or none, in spite of Ctrl+C."""
        with held():
            if self.heard is not None:
                self.heard(tuple(messages))
            self._remember(messages, said)

    def _remember(self, messages: list[Message], said: list[Message]) -> None:
        for message in messages:
            if message in self._unheard:  # it is in its place already
                self._unheard.remove(message)
            else:
                self._keep(message)
                said.append(message)

    def _keep(self, message: Message) -> None:
        self.manager.append(message)
        if message.role == "tool":
            self._open.pop(message.tool_call_id or "", None)
        else:
            self._open = {each.id: each for each in message.tool_calls}
            self._ids.update(self._open)

    def _answer_open(self, said: list[Message]) -> None:
        """Calls without a result get one that says so, in their order."""
        for each in list(self._open.values()):
            self._say([result_message(each, cancelled(each.name))], said)

    def _clean_up(self, said: list[Message], pieces: list[str], stopped: bool) -> None:
        """Leaves the conversation whole after the turn was stopped by the user, or failed."""
        if stopped and self.processes is not None:
            try:
                self.processes.kill_all()
            except Exception:
                _LOG.exception("processes that tools started could not be ended")
        with held():
            try:
                self._answer_open(said)
                if (message := cut_off(pieces, CANCELLED_MARK if stopped else BROKEN)) is not None:
                    self._say([message], said)
            except SessionError:
                pass  # the session was closed or has gone on elsewhere: what is left is no part of it
            except Exception:
                # What ended the turn goes on to the caller; the next turn answers what is left open.
                _LOG.exception("the end of an interrupted turn could not be stored")
            pieces.clear()

    def _get_turn(self, number: int) -> list[dict[str, Any]]:
        found = (self.fetch_turn or self.manager.get_turn)(number)
        if not found:
            raise LookupError(f"there is no turn {number}")
        return found


def _sum(one: Usage, other: Usage) -> Usage:
    names = Usage.__struct_fields__
    return Usage(*[getattr(one, name) + getattr(other, name) for name in names])
