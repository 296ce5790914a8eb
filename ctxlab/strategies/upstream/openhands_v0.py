"""Adapters for two condensers of OpenHands V0, whose last package is openhands-ai 1.6.0.

An adapter stores a conversation as V0's events. Before each request, the condenser makes a view of
the events, and ``ConversationMemory`` makes messages of the view, as V0's agent does.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from types import ModuleType, SimpleNamespace
from typing import Any

import openhands


def _place_stand_in(name: str, **contents: Any) -> None:
    """Place a module with the given contents where V0's own module would be imported.

    The submodules of the stand-in are V0's own.
    """
    module: Any = ModuleType(f"openhands.{name}")
    module.__path__ = [os.path.join(folder, *name.split(".")) for folder in openhands.__path__]
    module.__dict__.update(contents)
    sys.modules.setdefault(module.__name__, module)


# ruff: noqa: E402 - the stand-ins must be in place before V0 is imported
# These modules import V0's server, storage and LLM clients, which need many more packages. The code
# under comparison needs only their submodules, or uses them only in annotations.
for _package in ("core.config", "llm", "memory.condenser.impl"):
    _place_stand_in(_package)
_place_stand_in("controller.state.state", State=object)
_place_stand_in("events.stream", EventStream=object, EventStreamSubscriber=object)
_place_stand_in("llm.llm_registry", LLMRegistry=object)
# V0's own logger replaces the handler of all uncaught exceptions, and reports each request.
_quiet_logger = logging.Logger("openhands", logging.ERROR)
_place_stand_in("core.logger", openhands_logger=_quiet_logger, LOG_DIR="")

from litellm import ModelResponse
from openhands.core.config.agent_config import AgentConfig
from openhands.core.config.condenser_config import (
    AmortizedForgettingCondenserConfig,
    ObservationMaskingCondenserConfig,
)
from openhands.events.action.mcp import MCPAction
from openhands.events.action.message import MessageAction, SystemMessageAction
from openhands.events.event import Event, EventSource
from openhands.events.observation.mcp import MCPObservation
from openhands.events.tool import ToolCallMetadata
from openhands.memory.condenser.condenser import Condensation, Condenser
from openhands.memory.condenser.impl.amortized_forgetting_condenser import (
    AmortizedForgettingCondenser,
)
from openhands.memory.condenser.impl.observation_masking_condenser import (
    ObservationMaskingCondenser,
)
from openhands.memory.conversation_memory import ConversationMemory
from openhands.memory.view import View

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings

_NOT_RECORDED = "not recorded"
"text of messages that V0 requires but that the recording does not have"


class V0Adapter(PeerAdapter):
    """Adapter that stores one conversation as V0's events.

    V0 runs the calls of a message one by one, so each action is followed by its observation. Neither
    condenser reads texts, so the text of an event is the position of its message. Events have new call
    ids, because some recordings use an id for two calls.

    Parameters
    ----------
    settings : PeerSettings
        Data and services that ctxlab provides to the package.
    condenser : Condenser
        Condenser of V0.
    """

    separate_prompt = False

    def __init__(self, settings: PeerSettings, condenser: Condenser) -> None:
        super().__init__(settings)
        self._condenser = condenser
        prompts = SimpleNamespace(get_system_message=self._system_prompt)
        self._memory = ConversationMemory(AgentConfig(), prompts)
        self._events: list[Event] = []
        self._task: MessageAction | None = None
        "first user message, which V0 sends second unless it was dropped"
        self._calls: dict[str, ToolCallMetadata] = {}
        "newest call for each id of the recording"
        self._waiting: dict[str, Event] = {}
        "actions that are not yet in ``_events``, by id of the recording"

    def add(self, position: int, block: Block) -> None:
        """Add the events of one message."""
        (message,) = block
        text = str(position)
        if message.role == "tool":
            self._add_result(message, text)
            return
        self._add_waiting()
        if message.tool_calls:
            self._add_calls(message, text)
        elif message.role == "system":
            self._add_event(SystemMessageAction(text), EventSource.AGENT)
        elif message.role == "assistant":
            self._add_event(MessageAction(text), EventSource.AGENT)
        else:
            said = MessageAction(text)
            self._add_event(said, EventSource.USER)
            self._task = self._task or said

    def select(self) -> Iterator[Message]:
        """Condense the events until the condenser returns a view, and yield the view's messages.

        V0 begins a user message after another one with two newlines, and sends the results of a
        message in the order of its calls. Both are undone, because ctxlab changes neither.
        """
        self._add_waiting()
        made = self._condenser.condense(View.from_events(self._events))
        while isinstance(made, Condensation):
            self._add_event(made.action, EventSource.AGENT)
            made = self._condenser.condense(View.from_events(self._events))
        task = self._task or MessageAction(_NOT_RECORDED)
        sent = self._memory.process_events(made.events, task, made.forgotten_event_ids)
        texts = ((each.role, each.content[0].text.removeprefix("\n\n")) for each in sent)
        for role, group in groupby(texts, key=itemgetter(0)):
            for _, text in sorted(group, key=_result_position) if role == "tool" else group:
                if text.isdecimal():
                    yield self.history[int(text)]
                elif text != _NOT_RECORDED:
                    yield Message(role, text)

    def _add_event(self, event: Any, source: EventSource) -> None:
        event._id, event._source = len(self._events), source
        self._events.append(event)

    def _add_calls(self, message: Message, text: str) -> None:
        calls = [
            {"id": f"{text}.{number}", "function": {"name": call.name, "arguments": call.arguments}}
            for number, call in enumerate(message.tool_calls)
        ]
        said = {"role": "assistant", "content": text, "tool_calls": calls}
        response = ModelResponse(id=text, choices=[{"message": said}])
        for number, call in enumerate(message.tool_calls):
            self._waiting[call.id] = action = MCPAction(call.name)
            self._calls[call.id] = action.tool_call_metadata = ToolCallMetadata(
                function_name=call.name,
                tool_call_id=f"{text}.{number}",
                model_response=response,
                total_calls_in_response=len(calls),
            )

    def _add_result(self, message: Message, text: str) -> None:
        call_id = message.tool_call_id or ""
        if action := self._waiting.pop(call_id, None):
            self._add_event(action, EventSource.AGENT)
        if call_id in self._calls:  # V0 sends no result without a call
            result = MCPObservation(text)
            result.tool_call_metadata = self._calls[call_id]
            self._add_event(result, EventSource.ENVIRONMENT)

    def _add_waiting(self) -> None:
        """Add the actions that got no observation."""
        for action in self._waiting.values():
            self._add_event(action, EventSource.AGENT)
        self._waiting.clear()

    def _system_prompt(self, **_: Any) -> str:
        """Return the system prompt, which V0 sends first in any case."""
        return "0" if self.history[0].role == "system" else _NOT_RECORDED


def _result_position(sent: tuple[str, str]) -> int:
    return int(sent[1])


def make_masking(settings: PeerSettings, **options: Any) -> V0Adapter:
    """Return an adapter for ``ObservationMaskingCondenser``.

    Parameters
    ----------
    settings : PeerSettings
        Data and services that ctxlab provides to the package.
    **options : Any
        Fields of the condenser's configuration.

    Returns
    -------
    V0Adapter
        Adapter of one conversation.
    """
    config = ObservationMaskingCondenserConfig(**options)
    return V0Adapter(settings, ObservationMaskingCondenser.from_config(config, None))


def make_amortized(settings: PeerSettings, **options: Any) -> V0Adapter:
    """Return an adapter for ``AmortizedForgettingCondenser``.

    Parameters
    ----------
    settings : PeerSettings
        Data and services that ctxlab provides to the package.
    **options : Any
        Fields of the condenser's configuration.

    Returns
    -------
    V0Adapter
        Adapter of one conversation.
    """
    config = AmortizedForgettingCondenserConfig(**options)
    return V0Adapter(settings, AmortizedForgettingCondenser.from_config(config, None))
