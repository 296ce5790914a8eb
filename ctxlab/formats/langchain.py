"""LangChain's messages are read as ``messages_to_dict``, ``dumpd`` or ``model_dump`` wrote them.

A file is a JSON list of messages or JSONL with a message a line, which is one conversation, or JSONL
or a list of conversations, each a list or an object with ``messages`` (the state of a LangGraph
graph). The forms of a message have a file of their own (``langchain_messages``).

- Nothing is loaded with ``langchain.load``: the file is plain JSON, whatever classes it names.
- The model is the one that the answers name most often (``response_metadata``).
- A ``remove`` message is an order to the graph, not a part of the conversation: it is counted as
  skipped.
- Tool definitions are not recorded.

Source: langchain-core 1.7 and 1.8, ``messages.utils``, ``load.dump``; LangGraph's ``MessagesState``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.assistant_message import most_common_model
from ctxlab.formats.common.json_files import Location, read_json_values
from ctxlab.formats.common.langchain_messages import is_langchain_message, message_from_langchain
from ctxlab.formats.common.request_log import short_metadata
from ctxlab.formats.fields import get_nested, text_or_none
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording

__all__ = ["FORMAT", "read", "sniff"]

_LANGCHAIN_TYPES = ("human", "ai", "AIMessageChunk", "HumanMessageChunk")
_SHARED_TYPES = ("system", "tool", "function", "chat", "remove")


def sniff(head: FileHead) -> bool:
    """Whether a file begins with a message as LangChain writes it, alone, in a list or in a state."""
    return any(_is_langchain(each) for row in head.rows for each in _first_messages(row))


def read(source: Source) -> Iterator[Recording]:
    """One recording a conversation, in the order of the file; messages that stand alone are one."""
    alone = _ConversationBuilder(source)
    for where, value in read_json_values(source):
        listed = get_nested(value, "messages") or value
        if isinstance(listed, list):
            talk = _ConversationBuilder(
                source, short_metadata(value) if isinstance(value, dict) else {}
            )
            for position, row in enumerate(listed):
                talk.add(row, where or (position, "message"))
            yield from talk.build_recordings()
        else:
            alone.add(value, where or (1, "line"))
    yield from alone.build_recordings()


FORMAT = Format("langchain", "LangChain messages, LangGraph states", sniff, read)


def _first_messages(row: Any) -> Iterator[Any]:
    """A message, or the first few of a list, a state, or a list of either."""
    listed = get_nested(row, "messages") or row
    if not isinstance(listed, list):
        yield listed
        return
    for each in listed[:3]:
        inner = get_nested(each, "messages") or each
        yield inner[0] if isinstance(inner, list) and inner else inner


def _is_langchain(value: Any) -> bool:
    """Whether it is a message beyond doubt: many systems write ``type`` and ``content``."""
    if not isinstance(value, dict) or not _is_message(value):
        return False
    kind = value.get("type")
    if kind == "constructor" or kind in _LANGCHAIN_TYPES:
        return True
    data = value.get("data")
    fields = data if isinstance(data, dict) else value
    return kind in _SHARED_TYPES and "additional_kwargs" in fields and "content" in fields


def _is_message(value: Any) -> bool:
    return is_langchain_message(value) or _is_removal(value)


def _is_removal(value: Any) -> bool:
    """``RemoveMessage``, which a graph takes for an order to forget an earlier message."""
    name = get_nested(value, "id") if get_nested(value, "lc") else None
    return get_nested(value, "type") == "remove" or (
        isinstance(name, list) and name[-1:] == ["RemoveMessage"]
    )


@dataclass
class _ConversationBuilder:
    """A conversation that is being read."""

    source: Source
    meta: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list, init=False)
    models: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: Any, where: Location) -> None:
        if _is_removal(row):
            self.source.skip("message of type remove", where[0])
            return
        with self.source.handle_errors(*where):
            self.messages.append(message_from_langchain(row, self.source.skip))
            told = get_nested(_message_fields(row), "response_metadata")
            if model := text_or_none(get_nested(told, "model_name")) or text_or_none(
                get_nested(told, "model")
            ):
                self.models[model] += 1

    def build_recordings(self) -> Iterator[Recording]:
        """The one that it is, or none where no message was read."""
        if self.messages:
            model = most_common_model(self.models)
            yield Recording(self.source.name, tuple(self.messages), model=model, meta=self.meta)


def _message_fields(row: Any) -> Any:
    return get_nested(row, "kwargs") or get_nested(row, "data") or row
