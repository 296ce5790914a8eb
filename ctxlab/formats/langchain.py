"""LangChain's messages are read as ``messages_to_dict``, ``dumpd`` or ``model_dump`` wrote them.

A file is a JSON list of messages or JSONL with a message a line, which is one conversation, or JSONL
or a list of conversations, each a list or an object with ``messages`` (the state of a LangGraph
graph). The forms of a message have a file of their own (``langchain_message``).

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

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.assistant_message import model_of
from ctxlab.formats.common.json_files import (
    Where,
    values,
)
from ctxlab.formats.common.langchain_messages import (
    is_langchain_message,
    message_from_langchain,
)
from ctxlab.formats.common.request_log import small
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]

_OWN = ("human", "ai", "AIMessageChunk", "HumanMessageChunk")
_OTHERS = ("system", "tool", "function", "chat", "remove")


def sniff(head: Head) -> bool:
    """Whether a file begins with a message as LangChain writes it, alone, in a list or in a state."""
    return any(_is_ours(each) for row in head.rows for each in _first(row))


def read(source: Source) -> Iterator[Recording]:
    """One recording a conversation, in the order of the file; messages that stand alone are one."""
    alone = _Talk(source)
    for where, value in values(source):
        listed = within(value, "messages") or value
        if isinstance(listed, list):
            talk = _Talk(source, small(value) if isinstance(value, dict) else {})
            for position, row in enumerate(listed):
                talk.add(row, where or (position, "message"))
            yield from talk.recordings()
        else:
            alone.add(value, where or (1, "line"))
    yield from alone.recordings()


FORMAT = Format("langchain", "LangChain messages, LangGraph states", sniff, read)


def _first(row: Any) -> Iterator[Any]:
    """A message, or the first few of a list, a state, or a list of either."""
    listed = within(row, "messages") or row
    if not isinstance(listed, list):
        yield listed
        return
    for each in listed[:3]:
        inner = within(each, "messages") or each
        yield inner[0] if isinstance(inner, list) and inner else inner


def _is_ours(value: Any) -> bool:
    """Whether it is a message beyond doubt: many systems write ``type`` and ``content``."""
    if not isinstance(value, dict) or not _is_message(value):
        return False
    kind = value.get("type")
    if kind == "constructor" or kind in _OWN:
        return True
    data = value.get("data")
    fields = data if isinstance(data, dict) else value
    return kind in _OTHERS and "additional_kwargs" in fields and "content" in fields


def _is_message(value: Any) -> bool:
    return is_langchain_message(value) or _is_removal(value)


def _is_removal(value: Any) -> bool:
    """``RemoveMessage``, which a graph takes for an order to forget an earlier message."""
    name = within(value, "id") if within(value, "lc") else None
    return within(value, "type") == "remove" or (
        isinstance(name, list) and name[-1:] == ["RemoveMessage"]
    )


@dataclass
class _Talk:
    """A conversation that is being read."""

    source: Source
    meta: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list, init=False)
    models: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: Any, where: Where) -> None:
        if _is_removal(row):
            self.source.skip("message of type remove", where[0])
            return
        with self.source.guard(*where):
            self.messages.append(message_from_langchain(row, self.source.skip))
            told = within(_fields(row), "response_metadata")
            if model := text(within(told, "model_name")) or text(within(told, "model")):
                self.models[model] += 1

    def recordings(self) -> Iterator[Recording]:
        """The one that it is, or none where no message was read."""
        if self.messages:
            model = model_of(self.models)
            yield Recording(self.source.name, tuple(self.messages), model=model, meta=self.meta)


def _fields(row: Any) -> Any:
    return within(row, "kwargs") or within(row, "data") or row
