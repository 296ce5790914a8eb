"""Reader and writer for OpenAI's chat format.

A file contains objects ``{"messages": [...], "tools"?, "model"?, …}``, as in fine-tuning files and
request bodies. It is JSONL, a JSON list or a single object. It may also be a JSON list of messages.
If rows contain both a request and its response, the file is a request log, and its requests are
joined into conversations (see ``request_log``). Recorded HTTP traffic is read in the same way (see
``exchanges``), and so are the requests and responses of the Batch API, which are not joined (see
``batches``).

- ``functions`` and ``function_call``, the predecessors of ``tools``, have no ids. The function name
  is used as the id of the call and of its result.
- A refusal is read as the content of the assistant's message, and ``extra["refusal"]`` is True.
- If a response has several choices, the first is read, and the others are skipped and counted.
- Other short strings and numbers of a row are stored in ``meta``.

Request bodies in Anthropic's format are read by the reader ``anthropic``, and request bodies with
content parts of other APIs by the reader ``messages``. If a message with calls, results or reasoning
as content parts appears later in the file, it is parsed like a message in the ``messages`` format.
Parts of unknown types are counted and kept in the content.

References
----------
platform.openai.com, "Chat Completions" and "Supervised fine-tuning", as of 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats import fields, mini_swe_agent
from ctxlab.formats.anthropic import is_anthropic
from ctxlab.formats.base import Format, SkipCallback, Source, UnsupportedCallback, report_losses
from ctxlab.formats.cline import reader as cline
from ctxlab.formats.common import batches, chat_format, request_log
from ctxlab.formats.common.api_messages import parse_message
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openhands import completions as openhands_completions
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, Recording

# Readers for agents that also store lists of chat messages; they take precedence.
_OTHER_READERS = (cline, mini_swe_agent, openhands_completions)

_REASONING_KEYS = ("reasoning_content", "reasoning")
_MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", *_REASONING_KEYS)
_OTHER_KEYS = (*request_log.TIME_KEYS, "function_call", "refusal", "usage")
_NON_EXTRA_KEYS = frozenset(_MESSAGE_KEYS + _OTHER_KEYS)


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a list of chat messages or an object with ``messages``.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if there are messages in OpenAI's chat format, and the file is not in the format of
        Anthropic or of an agent that stores such messages.
    """
    found = [*request_log.request_bodies(head), *batches.batch_requests(head)]
    if any(
        chat_format.has_non_openai_parts(each) for body in found for each in body.fields["messages"]
    ):
        return False
    others = any(map(is_anthropic, found)) or any(other.sniff(head) for other in _OTHER_READERS)
    if others:
        return False
    if request_log.has_endpoint(head, "/chat/completions"):
        return True
    results = map(batches.is_completion_result, batches.batch_rows(head))
    return any(map(_is_openai_body, found)) or any(results)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file, in the order of the file.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Returns
    -------
    Iterator of Recording
        One recording per conversation.
    """
    return batches.read_log(source, _DIALECT)


def dump(recording: Recording, report: UnsupportedCallback) -> str:
    """Convert a recording to a request body, as one line of JSON.

    The line can also be used as a row of a fine-tuning file.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    report : Callable
        Called with the name of each field that the format cannot store.

    Returns
    -------
    str
        The request body as JSON, followed by a newline.

    Examples
    --------
    >>> print(dump(Recording("a", (Message("user", "hi"),), model="gpt-5"), print), end="")
    {"messages":[{"role":"user","content":"hi"}],"model":"gpt-5"}
    """
    report_losses(recording, report, supported="name")
    body: dict[str, Any] = {"messages": [message.to_dict() for message in recording.messages]}
    if recording.tools:
        body["tools"] = recording.tools
    if recording.model is not None:
        body["model"] = recording.model
    return dump_json(body) + "\n"


_ABOUT = "OpenAI chat: messages, request bodies, request logs, batches"
FORMAT = Format(
    "openai",
    _ABOUT,
    sniff,
    read,
    dump,
    group_key=batches.group_key,
    versions=("from documentation of 2025 and source of LiteLLM, VCR and mitmproxy; no real file"),
    not_read=(
        "left out: further choices, requests to other endpoints (such as Responses), "
        "settings of requests, bodies compressed with Brotli or Zstandard"
    ),
)


def _is_openai_body(body: request_log.RequestBody) -> bool:
    messages = body.fields["messages"]
    first = fields.get_object(fields.first_or_none(messages))
    keys = ("content", "tool_calls", "function_call")
    chat = first.get("role") in chat_format.CHAT_ROLES and not first.keys().isdisjoint(keys)
    return chat and all("type" not in each for each in fields.get_objects(messages))


def parse_openai_message(row: Any, skip: SkipCallback) -> list[Message]:
    """Parse a logged message in OpenAI's chat format.

    Messages with tool calls, tool results or reasoning as content parts are also accepted.

    Parameters
    ----------
    row : Any
        The logged message.
    skip : Callable
        Called with a description of each content part that is skipped or has an unknown type.

    Returns
    -------
    list of Message
        Usually one message. If the content contains tool results as parts, each becomes a separate
        tool message.

    Raises
    ------
    ValueError
        If the row is not a valid message.
    """
    row = fields.require_object(row, "a message")
    if chat_format.has_tool_parts(row) or chat_format.has_reasoning_parts(row):
        return parse_message(row, skip)
    for kind in chat_format.unknown_part_types(row):
        skip(f"block of type {kind}, kept as its JSON")
    wire = {key: row[key] for key in _MESSAGE_KEYS if row.get(key) is not None}
    calls = wire.get("tool_calls")
    if isinstance(calls, list):
        wire["tool_calls"] = [_convert_custom_call(call) for call in calls]
    elif name := fields.get_text(row, "function_call", "name"):
        wire["tool_calls"] = [{"id": name, "function": row["function_call"]}]
    if wire.get("role") == "function":
        wire.setdefault("tool_call_id", wire.get("name"))
    others = {key: row[key] for key in row if key not in _NON_EXTRA_KEYS}
    extra = {key: value for key, value in others.items() if value not in (None, [], {})}
    if not wire.get("content") and fields.get_text(row, "refusal"):
        wire["content"], extra["refusal"] = row["refusal"], True
    message = message_from_dict(wire)
    usage = openai_usage(row.get("usage"))
    return [message.replace(usage=usage, time=request_log.find_timestamp(row), extra=extra)]


def _convert_custom_call(call: Any) -> Any:
    """Convert a call of a custom tool to a function call. Other calls are returned unchanged.

    The input of a custom tool is a string, which becomes the arguments of the function call.
    """
    custom = fields.get_in(call, "custom")
    if not isinstance(custom, dict):
        return call
    function = {"name": custom.get("name"), "arguments": custom.get("input")}
    return {"id": call.get("id"), "function": function}


def _parse_response(response: Any, skip: SkipCallback) -> Message | None:
    """Return the assistant message of a logged response, or None if it contains none.

    The response is an object of the API, a message or a string.
    """
    if fields.get_text(response):
        return Message("assistant", response)
    said, choices = response, fields.get_in(response, "choices")
    if isinstance(choices, list) and choices:
        said = fields.get_in(choices[0], "message")
        for _ in choices[1:]:
            skip("further choice")
    if fields.get_in(said, "role") != "assistant":
        skip("response without a message")
        return None
    message, *_ = parse_openai_message(said, skip) or [Message("assistant")]
    usage = openai_usage(response.get("usage")) or message.usage
    return message.replace(usage=usage, time=request_log.find_timestamp(response) or message.time)


def _parse_system(body: dict[str, Any], skip: SkipCallback) -> list[Message]:
    """Return the ``system`` field of a request body as a list with one message, if it is set."""
    system = fields.get_text(body, "system")
    return [Message("system", system)] if system else []


def _parse_tools(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    if tools := body.get("tools"):
        return tuple(fields.require_objects(tools, "tools"))
    functions = fields.require_objects(body.get("functions") or [], "functions")
    return tuple({"type": "function", "function": each} for each in functions)


_PARSERS = (_parse_system, parse_openai_message, _parse_response, openai_usage, _parse_tools)
_DIALECT = request_log.ApiDialect(*_PARSERS)
