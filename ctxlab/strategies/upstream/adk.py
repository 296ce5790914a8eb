"""Google ADK's request contents for an agent that sees the current turn only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.flows.llm_flows.contents import request_processor
from google.adk.models import LlmRequest
from google.genai import types

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings

_AGENT_NAME = "agent"


def include_contents_none(_: PeerSettings) -> _SessionAdapter:
    """Return an adapter for ``LlmAgent(include_contents="none")``.

    Parameters
    ----------
    _ : PeerSettings
        Not used.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _SessionAdapter(LlmAgent(name=_AGENT_NAME, include_contents="none"))


class _SessionAdapter:
    """One conversation as the events of a session; the system prompt is the agent's instruction."""

    def __init__(self, agent: LlmAgent) -> None:
        self._agent = agent
        self._events: list[Event] = []
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the instruction and the contents that the processor puts into the request."""
        for position in range(self._seen, len(history)):
            self._add_event(history[position], position)
        self._seen = len(history)
        request = LlmRequest()
        asyncio.run(self._fill_request(request))
        places: dict[int, None] = {}
        for content in request.contents:
            for part in content.parts or ():
                places[int(part.thought_signature or b"0")] = None
        return [*(m for m in history if m.role == "system"), *(history[i] for i in places)]

    async def _fill_request(self, request: LlmRequest) -> None:
        session = SimpleNamespace(events=list(self._events))
        context: Any = SimpleNamespace(agent=self._agent, branch=None, session=session)
        async for _ in request_processor.run_async(context, request):
            pass

    def _add_event(self, message: Message, position: int) -> None:
        if message.role == "system":
            return
        position_mark = str(position).encode()  # kept in every copy that ADK makes
        parts = []
        if message.role == "tool":
            answer = types.FunctionResponse(
                id=message.tool_call_id,
                name=message.name or "tool",
                response={"result": message.text},
            )
            part = types.Part(function_response=answer, thought_signature=position_mark)
            last = self._events[-1].content if self._events else None
            if last and last.parts and last.parts[0].function_response:
                last.parts.append(part)  # the results of one reply are one event
                return
            parts.append(part)
        elif message.content or not message.tool_calls:
            parts.append(types.Part(text=message.text, thought_signature=position_mark))
        for call in message.tool_calls:
            asked = types.FunctionCall(id=call.id, name=call.name, args={"json": call.arguments})
            parts.append(types.Part(function_call=asked, thought_signature=position_mark))
        role = "model" if message.role == "assistant" else "user"
        author = "user" if message.role == "user" else _AGENT_NAME
        self._events.append(Event(author=author, content=types.Content(role=role, parts=parts)))
