"""Helpers for OpenAI's chat shape, which many logs use and all readers produce.

Readers of logs in that shape parse messages (``parse_chat_messages``, ``select_chat_fields``,
``first_choice``) and content (``normalize_content``). Readers of other shapes create parts and join
them (``join_parts``), or collect an answer that a log splits into blocks, rows or items
(``MessageBuilder``).
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
"""The content of a message: a text, or parts."""

CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Values of ``role`` in a logged message."""

_CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def has_non_openai_parts(row: Any) -> bool:
    """Check whether a logged message has parts that OpenAI's chat shape does not have.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if there is such a part.

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
    """Check whether the content of a logged message has tool calls or results as parts.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if there is such a part.
    """
    return any(kind in kinds.CALL_TYPES or kind in kinds.RESULT_TYPES for kind in _part_types(row))


def has_reasoning_parts(row: Any) -> bool:
    """Check whether the content of a logged message has reasoning as parts.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    bool
        True if there is such a part.
    """
    return any(kind in kinds.REASONING_TYPES for kind in _part_types(row))


def unknown_part_types(row: Any) -> list[str]:
    """Return the types of content parts that OpenAI's chat shape does not have.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    list of str
        The types, one per part.

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
    """Parse a list of messages in OpenAI's chat shape.

    Parameters
    ----------
    rows : iterable of Any
        The logged messages.

    Returns
    -------
    tuple of Message
        The messages.

    Raises
    ------
    ValueError
        If a row is broken. The message names its index.
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
    """Select the fields of a logged message that a provider takes, without an agent's own keys.

    Parameters
    ----------
    row : Any
        The logged message.

    Returns
    -------
    dict
        The fields.

    Raises
    ------
    ValueError
        If the row is not an object, or has tool calls or results as parts.
    """
    row = require_object(row, "a message")
    openai_format.reject_tool_parts(row.get("content"))
    return {key: row[key] for key in _CHAT_FIELDS if key in row}


def first_choice(response: Any) -> Any:
    """Return the message of a response's first choice.

    Parameters
    ----------
    response : Any
        A response of the Chat Completions API.

    Returns
    -------
    Any
        The message, or None if there is none.

    Examples
    --------
    >>> first_choice({"choices": [{"message": {"content": "hi"}}]}), first_choice({"choices": []})
    ({'content': 'hi'}, None)
    """
    return get_in(first_or_none(get_in(response, "choices")), "message")


def make_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Return a tool call with logged values.

    Parameters
    ----------
    id, name, arguments : Any
        The values; the arguments are text or become JSON text.

    Returns
    -------
    ToolCall
        The call.

    Raises
    ------
    ValueError
        If the name is not a text.
    """
    return openai_format.tool_call_from_dict({"id": id, "name": name, "arguments": arguments})


def text_part(text: str) -> ContentPart:
    """Return a content part with a text.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    dict
        The part.
    """
    return {"type": "text", "text": text}


def image_part(url: str) -> ContentPart:
    """Return a content part with an image.

    Parameters
    ----------
    url : str
        A URL or data URL.

    Returns
    -------
    dict
        The part.
    """
    return {"type": "image_url", "image_url": {"url": url}}


def join_parts(parts: Sequence[ContentPart]) -> Content | None:
    r"""Join content parts into one text if all are texts.

    Parameters
    ----------
    parts : sequence of dict
        The parts.

    Returns
    -------
    str, tuple of dict, or None
        The texts joined by newlines, the parts if one is not a text, or None if there are none.

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
    """Remove prompt cache markers from content, and join it if all parts are texts.

    Agents split a text into parts only to put a cache marker on the last part.

    Parameters
    ----------
    value : Any
        The logged content.

    Returns
    -------
    str, tuple of dict, or None
        The content.

    Raises
    ------
    ValueError
        If the value is not content, or has tool calls or results as parts.

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
    """The parts of an assistant message by kind, each in order."""

    time: float | None = None
    "seconds since 1970"
    usage: Usage | None = None
    "the billed usage"
    texts: list[str] = field(default_factory=list)
    "texts of the content"
    reasoning: list[str] = field(default_factory=list)
    "texts of hidden reasoning"
    calls: list[ToolCall] = field(default_factory=list)
    "tool calls"
    results: list[Message] = field(default_factory=list)
    "tool results of these calls"

    @property
    def message(self) -> Message:
        r"""The assistant message.

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
        """The assistant message, followed by the results."""
        return (self.message, *self.results)


def most_common_model(models: Counter[str]) -> str | None:
    """Return the model that gave most answers; the first one if several gave as many.

    Parameters
    ----------
    models : Counter of str
        Model → number of answers.

    Returns
    -------
    str or None
        The model, or None if no answer names one.

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
    """Build the recording of an agent's session, with the model that answered most often.

    Parameters
    ----------
    id : str
        Id of the recording.
    conversation : tuple of (sequence of Message, sequence of Compaction)
        The messages and the compactions.
    models : Counter of str
        Model → number of its answers. Several models are listed in ``meta``, too.
    cluster : str or None
        Cluster of the recording.
    meta : dict
        Further facts about the session.

    Returns
    -------
    Recording
        The recording.
    """
    messages, compactions = conversation
    meta = meta | ({"models": dict(models)} if len(models) > 1 else {})
    made = Recording(
        id, tuple(messages), model=most_common_model(models), cluster=cluster, meta=meta
    )
    return replace(made, compactions=tuple(compactions))
