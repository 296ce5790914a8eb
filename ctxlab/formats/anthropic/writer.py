"""A recording becomes the body of a request to Anthropic's Messages API, which says it all again.

- System messages at the beginning become ``system``. A later one is told and stays where it is, as a
  message of the user's.
- The results that follow one another are one user message. Nothing else is joined or moved.
- What an API answers with an error, such as an empty text or a call without a result, is written as
  it was recorded; an id that its shape forbids is replaced, in the call and in its result.
- An absent content is written as an empty text, which counts the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, groupby, takewhile
from typing import Any

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
)
from ctxlab.formats import unsupported as losses
from ctxlab.formats.base import Lost
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.messages.types import (
    Message,
    Part,
    Recording,
    ToolCall,
)

__all__ = ["dump"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.+)", re.DOTALL)
_Block = dict[str, Any]


def dump(recording: Recording, lost: Lost) -> str:
    """A conversation as one line, the body of a request (without ``max_tokens``, which none recorded).

    >>> messages = (Message("system", "s"), Message("user", "hi"))
    >>> print(dump(Recording("a", messages), print), end="")
    {"system":"s","messages":[{"role":"user","content":"hi"}]}
    """
    losses.tell(recording, lost, carried=("extra",))
    body: dict[str, Any] = {}
    if recording.model is not None:
        body["model"] = recording.model
    opening = list(takewhile(lambda message: message.role == "system", recording.messages))
    if opening:
        body["system"] = _system(opening, lost)
    if recording.tools:
        body["tools"] = [_tool(definition, lost) for definition in recording.tools]
    body["messages"] = list(_messages(recording.messages[len(opening) :], lost))
    return dump_json(body) + "\n"


def _system(opening: list[Message], lost: Lost) -> Any:
    for message in opening:
        _tell_of_calls(message, lost)
    for _ in opening[1:]:
        lost("border between system messages")
    contents = [_content(message, lost, images=False) for message in opening]
    if len(contents) == 1:
        return contents[0]
    return [block for content in contents for block in blocks.blocks_of(content)]


def _messages(messages: tuple[Message, ...], lost: Lost) -> Iterator[dict[str, Any]]:
    ids = _ids(messages, lost)
    for role, group in groupby(messages, lambda message: message.role):
        if role == "tool":
            yield {"role": "user", "content": [_result(message, ids, lost) for message in group]}
            continue
        for message in group:
            if role == "assistant":
                yield {"role": role, "content": _answer(message, ids, lost)}
            else:
                if role == "system":
                    lost("role of a late system message")
                yield {"role": "user", "content": _content(message, lost)}
            _tell_of_calls(message, lost)


def _answer(message: Message, ids: dict[str, str], lost: Lost) -> Any:
    said = _content(message, lost, images=False)
    if not message.tool_calls:
        return said
    calls = [
        {"type": "tool_use", "id": ids[call.id], "name": call.name, "input": _input(call, lost)}
        for call in message.tool_calls
    ]
    return [*(blocks.blocks_of(said) if said else ()), *calls]


def _result(message: Message, ids: dict[str, str], lost: Lost) -> _Block:
    block: _Block = {"type": "tool_result", "tool_use_id": ids[message.tool_call_id or ""]}
    block["content"] = _content(message, lost)
    failed = message.extra.get("is_error") is True
    if failed:
        block["is_error"] = True
    if len(message.extra) > failed:
        lost("extra of a message")
    if message.tool_calls:
        _tell_of_calls(message.replace(tool_call_id=None), lost)
    return block


def _tell_of_calls(message: Message, lost: Lost) -> None:
    """What only an assistant's message or a tool's can hold, and extra."""
    if message.extra and message.role != "tool":
        lost("extra of a message")
    if message.tool_call_id is not None:
        lost(f"answered call of a {message.role} message")
    if message.role != "assistant":
        for _ in message.tool_calls:
            lost(f"call by a {message.role} message")


def _content(message: Message, lost: Lost, images: bool = True) -> str | list[_Block]:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    made = [block for part in content if (block := _block(part, lost, images))]
    if made and all(block["type"] == "text" for block in made):
        lost("text parts of a message")  # they are read as one text
    return made or ""


def _block(part: Part, lost: Lost, images: bool) -> _Block | None:
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        if len(part) > 2 or not isinstance(text, str):
            lost("detail of a text part")
        return {"type": "text", "text": text if isinstance(text, str) else str(text or "")}
    if kind == "image_url" and images:
        link = part.get("image_url")
        url = link.get("url") if isinstance(link, dict) else link
        if len(part) > 2 or not isinstance(link, dict) or len(link) > 1:
            lost("detail of an image")
        if isinstance(url, str) and (source := _source(url)):
            return {"type": "image", "source": source}
    lost(f"part of type {kind}" if isinstance(kind, str) else "part of no type")
    return None


def _source(url: str) -> dict[str, str] | None:
    if data := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    return {"type": "url", "url": url} if url.startswith(("https://", "http://")) else None


def _input(call: ToolCall, lost: Lost) -> dict[str, Any]:
    try:
        value = parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        value = call.arguments
    if not isinstance(value, dict):
        lost("bare arguments of a call")
        return {"arguments": value}
    if dump_json(value) != call.arguments:
        lost("spelling of the arguments of a call")
    return value


def _ids(messages: tuple[Message, ...], lost: Lost) -> dict[str, str]:
    """Each call id with the one to write: itself where it may stand."""
    calls = [call.id for message in messages for call in message.tool_calls]
    results = [message.tool_call_id or "" for message in messages if message.role == "tool"]
    used = dict.fromkeys(calls + results)
    ids = {id: id for id in used if _ID.fullmatch(id)}
    free = (name for number in count(1) if (name := f"call_{number}") not in used)
    for id in used:
        if id not in ids:
            lost("id of a call")
            ids[id] = next(free)
    return ids


def _tool(definition: dict[str, Any], lost: Lost) -> dict[str, Any]:
    function = definition.get("function")
    body = function if isinstance(function, dict) else definition
    made = definition  # such as a tool that the provider runs itself
    if "name" in body and (body is function or "parameters" in body):
        made = {key: body[key] for key in ("name", "description") if key in body}
        made["input_schema"] = body.get("parameters", {})
    if blocks.tool(made) != definition:
        lost("detail of a tool definition")
    return made
