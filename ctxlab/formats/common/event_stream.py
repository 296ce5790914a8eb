r"""Assemble responses that a chat API streamed as server-sent events.

A recorder of HTTP traffic stores such a response as text: one ``data: {…}`` line per event. The
events of Anthropic's API contain the parts of a message. The events of OpenAI's chat API are chunks
with the parts of the choices. Both are assembled to the object that the API returns if it does not
stream. Events of other types are ignored.

References
----------
docs.claude.com, "Streaming Messages"; platform.openai.com, "Chat Completions", the object
``chat.completion.chunk``; both as of 2025.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.fields import get_in, get_object, get_objects, get_text, parse_json_or_none

_Json: TypeAlias = dict[str, Any]

_DELTA_KEYS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_CHUNK_KEYS = ("id", "model", "created", "usage")
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal")
_MAX_INDEX = 10_000


def parse_event_stream(text: str) -> _Json | None:
    r"""Assemble the response in the text of an event stream.

    Parameters
    ----------
    text : str
        The body of the response.

    Returns
    -------
    dict or None
        The response, or None if the text is not an event stream of a supported API.

    Examples
    --------
    >>> lines = ['data: {"choices": [{"delta": {"content": "h"}}]}',
    ...          'data: {"choices": [{"delta": {"content": "i"}}]}', "data: [DONE]"]
    >>> parse_event_stream("\n\n".join(lines))["choices"][0]["message"]["content"]
    'hi'
    """
    data = (line[5:] for line in text.splitlines() if line.startswith("data:"))
    return assemble_response(parse_json_or_none(each) for each in data)


def assemble_response(events: Iterable[Any]) -> _Json | None:
    """Assemble a response from its events.

    Parameters
    ----------
    events : iterable of Any
        The events as parsed JSON. Values that are not objects are ignored.

    Returns
    -------
    dict or None
        A message of Anthropic's API or a completion of OpenAI's API. None if there is neither a
        ``message_start`` event nor a chunk with choices.
    """
    message, completion = _MessageEvents(), _CompletionChunks()
    for event in events:
        if isinstance(event, dict):
            message.add(event)
            completion.add(event)
    return message.response or completion.response


@dataclass
class _MessageEvents:
    """The events of a streamed message of Anthropic's API."""

    message: _Json = field(default_factory=dict)
    blocks: dict[int, _Json] = field(default_factory=dict)
    "index → block as it was started"
    pieces: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    "index and key of a block → the parts of its text"

    def add(self, event: _Json) -> None:
        """Add the next event."""
        kind, index = event.get("type"), _read_index(event)
        if kind == "message_start":
            self.message = get_object(event, "message")
        elif kind == "content_block_start":
            self.blocks[index] = get_object(event, "content_block")
        elif kind == "content_block_delta":
            delta = get_object(event, "delta")
            key = _DELTA_KEYS.get(get_text(delta, "type") or "", "partial_json")
            if said := get_text(delta, key):
                self.pieces.setdefault((index, key), []).append(said)
        elif kind == "message_delta":
            counts = get_object(event, "usage").items()
            billed = {key: value for key, value in counts if value is not None}
            self.message = self.message | get_object(event, "delta")
            self.message["usage"] = get_object(self.message, "usage") | billed

    @property
    def response(self) -> _Json | None:
        """The message; None if no message was started."""
        if not self.message:
            return None
        blocks = [self._join_block(index) for index in sorted(self.blocks)]
        return {"type": "message", "role": "assistant"} | self.message | {"content": blocks}

    def _join_block(self, index: int) -> _Json:
        block = dict(self.blocks[index])
        for key in _DELTA_KEYS.values():
            if pieces := self.pieces.get((index, key)):
                block[key] = (get_text(block, key) or "") + "".join(pieces)
        if pieces := self.pieces.get((index, "partial_json")):
            arguments = "".join(pieces)
            parsed = parse_json_or_none(arguments)
            block["input"] = arguments if parsed is None else parsed
        return block


@dataclass
class _CompletionChunks:
    """The chunks of a streamed completion of OpenAI's API."""

    fields: _Json = field(default_factory=dict)
    pieces: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    "index of a choice → key of its message → the parts of the text"
    calls: dict[int, dict[int, dict[str, list[str]]]] = field(default_factory=dict)
    "index of a choice → index of a tool call → key of the call → the parts of the text"

    def add(self, chunk: _Json) -> None:
        """Add the next chunk."""
        if not isinstance(chunk.get("choices"), list):
            return
        self.fields |= {key: chunk[key] for key in _CHUNK_KEYS if chunk.get(key) is not None}
        for choice in get_objects(chunk, "choices"):
            index, delta = _read_index(choice), get_object(choice, "delta")
            said = self.pieces.setdefault(index, {})
            for key in _TEXT_KEYS:
                if text := get_text(delta, key):
                    said.setdefault(key, []).append(text)
            for call in get_objects(delta, "tool_calls"):
                parts = self.calls.setdefault(index, {}).setdefault(_read_index(call), {})
                for key, path in (("id", ("id",)), ("name", ("function", "name"))):
                    if text := get_text(call, *path):
                        parts[key] = [text]
                if text := get_text(call, "function", "arguments"):
                    parts.setdefault("arguments", []).append(text)

    @property
    def response(self) -> _Json | None:
        """The completion; None if there was no chunk with a choice."""
        if not self.pieces:
            return None
        choices = [{"index": i, "message": self._join_message(i)} for i in sorted(self.pieces)]
        return {"object": "chat.completion"} | self.fields | {"choices": choices}

    def _join_message(self, index: int) -> _Json:
        said: _Json = {key: "".join(parts) for key, parts in self.pieces[index].items()}
        message: _Json = {"role": "assistant", "content": None} | said
        found = self.calls.get(index, {})
        if found:
            message["tool_calls"] = [_join_call(found[number]) for number in sorted(found)]
        return message


def _join_call(parts: dict[str, list[str]]) -> _Json:
    text = {key: "".join(parts.get(key, ())) for key in ("id", "name", "arguments")}
    function = {"name": text["name"], "arguments": text["arguments"]}
    return {"id": text["id"], "type": "function", "function": function}


def _read_index(value: Any) -> int:
    index = get_in(value, "index")
    valid = isinstance(index, int) and not isinstance(index, bool) and 0 <= index <= _MAX_INDEX
    return index if valid else 0
