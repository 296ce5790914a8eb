"""Adapters that store a conversation as the events of a session of Google ADK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.compaction import _run_compaction_for_sliding_window
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.flows.llm_flows.contents import request_processor
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types
from pydantic import Field

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.adk import content_parts
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine

_AGENT_NAME = "agent"


class _Part(types.Part):
    """Part that remembers its message. ADK's copies keep it, and it is not part of the JSON."""

    position: int = Field(0, exclude=True)


class _SessionAdapter(PeerAdapter):
    """Adapter that stores one conversation as the events of an ADK session.

    System messages are not stored as events, because ADK keeps the system prompt in the agent.
    """

    separate_prompt = False
    group_results = True

    def __init__(self, settings: PeerSettings, **agent: Any) -> None:
        super().__init__(settings)
        self._agent = LlmAgent(name=_AGENT_NAME, **agent)
        self._session = SimpleNamespace(id="session", events=[])
        self._turn = 0

    def add(self, position: int, block: Block) -> None:
        role = block[0].role
        if role == "system":
            return
        if role == "user":
            if self._turn:
                self.end_turn()
            self._turn += 1
        parts = [
            _Part(**part, position=position + offset)
            for offset, message in enumerate(block)
            for part in content_parts((message,))
        ]
        content = types.Content(role="model" if role == "assistant" else "user", parts=parts)
        author = "user" if role == "user" else _AGENT_NAME
        turn, time = str(self._turn or ""), float(position + 1)
        self._session.events.append(
            Event(author=author, content=content, invocation_id=turn, timestamp=time)
        )

    def end_turn(self) -> None:
        """Do what ADK does after a turn."""

    def select(self) -> list[Message]:
        request = LlmRequest()
        run_coroutine(self._fill_request(request))
        prompt = [message for message in self.history if message.role == "system"]
        return [*prompt, *(m for content in request.contents for m in self._to_messages(content))]

    def _to_messages(self, content: types.Content) -> list[Message]:
        parts = content.parts or []
        kept = [part for part in parts if isinstance(part, _Part)]
        if not kept:
            return [Message("assistant", "".join(part.text or "" for part in parts))]
        messages = []
        for position in dict.fromkeys(part.position for part in kept):
            message = self.history[position]
            if message.tool_calls:
                ids = [p.function_call.id for p in kept if p.function_call]
                calls = tuple(call for call in message.tool_calls if call.id in ids)
                if len(calls) < len(message.tool_calls):
                    message = message.replace(tool_calls=calls)
            messages.append(message)
        return messages

    async def _fill_request(self, request: LlmRequest) -> None:
        context: Any = SimpleNamespace(
            agent=self._agent,
            branch=None,
            isolation_scope=None,
            node_path=None,
            run_config=None,
            session=self._session,
            user_content=None,
        )
        async for _ in request_processor.run_async(context, request):
            pass


class _CompactionAdapter(_SessionAdapter):
    """Adapter that compacts the session after each turn."""

    def __init__(self, settings: PeerSettings, model: str | None = None, **options: int) -> None:
        super().__init__(settings)
        client = _ClientModel(model=model or "")
        client.writer = settings.make_writer(model)
        values: dict[str, Any] = {"compaction_interval": 3, "overlap_size": 1, **options}
        config = EventsCompactionConfig(summarizer=LlmEventSummarizer(llm=client), **values)
        self._app = App(name="app", root_agent=self._agent, events_compaction_config=config)

    def end_turn(self) -> None:
        run_coroutine(self._compact())

    async def _compact(self) -> None:
        session: Any = self._session
        service: Any = None  # is used for compaction at a number of tokens only
        async for event in _run_compaction_for_sliding_window(self._app, session, service):
            session.events.append(event)


class _ClientModel(BaseLlm):
    """Model for ADK that calls ctxlab's client."""

    writer: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the reply of the model."""
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        text = self.writer("\n".join(part.text or "" for part in parts))
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def _include_contents_none(settings: PeerSettings) -> PeerAdapter:
    return _SessionAdapter(settings, include_contents="none")


FACTORIES = {"include_contents_none": _include_contents_none, "compaction": _CompactionAdapter}
