"""Bare lists of messages are read whichever API or agent wrote them, each row by its content parts.

A file is JSONL with a message a line, a JSON list of messages, or request bodies with ``messages``
(in lines, in a list or alone; with their answers they are a log). This reader takes the files in which
at least one message holds parts that OpenAI's chat shape does not have:

- Bedrock Converse: blocks named by their key (``toolUse``, ``toolResult``, ``reasoningContent``, …);
  a request body with ``system``, ``toolConfig``, ``modelId``.
- Goose: ``toolRequest``, ``toolResponse``; the first line of its JSONL, which is about the session, is
  counted and its short values go to ``meta``; an exported session has ``conversation``. Messages that
  Goose hid from its agent, and those that took their place, are both there: it says no compaction.
- Kimi: ``think`` parts beside OpenAI's ``tool_calls``; the rows ``_usage`` and ``_checkpoint`` are
  counted, and ``_system_prompt`` is the system message.
- Vercel AI SDK: UI messages with ``parts`` and model messages (``vercel_messages``).
- Anthropic's blocks in rows that also hold keys of another API, such as ``tool_calls``: a call that is
  told in both places is one call.

Where more than half of a conversation's parts are of no known type it is refused, since a reading
without them would look like a conversation that it is not. Fewer are counted by their type. Calls of
an API that no reader reads (Gemini's ``functionCall``) are refused however few they are.

Source: ``content_parts`` names those of the parts. github.com/MoonshotAI/kimi-cli
``src/kimi_cli/soul/context.py`` at 07a7f17; github.com/block/goose ``session/storage.rs`` at 01a262b
and ``session/legacy.rs`` at 0fc5e54; docs.aws.amazon.com "Converse" (2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats import (
    langchain,
    mini_swe_agent,
)
from ctxlab.formats.anthropic import reader as anthropic_messages
from ctxlab.formats.base import (
    Format,
    LeaveOut,
    Source,
    silent,
)
from ctxlab.formats.common.api_calls import answers_of
from ctxlab.formats.common.api_messages import (
    is_control,
    read_row,
)
from ctxlab.formats.common.api_tools import tools_of
from ctxlab.formats.common.chat_format import has_other_parts
from ctxlab.formats.common.request_log import (
    Dialect,
    moment,
    read_bodies,
)
from ctxlab.formats.common.usage import any_usage
from ctxlab.formats.common.vercel_messages import is_ui_tool
from ctxlab.formats.io.head import Head
from ctxlab.formats.openai_chat import message_of
from ctxlab.formats.openhands import completions as openhands_completions
from ctxlab.formats.optional_fields import (
    listed,
    text,
    within,
)
from ctxlab.messages.content_parts import (
    UNREAD_CALLS,
    api_of,
    is_known_type,
    part_type,
    short_type,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "PartCount", "read", "sniff"]

_FIRST = 50
# Keys of blocks without a type that tell whose they are.
_TELLING = {"block_type", "tool_name"}
# Readers of files that hold such lists among other things, and of lists that are theirs alone.
_OTHERS = (anthropic_messages, langchain, mini_swe_agent, openhands_completions)


def sniff(head: Head) -> bool:
    """Whether a file begins with messages of which one is not in OpenAI's chat shape."""
    if any(within(row, "format") == "ctxlab" for row in head.rows):
        return False
    rows = [each for row in head.rows for each in _messages(_unwrapped(row))]
    other = any(has_other_parts(row) for row in rows) or any(map(is_control, head.rows))
    return other and any(map(_is_ours, rows)) and not any(each.sniff(head) for each in _OTHERS)


def read(source: Source) -> Iterator[Recording]:
    """Return the conversations of a file, in its order.

    Parameters
    ----------
    source : Source
        The file; what is left out of it is counted there.

    Yields
    ------
    Recording
        A body's or log's conversation; messages that stand alone are one conversation.

    Raises
    ------
    ReadError
        Where most of the content parts of a conversation are of unknown types. With
        ``on_error="skip"`` the conversation is counted as left out.
    """
    parts = PartCount()

    def message(row: Any, leave_out: LeaveOut) -> list[Message]:
        parts.add(row)
        return read_row(row, leave_out) if has_other_parts(row) else message_of(row, leave_out)

    dialect = Dialect(_opening, message, _answer, any_usage, _tools, _is_skipped, _unwrapped)
    given, refusals = 0, []
    for recording in read_bodies(source, dialect):
        refused, parts = parts.refusal(), PartCount()
        if refused is None:
            given += 1
            yield recording
            continue
        refusals.append(refused)
        if source.on_error == "raise":
            break
        source.skip(f"conversation refused: {refused}")
    # A conversation of which nothing is known gives no recording.
    refusals += [refused] if (refused := parts.refusal()) is not None else []
    if refusals and (source.on_error == "raise" or not given):
        raise ReadError(source.path, None, refusals[0])


