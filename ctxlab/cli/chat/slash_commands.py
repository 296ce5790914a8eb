"""Slash commands of a chat, such as ``/help``. They are not sent to the model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.text import clip_line
from ctxlab.cli.output import one_line, print_note, print_result
from ctxlab.errors import SpecError, UnknownName

if TYPE_CHECKING:
    from ctxlab.cli.chat.repl import ChatRepl
    from ctxlab.messages.types import Message
    from ctxlab.sessions.base import Session

_MAX_DROPPED_CHARS = 60  # of the message that /undo drops
_MAX_TOC_STEPS = 10  # steps of a turn that /toc lists
_COMMAND_PATTERN = re.compile(r"/(\w[\w-]*)?(?:\s+(.*))?", re.DOTALL)


def parse_slash_command(line: str) -> tuple[str, str] | None:
    """Parse a line of a chat as a slash command.

    Paths such as ``/etc/hosts`` and lines that start with a space are not commands.

    Parameters
    ----------
    line : str
        Line that the user entered.

    Returns
    -------
    tuple of (str, str) or None
        Name and argument of the command. None if the line is a message for the model.

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
        Chat in which the user entered the command.
    name : str
        Name of the command, without the slash.
    argument : str
        Argument of the command, which may be empty.

    Returns
    -------
    bool
        False if the command ends the chat, otherwise True.

    Raises
    ------
    UnknownName
        If no command has the name.
    """
    name = _ALIASES.get(name, name)
    if name not in SLASH_COMMANDS:
        raise UnknownName("command", f"/{name}", [f"/{each}" for each in SLASH_COMMANDS])
    answer = SLASH_COMMANDS[name][0](chat, argument)
    if answer is None:
        return False
    if answer:
        print_result(answer)
    return True


def _help(chat: ChatRepl, argument: str) -> str:
    lines = [f"/{name:<{_NAME_WIDTH}}  {meaning}" for name, (_, meaning) in SLASH_COMMANDS.items()]
    lines += [
        "",
        "Alt+Enter, or \\ and Enter, starts a new line of a message; pasted text keeps its lines.",
        "Tab completes commands, sessions and files; @ searches files. The path of an image (PNG,",
        "JPEG, GIF, WebP) in a message, typed or dropped on the terminal, attaches the image. To",
        "send a message that starts with / to the model, type a space before it.",
        "Ctrl+C stops an answer and the commands that it runs; at an empty prompt it ends the chat.",
        "Ctrl+D ends the chat at an empty prompt, and is ignored during an answer. What you type",
        "during an answer appears at the next prompt.",
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
    made = get_contents(chat.store, session.id, max_steps=_MAX_TOC_STEPS)
    return text_for_stdout(contents_text(made))


def _turn(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.render.sessions import parse_turns
    from ctxlab.cli.render.transcript import render_turns, text_for_stdout
    from ctxlab.sessions.table_of_contents import get_turn

    session = chat.session
    if session is None:
        raise SpecError("the session has no turns yet; send a message first")
    labels = parse_turns(argument, chat.store.count_turns(session.id))
    turns = (get_turn(chat.store, session.id, str(label)) for label in labels)
    return "\n".join(map(text_for_stdout, render_turns(turns)))


def _title(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.dates import format_time
    from ctxlab.sessions.titles import single_line

    if argument:
        return f"title set: {one_line(chat.connection.set_title(single_line(argument)))}"
    session = chat.session
    if session is None:
        return one_line(chat.connection.title) or "(no title yet)"
    older = [
        f"  {format_time(each.changed_at)}  {f'turn {each.turn}' if each.turn else '–':<9} "
        f"{one_line(each.title)}"
        for each in session.titles
        if each.title != session.title
    ]
    return "\n".join([one_line(session.title) or "(no title yet)", *older])


def _new(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.chat.repl import greeting

    chat.connection.open(None)
    return greeting(chat.connection)


def _sessions(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.chat.session_picker import session_choices_table
    from ctxlab.cli.render.format import render_to_text

    known = _known_sessions(chat)
    return render_to_text(session_choices_table(known)) if known else "(no sessions yet)"


def _resume(chat: ChatRepl, argument: str) -> str:
    from ctxlab.cli.chat.repl import greeting
    from ctxlab.cli.chat.session_picker import parse_session_choice

    chosen = parse_session_choice(_known_sessions(chat), argument) if argument else None
    if chosen is None:
        return f"{_sessions(chat, '')}\nto resume one: /resume NUMBER or ID"
    chat.connection.open(chosen)
    return greeting(chat.connection)


def _model(chat: ChatRepl, argument: str) -> str:
    if argument:
        chat.connection.change_model(argument)
    budget = chat.agent.manager.budget
    return f"model {one_line(chat.agent.model)}, {budget.limit:,} tokens"


def _compact(chat: ChatRepl, argument: str) -> str:
    before, after = chat.agent.manager.compact()
    if after >= before:
        return f"the strategy shortens nothing of {before:,} tokens"
    return f"shortened from {before:,} to {after:,} tokens; the session keeps all messages"


def _retry(chat: ChatRepl, argument: str) -> str:
    from ctxlab.tokens.images import image_parts

    dropped, id = chat.connection.undo()
    asked = dropped[0]
    if asked.role != "user":
        raise SpecError("the last turn does not begin with a message of yours; type it again")
    print_note("; ".join(["asking your last message again", *_kept_after_undo(chat, dropped, id)]))
    images = [part["image_url"]["url"] for part in image_parts(asked)]
    chat.run_turn(asked.text, images)
    return ""


def _undo(chat: ChatRepl, argument: str) -> str:
    dropped, id = chat.connection.undo()
    said = f"dropped: {clip_line(one_line(dropped[0].text), _MAX_DROPPED_CHARS)}"
    return "\n".join([said, *_kept_after_undo(chat, dropped, id)])


def _kept_after_undo(chat: ChatRepl, dropped: Sequence[Message], id: str) -> list[str]:
    """Return what stays although a turn was dropped: the stored session, and changes by tools."""
    tools = chat.agent.tools
    calls = [call.name for message in dropped for call in message.tool_calls]
    changing = [
        name for name in dict.fromkeys(calls) if name in tools and not tools[name].read_only
    ]
    kept = [f"the dropped answer stays in the archived session {one_line(id[:8])}"]
    if changing:
        names = ", ".join(map(one_line, changing))
        kept.append(f"changes by {names} are not restored")
    return kept


def _cost(chat: ChatRepl, argument: str) -> str:
    from ctxlab.messages.types import Usage

    session, replies, usage, usd, unpriced = chat.session, 0, Usage(), 0.0, 0
    for message in () if session is None else chat.store.read_messages(session.id):
        if message.role != "assistant" or message.usage is None:
            continue
        replies += 1
        pairs = zip(astuple(usage), astuple(message.usage), strict=True)
        usage = Usage(*(first + second for first, second in pairs))
        cost = message.extra.get("usd")
        unpriced += not isinstance(cost, (int, float))
        usd += cost if isinstance(cost, (int, float)) else 0.0
    said = f"{pluralize(replies, 'reply', 'replies')}, ${usd:,.4f}"
    if unpriced:
        said += f" without {pluralize(unpriced, 'reply', 'replies')} of unknown price"
    if f"{chat.usd:,.4f}" != f"{usd:,.4f}":
        said += f"; this chat since its start: ${chat.usd:,.4f}, with dropped answers"
    calls = chat.agent.manager.model_calls
    lines = [
        said,
        f"input    {usage.total_input:>10,} tokens, {usage.cache_read:,} of them from the cache",
        f"output   {usage.output:>10,} tokens",
    ]
    if calls:
        spent = sum(call.usd for call in calls if math.isfinite(call.usd))
        made = pluralize(len(calls), "call")
        lines.append(f"strategy {made} since this session was opened, ${spent:,.4f}, not included")
    return "\n".join(lines)


def _plan(chat: ChatRepl, argument: str) -> str:
    plan = chat.agent.plan
    if plan is None or not plan.steps:
        return "(no plan)"
    marks = ["→" if place == plan.current else " " for place in range(len(plan.steps))]
    steps = zip(marks, plan.steps, strict=True)
    return "\n".join(f"{mark} {n}. {one_line(step)}" for n, (mark, step) in enumerate(steps, 1))


def _known_sessions(chat: ChatRepl) -> list[Session]:
    return [each for each in chat.store.sessions() if not each.system]


def _quit(chat: ChatRepl, argument: str) -> None:
    return None


SLASH_COMMANDS: dict[str, tuple[Callable[[ChatRepl, str], str | None], str]] = {
    "context": (_context, "show how many tokens each part of the next request has"),
    "toc": (_toc, "list the turns and steps so far, one line each"),
    "turn": (_turn, "show turns in full: /turn 3, /turn 3-5; or one step: /turn 3.2"),
    "title": (_title, "show the current and earlier titles; /title NEW sets a new title"),
    "new": (_new, "leave this session, which stays stored, and begin a new one"),
    "sessions": (_sessions, "list the sessions of the folder"),
    "resume": (_resume, "continue another session: /resume 2, /resume 3f2a"),
    "model": (_model, "show the model; /model NAME continues with another one"),
    "compact": (_compact, "let the strategy shorten the conversation now"),
    "retry": (_retry, "drop the last answer, and ask your last message again"),
    "undo": (_undo, "drop your last message and its answer; files are not restored"),
    "cost": (_cost, "show the tokens and the cost of this session"),
    "plan": (_plan, "show the agent's plan"),
    "help": (_help, "show this list"),
    "quit": (_quit, "leave the chat, like Ctrl+D; the session is stored"),
}
"""Function and help line of each command, by name.

A function takes the chat and the argument. It returns the text to print; None ends the chat."""

_ALIASES = {"exit": "quit", "q": "quit"}
_NAME_WIDTH = max(map(len, SLASH_COMMANDS))
