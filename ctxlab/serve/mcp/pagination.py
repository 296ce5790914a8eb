"""Split turns of any length into pages of a limited number of characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxlab.serve.mcp.schemas import RecordedMessage, RecordedTurn
from ctxlab.sessions.table_of_contents import Interaction

MAX_MESSAGES_PER_PAGE = 100
"""Maximum number of messages of a page."""

_MAX_NAME_CHARACTERS = 200


def paginate_interaction(
    interaction: Interaction, offset: int, limit: int
) -> tuple[RecordedTurn, int | None]:
    """Return a page of an interaction and the offset of the next page.

    The messages are counted as one text, with a line break after each.

    Parameters
    ----------
    interaction : Interaction
        Interaction with all its messages.
    offset : int
        First character of the page.
    limit : int
        Maximum number of characters. A page has at most ``MAX_MESSAGES_PER_PAGE`` messages.

    Returns
    -------
    page : RecordedTurn
        The messages of the page.
    next_offset : int or None
        First character of the next page; None if this is the last one.
    """
    called = {
        call.get("id"): _str_or_empty(call.get("function", {}).get("name"))
        for message in interaction.messages
        for call in message.get("tool_calls") or ()
    }
    shown = list[RecordedMessage]()
    position, end, after = interaction.first_message, offset + limit, None
    begins = 0
    for place, message in enumerate(interaction.messages):
        text = message_text(message)
        stops = begins + len(text) + 1
        if after is None and stops > offset:
            if begins >= end or len(shown) == MAX_MESSAGES_PER_PAGE:
                after = max(begins, offset)
            else:
                start = max(0, offset - begins)
                piece = text[start : end - begins]
                tool = message.get("name") or called.get(message.get("tool_call_id"))
                shown.append(
                    RecordedMessage(
                        position + place,
                        str(message.get("role")),
                        _str_or_empty(tool)[:_MAX_NAME_CHARACTERS]
                        if message.get("role") == "tool"
                        else None,
                        piece,
                        start,
                        len(text),
                    )
                )
                if start + len(piece) < len(text):
                    after = begins + start + len(piece)
        begins = stops
    made = RecordedTurn(
        interaction.id,
        interaction.session_id,
        interaction.turn,
        interaction.last_turn,
        interaction.created,
        interaction.summary,
        interaction.total_messages,
        begins,
        shown,
    )
    return made, after


def message_text(message: Mapping[str, Any]) -> str:
    r"""Return a message as text; parts other than text are replaced by their type and size.

    Parameters
    ----------
    message : mapping
        Message in OpenAI's format.

    Returns
    -------
    str
        The text. A tool call is written as ``→ NAME(ARGUMENTS)``.

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
    return "\n".join(filter(None, [*said, *_call_lines(message.get("tool_calls") or ())]))


def _call_lines(calls: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    made = [call.get("function") or {} for call in calls]
    return [
        f"→ {_str_or_empty(each.get('name'))}({_str_or_empty(each.get('arguments'))})"
        for each in made
    ]


def _part_text(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text":
        return _str_or_empty(part.get("text"))
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{kind or 'a part'}, {len(str(part)):,} characters, not shown]"


def _str_or_empty(value: Any) -> str:
    return "" if value is None else str(value)
