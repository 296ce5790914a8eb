"""Reader and writer for request bodies of Anthropic's Messages API, and reader for its request logs.

A file contains request bodies ``{model, system?, messages, tools?, max_tokens, …}`` as JSONL, as a
JSON list or as one JSON object. It may also contain messages as a JSON list or as JSONL. If a row
contains both a request and its response (``{"request": …, "response": {"type": "message", …}}``),
the file is a request log, and its requests are joined into conversations (see ``request_log``).
Recorded HTTP traffic is read in the same way (see ``exchanges``), and so are the requests and results
of message batches, which are not joined (see ``batches``).

- ``system`` becomes the first message. Several system blocks become one message.
- Tool results in a ``user`` message become tool messages. The remaining content of that message
  becomes a user message after the tool messages.
- The text blocks of an assistant message are joined into one string. Its thinking blocks are also
  joined into one string.
- Tool definitions (``input_schema``) are converted to OpenAI's format. Definitions of tools that
  run on Anthropic's servers are kept unchanged.
- Blocks of other types are skipped and counted by type.

A body without any field or block specific to Anthropic is read by the ``openai`` reader, which
gives the same result.

The writer returns a request body.

- System messages at the beginning become ``system``. A later system message is written as a user
  message at the same position, and is reported as unsupported.
- Consecutive tool results become one user message. No other messages are joined or moved.
- Content that the API rejects, such as an empty string or a call without a result, is written as
  recorded. Only call ids with invalid characters are replaced, both in the call and in its result.
- Missing content is written as an empty string. This does not change the number of tokens.

References
----------
docs.claude.com, "Messages API" and "Tool use", ``anthropic-version: 2023-06-01``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count, groupby, takewhile
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.formats.base import Format, SkipCallback, Source, UnsupportedCallback, report_losses
from ctxlab.formats.cline import reader as cline
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common import batches, request_log
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.fields import get_in, get_list, get_objects, require_object, require_objects
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.content_parts import is_known_type, part_type
from ctxlab.messages.types import ContentPart, Message, Recording, Role, ToolCall

_Json: TypeAlias = dict[str, Any]

_VALID_ID = re.compile(r"[a-zA-Z0-9_-]+")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.+)", re.DOTALL)
_ROLES: dict[str, Role] = {"user": "user", "system": "system"}
_ANTHROPIC_KEYS = ("system", "anthropic_version", "stop_sequences", "thinking")
_THINKING_TYPES = ("thinking", "redacted_thinking")
_CONTENT_TYPES = ("text", "image", "document", "search_result", "container_upload")
_ANTHROPIC_BLOCK_TYPES = ("tool_use", "tool_result", "server_tool_use", *_THINKING_TYPES)


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with requests or messages in Anthropic's format.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if at least one request or message has a field or block specific to Anthropic, and the
        file is not the history of an agent that adds keys to Anthropic's messages.
    """
    if cline.sniff(head):
        return False
    bodies = chain(request_log.request_bodies(head), batches.batch_requests(head))
    if any(map(is_anthropic, bodies)) or any(
        map(batches.is_message_result, batches.batch_rows(head))
    ):
        return True
    if request_log.has_endpoint(head, "/v1/messages"):
        return True
    rows = [row for row in get_objects(list(head.rows)) if "role" in row]
    plain = 0 < len(rows) == len(head.rows) and all(map(_may_be_anthropic, rows))
    return plain and any(map(_has_anthropic_block, rows))


