"""Reader for LangChain messages and LangGraph states.

Messages are read in the forms that ``messages_to_dict``, ``dumpd`` and ``model_dump`` write (see
``common/langchain_messages``). A file contains one conversation (a JSON list of messages, or JSONL
with one message per line) or several conversations (a JSON list or JSONL). In the latter case, each
conversation is a list of messages or an object with ``messages``, such as the state of a LangGraph
graph.

- The file is parsed as plain JSON. ``langchain.load`` is not used, so that a file cannot cause
  classes to be imported.
- The model of the recording is the most common model in the ``response_metadata`` of its messages.
- A ``remove`` message tells the graph to delete an earlier message. It is not a part of the
  conversation, and is skipped and counted.
- LangChain messages do not contain tool definitions, so the recordings have none.

References
----------
langchain-core 1.7 and 1.8, ``messages.utils``, ``load.dump``; LangGraph's ``MessagesState``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import Format, Location, Source
from ctxlab.formats.common.chat_format import most_common_model
from ctxlab.formats.common.langchain_messages import is_langchain_message, message_from_langchain
from ctxlab.formats.common.request_log import short_metadata
from ctxlab.formats.fields import get_in, get_list, get_object, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording

_LANGCHAIN_TYPES = ("human", "ai", "AIMessageChunk", "HumanMessageChunk")
_SHARED_TYPES = ("system", "tool", "function", "chat", "remove")


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a LangChain message, a list of them, or a graph state.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first messages is a LangChain message.
    """
    return any(_is_langchain(each) for row in head.rows for each in _first_messages(row))


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file, in the order of the file.

    Messages that are neither in a list nor in an object with ``messages``, such as one message per
    line, form one conversation.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        A conversation of the file.
    """
    alone = _ConversationBuilder(source)
    for where, value in source.read_json_values():
        listed = get_in(value, "messages") or value
        if isinstance(listed, list):
            talk = _ConversationBuilder(source, short_metadata(get_object(value)))
            for position, row in enumerate(listed):
                talk.add(row, where or (position, "message"))
            yield from talk.build_recordings()
        else:
            alone.add(value, where or (1, "line"))
    yield from alone.build_recordings()


FORMAT = Format(
    "langchain",
    "LangChain messages, LangGraph states",
    sniff,
    read,
    versions="langchain-core 1.7 and 1.8, with files written by the library",
    not_read=(
        "not in the file: tool definitions, times; left out: messages of type remove, "
        "artifacts of tools, audio, parts of unknown types"
    ),
)


def _first_messages(row: Any) -> Iterator[Any]:
    """Yield up to three messages of a row, which is a message, a list of messages or a graph state."""
    listed = get_in(row, "messages") or row
    if not isinstance(listed, list):
        yield listed
        return
    for each in listed[:3]:
        inner = get_in(each, "messages") or each
        yield inner[0] if isinstance(inner, list) and inner else inner


def _is_langchain(value: Any) -> bool:
    """Check whether a value has the fields of a LangChain message.

    ``type`` and ``content`` alone are not sufficient, because messages of other APIs have them, too.
    """
    if not isinstance(value, dict) or not (is_langchain_message(value) or _is_removal(value)):
        return False
    kind = value.get("type")
    if kind == "constructor" or kind in _LANGCHAIN_TYPES:
        return True
    data = value.get("data")
    fields = data if isinstance(data, dict) else value
    return kind in _SHARED_TYPES and "additional_kwargs" in fields and "content" in fields


def _is_removal(value: Any) -> bool:
    """Check whether a value is a ``RemoveMessage``, which tells a graph to delete a message."""
    name = get_in(value, "id") if get_in(value, "lc") else None
    return get_in(value, "type") == "remove" or get_list(name)[-1:] == ["RemoveMessage"]


@dataclass
class _ConversationBuilder:
    """Builder that collects the messages and model names of one conversation."""

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
            fields = get_in(row, "kwargs") or get_in(row, "data") or row
            told = get_in(fields, "response_metadata")
            if model := get_text(told, "model_name") or get_text(told, "model"):
                self.models[model] += 1

    def build_recordings(self) -> Iterator[Recording]:
        """Yield one recording with the collected messages, or nothing if there are none."""
        if self.messages:
            model = most_common_model(self.models)
            yield Recording(self.source.name, tuple(self.messages), model=model, meta=self.meta)
