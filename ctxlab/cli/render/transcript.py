"""Render conversations as text with roles, messages, tool calls and tool results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from ctxlab.cli.render.control_characters import strip_control_characters
from ctxlab.context.turns import main_argument
from ctxlab.messages.openai_format import message_from_dict

if TYPE_CHECKING:
    from ctxlab.messages.types import Message, ToolCall
    from ctxlab.sessions.table_of_contents import InteractionWithContext

_ROLE_STYLES = {"user": "bold", "assistant": "green", "tool": "cyan", "system": "dim"}


def main_argument_text(call: ToolCall, limit: int = 60) -> str:
    """Return the most informative argument of a tool call on one line.

    This is the path, the command or the query if the call has one, otherwise its first argument.

    Parameters
    ----------
    call : ToolCall
        Tool call with the argument.
    limit : int
        Maximum number of characters.

    Returns
    -------
    str
        Value of the argument. A longer value is cut off and ends with an ellipsis.

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
    """Render messages as text, each below the name of its role.

    Parameters
    ----------
    messages : iterable of Message
        Messages of a conversation, in order.

    Returns
    -------
    Text
        Printable text with an empty line after each message.
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
    """Convert a ``Text`` of the library rich to a string for standard output.

    Parameters
    ----------
    text : Text
        Text to convert.

    Returns
    -------
    str
        Wrapped text with colours if standard output is a terminal, and plain text otherwise.
    """
    from ctxlab.cli.render.format import render_to_text

    return render_to_text(text) if sys.stdout.isatty() else text.plain.rstrip("\n")


def render_turns(turns: Iterable[InteractionWithContext]) -> Iterator[Text]:
    """Yield the text of consecutive turns or steps, with summaries of those before and after them.

    Parameters
    ----------
    turns : iterable of InteractionWithContext
        Consecutive turns, in order, or one step.

    Yields
    ------
    Text
        All messages of one turn or step. The first text starts with the summary of the previous
        one, if any. If there is a next one, one more text contains its summary.
    """
    shown: InteractionWithContext | None = None
    for each in turns:
        text = Text("\n" if shown else "")
        if shown is None and each.previous:
            text.append(f"… {_turn_line(each.previous.label, each.previous.summary)}\n\n", "dim")
        text.append(f"{_turn_line(each.label, each.interaction.summary)}\n\n", "bold")
        text.append(render_conversation(map(message_from_dict, each.interaction.messages)))
        yield text
        shown = each
    if shown and shown.next:
        yield Text(f"\n… {_turn_line(shown.next.label, shown.next.summary)}\n", "dim")


def _turn_line(label: str, summary: str) -> str:
    start = label if "." in label else f"{label}."
    return f"{start} {strip_control_characters(summary)}"
