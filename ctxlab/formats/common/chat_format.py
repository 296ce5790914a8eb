"""Helpers for OpenAI's chat format, which many logs use and to which all readers convert.

Readers for logs in this format parse messages with ``parse_chat_messages``, ``select_chat_fields``
and ``first_choice``, and content with ``normalize_content``. Readers for other formats create
content parts and join them with ``join_parts``. If a log splits an answer into blocks, rows or
items, readers collect them in a ``MessageBuilder``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace

from ctxlab.formats.fields import first_or_none, get_in, get_list, require_object
from ctxlab.messages import content_parts as kinds
from ctxlab.messages import openai_format
from ctxlab.messages.types import Compaction, ContentPart, Message, Recording, ToolCall, Usage

Content: TypeAlias = str | tuple[ContentPart, ...]
"""The content of a message: a string, or a tuple of content parts."""

CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The values of ``role`` in logged messages of OpenAI's chat format."""

_CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def has_non_openai_parts(row: Any) -> bool:
    """Check whether a logged message has content parts that OpenAI's chat format does not have.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if the message has such a part. False if its content is a string.

    Examples
    --------
    >>> has_non_openai_parts({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    False
    >>> has_non_openai_parts({"role": "assistant", "content": [{"type": "think", "think": "hm"}]})
    True
    """
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("parts"), list) or get_list(row, "toolInvocations"):
        return True
    return not all(map(kinds.is_chat_part, get_list(row, "content")))


def has_tool_parts(row: Any) -> bool:
    """Check whether the content of a logged message contains tool calls or tool results.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if at least one content part is a tool call or a tool result.
    """
    return any(kind in kinds.CALL_TYPES or kind in kinds.RESULT_TYPES for kind in _part_types(row))


def has_reasoning_parts(row: Any) -> bool:
    """Check whether the content of a logged message contains reasoning.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if at least one content part is reasoning.
    """
    return any(kind in kinds.REASONING_TYPES for kind in _part_types(row))


def unknown_part_types(row: Any) -> list[str]:
    """Return the types of content parts that OpenAI's chat format does not have.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    list of str
        The type of each such part, in the order of the content.

    Examples
    --------
    >>> unknown_part_types({"content": ["hi", {"type": "hologram"}]})
    ['hologram']
    """
    parts = [each for each in get_list(row, "content") if isinstance(each, dict)]
    return [kinds.describe_type(each) for each in parts if not kinds.is_chat_part(each)]


def _part_types(row: Any) -> list[str | None]:
    return [kinds.part_type(each) for each in get_list(row, "content") if isinstance(each, dict)]


def parse_chat_messages(rows: Iterable[Any]) -> tuple[Message, ...]:
    """Parse a list of messages in OpenAI's chat format.

    Parameters
    ----------
    rows : iterable of Any
        The logged messages.

    Returns
    -------
    tuple of Message
        The parsed messages, one per row.

    Raises
    ------
    ValueError
        If a row is malformed. The error message contains the index of the row.
    """
    messages = []
    for position, row in enumerate(rows):
        try:
            message = openai_format.message_from_dict(row)
            openai_format.reject_tool_parts(message.content)
            messages.append(message)
        except ValueError as error:
            raise ValueError(f"message {position}: {error}") from None
    return tuple(messages)


def select_chat_fields(row: Any) -> dict[str, Any]:
    """Select the fields of a logged message that belong to OpenAI's chat format.

    Other fields, which an agent may have added, are removed.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    dict
        The selected fields: role, content, calls, name and reasoning.

    Raises
    ------
    ValueError
        If the row is not an object, or if its content contains tool calls or tool results.
    """
    row = require_object(row, "a message")
    openai_format.reject_tool_parts(row.get("content"))
    return {key: row[key] for key in _CHAT_FIELDS if key in row}


def first_choice(response: Any) -> Any:
    """Return the message of the first choice of a response.

    Parameters
    ----------
    response : Any
        A response of the Chat Completions API.

    Returns
    -------
    Any
        The message, or None if the response has no choices.

    Examples
    --------
    >>> first_choice({"choices": [{"message": {"content": "hi"}}]}), first_choice({"choices": []})
    ({'content': 'hi'}, None)
    """
    return get_in(first_or_none(get_in(response, "choices")), "message")


