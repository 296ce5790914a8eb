"""Helpers for tests of agents: a scripted streaming client, and a store that collects messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ctxlab.agent.events import AgentEvent
from ctxlab.agent.loop import Agent
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.base import AgentPlan
from ctxlab.sessions.resume_messages import pair_tool_results


def calls(*wanted: tuple[str, str] | ToolCall, text: str | None = None) -> Message:
    """Return an assistant message with calls: ``calls(("read", '{"path": "a.py"}'))``."""
    made = [
        each if isinstance(each, ToolCall) else ToolCall(f"c{place}", *each)
        for place, each in enumerate(wanted)
    ]
    return Message("assistant", text, tool_calls=tuple(made))


Said = Message | str | BaseException


class Streaming:
    """Client that streams its answers in order, in pieces of ``each`` characters.

    An exception is raised instead of an answer. A pair of text and exception raises after the text.
    """

    def __init__(self, *answers: Said | tuple[str, BaseException], each: int = 5) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.open = 0
        self.each = each

    def stream(self, request: Request, /) -> Iterator[str | Reply]:
        self.asked.append(request)
        self.open += 1
        try:
            answer = self.answers.pop(0)
            broken: BaseException | None = None
            if isinstance(answer, tuple):
                answer, broken = answer
            if isinstance(answer, BaseException):
                raise answer
            message = Message("assistant", answer) if isinstance(answer, str) else answer
            text = message.text
            for place in range(0, len(text), self.each):
                yield text[place : place + self.each]
            if broken is not None:
                raise broken
            yield Reply(message, Usage(100, output=10), 0.25)
        finally:
            self.open -= 1

    def complete(self, request: Request, /) -> Reply:
        *_, reply = self.stream(request)
        assert isinstance(reply, Reply)
        return reply

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        return [self.complete(request) for request in requests]


class Heard:
    """Store that keeps the messages of an agent in a list."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.messages: list[Message] = []
        agent.attach(self)

    def on_text(self, text: str) -> None: ...

    def on_messages(self, messages: tuple[Message, ...]) -> None:
        # The store gets messages before they are part of the history.
        assert not {id(m) for m in messages if m.role != "system"} & {
            id(m) for m in self.agent.manager.history
        }
        self.messages += messages

    def on_plan(self, plan: AgentPlan | None) -> None:
        pass

    def fetch_turn(self, turn: int | str) -> list[dict[str, Any]]:
        return self.agent.manager.get_turn(turn)

    def fetch_result(self, number: int) -> str | None:
        return self.agent.manager.find_result(number)


def whole(agent: Agent, heard: Heard) -> None:
    """Assert that the store got every message once and in order, and that the history is valid."""
    history = list(agent.manager.history)
    stored = history if agent.has_started else []  # the first turn stores the system prompt
    assert [m.to_dict() for m in heard.messages] == [m.to_dict() for m in stored]
    assert list(pair_tool_results(history)) == history, "every call is answered already"
    if any(m.role != "system" for m in history):
        assert find_violations(history) == []


def take(events: Iterator[AgentEvent], until: Callable[[AgentEvent], bool]) -> AgentEvent | None:
    """Consume events until one fulfils the condition, and return it; None if there is none."""
    return next((event for event in events if until(event)), None)
