"""Split turns and steps of any length into pages of a limited number of characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxlab.sessions.navigation.results import RecordedMessage, RecordedTurn
from ctxlab.sessions.table_of_contents import Interaction

MAX_MESSAGES_PER_PAGE = 100
"""Maximum number of messages of a page."""

_MAX_NAME_CHARACTERS = 200
_SHARED_FIELDS = set(RecordedTurn.__dataclass_fields__) - {"total_characters", "messages"}


def paginate_interaction(
    interaction: Interaction, offset: int, limit: int
) -> tuple[RecordedTurn, int | None]:
    """Return one page of an interaction and the offset of the next page.

    An offset is a position in the text of the interaction. This text consists of all messages, with
    a line break after each message.

    Parameters
    ----------
    interaction : Interaction
        A turn or a step with all its messages.
    offset : int
        Offset of the first character of the page.
    limit : int
        Maximum number of characters of the page. A page also has at most ``MAX_MESSAGES_PER_PAGE``
        messages.

    Returns
    -------
    page : RecordedTurn
        Metadata of the interaction and the messages of the page.
    next_offset : int or None
        Offset of the first character of the next page; None if this is the last page.
    """
    called = {
        call.get("id"): _str_or_empty(call.get("function", {}).get("name"))
        for message in interaction.messages
        for call in message.get("tool_calls") or ()
    }
    shown, begins, end, after = list[RecordedMessage](), 0, offset + limit, None
    for place, message in enumerate(interaction.messages, interaction.first_message):
        text = message_text(message)
        stops = begins + len(text) + 1
        if after is not None or stops <= offset:
            pass
        elif begins >= end or len(shown) == MAX_MESSAGES_PER_PAGE:
            after = max(begins, offset)
        else:
            start, role, tool = max(0, offset - begins), str(message.get("role")), None
            if role == "tool":
                name = message.get("name") or called.get(message.get("tool_call_id"))
                tool = _str_or_empty(name)[:_MAX_NAME_CHARACTERS]
            piece = text[start : end - begins]
            shown.append(RecordedMessage(place, role, tool, piece, start, len(text)))
            if start + len(piece) < len(text):
                after = begins + start + len(piece)
        begins = stops
    about = {name: getattr(interaction, name) for name in _SHARED_FIELDS}
    return RecordedTurn(**about, total_characters=begins, messages=shown), after


def message_text(message: Mapping[str, Any]) -> str:
    r"""Convert a message to text, including its tool calls, with a note for each image.

    Parameters
    ----------
    message : mapping
        Message in OpenAI's format.

    Returns
    -------
    str
        Text of the message. A tool call is written as ``→ NAME(ARGUMENTS)``. Content other than
        text is replaced by a note with its type and its number of characters.

    Examples
    --------
    >>> parts = [{"type": "text", "text": "see"}, {"type": "image_url"}]
    >>> message_text({"role": "user", "content": parts})
    'see\n[image_url, 21 characters, not shown]'
    >>> call = {"id": "c", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    >>> message_text({"role": "assistant", "content": None, "tool_calls": [call]})
    '→ read({"path": "a.py"})'
    """
    content = message.get("content")
    said = [content] if isinstance(content, str) else [_part_text(part) for part in content or ()]
    for function in (call.get("function") or {} for call in message.get("tool_calls") or ()):
        arguments = _str_or_empty(function.get("arguments"))
        said.append(f"→ {_str_or_empty(function.get('name'))}({arguments})")
    return "\n".join(filter(None, said))


def _part_text(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text":
        return _str_or_empty(part.get("text"))
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{kind or 'a part'}, {len(str(part)):,} characters, not shown]"


def _str_or_empty(value: Any) -> str:
    return "" if value is None else str(value)
