"""A conversation is read as people read one: who spoke, what was called, what came back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from ctxlab.conversation import Message, ToolCall
    from ctxlab.sessions.contents import InteractionWithContext

__all__ = ["argument_of", "clean", "conversation", "printed", "turn_text"]

# What steers a terminal: control characters, those of 8 bits too.
_CONTROLS = {n: "�" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t\r"} | {13: None}
_COLOURS = {"user": "bold", "assistant": "green", "tool": "cyan", "system": "dim"}
_MAIN = ("command", "cmd", "path", "file_path", "query", "pattern", "url", "name")


def clean(text: str) -> str:
    """A text without what would steer a terminal; its lines and tabs stay.

    >>> clean("a\\tb\\n\\x1b[2Jc\\r")
    'a\\tb\\n�[2Jc'
    """
    return text.translate(_CONTROLS)


def argument_of(call: ToolCall, limit: int = 60) -> str:
    """The argument that says most about a call, on one line of at most ``limit`` characters.

    >>> from ctxlab.conversation import ToolCall
    >>> argument_of(ToolCall("c1", "read_file", '{"limit": 9, "path": "src/io.py"}'))
    'src/io.py'
    """
    given = {key: str(leaf) for key, leaf in call.leaves() if leaf is not None}
    main = next((given[key] for key in _MAIN if given.get(key)), next(iter(given.values()), ""))
    line = " ".join(clean(main[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def conversation(messages: Iterable[Message]) -> Text:
    """Messages one after the other, each behind the name of its role."""
    text = Text()
    for message in messages:
        name = f"{message.role} {message.name}" if message.name else message.role
        text.append(f"{clean(name)}\n", _COLOURS[message.role])
        if said := clean(message.text).strip("\n"):
            text.append(f"{said}\n")
        for call in message.tool_calls:
            text.append(f"→ {clean(call.name)} {clean(call.arguments)}\n", "cyan")
        text.append("\n")
    return text


def printed(text: Text) -> str:
    """A text as it is printed: on a terminal with colours and broken at its width, else as it is."""
    from ctxlab.cli.show import drawn

    return drawn(text) if sys.stdout.isatty() else text.plain.rstrip("\n")


def turn_text(shown: InteractionWithContext) -> Text:
    """A turn in full, and the lines of the turns beside it."""
    from ctxlab.conversation import Message

    text = Text()
    if shown.previous:
        text.append(f"… {shown.previous.turn}. {clean(shown.previous.summary)}\n\n", "dim")
    text.append(f"{shown.turn}. {clean(shown.interaction.summary)}\n\n", "bold")
    text.append(conversation(map(Message.from_dict, shown.interaction.messages)))
    if shown.next:
        text.append(f"… {shown.next.turn}. {clean(shown.next.summary)}\n", "dim")
    return text