def is_anthropic(body: request_log.RequestBody) -> bool:
    """Check whether a request body is in Anthropic's format.

    Parameters
    ----------
    body : RequestBody
        A request body, with its response if one was logged.

    Returns
    -------
    bool
        True if the body has a field or block that is specific to Anthropic, and its messages have
        none that is specific to another API.
    """
    messages, tools = body.fields["messages"], body.fields.get("tools")
    if not all(map(_may_be_anthropic, messages)):
        return False
    if "params" in body.row and "custom_id" in body.row:
        return True
    own_tools = isinstance(tools, list) and any(get_in(t, "input_schema") for t in tools)
    answered = get_in(body.response, "type") == "message"
    marked = any(body.fields.get(key) is not None for key in _ANTHROPIC_KEYS)
    return own_tools or answered or marked or any(map(_has_anthropic_block, messages))


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Returns
    -------
    iterator of Recording
        One recording per conversation, in the order of the file.
    """
    return batches.read_log(source, _DIALECT)


def dump(recording: Recording, report: UnsupportedCallback) -> str:
    """Convert a recording to a request body, as one line of JSON.

    The body has no ``max_tokens``, because recordings do not store it.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    report : callable
        Called with a description of each detail of the recording that the format cannot store.

    Returns
    -------
    str
        The request body as JSON, followed by a newline.

    Examples
    --------
    >>> messages = (Message("system", "s"), Message("user", "hi"))
    >>> print(dump(Recording("a", messages), print), end="")
    {"system":"s","messages":[{"role":"user","content":"hi"}]}
    """
    report_losses(recording, report, supported="extra")
    body: _Json = {}
    if recording.model is not None:
        body["model"] = recording.model
    opening = list(takewhile(lambda message: message.role == "system", recording.messages))
    if opening:
        body["system"] = _dump_system(opening, report)
    if recording.tools:
        body["tools"] = [_dump_tool(definition, report) for definition in recording.tools]
    body["messages"] = list(_dump_messages(recording.messages[len(opening) :], report))
    return dump_json(body) + "\n"


_ABOUT = "Anthropic Messages API: request bodies, request logs, message batches"
FORMAT = Format(
    "anthropic",
    _ABOUT,
    sniff,
    read,
    dump,
    group_key=batches.group_key,
    versions="API version 2023-06-01 from documentation of 2025; no real file",
    not_read=(
        "left out: documents, calls and results of tools that the provider ran, redacted "
        "thinking, settings of requests, bodies compressed with Brotli or Zstandard"
    ),
)


def _may_be_anthropic(message: Any) -> bool:
    """Return True unless a key, the role or a block type shows that a message is not Anthropic's."""
    return (
        isinstance(message, dict)
        and message.get("role", "user") in ("user", "assistant", "system")
        and not message.keys() & {"type", "tool_calls", "tool_call_id", "function_call", "parts"}
        and not any(map(_is_foreign_block, get_list(message, "content")))
    )


def _is_foreign_block(block: Any) -> bool:
    """Check whether a content block has no type, or a type that only other APIs use.

    The result is False for an unknown type, because Anthropic may have added it.
    """
    if not isinstance(block, dict):
        return False
    kind = part_type(block)
    if "type" not in block or kind is None:
        return True
    own = kind in _CONTENT_TYPES + _THINKING_TYPES or kind.endswith(("tool_use", "tool_result"))
    return not own and is_known_type(kind)


def _has_anthropic_block(message: Any) -> bool:
    content = get_in(message, "content")
    return isinstance(content, list) and any(
        get_in(block, "type") in _ANTHROPIC_BLOCK_TYPES or isinstance(get_in(block, "source"), dict)
        for block in content
    )


def _parse_system(fields: _Json, skip: SkipCallback) -> list[Message]:
    system = fields.get("system")
    if system is None:
        return []
    return [Message("system", blocks.parse_content(blocks.to_blocks(system), skip))]


def _parse_message(row: Any, skip: SkipCallback) -> list[Message]:
    row = require_object(row, "a message")
    role, parts = row.get("role"), blocks.to_blocks(row.get("content"))
    if role == "assistant":
        return [blocks.parse_assistant_blocks(parts, skip).message]
    if role not in _ROLES:
        raise ValueError(f"expected the role user, assistant or system, got {role!r}")
    results, rest = blocks.split_tool_results(parts, skip)
    return results if rest is None and results else [*results, Message(_ROLES[role], rest)]


def _parse_response(response: Any, skip: SkipCallback) -> Message | None:
    if get_in(response, "role") != "assistant":
        skip("response without a message")
        return None
    (message,) = _parse_message(response, skip)
    usage = anthropic_usage(response.get("usage"))
    return message.replace(usage=usage, time=request_log.find_timestamp(response))


def _parse_tools(fields: _Json) -> tuple[_Json, ...]:
    return tuple(map(blocks.to_openai_tool, require_objects(fields.get("tools") or [], "tools")))


_PARSERS = (_parse_system, _parse_message, _parse_response, anthropic_usage, _parse_tools)
_DIALECT = request_log.ApiDialect(*_PARSERS)


def _dump_system(opening: list[Message], report: UnsupportedCallback) -> Any:
    for message in opening:
        _report_unsupported_calls(message, report)
    for _ in opening[1:]:
        report("boundary between system messages")
    contents = [_dump_content(message, report, images=False) for message in opening]
    if len(contents) == 1:
        return contents[0]
    return [block for content in contents for block in blocks.to_blocks(content)]


