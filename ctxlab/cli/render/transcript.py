"""Render conversations as text: roles, messages, tool calls and tool results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from ctxlab.context.turns import main_argument
from ctxlab.messages.openai_format import message_from_dict

if TYPE_CHECKING:
    from ctxlab.messages.types import Message, ToolCall
    from ctxlab.sessions.table_of_contents import InteractionWithContext

# Characters that control a terminal, 8-bit ones included.
_CONTROLS = {*range(32), *range(127, 160)} - set(map(ord, "\n\t\r"))
_CONTROL_CHARACTERS = dict.fromkeys(_CONTROLS, "�") | {13: None}
_ROLE_STYLES = {"user": "bold", "assistant": "green", "tool": "cyan", "system": "dim"}


def strip_control_characters(text: str) -> str:
    r"""Return a text without control characters, except line ends and tabs.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The text; carriage returns are removed, other control characters replaced.

    Examples
    --------
    >>> strip_control_characters("a\tb\n\x1b[2Jc\r")
    'a\tb\n�[2Jc'
    """
    return text.translate(_CONTROL_CHARACTERS)


def main_argument_text(call: ToolCall, limit: int = 60) -> str:
    """Return the most informative argument of a tool call on one line.

    Parameters
    ----------
    call : ToolCall
        The call.
    limit : int
        Most characters.

    Returns
    -------
    str
        The argument, cut if it is longer.

    Examples
    --------
    >>> from ctxlab.messages.types import ToolCall
    >>> main_argument_text(ToolCall("c1", "read_file", '{"limit": 9, "path": "src/io.py"}'))
    'src/io.py'
    >>> main_argument_text(ToolCall("c2", "edit", '{"cell": 3, "notebook_path": "some/a.ipynb"}'), 9)
    'some/a.i…'
    """
    line = " ".join(strip_control_characters(main_argument(call)[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def render_conversation(messages: Iterable[Message]) -> Text:
    """Return messages as text, each below the name of its role.

    Parameters
    ----------
    messages : iterable of Message
        The messages.

    Returns
    -------
    Text
        The text.
    """
    text = Text()
    for message in messages:
        name = f"{message.role} {message.name}" if message.name else message.role
        text.append(f"{strip_control_characters(name)}\n", _ROLE_STYLES[message.role])
        if said := strip_control_characters(message.text).strip("\n"):
            text.append(f"{said}\n")
        for call in message.tool_calls:
            call_text = strip_control_characters(f"{call.name} {call.arguments}")
            text.append(f"→ {call_text}\n", "cyan")
        text.append("\n")
    return text


def text_for_stdout(text: Text) -> str:
    """Return a text as it is printed: with colours and wrapped on a terminal, else plain.

    Parameters
    ----------
    text : Text
        The text.

    Returns
    -------
    str
        The text to print.
    """
    from ctxlab.cli.render.format import render_to_text

    return render_to_text(text) if sys.stdout.isatty() else text.plain.rstrip("\n")


def render_turns(turns: Iterable[InteractionWithContext]) -> Iterator[Text]:
    """Yield adjacent turns in full, with the summaries of the turns before and after them.

    Parameters
    ----------
    turns : iterable of InteractionWithContext
        The turns.

    Yields
    ------
    Text
        One turn, or the summary after the last one.
    """
    shown: InteractionWithContext | None = None
    for each in turns:
        text = Text("\n" if shown else "")
        if shown is None and each.previous:
            text.append(f"… {_turn_line(each.previous.turn, each.previous.summary)}\n\n", "dim")
        text.append(f"{_turn_line(each.turn, each.interaction.summary)}\n\n", "bold")
        text.append(render_conversation(map(message_from_dict, each.interaction.messages)))
        yield text
        shown = each
    if shown and shown.next:
        yield Text(f"\n… {_turn_line(shown.next.turn, shown.next.summary)}\n", "dim")


def _turn_line(number: int, summary: str) -> str:
    return f"{number}. {strip_control_characters(summary)}"
