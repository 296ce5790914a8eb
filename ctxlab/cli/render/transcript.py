"""A conversation is read as people read one: who spoke, what was called, what came back."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from ctxlab.context.turns import main_argument

if TYPE_CHECKING:
    from ctxlab.messages.types import (
        Message,
        ToolCall,
    )
    from ctxlab.sessions.table_of_contents import InteractionWithContext

__all__ = ["argument_of", "clean", "conversation", "printed", "turn_texts"]

# What steers a terminal: control characters, those of 8 bits too.
_CONTROLS = {n: "�" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t\r"} | {13: None}
_COLOURS = {"user": "bold", "assistant": "green", "tool": "cyan", "system": "dim"}


def clean(text: str) -> str:
    """A text without what would steer a terminal; its lines and tabs stay.

    >>> clean("a\\tb\\n\\x1b[2Jc\\r")
    'a\\tb\\n�[2Jc'
    """
    return text.translate(_CONTROLS)


def argument_of(call: ToolCall, limit: int = 60) -> str:
    """The argument that says most about a call, on one line of at most ``limit`` characters.

    >>> from ctxlab.messages.types import ToolCall
    >>> argument_of(ToolCall("c1", "read_file", '{"limit": 9, "path": "src/io.py"}'))
    'src/io.py'
    >>> argument_of(ToolCall("c2", "edit", '{"cell": 3, "notebook_path": "some/a.ipynb"}'), 9)
    'some/a.i…'
    """
    line = " ".join(clean(main_argument(call)[: 4 * limit]).split())
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
    from ctxlab.cli.render.format import drawn

    return drawn(text) if sys.stdout.isatty() else text.plain.rstrip("\n")


def turn_texts(turns: Iterable[InteractionWithContext]) -> Iterator[Text]:
    """Adjacent turns in full, each a text, and the lines of the turns before and after all of them."""
    from ctxlab.messages.types import Message

    shown: InteractionWithContext | None = None
    for each in turns:
        text = Text("\n" if shown else "")
        if shown is None and each.previous:
            text.append(f"… {each.previous.turn}. {clean(each.previous.summary)}\n\n", "dim")
        text.append(f"{each.turn}. {clean(each.interaction.summary)}\n\n", "bold")
        text.append(conversation(map(Message.from_dict, each.interaction.messages)))
        yield text
        shown = each
    if shown and shown.next:
        yield Text(f"\n… {shown.next.turn}. {clean(shown.next.summary)}\n", "dim")
