"""Reader for ``conversations.json`` in the data export of ChatGPT.

The file is a list of conversations. Newer exports split it into ``conversations-000.json`` and so on. A
conversation contains a tree of messages: ``mapping`` maps the id of a node to ``{message, parent,
children}``, and ``current_node`` is the last message that the user saw. The path from the root to this
node is read. Messages of other branches, which were edited or generated again, are skipped and
counted. If ``current_node`` is missing, the path ends at the newest leaf.

- A message of the assistant whose ``recipient`` is a tool becomes a tool call. Its id is the id of the
  message. If its text is not a JSON object, the text is stored under the key ``input``.
- Messages of a tool are joined to the result of its call in the answer before. If there is no such
  call, for example because ChatGPT looked through an uploaded file, the message becomes a user message
  with ``extra["role"]``, because APIs reject a result without a call.
- The messages of the search tool are often empty. The titles, addresses and excerpts that it found
  (``metadata.search_result_groups``) are then read as the result. A call whose results are all empty
  has an empty result.
- Messages of the assistant that follow each other form one answer, up to a tool result or ``end_turn``.
- ``thoughts`` are the reasoning of the next answer. ``reasoning_recap`` only says how long the model
  thought. It is skipped and counted.
- The user's instructions (``user_editable_context``) and the memory (``model_editable_context``) are
  read as messages at their place. The system prompt, the tool definitions and the usage are not in
  the export.
- Images are references to other files of the export (``asset_pointer``). Recorded speech is read as
  its transcription. Other files and recordings are skipped and counted.

References
----------
OpenAI does not document the format. The shapes are taken from the descriptions of it in open-source
programs: github.com/mohamed-chs/convoviz, ``docs/dev/chatgpt-spec.md`` (version 3.0, February 2026),
and github.com/mitkury/chatgpt-export-parser, ``docs/chatgpt-data-export-format.md``. It is assumed that
all messages on the path were sent to the model, also those that ChatGPT does not display. The keys were
compared with parts of exports in public repositories. No complete export was at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from ctxlab.formats.base import Format, Location, SkipCallback, Source
from ctxlab.formats.common.chat_format import (
    Content,
    MessageBuilder,
    build_session,
    image_part,
    join_parts,
    make_call,
    text_part,
)
from ctxlab.formats.fields import (
    first_text,
    get_in,
    get_list,
    get_number,
    get_object,
    get_objects,
    get_text,
    is_short_value,
    parse_if_json,
    require_object,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import ContentPart, Message, Recording, ToolCall

_Json: TypeAlias = dict[str, Any]

_MAX_SNIFFED = 5
_EVERYONE: Final = "all"
_TEXT_KEYS = {
    "code": ("text",),
    "execution_output": ("text",),
    "system_error": ("name", "text"),
    "tether_quote": ("title", "url", "text"),
    "sonic_webpage": ("title", "url", "text"),
    "tether_browsing_display": ("summary", "result"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}
_OTHER_TEXT_KEYS = ("text", "content", "result")
_META_KEYS = {"conversation_id": "session", "title": "title", "gizmo_id": "gizmo"}


def sniff(head: FileHead) -> bool:
    """Check whether a file contains conversations of ChatGPT's export.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first conversations has a tree of messages with authors.
    """
    return any(map(_is_conversation, _list_conversations(head.value)[:_MAX_SNIFFED]))


def read(source: Source) -> Iterator[Recording]:
    """Read the current branch of each conversation.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        One recording per conversation with messages.
    """
    for where, value in source.read_json_values():
        listed = _list_conversations(value)
        for index, each in enumerate(listed):
            here = where or (index, "conversation")
            with source.handle_errors(*here):
                conversation = require_object(each, "a conversation")
                made = _read_conversation(source, here, conversation)
                if not made.messages:
                    source.skip("conversation without messages", here[0])
                    continue
                alone = where is None and len(listed) == 1
                yield replace(made, id=source.name) if alone else made


FORMAT = Format(
    "chatgpt",
    "ChatGPT data export (conversations.json)",
    sniff,
    read,
    versions=(
        "from descriptions by other programs (2026) and parts of real exports; no complete export"
    ),
    not_read=(
        "not in the export: system prompt, tool definitions, usage; left out: other "
        "branches, images in answers, attached files; other images are references to files "
        "of the export"
    ),
)


def _list_conversations(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    listed = get_in(value, "conversations")
    return listed if isinstance(listed, list) else [value]


def _is_conversation(value: Any) -> bool:
    nodes = get_object(value, "mapping").values()
    named = any(get_text(node, "message", "author", "role") for node in nodes)
    return named and all(isinstance(node, dict) and "message" in node for node in list(nodes)[:1])


def _read_conversation(source: Source, here: Location, conversation: _Json) -> Recording:
    nodes = require_object(conversation.get("mapping"), "mapping")
    path = _find_path(nodes, get_text(conversation, "current_node"))
    others = (node for id, node in nodes.items() if id not in path)
    branched = sum(isinstance(get_in(node, "message"), dict) for node in others)
    if branched:
        source.skip("message of another branch", count=branched)
    builder = _BranchBuilder(source.skip)
    for id in path:
        message = get_in(nodes[id], "message")
        if message is not None:
            with source.handle_errors(*here):
                try:
                    builder.add(require_object(message, "a message"), id)
                except ValueError as error:
                    raise ValueError(f"message {id[:40]}: {error}") from None
    keys = ("conversation_id", "id")
    session = first_text(conversation.get(key) for key in keys) or str(here[0])
    meta = {_META_KEYS[k]: v for k in _META_KEYS if is_short_value(v := conversation.get(k))}
    built = (builder.build_messages(), ())
    made = build_session(f"{source.name}/{session}", built, builder.models, None, meta)
    return replace(made, model=made.model or get_text(conversation, "default_model_slug"))


def _find_path(nodes: _Json, last: str | None) -> dict[str, None]:
    """Return the ids of the nodes from the root to the node ``last``, or to the newest leaf."""
    if last not in nodes:
        parents = {get_text(node, "parent") for node in nodes.values()}
        leaves = [id for id in nodes if id not in parents]
        times = {id: get_number(nodes[id], "message", "create_time") or 0.0 for id in leaves}
        last = max(reversed(leaves), key=lambda id: times[id], default=None)
    path: dict[str, None] = {}
    while last in nodes and last not in path:
        path[last] = None
        last = get_text(nodes[last], "parent")
    return dict.fromkeys(reversed(path))


@dataclass
class _Answer(MessageBuilder):
    """An answer of the model, with the results of its tool calls."""

    is_complete: bool = False
    "True if the next message of the assistant begins another answer"


@dataclass
class _BranchBuilder:
    """Builder that converts the messages of one branch."""

    skip: SkipCallback
    models: Counter[str] = field(default_factory=Counter)
    "model → number of its answers"
    _items: list[_Answer | Message] = field(default_factory=list)

    def add(self, message: _Json, id: str) -> None:
        """Add the next message. Raise ``ValueError`` if it is malformed."""
        role = get_text(message, "author", "role")
        self._count_files(message)
        if role == "assistant":
            self._add_assistant(message, id)
        elif role not in ("system", "user", "tool"):
            self.skip(f"message of role {role}")
        elif role == "tool":
            self._add_result(message)
        elif content := self._read_content(message):
            kind: Any = role
            time = get_number(message, "create_time")
            self._items.append(Message(kind, content, time=time))

    def build_messages(self) -> tuple[Message, ...]:
        """Return the messages of the branch. Answers without text and calls are left out."""
        messages: list[Message] = []
        for item in self._items:
            if isinstance(item, Message):
                messages.append(item)
            elif item.texts or item.calls:
                messages += item.messages
            else:
                self.skip("reasoning without an answer")
        return tuple(messages)

    def _add_assistant(self, message: _Json, id: str) -> None:
        kind = get_text(message, "content", "content_type")
        recipient = get_text(message, "recipient") or _EVERYONE
        if kind == "thoughts":
            thoughts = get_objects(message, "content", "thoughts")
            said = ["\n".join(_texts_at(each, ("summary", "content"))) for each in thoughts]
            if any(said):
                self._find_answer(message).reasoning += filter(None, said)
        elif kind == "reasoning_recap":
            self.skip("content of type reasoning_recap")
        elif recipient != _EVERYONE:
            text = _join_text(self._read_content(message) or "")
            call = _make_tool_call(id, recipient, text)
            self._find_answer(message).calls.append(call)
        elif content := self._read_content(message):
            if not isinstance(content, str):
                for _ in (part for part in content if part.get("type") != "text"):
                    self.skip("image in an answer")
            self._find_answer(message).texts.append(_join_text(content))
        if message.get("end_turn") is True and (answer := self._last_answer()):
            answer.is_complete = True

    def _find_answer(self, message: _Json) -> _Answer:
        """Return the answer to which a message of the assistant belongs."""
        answer = self._last_answer()
        if answer is None or answer.is_complete or answer.results:
            answer = _Answer(time=get_number(message, "create_time"))
            self._items.append(answer)
            if model := get_text(message, "metadata", "model_slug"):
                self.models[model] += 1
        return answer

    def _last_answer(self) -> _Answer | None:
        last = self._items[-1] if self._items else None
        return last if isinstance(last, _Answer) else None

    def _add_result(self, message: _Json) -> None:
        content = self._read_content(message, _read_search_results(message)) or ""
        name, time = get_text(message, "author", "name"), get_number(message, "create_time")
        answer = self._last_answer()
        call = _find_call(answer, name) if answer else None
        if answer is None or call is None:
            if content:
                extra = {"role": "tool"}
                self._items.append(Message("user", content, name=name, time=time, extra=extra))
            return
        for index, result in enumerate(answer.results):
            if result.tool_call_id == call.id:
                joined = join_parts([*_to_parts(result.content or ""), *_to_parts(content)])
                answer.results[index] = result.replace(content=joined or "")
                return
        answer.results.append(
            Message("tool", content, tool_call_id=call.id, name=call.name, time=time)
        )

    def _read_content(self, message: _Json, instead: str = "") -> Content | None:
        """Return the content of a message.

        If the message is empty, ``instead`` is returned, or it is counted as skipped.
        """
        content = require_object(message.get("content"), "content")
        kind = get_text(content, "content_type")
        if isinstance(content.get("parts"), list):
            parts = [made for each in content["parts"] if (made := self._read_part(each))]
        else:
            texts = _texts_at(content, _TEXT_KEYS.get(kind or "", _OTHER_TEXT_KEYS))
            parts = [text_part(text) for text in texts]
            if kind not in _TEXT_KEYS:
                self.skip(f"content of type {kind}" + (", kept as its text" if parts else ""))
                return join_parts(parts)
        if not parts and not instead:
            self.skip("empty message")
        return join_parts(parts) or instead or None

    def _read_part(self, part: Any) -> ContentPart | None:
        if isinstance(part, str):
            return text_part(part) if part else None
        kind = get_text(part, "content_type")
        if kind == "image_asset_pointer" and (pointer := get_text(part, "asset_pointer")):
            return image_part(pointer)
        if kind == "audio_transcription" and (text := get_text(part, "text")):
            return text_part(text)
        self.skip(f"part of type {kind}")
        return None

    def _count_files(self, message: _Json) -> None:
        """Count the attached files that are not images in the content."""
        parts = get_list(message, "content", "parts")
        pointers = [pointer for part in parts if (pointer := get_text(part, "asset_pointer"))]
        for each in get_objects(message, "metadata", "attachments"):
            id = get_text(each, "id")
            if not id or not any(pointer.endswith(id) for pointer in pointers):
                self.skip("attached file")


def _find_call(answer: _Answer, name: str | None) -> ToolCall | None:
    """Return the call of an answer that a message of the tool ``name`` belongs to.

    It is the first call of this tool that waits for its result, or the last call of this tool. A tool
    may answer with the name of the group before the dot, such as ``browser``. If only one call waits
    for its result, the name is not compared, because some tools answer with another name.
    """
    answered = {result.tool_call_id for result in answer.results}
    waiting = [call for call in answer.calls if call.id not in answered]
    group = (name or "").partition(".")[0]
    for calls in (waiting, answer.calls[::-1]):
        same = (call for call in calls if call.name.partition(".")[0] == group)
        if call := next(same, None):
            return call
    return waiting[0] if len(waiting) == 1 else None


def _make_tool_call(id: str, name: str, text: str) -> ToolCall:
    arguments = parse_if_json(text)
    return make_call(id, name, arguments if isinstance(arguments, dict) else {"input": text})


def _texts_at(value: Any, keys: tuple[str, ...]) -> list[str]:
    return [text for key in keys if (text := get_text(value, key))]


def _read_search_results(message: _Json) -> str:
    """Return the titles, addresses and excerpts that the search tool found."""
    groups = get_objects(message, "metadata", "search_result_groups")
    entries = (entry for group in groups for entry in get_objects(group, "entries"))
    return "\n\n".join("\n".join(_texts_at(e, ("title", "url", "snippet"))) for e in entries)


def _to_parts(content: Content) -> list[ContentPart]:
    if isinstance(content, str):
        return [text_part(content)] if content else []
    return list(content)


def _join_text(content: Content) -> str:
    return Message("assistant", content).text