def _dump_messages(messages: tuple[Message, ...], report: UnsupportedCallback) -> Iterator[_Json]:
    ids = _assign_call_ids(messages, report)
    for role, group in groupby(messages, lambda message: message.role):
        if role == "tool":
            results = [_dump_tool_result(message, ids, report) for message in group]
            yield {"role": "user", "content": results}
            continue
        for message in group:
            if role == "assistant":
                yield {"role": role, "content": _dump_assistant(message, ids, report)}
            else:
                if role == "system":
                    report("role of a late system message")
                yield {"role": "user", "content": _dump_content(message, report)}
            _report_unsupported_calls(message, report)


def _dump_assistant(message: Message, ids: dict[str, str], report: UnsupportedCallback) -> Any:
    said = _dump_content(message, report, images=False)
    if not message.tool_calls:
        return said
    calls: list[_Json] = [
        {"type": "tool_use", "id": ids[call.id], "name": call.name}
        | {"input": _dump_arguments(call, report)}
        for call in message.tool_calls
    ]
    return [*(blocks.to_blocks(said) if said else ()), *calls]


def _dump_tool_result(message: Message, ids: dict[str, str], report: UnsupportedCallback) -> _Json:
    block: _Json = {"type": "tool_result", "tool_use_id": ids[message.tool_call_id or ""]}
    block["content"] = _dump_content(message, report)
    failed = message.extra.get("is_error") is True
    if failed:
        block["is_error"] = True
    if len(message.extra) > failed:
        report("extra of a message")
    if message.tool_calls:
        _report_unsupported_calls(message.replace(tool_call_id=None), report)
    return block


def _report_unsupported_calls(message: Message, report: UnsupportedCallback) -> None:
    """Report the fields of a message that the format cannot store.

    These are ``extra``, the call id of a message that is not a tool result, and the calls of a message
    that is not the assistant's.
    """
    if message.extra and message.role != "tool":
        report("extra of a message")
    if message.tool_call_id is not None:
        report(f"tool_call_id of a {message.role} message")
    if message.role != "assistant":
        for _ in message.tool_calls:
            report(f"call by a {message.role} message")


def _dump_content(
    message: Message, report: UnsupportedCallback, images: bool = True
) -> str | list[_Json]:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    made = [block for part in content if (block := _dump_part(part, report, images))]
    if made and all(block["type"] == "text" for block in made):
        report("text parts of a message")  # the reader joins them
    return made or ""


def _dump_part(part: ContentPart, report: UnsupportedCallback, images: bool) -> _Json | None:
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        if len(part) > 2 or not isinstance(text, str):
            report("detail of a text part")
        return {"type": "text", "text": text if isinstance(text, str) else str(text or "")}
    if kind == "image_url" and images:
        link = part.get("image_url")
        url = link.get("url") if isinstance(link, dict) else link
        if len(part) > 2 or not isinstance(link, dict) or len(link) > 1:
            report("detail of an image")
        if isinstance(url, str) and (source := _image_source(url)):
            return {"type": "image", "source": source}
    report(f"part of type {kind}" if isinstance(kind, str) else "part without a type")
    return None


def _image_source(url: str) -> dict[str, str] | None:
    if data := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    return {"type": "url", "url": url} if url.startswith(("https://", "http://")) else None


def _dump_arguments(call: ToolCall, report: UnsupportedCallback) -> _Json:
    try:
        value = parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        value = call.arguments
    if not isinstance(value, dict):
        report("arguments of a call that are not an object")
        return {"arguments": value}
    if dump_json(value) != call.arguments:
        report("JSON formatting of the arguments of a call")
    return value


def _assign_call_ids(messages: tuple[Message, ...], report: UnsupportedCallback) -> dict[str, str]:
    """Map each recorded call id to the id that is written.

    Ids with characters that the API rejects are replaced. Other ids stay the same.
    """
    calls = [call.id for message in messages for call in message.tool_calls]
    results = [message.tool_call_id or "" for message in messages if message.role == "tool"]
    used = dict.fromkeys(calls + results)
    ids = {id: id for id in used if _VALID_ID.fullmatch(id)}
    free = (name for number in count(1) if (name := f"call_{number}") not in used)
    for id in used:
        if id not in ids:
            report("id of a call")
            ids[id] = next(free)
    return ids


def _dump_tool(definition: _Json, report: UnsupportedCallback) -> _Json:
    function = definition.get("function")
    body = function if isinstance(function, dict) else definition
    made = definition  # for example, a tool that the provider runs
    if "name" in body and (body is function or "parameters" in body):
        made = {key: body[key] for key in ("name", "description") if key in body}
        made["input_schema"] = body.get("parameters", {})
    if blocks.to_openai_tool(made) != definition:
        report("detail of a tool definition")
    return made
