"""Reader for messages in the formats of APIs and agents that have no reader of their own.

A file contains messages or request bodies with ``messages``. Messages are given as JSONL with one
message per line or as a JSON list. Request bodies are given as JSONL, as a JSON list or as a single
object. If they are logged with their responses, the file is a request log. The format of each
message is detected from its content parts. This reader is used if at least one message has parts
that OpenAI's chat format does not have:

- Bedrock Converse: content blocks with a single key, which is their type (``toolUse``,
  ``toolResult``, ``reasoningContent``, …), and request bodies with ``system``, ``toolConfig`` and
  ``modelId``.
- Goose: ``toolRequest`` and ``toolResponse``. The first line of a JSONL file describes the session.
  It is counted as skipped, and its short values are stored in ``meta``. An exported session has the
  key ``conversation``. After a compaction, Goose keeps both the messages hidden from the agent and
  the messages that replaced them. It does not record where the compaction happened.
- Kimi: ``think`` parts in messages that have OpenAI's ``tool_calls``. The rows ``_usage`` and
  ``_checkpoint`` are skipped and counted. ``_system_prompt`` becomes the system message.
- Vercel AI SDK: UI messages with ``parts``, and model messages (``vercel_messages``).
- Anthropic's blocks in messages that also have keys of another API, such as ``tool_calls``. A call
  that is both in the content and in ``tool_calls`` is read once.

A conversation is rejected if more than half of its parts have unknown types, because the recording
would be misleading. Otherwise, parts of unknown types are skipped and counted by type.
Conversations with tool calls of an API that no reader supports (Gemini's ``functionCall``) are
always rejected.

References
----------
``ctxlab.messages.content_parts`` lists the sources of the part types. github.com/MoonshotAI/kimi-cli
``src/kimi_cli/soul/context.py`` at 07a7f17; github.com/block/goose ``session/storage.rs`` at 01a262b
and ``session/legacy.rs`` at 0fc5e54; docs.aws.amazon.com "Converse" (2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ctxlab.errors import ReadError
from ctxlab.formats import anthropic, langchain, mini_swe_agent
from ctxlab.formats.base import Format, SkipCallback, Source, ignore_skip
from ctxlab.formats.cline import reader as cline
from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.common.api_messages import is_control_row, parse_message
from ctxlab.formats.common.chat_format import has_non_openai_parts
from ctxlab.formats.common.request_log import ApiDialect, find_timestamp, read_request_log
from ctxlab.formats.common.traces import parse_response_messages
from ctxlab.formats.common.usage import detect_usage
from ctxlab.formats.common.vercel_messages import is_ui_tool_part
from ctxlab.formats.fields import get_in, get_list, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openai_chat import parse_openai_message
from ctxlab.formats.openhands import completions as openhands_completions
from ctxlab.messages import content_parts as kinds
from ctxlab.messages.types import Message, Recording

_MAX_SNIFFED_ROWS = 50
# Keys that show which provider wrote a block without a type.
_PROVIDER_KEYS = {"block_type", "tool_name"}
# Readers that also recognise lists of messages and take precedence over this reader.
_OTHER_READERS = (anthropic, cline, langchain, mini_swe_agent, openhands_completions)


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with messages of an API other than OpenAI's chat API.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if a message has parts of another API, and no more specific reader recognises the file.
    """
    if any(get_in(row, "format") == "ctxlab" for row in head.rows):
        return False
    rows = [each for row in head.rows for each in _iter_messages(_unwrap_row(row))]
    other = any(has_non_openai_parts(row) for row in rows) or any(map(is_control_row, head.rows))
    if not other or not any(map(_is_plain_message, rows)):
        return False
    return not any(each.sniff(head) for each in _OTHER_READERS)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file, in the order of the file.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        The conversation of a request body or request log. Messages on separate lines form one
        conversation.

    Raises
    ------
    ReadError
        If most content parts of a conversation have unknown types. If ``on_error`` is ``"skip"``,
        such a conversation is skipped and counted, and the error is raised only if no other
        conversation can be read.
    """
    parts = PartCount()

    def message(row: Any, skip: SkipCallback) -> list[Message]:
        parts.add(row)
        parse = parse_message if has_non_openai_parts(row) else parse_openai_message
        return parse(row, skip)

    parsers = _parse_system, message, _parse_response, detect_usage, _parse_tools
    dialect = ApiDialect(*parsers, _is_control, _unwrap_row)
    read_count, refusals = 0, []
    for recording in read_request_log(source, dialect):
        refused, parts = parts.refusal_reason(), PartCount()
        if refused is None:
            read_count += 1
            yield recording
            continue
        refusals.append(refused)
        if source.on_error == "raise":
            break
        source.skip(f"conversation refused: {refused}")
    # Parts of rows after the last recording are counted but not checked yet.
    refusals += [refused] if (refused := parts.refusal_reason()) is not None else []
    if refusals and (source.on_error == "raise" or not read_count):
        raise ReadError(source.path, None, refusals[0])


_ABOUT = "message lists of Bedrock, Vercel AI SDK, Goose, Kimi, or of several APIs mixed"
FORMAT = Format(
    "messages",
    _ABOUT,
    sniff,
    read,
    versions="from source and documentation of 2025 and 2026; no real file",
    not_read=(
        "not in Goose's file: the position of a compaction; left out: notices, control rows, "
        "documents, audio, video, parts of unknown types"
    ),
)


@dataclass
class PartCount:
    """Counter for the content parts of a conversation, and for the parts of unknown types."""

    total: int = 0
    "number of all content parts"
    unknown: Counter[str] = field(default_factory=Counter)
    "unknown type → number of parts of this type"
    kinds: set[str | None] = field(default_factory=set)
    "types and provider-specific keys of the unknown parts"

    def add(self, row: Any) -> None:
        """Count the content parts of a message. Content that is a string counts as one part.

        Parameters
        ----------
        row : Any
            The logged message.
        """
        parts = get_list(row, "parts") or get_list(row, "content")
        self.total += len(parts) or 1
        for part in parts:
            known = not isinstance(part, dict) or kinds.is_known_type(kinds.part_type(part))
            if not known and not is_ui_tool_part(part):
                self.unknown[kinds.describe_type(part)] += 1
                self.kinds |= {kinds.part_type(part), *(_PROVIDER_KEYS & part.keys())}

    def refusal_reason(self) -> str | None:
        """Return an error message if the content parts show that the conversation must be rejected.

        This is the case if more than half of them have unknown types, or if one is a tool call of
        an API that no reader supports.

        Returns
        -------
        str or None
            The error message, or None if the conversation can be read.

        Examples
        --------
        >>> parts = PartCount()
        >>> parts.add({"role": "model", "parts": [{"functionCall": {"name": "ls"}}]})
        >>> print(parts.refusal_reason())  # doctest: +ELLIPSIS
        Expected ... 1 of 1 have unknown types: functionCall (1). They look like Google Gemini ...
        """
        unknown = sum(self.unknown.values())
        if unknown * 2 <= self.total and self.kinds.isdisjoint(kinds.UNREAD_CALL_TYPES):
            return None
        types = ", ".join(f"{kind} ({count})" for kind, count in self.unknown.most_common(4))
        api = kinds.guess_api(self.kinds) or "chat messages of an API that ctxlab does not know"
        return (
            f"Expected content parts of known types, but {unknown} of {self.total} have unknown types: "
            f"{types}. They look like {api}; convert them to OpenAI's chat format (ctxlab formats lists "
            "other formats), name their format with --format, or open an issue with a sample"
        )


def _unwrap_row(value: Any) -> Any:
    """Convert a Goose session or Bedrock request to a request body, and Kimi's prompt to a message.

    Any other value is returned unchanged.
    """
    if not isinstance(value, dict):
        return value
    if value.get("role") == "_system_prompt":
        return {"role": "system", "content": value.get("content")}
    if isinstance(value.get("conversation"), list) and "messages" not in value:
        rest = {key: each for key, each in value.items() if key != "conversation"}
        return rest | {"messages": value["conversation"]}
    if "model" not in value and get_text(value, "modelId"):
        return value | {"model": value["modelId"]}
    return value


def _is_control(value: Any) -> bool:
    """Check whether a row describes the log or the session, and contains no messages.

    The result is False for Kimi's system prompt and for an exported Goose session.
    """
    if get_in(value, "role") == "_system_prompt" or isinstance(get_in(value, "conversation"), list):
        return False
    return is_control_row(value)


def _iter_messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the first messages of a row, which is a message, a list of messages or a request body."""
    if isinstance(value, list):
        for each in value[:_MAX_SNIFFED_ROWS]:
            yield from _iter_messages(each)
    elif isinstance(value, dict):
        request = value.get("request")
        fields = request if isinstance(request, dict) else value
        listed_ = fields.get("messages")
        rows = listed_[:_MAX_SNIFFED_ROWS] if isinstance(listed_, list) else [value]
        yield from (row for row in rows if isinstance(row, dict))


def _is_plain_message(row: dict[str, Any]) -> bool:
    """Check whether a row is a message with a role and content, and has no ``type``."""
    if not isinstance(row.get("role"), str) or row["role"].startswith("_"):
        return False
    return row.get("type") is None and not row.keys().isdisjoint({"content", "parts", "tool_calls"})


def _parse_system(fields: dict[str, Any], skip: SkipCallback) -> list[Message]:
    system = fields.get("system")
    return parse_message({"role": "system", "content": system}, skip) if system else []


def _parse_response(response: Any, skip: SkipCallback) -> Message | None:
    answers = [each for each in parse_response_messages(response, skip) if each.role == "assistant"]
    if not answers:
        skip("response without a message")
        return None
    usage = detect_usage(get_in(response, "usage"))
    time = find_timestamp(response) if isinstance(response, dict) else None
    answer = answers[-1]
    return answer.replace(usage=answer.usage or usage, time=answer.time or time)


def _parse_tools(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    defined = fields.get("tools") or get_in(fields, "toolConfig", "tools")
    known = [each for each in get_list(defined) if get_in(each, "cachePoint") is None]
    return parse_tools(known, ignore_skip)
