"""Conversion between ctxlab's messages and LangChain's messages.

LangChain's messages hold less: empty content instead of None, and arguments as an object. So each
has the position of its original as its id, and only the package's changes are read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ctxlab.errors import SpecError
from ctxlab.llm.base import Client, Request
from ctxlab.messages.types import Message, Role, ToolCall
from ctxlab.strategies.upstream.base import PeerSettings

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class MessageConverter:
    """Converter of one conversation to LangChain's classes and back.

    Parameters
    ----------
    settings : PeerSettings
        Counter of the tokens.
    """

    def __init__(self, settings: PeerSettings) -> None:
        self._counter = settings.counter
        self._originals: dict[str, tuple[Message, BaseMessage, int]] = {}

    def to_langchain(self, history: Sequence[Message], start: int = 0) -> list[BaseMessage]:
        """Convert the messages from ``start`` on; the id of each is its position.

        Parameters
        ----------
        history : sequence of Message
            Messages of a conversation.
        start : int, default 0
            Position of the first message to convert.

        Returns
        -------
        list of BaseMessage
            The converted messages.
        """
        return [self._to_langchain_message(history[i], i) for i in range(start, len(history))]

    def to_system_message(self, messages: Sequence[Message]) -> SystemMessage | None:
        """Return the single system message of an agent; its tokens are those of its originals.

        Parameters
        ----------
        messages : sequence of Message
            System messages.

        Returns
        -------
        SystemMessage or None
            The joined message; None if there are none.
        """
        if not messages:
            return None
        said = Message("system", "\n\n".join(message.text for message in messages))
        made = SystemMessage(content=said.text, id="prompt")
        self._originals["prompt"] = said, made, sum(map(self._counter.count_message, messages))
        return made

    def from_langchain(self, messages: Iterable[BaseMessage]) -> list[Message]:
        """Convert messages back: the originals with the changes that the package made.

        Parameters
        ----------
        messages : iterable of BaseMessage
            LangChain's messages.

        Returns
        -------
        list of Message
            ctxlab's messages.
        """
        return [self._from_langchain_message(message) for message in messages]

    def count_tokens(self, messages: Any) -> int:
        """Count tokens with ctxlab's counter; LangChain accepts this method as a token counter.

        Parameters
        ----------
        messages : iterable of BaseMessage
            LangChain's messages.

        Returns
        -------
        int
            Number of tokens.
        """
        return sum(self._message_tokens(message) for message in messages)

    def _to_langchain_message(self, message: Message, position: int) -> BaseMessage:
        key = str(position)
        if key not in self._originals:
            made = _build_message(message, key)
            self._originals[key] = message, made, self._counter.count_message(message)
        return self._originals[key][1].model_copy()

    def _message_tokens(self, message: BaseMessage) -> int:
        known = self._originals.get(message.id or "")
        if known and _is_unchanged(message, known[1]):
            return known[2]
        return self._counter.count_message(self._from_langchain_message(message))

    def _from_langchain_message(self, message: BaseMessage) -> Message:
        content: Any = message.content
        content = tuple(content) if isinstance(content, list) else content
        known = self._originals.get(message.id or "")
        if known is None:
            return Message(_ROLES[message.type], content)
        original, loaded, _ = known
        if _is_unchanged(message, loaded):
            return original
        changes: dict[str, Any] = {}
        if message.content != loaded.content:
            changes["content"] = content
        if isinstance(message, AIMessage) and isinstance(loaded, AIMessage):
            pairs = iter(zip(message.tool_calls, loaded.tool_calls, strict=True))
            calls = []
            for call in original.tool_calls:
                if _parse_arguments(call) is not None:
                    now, was = next(pairs)
                    call = (
                        call if now["args"] == was["args"] else _with_arguments(call, now["args"])
                    )
                calls.append(call)
            changes["tool_calls"] = tuple(calls)
        return original.replace(**changes)


class ClientChatModel(BaseChatModel):
    """A chat model of LangChain that is answered by ctxlab's client."""

    client: Any
    "client that answers"
    requested_model: str
    "name of the model to call"
    from_langchain: Any
    "function that converts LangChain's messages"

    @property
    def _llm_type(self) -> str:
        return "ctxlab"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        reply = self.client.complete(
            Request(self.requested_model, tuple(self.from_langchain(messages)))
        )
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=reply.text))])


def make_chat_model(
    settings: PeerSettings, model: str | None, converter: MessageConverter
) -> ClientChatModel:
    """Return the chat model of a peer; its window is the available tokens.

    Parameters
    ----------
    settings : PeerSettings
        Available tokens and client.
    model : str or None
        Name of the model to call.
    converter : MessageConverter
        Converter of the conversation.

    Returns
    -------
    ClientChatModel
        The chat model.

    Raises
    ------
    SpecError
        If there is no client or no model.
    """
    client: Client | None = settings.client
    if client is None or model is None:
        raise SpecError("this peer calls a model for its summaries; pass model='…' and a client")
    window: Any = {"max_input_tokens": settings.available}
    return ClientChatModel(
        client=client,
        requested_model=model,
        from_langchain=converter.from_langchain,
        profile=window,
    )


def _build_message(message: Message, key: str) -> BaseMessage:
    content: Any = message.content
    content = list(content) if isinstance(content, tuple) else content or ""
    common: dict[str, Any] = {"content": content, "id": key, "name": message.name}
    if message.role == "assistant":
        calls: list[Any] = []
        broken: list[Any] = []
        for call in message.tool_calls:
            arguments = _parse_arguments(call)
            if arguments is not None:
                calls.append({"id": call.id, "name": call.name, "args": arguments})
            else:
                broken.append(
                    {"id": call.id, "name": call.name, "args": call.arguments, "error": "no object"}
                )
        return AIMessage(**common, tool_calls=calls, invalid_tool_calls=broken)
    if message.role == "tool":
        return ToolMessage(**common, tool_call_id=message.tool_call_id or "")
    return SystemMessage(**common) if message.role == "system" else HumanMessage(**common)


def _parse_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments as an object, else None: LangChain stores such calls apart."""
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_unchanged(message: BaseMessage, loaded: BaseMessage) -> bool:
    if message.content != loaded.content:
        return False
    if isinstance(message, AIMessage) and isinstance(loaded, AIMessage):
        return message.tool_calls == loaded.tool_calls
    return True


def _with_arguments(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    """Return a call with other arguments, formatted as LangChain's models do."""
    return ToolCall(call.id, call.name, json.dumps(arguments, ensure_ascii=False))
