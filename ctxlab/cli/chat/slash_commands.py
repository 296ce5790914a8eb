"""What begins with a slash is a command to the chat and not said to the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxlab.cli.output import (
    one_line,
    say,
)
from ctxlab.errors import (
    SpecError,
    UnknownName,
)

if TYPE_CHECKING:
    from ctxlab.cli.chat.repl import Chat

__all__ = ["COMMANDS", "obey", "split"]

_WRITTEN = re.compile(r"/(\w[\w-]*)?(?:\s+(.*))?", re.DOTALL)


def split(line: str) -> tuple[str, str] | None:
    """The name of a command and what is said to it; None for what is meant for the model.

    A path is no command, and neither is what begins with a space.

    >>> split("/title A better one"), split("/context"), split("/etc/hosts is what?"), split(" /help")
    (('title', 'A better one'), ('context', ''), None, None)
    """
    found = _WRITTEN.fullmatch(line.rstrip())
    return None if found is None else ((found[1] or "help").lower(), (found[2] or "").strip())


def obey(chat: Chat, name: str, said: str) -> bool:
    """Does what a command says; False where the chat is to end. ``UnknownName`` for one that is none."""
    name = _ALSO.get(name, name)
    if name not in COMMANDS:
        raise UnknownName("command", f"/{name}", [f"/{each}" for each in COMMANDS])
    answer = COMMANDS[name][0](chat, said)
    if answer is None:
        return False
    say(answer)
    return True


def _help(chat: Chat, said: str) -> str:
    lines = [f"/{name:<{_WIDTH}}  {meaning}" for name, (_, meaning) in COMMANDS.items()]
    lines += [
        "",
        "Ctrl+C stops an answer and the commands that it runs; at an empty prompt it leaves.",
        "A line that ends with \\ goes on in the next. What begins with a space is always said.",
    ]
    return "\n".join(lines)


def _context(chat: Chat, said: str) -> str:
    import shutil

    from ctxlab.cli.render.context_bar import meter
    from ctxlab.cli.render.format import (
        drawn,
        fold,
    )

    parts = chat.agent.parts()
    columns = shutil.get_terminal_size((80, 24)).columns if chat.interactive else 80
    strategy = fold(one_line(repr(chat.agent.manager.strategy)), columns)
    title = f"{one_line(chat.agent.model)}\n{strategy}"
    return drawn(meter(parts, columns, title))


def _toc(chat: Chat, said: str) -> str:
    from ctxlab.cli.render.sessions import contents_text
    from ctxlab.cli.render.transcript import printed
    from ctxlab.sessions.table_of_contents import contents

    session = chat.session
    if session is None:
        return "(no turns yet)"
    return printed(contents_text(contents(chat.store, session.id)))


def _turn(chat: Chat, said: str) -> str:
    from ctxlab.cli.render.sessions import turn_range
    from ctxlab.cli.render.transcript import (
        printed,
        turn_texts,
    )
    from ctxlab.sessions.table_of_contents import turn

    session = chat.session
    if session is None:
        raise SpecError("nothing was said yet")
    numbers = turn_range(said, chat.store.turns(session.id))
    turns = (turn(chat.store, session.id, number) for number in numbers)
    return "\n".join(map(printed, turn_texts(turns)))


def _title(chat: Chat, said: str) -> str:
    from ctxlab.cli.dates import when
    from ctxlab.sessions.titles import tidy

    if said:
        return f"titled: {one_line(chat.entitle(tidy(said)))}"
    session = chat.session
    if session is None:
        return one_line(chat.title) or "(no title yet)"
    older = [
        f"  {when(each.changed_at)}  {f'turn {each.turn}' if each.turn else '–':<9} "
        f"{one_line(each.title)}"
        for each in session.titles
        if each.title != session.title
    ]
    return "\n".join([one_line(session.title) or "(no title yet)", *older])


def _quit(chat: Chat, said: str) -> None:
    return None


COMMANDS: dict[str, tuple[Callable[[Chat, str], str | None], str]] = {
    "context": (_context, "tokens of the next request by part, as a bar"),
    "toc": (_toc, "the turns so far, a line each"),
    "turn": (_turn, "a turn in full: /turn 3, /turn 3-5"),
    "title": (_title, "the title and those before it; /title NEW gives another"),
    "help": (_help, "this"),
    "quit": (_quit, "leave; so does Ctrl+D. The session is kept"),
}
"""Name → what gives its answer, None to end the chat, and a line about it."""

_ALSO = {"exit": "quit", "q": "quit"}
_WIDTH = max(map(len, COMMANDS))
