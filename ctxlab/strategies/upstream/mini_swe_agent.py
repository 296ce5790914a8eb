"""Adapter that lets the agent of mini-swe-agent ask a model that keeps what it is sent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

# Without this, the package prints a banner on import.
os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.litellm_model import LitellmModel

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings


class _Model(LitellmModel):
    """Model that prepares messages for a provider and replies with nothing."""

    sent: Iterable[dict[str, Any]] = ()

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        self.sent = self._prepare_messages_for_api(messages)
        return {"role": "assistant", "content": ""}


class _AgentAdapter(PeerAdapter):
    """Adapter that adds the messages of one conversation to an agent."""

    separate_prompt = False

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._model = _Model(model_name="ctxlab")
        templates = {"system_template": "", "instance_template": ""}
        self._agent = DefaultAgent(self._model, None, cost_limit=0, **templates)

    def add(self, position: int, block: Block) -> None:
        self._agent.add_messages(*(message.to_dict() for message in block))

    def select(self) -> list[Message]:
        self._agent.query()
        self._agent.messages.pop()  # the reply
        return list(map(message_from_dict, self._model.sent))


FACTORIES = {"": _AgentAdapter}
