"""Adapter that runs an agent of Google ADK with the setting that sends only the current turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.flows.llm_flows.contents import request_processor
from google.adk.models import LlmRequest
from google.genai import types

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings

_AGENT_NAME = "agent"


class _SessionAdapter(PeerAdapter):
    """Adapter that stores one conversation as the events of an ADK session.

    System messages are not stored as events, because ADK keeps the system prompt in the agent.
    """

    separate_prompt = False

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._agent = LlmAgent(name=_AGENT_NAME, include_contents="none")
        self._events: list[Event] = []

    def add(self, position: int, block: Block) -> None:
        (message,) = block
        if message.role == "system":
            return
        mark = str(position).encode()  # ADK keeps the signature in every copy of a part
        parts = []
        if message.role == "tool":
            name, said = message.name or "tool", {"result": message.text}
            answer = types.FunctionResponse(id=message.tool_call_id, name=name, response=said)
            parts.append(types.Part(function_response=answer, thought_signature=mark))
            last = self._events[-1].content if self._events else None
            if last and last.parts and last.parts[0].function_response:
                last.parts += parts  # ADK stores consecutive tool results in one event
                return
        elif message.content or not message.tool_calls:
            parts.append(types.Part(text=message.text, thought_signature=mark))
        for call in message.tool_calls:
            asked = types.FunctionCall(id=call.id, name=call.name, args={"json": call.arguments})
            parts.append(types.Part(function_call=asked, thought_signature=mark))
        role = "model" if message.role == "assistant" else "user"
        author = "user" if message.role == "user" else _AGENT_NAME
        self._events.append(Event(author=author, content=types.Content(role=role, parts=parts)))

    def select(self) -> list[Message]:
        request = LlmRequest()
        asyncio.run(self._fill_request(request))
        parts = [part for content in request.contents for part in content.parts or ()]
        places = dict.fromkeys(int(part.thought_signature or b"0") for part in parts)
        prompt = [message for message in self.history if message.role == "system"]
        return [*prompt, *(self.history[i] for i in places)]

    async def _fill_request(self, request: LlmRequest) -> None:
        session = SimpleNamespace(events=list(self._events))
        context: Any = SimpleNamespace(agent=self._agent, branch=None, session=session)
        async for _ in request_processor.run_async(context, request):
            pass


FACTORIES = {"include_contents_none": _SessionAdapter}