def make_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Build a tool call from logged values.

    Parameters
    ----------
    id, name, arguments : Any
        The logged values. Arguments that are not a string are converted to JSON.

    Returns
    -------
    ToolCall
        The tool call.

    Raises
    ------
    ValueError
        If the name is not a string.
    """
    return openai_format.tool_call_from_dict({"id": id, "name": name, "arguments": arguments})


def text_part(text: str) -> ContentPart:
    """Return a content part of type ``text``.

    Parameters
    ----------
    text : str
        The text of the part.

    Returns
    -------
    dict
        The part in OpenAI's chat format.
    """
    return {"type": "text", "text": text}


def image_part(url: str) -> ContentPart:
    """Return a content part of type ``image_url``.

    Parameters
    ----------
    url : str
        URL of the image, or a data URL.

    Returns
    -------
    dict
        The part in OpenAI's chat format.
    """
    return {"type": "image_url", "image_url": {"url": url}}


def join_parts(parts: Sequence[ContentPart]) -> Content | None:
    r"""Join content parts into one string if all of them are text parts.

    Parameters
    ----------
    parts : sequence of dict
        The content parts.

    Returns
    -------
    str, tuple of dict, or None
        The texts joined by newlines. The unchanged parts if at least one is not a text part. None
        if there are no parts.

    Examples
    --------
    >>> join_parts([text_part("a"), text_part("b")])
    'a\nb'
    """
    texts = [part["text"] for part in parts if _is_text_part(part)]
    if len(texts) < len(parts):
        return tuple(parts)
    return "\n".join(texts) if texts else None


def normalize_content(value: Any) -> Content | None:
    """Remove prompt cache markers from content, and join its parts if all are text parts.

    Agents often split a text into parts only to put a cache marker on the last part.

    Parameters
    ----------
    value : Any
        The logged content.

    Returns
    -------
    str, tuple of dict, or None
        One string if all parts are text parts, otherwise the parts without markers. None if there
        is no content.

    Raises
    ------
    ValueError
        If the value is not valid content, or if it contains tool calls or tool results.

    Examples
    --------
    >>> normalize_content([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])
    'hi'
    """
    openai_format.reject_tool_parts(value)
    content = openai_format.parse_content(value)
    if content is None or isinstance(content, str):
        return content
    return join_parts([{k: v for k, v in part.items() if k != "cache_control"} for part in content])


def _is_text_part(part: ContentPart) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


@dataclass
class MessageBuilder:
    """Builder for an assistant message that a log splits into blocks, rows or items.

    It collects the texts, reasoning and calls of the message, and the results of the calls.
    """

    time: float | None = None
    "time of the message, in seconds since 1970"
    usage: Usage | None = None
    "billed token usage"
    texts: list[str] = field(default_factory=list)
    "texts of the content, joined by newlines in the message"
    reasoning: list[str] = field(default_factory=list)
    "texts of the hidden reasoning, joined by newlines in the message"
    calls: list[ToolCall] = field(default_factory=list)
    "tool calls of the message"
    results: list[Message] = field(default_factory=list)
    "tool messages with the results of these calls"

    @property
    def message(self) -> Message:
        r"""The assistant message with all collected texts, reasoning and calls.

        Examples
        --------
        >>> MessageBuilder(texts=["a", "b"]).message.content
        'a\nb'
        """
        said = "\n".join(self.texts) if self.texts else None
        hidden, calls = "\n".join(self.reasoning) or None, tuple(self.calls)
        return Message("assistant", said, calls, reasoning=hidden, usage=self.usage, time=self.time)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The assistant message, followed by the tool messages with the results of its calls."""
        return (self.message, *self.results)


def most_common_model(models: Counter[str]) -> str | None:
    """Return the model with the most answers.

    If several models have the same number of answers, the one that was counted first is returned.

    Parameters
    ----------
    models : Counter of str
        Model → number of answers.

    Returns
    -------
    str or None
        The name of the model, or None if ``models`` is empty.

    Examples
    --------
    >>> most_common_model(Counter(["a", "b", "b"])), most_common_model(Counter())
    ('b', None)
    """
    return max(models, key=models.__getitem__, default=None)


def build_session(
    id: str,
    conversation: tuple[Sequence[Message], Sequence[Compaction]],
    models: Counter[str],
    cluster: str | None,
    meta: dict[str, Any],
) -> Recording:
    """Build the recording of an agent's session.

    The model of the recording is the one with the most answers.

    Parameters
    ----------
    id : str
        Id of the recording.
    conversation : tuple of (sequence of Message, sequence of Compaction)
        The messages and the compactions of the session.
    models : Counter of str
        Model → number of its answers. If there are several models, the numbers are also stored in
        ``meta["models"]``.
    cluster : str or None
        Cluster of the recording.
    meta : dict
        Other values for ``Recording.meta``.

    Returns
    -------
    Recording
        The recording of the session.
    """
    messages, compactions = conversation
    meta = meta | ({"models": dict(models)} if len(models) > 1 else {})
    made = Recording(
        id, tuple(messages), model=most_common_model(models), cluster=cluster, meta=meta
    )
    return replace(made, compactions=tuple(compactions))


def assign_only_usage(recording: Recording, total: Usage | None) -> Recording:
    """Store the total usage of a session in its answer, if it has only one answer.

    Parameters
    ----------
    recording : Recording
        The recording of the session.
    total : Usage or None
        The tokens of all requests of the session, if known.

    Returns
    -------
    Recording
        The recording with the usage. Unchanged if there is not exactly one assistant message, or if
        no tokens are known.

    Examples
    --------
    >>> said = Recording("a", (Message("assistant", "hi"),))
    >>> assign_only_usage(said, Usage(output=3)).messages[0].usage.output
    3
    """
    places = [i for i, each in enumerate(recording.messages) if each.role == "assistant"]
    if total is None or total == Usage() or len(places) != 1:
        return recording
    messages = list(recording.messages)
    messages[places[0]] = messages[places[0]].replace(usage=total)
    return replace(recording, messages=tuple(messages))
