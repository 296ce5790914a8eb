"""Slash commands: lines of a chat that are not sent to the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxlab.cli.output import one_line, print_result
from ctxlab.errors import SpecError, UnknownName

if TYPE_CHECKING:
    from ctxlab.cli.chat.repl import ChatRepl

_COMMAND_PATTERN = re.compile(r"/(\w[\w-]*)?(?:\s+(.*))?", re.DOTALL)


def parse_slash_command(line: str) -> tuple[str, str] | None:
    """Split a line into the name and the argument of a slash command.

    Paths and lines that begin with a space are not commands.

    Parameters
    ----------
    line : str
        The line.

    Returns
    -------
    tuple of (str, str) or None
        Name and argument; None if the line is for the model.

    Examples
    --------
    >>> parse_slash_command("/title A better one"), parse_slash_command("/context")
    (('title', 'A better one'), ('context', ''))
    >>> parse_slash_command("/etc/hosts is what?"), parse_slash_command(" /help")
    (None, None)
    """
    found = _COMMAND_PATTERN.fullmatch(line.rstrip())
    return None if found is None else ((found[1] or "help").lower(), (found[2] or "").strip())


def run_slash_command(chat: ChatRepl, name: str, argument: str) -> bool:
    """Run a slash command and print its result.

    Parameters
    ----------
    chat : ChatRepl
        The chat.
    name : str
        The name of the command.
    argument : str
        Its argument, which may be empty.

    Returns
    -------
    bool
        False if the chat should end.

    Raises
    ------
    UnknownName
        If there is no such command.
    """
    name = _ALIASES.get(name, name)
    if name not in SLASH_COMMANDS:
        raise UnknownName("command", f"/{name}", [f"/{each}" for each in SLASH_COMMANDS])
    answer = SLASH_COMMANDS[name][0](chat, argument)
    if answer is None:
        return False
    print_result(answer)
    return True


def _help(chat: ChatRepl, argument: str) -> str:
    lines = [f"/{name:<{_NAME_WIDTH}}  {meaning}" for name, (_, meaning) in SLASH_COMMANDS.items()]
    lines += [
        "",
        "Ctrl+C stops an answer and the commands that it runs; at an empty prompt it leaves.",
        "End a line with \\ to continue on the next one. Begin it with a space to send a line",
        "that starts with / to the model.",
    ]
    return "\n".join(lines)


def _context(chat: ChatRepl, argument: str) -> str:
    import shutil

    from ctxlab.cli.render.context_bar import render_context_bar
    from ctxlab.cli.render.format import render_to_text
    from ctxlab.cli.render.table import wrap_name

    parts = chat.agent.context_breakdown()
    columns = shutil.get_terminal_size((80, 24)).columns if chat.interactive else 80
    strategy = wrap_name(one_line(repr(chat.agent.manager.strategy)), columns)
    title = f"{one_line(chat.agent.model)}\n{strategy}"
    return render_to_text(render_context_bar(parts, columns, title))


def _toc(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.render.sessions import contents_text
    from ctxlab.cli.render.transcript import text_for_stdout
    from ctxlab.sessions.table_of_contents import get_contents

    session = chat.session
    if session is None:
        return "(no turns yet)"
    return text_for_stdout(contents_text(get_contents(chat.store, session.id)))


def _turn(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.render.sessions import parse_turn_range
    from ctxlab.cli.render.transcript import render_turns, text_for_stdout
    from ctxlab.sessions.table_of_contents import get_turn

    session = chat.session
    if session is None:
        raise SpecError("there are no turns yet; say something first")
    numbers = parse_turn_range(argument, chat.store.count_turns(session.id))
    turns = (get_turn(chat.store, session.id, number) for number in numbers)
    return "\n".join(map(text_for_stdout, render_turns(turns)))


def _title(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.dates import format_time
    from ctxlab.sessions.titles import single_line

    if argument:
        return f"title set: {one_line(chat.set_title(single_line(argument)))}"
    session = chat.session
    if session is None:
        return one_line(chat.title) or "(no title yet)"
    older = [
        f"  {format_time(each.changed_at)}  {f'turn {each.turn}' if each.turn else '–':<9} "
        f"{one_line(each.title)}"
        for each in session.titles
        if each.title != session.title
    ]
    return "\n".join([one_line(session.title) or "(no title yet)", *older])


def _quit(chat: ChatRepl, argument: str) -> None:
    return None


SLASH_COMMANDS: dict[str, tuple[Callable[[ChatRepl, str], str | None], str]] = {
    "context": (_context, "show the tokens of the next request by part"),
    "toc": (_toc, "list the turns so far, one line each"),
    "turn": (_turn, "show turns in full: /turn 3, /turn 3-5"),
    "title": (_title, "show the current and earlier titles; /title NEW sets one"),
    "help": (_help, "show this list"),
    "quit": (_quit, "leave the chat, as Ctrl+D does; the session is stored"),
}
"""Commands by name: a function that returns the text to print (None ends the chat), and a help line."""

_ALIASES = {"exit": "quit", "q": "quit"}
_NAME_WIDTH = max(map(len, SLASH_COMMANDS))
