"""A turn of any length is shown in pages of characters: none is sent whole, and all is in reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxlab.serve.mcp.schemas import RecordedMessage, RecordedTurn
from ctxlab.sessions.table_of_contents import Interaction

__all__ = ["MAX_MESSAGES_PER_PAGE", "message_text", "paginate_interaction"]

MAX_MESSAGES_PER_PAGE = 100
"""Messages of a page at most."""

_MAX_NAME_CHARACTERS = 200


def paginate_interaction(
    interaction: Interaction, offset: int, limit: int
) -> tuple[RecordedTurn, int | None]:
    """The messages of an interaction from one character on, and where the page after it begins.

    ``interaction`` holds all its messages. They are counted as one text, a line break after each; the
    page has at most ``limit`` characters of it and ``MAX_MESSAGES_PER_PAGE`` messages. None: it
    reaches the end.
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
    """What a message says as text; of pictures and the like, only how large they are.

    >>> parts = [{"type": "text", "text": "see"}, {"type": "image_url"}]
    >>> message_text({"role": "user", "content": parts})
    'see\\n[image_url, 21 characters, not shown]'
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
