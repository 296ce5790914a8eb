"""Reader for ShareGPT conversations, in which each turn has a speaker and a text.

A file contains objects ``{"conversations": [{"from": "human", "value": …}, …], "system"?,
"tools"?}``. It is a JSON list, JSONL or a single object. The key of the turns may also be
``messages``, and the key of the speaker ``role``. A file may also contain lists of turns that are
not inside objects, or one turn per line.

- ``human`` and ``user`` are the user, ``gpt`` and ``assistant`` are the assistant, and ``system``
  is the system prompt.
- The value of ``function_call`` is a JSON object or list of calls with ``name`` and ``arguments``.
  The value of ``observation``, ``tool`` and ``function_response`` is a tool result. The tags
  ``<tool_call>`` and ``<tool_response>``, which the Hermes data sets use, are also read.
- Calls have no ids. They get the ids ``call-1``, ``call-2`` and so on. Results are assigned to the
  unanswered calls in order. If a result is a JSON list with one element per unanswered call, each
  element becomes the result of one call.
- A ``function_call`` that is not valid JSON, as in data sets with XML calls, is read as plain text
  and counted.
- ``<think>`` at the beginning of a turn is read as reasoning.
- In a preference pair, ``chosen`` is read as the last message. ``rejected`` is skipped and counted.
  Images are also skipped and counted, because their position in the text is unknown.

References
----------
github.com/hiyouga/LLaMA-Factory ``data/README.md`` at 015ff25 and ``data/formatter.py`` at
02e2fb3; huggingface.co/datasets/NousResearch/hermes-function-calling-v1 (2024).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats import fields
from ctxlab.formats.base import Format, Location, SkipCallback, Source
from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.common.chat_format import make_call
from ctxlab.formats.common.request_log import short_metadata
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.openai_chat import parse_openai_message
from ctxlab.messages.types import Message, Recording, ToolCall

_USER_ROLES = ("human", "user")
_ASSISTANT_ROLES = ("gpt", "assistant", "chatgpt", "model", "bot", "bing", "bard")
_CALL_ROLES = ("function_call", "function-call", "tool_call")
_FUNCTION_ROLES = ("function", "function_response", "function-response")
_RESULT_ROLES = ("observation", "tool", "ipython", *_FUNCTION_ROLES)
_ROLES = ("system", *_USER_ROLES, *_ASSISTANT_ROLES, *_CALL_ROLES, *_RESULT_ROLES)
_TURN_LIST_KEYS = ("conversations", "conversation", "messages")
_MEDIA_KEYS = ("images", "image", "videos", "audios")
_TOOL_CALL_TAG = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_TOOL_RESPONSE_TAG = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_THINK_TAG = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a ShareGPT conversation or with single turns.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first rows contains a turn with a known speaker and a value.
    """
    for row in head.rows[:3]:
        first = row[0] if isinstance(row, list) and row else row
        turns = _get_turns(first)
        if turns is None:
            turns = [first]
        if turns and is_turn(turns[0]):
            return True
        if turns and "conversations" in fields.get_object(first):
            return fields.get_in(turns[0], "role") is not None and "content" in turns[0]
    return False


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file.

    Turns that are not in a list, such as one turn per line, are joined into one conversation.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Yields
    ------
    Recording
        A conversation with its tool definitions. ``meta`` contains the other short values of its
        row, such as an id or a score.
    """
    alone: list[tuple[Location, Any]] = []
    for where, value in source.read_json_values():
        turns = _get_turns(value)
        if turns is None:
            alone.append((where or (1, "line"), value))
            continue
        row = fields.get_object(value)
        messages = _parse_conversation(row, turns, source, where)
        if messages:
            tools = parse_tools(row.get("tools") or row.get("tool"), source.skip)
            meta = {key: each for key, each in short_metadata(row).items() if key != "tool"}
            yield Recording(source.name, messages, tools=tools, meta=meta)
        else:
            source.skip("conversation without messages", where[0] if where else None)
    if alone and (messages := parse_turns(alone, source)):
        yield Recording(source.name, messages)


FORMAT = Format(
    "sharegpt",
    "ShareGPT conversations: from and value",
    sniff,
    read,
    versions=("from source: LLaMA-Factory at 015ff25; data set hermes-function-calling-v1 (2024)"),
    not_read=(
        "not in the file: model, times, usage, ids of calls; left out: images, audio and "
        "video beside a conversation, rejected answers"
    ),
)


def _get_turns(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    held = (fields.get_in(value, key) for key in _TURN_LIST_KEYS)
    return next((each for each in held if isinstance(each, list)), None)


def is_turn(value: Any) -> bool:
    """Check whether a value is a turn with a known speaker.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True for an object with a speaker under ``from`` or ``role`` and a ``value``.
    """
    speaker = fields.get_in(value, "from") or fields.get_in(value, "role")
    return isinstance(speaker, str) and speaker in _ROLES and "value" in value


def _parse_conversation(
    row: dict[str, Any], turns: list[Any], source: Source, where: Location | None
) -> tuple[Message, ...]:
    """Return the messages of a conversation.

    Rejected answers, images and other media are counted as skipped.
    """
    said: list[Any] = []
    opens = fields.get_in(fields.first_or_none(turns), "from") == "system"
    if fields.get_text(row, "system") and not opens:
        said.append({"from": "system", "value": row["system"]})
    said += turns
    if isinstance(row.get("chosen"), dict):
        said.append(row["chosen"])
    if row.get("rejected") is not None:
        source.skip("rejected answer")
    for key in _MEDIA_KEYS:
        for _ in fields.get_list(row, key) or ([row[key]] if fields.get_text(row, key) else []):
            source.skip(f"{key.removesuffix('s')} beside a conversation")
    return parse_turns(((where or (at, "turn"), turn) for at, turn in enumerate(said)), source)


def parse_turns(turns: Iterable[tuple[Location, Any]], source: Source) -> tuple[Message, ...]:
    """Convert turns to messages. Results are assigned to the unanswered calls in order.

    Parameters
    ----------
    turns : iterable of tuple
        The turns with their locations in the file.
    source : Source
        The file. Content that is skipped is counted by its ``skip`` method.

    Returns
    -------
    tuple of Message
        The messages.
    """
    messages: list[Message] = []
    open_: list[ToolCall] = []
    count = 0
    for where, turn in turns:
        with source.handle_errors(*where):
            turn = fields.require_object(turn, "a turn")
            if "value" not in turn and "content" in turn:
                messages += parse_openai_message(turn, source.skip)
                continue
            speaker = turn.get("from") or turn.get("role")
            if speaker not in _ROLES:
                raise ValueError(f"expected a speaker such as human or gpt, got {speaker!r}")
            value = fields.require_text(turn.get("value"), "value")
            if speaker in _RESULT_ROLES:
                new = _parse_results(value, open_)
                del open_[: len(new)]
                messages += new
                continue
            message = _parse_turn(speaker, value, count, source.skip)
            count += len(message.tool_calls)
            open_ += message.tool_calls
            messages.append(message)
    return tuple(messages)


def _parse_turn(speaker: str, value: str, count: int, skip: SkipCallback) -> Message:
    """Convert a turn that is not a tool result. ``count`` is the number of calls in earlier turns."""
    if speaker in _USER_ROLES or speaker == "system":
        return Message("system" if speaker == "system" else "user", value)
    thought = _THINK_TAG.match(value)
    reasoning = thought[1].strip() or None if thought else None
    said = value[thought.end() :] if thought else value
    if speaker in _CALL_ROLES:
        wanted = fields.parse_if_json(said.strip())
        calls = wanted if isinstance(wanted, list) else [wanted]
        if not calls or not all(isinstance(fields.get_in(each, "name"), str) for each in calls):
            skip("function call that is not JSON")
            return Message("assistant", said, reasoning=reasoning)
        return Message("assistant", None, _number_calls(calls, count), reasoning=reasoning)
    found = [fields.parse_if_json(each) for each in _TOOL_CALL_TAG.findall(said)]
    if not found or not all(isinstance(fields.get_in(each, "name"), str) for each in found):
        return Message("assistant", said, reasoning=reasoning)
    rest = _TOOL_CALL_TAG.sub("", said).strip()
    return Message("assistant", rest or None, _number_calls(found, count), reasoning=reasoning)


def _number_calls(calls: list[Any], count: int) -> tuple[ToolCall, ...]:
    """Convert calls, and assign consecutive ids such as ``call-1``, because ShareGPT has no ids.

    ``count`` is the number of calls in earlier turns.
    """
    return tuple(
        make_call(f"call-{number}", call["name"], call.get("arguments", call.get("parameters")))
        for number, call in enumerate(calls, start=count + 1)
    )


def _parse_results(value: str, calls: list[ToolCall]) -> list[Message]:
    """Return the tool results of a turn, assigned in order to the unanswered ``calls``.

    If there are more results than calls, the last results have no call id.
    """
    texts = _TOOL_RESPONSE_TAG.findall(value) or [value]
    if len(texts) == 1 and len(calls) > 1:
        several = fields.parse_if_json(texts[0])
        if isinstance(several, list) and len(several) == len(calls):
            texts = [each if isinstance(each, str) else dump_json(each) for each in several]
    ids = chain((call.id for call in calls), repeat(None))
    return [Message("tool", said, tool_call_id=id) for said, id in zip(texts, ids, strict=False)]