FORMAT = Format(
    "messages",
    "message lists of other APIs: Bedrock, Vercel AI SDK, Goose, Kimi, mixed rows",
    sniff,
    read,
)


@dataclass
class PartCount:
    """How many content parts a conversation holds, and of which unknown types."""

    total: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    kinds: set[str | None] = field(default_factory=set)

    def add(self, row: Any) -> None:
        """Count the parts of a message; a content that is a text is one part."""
        row = row if isinstance(row, dict) else {}
        parts = listed(row.get("parts")) or listed(row.get("content"))
        self.total += len(parts) or 1
        for part in parts:
            if isinstance(part, dict) and not (is_known_type(part_type(part)) or is_ui_tool(part)):
                self.unknown[short_type(part)] += 1
                self.kinds |= {part_type(part), *(_TELLING & part.keys())}

    def refusal(self) -> str | None:
        """Return why the conversation is refused; None where it can be read.

        >>> parts = PartCount()
        >>> parts.add({"role": "model", "parts": [{"functionCall": {"name": "ls"}}]})
        >>> parts.refusal()  # doctest: +ELLIPSIS
        'Expected ..., got 1 of 1 unknown: functionCall (1). It looks like Google Gemini contents; ...'
        """
        unknown = sum(self.unknown.values())
        if unknown * 2 <= self.total and self.kinds.isdisjoint(UNREAD_CALLS):
            return None
        types = ", ".join(f"{kind} ({count})" for kind, count in self.unknown.most_common(4))
        api = api_of(self.kinds) or "chat messages of an API that ctxlab does not know"
        return (
            f"Expected content parts of known types, got {unknown} of {self.total} unknown: {types}. "
            f"It looks like {api}; write it in the chat shape of OpenAI (ctxlab formats lists what is "
            "read), name its format with --format, or open an issue with a sample"
        )


def _unwrapped(value: Any) -> Any:
    """A Goose session as a body, and Kimi's prompt as a message."""
    if not isinstance(value, dict):
        return value
    if value.get("role") == "_system_prompt":
        return {"role": "system", "content": value.get("content")}
    if isinstance(value.get("conversation"), list) and "messages" not in value:
        rest = {key: each for key, each in value.items() if key != "conversation"}
        return rest | {"messages": value["conversation"]}
    if "model" not in value and text(value.get("modelId")):
        return value | {"model": value["modelId"]}
    return value


def _is_skipped(value: Any) -> bool:
    """Whether a row is no message; Kimi's system prompt is one, and an exported session a body."""
    if within(value, "role") == "_system_prompt" or isinstance(within(value, "conversation"), list):
        return False
    return is_control(value)


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """The messages that a row of a file is or holds, the first of them."""
    if isinstance(value, list):
        for each in value[:_FIRST]:
            yield from _messages(each)
    elif isinstance(value, dict):
        request = value.get("request")
        fields = request if isinstance(request, dict) else value
        listed_ = fields.get("messages")
        rows = listed_[:_FIRST] if isinstance(listed_, list) else [value]
        yield from (row for row in rows if isinstance(row, dict))


def _is_ours(row: dict[str, Any]) -> bool:
    """Whether a row is a message that no other product wraps in a type of its own."""
    if not isinstance(row.get("role"), str) or row["role"].startswith("_"):
        return False
    return row.get("type") is None and not row.keys().isdisjoint({"content", "parts", "tool_calls"})


def _opening(fields: dict[str, Any], leave_out: LeaveOut) -> list[Message]:
    system = fields.get("system")
    return read_row({"role": "system", "content": system}, leave_out) if system else []


def _answer(response: Any, leave_out: LeaveOut) -> Message | None:
    answers = [each for each in answers_of(response, leave_out) if each.role == "assistant"]
    if not answers:
        leave_out("response without a message")
        return None
    usage = any_usage(within(response, "usage"))
    time = moment(response) if isinstance(response, dict) else None
    answer = answers[-1]
    return answer.replace(usage=answer.usage or usage, time=answer.time or time)


def _tools(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    defined = fields.get("tools") or within(fields, "toolConfig", "tools")
    known = [each for each in listed(defined) if within(each, "cachePoint") is None]
    return tools_of(known, silent)
