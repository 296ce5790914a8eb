"""OpenAI's chat shape is read in the forms in which people keep it, and written a conversation a line.

A file is JSONL, a JSON list or one object of ``{"messages": [...], "tools"?, "model"?, …}``, as
fine-tuning files and request bodies are, or a JSON list of messages. Where the answer stands beside
the request, the file is a log, whose requests are stitched into conversations (``request_bodies``).

- ``functions`` and ``function_call``, which came before ``tools``, have no ids: a call is called
  like its function, and so is its result.
- A refusal is what the assistant said (``extra["refusal"]``).
- Of several choices the first is taken; the others are counted as skipped.
- Of what else stands in a row, words and numbers go to ``meta``.

Bodies that are Anthropic's by their shape are left to its reader, and those whose content holds parts
of other APIs to ``messages``. A row with calls, results or reasoning as parts that comes late in a file
is read as that reads it; parts of unknown types are counted, and stay in the content.

Source: platform.openai.com, "Chat Completions" and "Supervised fine-tuning", as of 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats import (
    mini_swe_agent,
)
from ctxlab.formats import (
    unsupported as losses,
)
from ctxlab.formats.anthropic.reader import is_anthropic
from ctxlab.formats.base import (
    Format,
    LeaveOut,
    Lost,
    Source,
)
from ctxlab.formats.common.api_messages import read_row
from ctxlab.formats.common.chat_format import (
    CHAT_ROLES,
    has_other_parts,
    has_reasoning_parts,
    has_tool_parts,
    unknown_parts,
)
from ctxlab.formats.common.request_log import (
    MOMENTS,
    Body,
    Dialect,
    bodies,
    moment,
    read_bodies,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import Head
from ctxlab.formats.openhands import completions as openhands_completions
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.formats.required_fields import (
    an_object,
    objects,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "dump", "message_of", "read", "sniff"]

# Agents that keep such a list among other things have readers of their own.
_OTHERS = (mini_swe_agent, openhands_completions)

_SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning")
_READ = frozenset({*_SENT, *MOMENTS, "function_call", "refusal", "usage"})


def sniff(head: Head) -> bool:
    """Whether a file begins with a list of chat messages, alone or as ``messages``."""
    found = list(bodies(head))
    if any(has_other_parts(each) for body in found for each in body.fields["messages"]):
        return False
    others = any(map(is_anthropic, found)) or any(other.sniff(head) for other in _OTHERS)
    return any(map(_is_ours, found)) and not others


def read(source: Source) -> Iterator[Recording]:
    """One recording a conversation, in the order of the file."""
    return read_bodies(source, _DIALECT)


def dump(recording: Recording, lost: Lost) -> str:
    """A conversation as one line: a row of a fine-tuning file, or the body of a request.

    >>> print(dump(Recording("a", (Message("user", "hi"),), model="gpt-5"), print), end="")
    {"messages":[{"role":"user","content":"hi"}],"model":"gpt-5"}
    """
    losses.tell(recording, lost, carried=("name",))
    body: dict[str, Any] = {"messages": [message.to_dict() for message in recording.messages]}
    if recording.tools:
        body["tools"] = recording.tools
    if recording.model is not None:
        body["model"] = recording.model
    return dump_json(body) + "\n"


FORMAT = Format("openai", "OpenAI chat: messages, tools; request logs", sniff, read, dump)


def _is_ours(body: Body) -> bool:
    messages = body.fields["messages"]
    first = messages[0] if messages else None
    return (
        isinstance(first, dict)
        and first.get("role") in CHAT_ROLES
        and any(key in first for key in ("content", "tool_calls", "function_call"))
        and all("type" not in each for each in messages if isinstance(each, dict))
    )


def message_of(row: Any, leave_out: LeaveOut) -> list[Message]:
    """Return the message of a row, and beside it the results that it holds as parts.

    Parameters
    ----------
    row : Any
        A message as it was logged.
    leave_out : LeaveOut
        Told of what the row holds and a message has no place for.

    Returns
    -------
    list[Message]

    Raises
    ------
    ValueError
        Where the row is no message; the text says why.
    """
    row = an_object(row, "a message")
    if has_tool_parts(row) or has_reasoning_parts(row):
        return read_row(row, leave_out)
    for kind in unknown_parts(row):
        leave_out(f"block of type {kind}, kept as its JSON")
    wire = {key: row[key] for key in _SENT if row.get(key) is not None}
    calls = wire.get("tool_calls")
    if isinstance(calls, list):
        wire["tool_calls"] = [_call(call) for call in calls]
    elif name := text(within(row.get("function_call"), "name")):
        wire["tool_calls"] = [{"id": name, "function": row["function_call"]}]
    if wire.get("role") == "function":
        wire.setdefault("tool_call_id", wire.get("name"))
    extra = {key: value for key, value in row.items() if key not in _READ and _is_said(value)}
    if not wire.get("content") and text(row.get("refusal")):
        wire["content"], extra["refusal"] = row["refusal"], True
    message = Message.from_dict(wire)
    usage = openai_usage(row.get("usage"))
    return [message.replace(usage=usage, time=moment(row), extra=extra)]


def _call(call: Any) -> Any:
    """A call of a tool that takes any text is written as one of a function."""
    custom = within(call, "custom")
    if not isinstance(custom, dict):
        return call
    function = {"name": custom.get("name"), "arguments": custom.get("input")}
    return {"id": call.get("id"), "function": function}


def _is_said(value: Any) -> bool:
    return value is not None and value != [] and value != {}


def _answer(response: Any, leave_out: LeaveOut) -> Message | None:
    """The message of a response, which may be kept whole, as its message or as the text alone."""
    if text(response):
        return Message("assistant", response)
    said, choices = response, within(response, "choices")
    if isinstance(choices, list) and choices:
        said = within(choices[0], "message")
        for _ in choices[1:]:
            leave_out("further choice")
    if within(said, "role") != "assistant":
        leave_out("response without a message")
        return None
    message, *_ = message_of(said, leave_out) or [Message("assistant")]
    usage = openai_usage(response.get("usage"))
    return message.replace(usage=usage or message.usage, time=moment(response) or message.time)


def _opening(fields: dict[str, Any], leave_out: LeaveOut) -> list[Message]:
    """A prompt beside the messages, which some keep as Anthropic has it."""
    system = text(fields.get("system"))
    return [Message("system", system)] if system else []


def _tools(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    if tools := fields.get("tools"):
        return tuple(objects(tools, "tools"))
    functions = objects(fields.get("functions") or [], "functions")
    return tuple({"type": "function", "function": each} for each in functions)


_DIALECT = Dialect(_opening, message_of, _answer, openai_usage, _tools)
