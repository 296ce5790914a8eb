"""Answer a single message: from the command line, from a pipe, or from both."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from ctxlab._utils.jsonio import dump_json
from ctxlab.cli.output import print_note
from ctxlab.errors import CtxlabError, SpecError

if TYPE_CHECKING:
    from ctxlab.agent.session import AgentSession
    from ctxlab.cli.chat.event_printer import EventPrinter

EXIT_AT_LIMIT = 3
"""Exit code if the turn reached the maximum number of model calls."""


def read_message(question: str | None) -> str:
    """Return the message of the user: the question, followed by all of standard input.

    Parameters
    ----------
    question : str, optional
        Question on the command line.

    Returns
    -------
    str
        Message to send. Standard input is read only if it is not a terminal.

    Raises
    ------
    SpecError
        If there is neither a question nor any input.
    """
    piped = "" if sys.stdin.isatty() else _read_pipe()
    parts = [part for part in (question, piped) if part and part.strip()]
    if not parts:
        raise SpecError(
            "expected a message, got no text; pass it as an argument or on standard input"
        )
    return "\n\n".join(parts).strip()


def answer_once(session: AgentSession, text: str, printer: EventPrinter) -> int:
    """Run a turn, and print the answer.

    Parameters
    ----------
    session : AgentSession
        Session of the turn.
    text : str
        Message of the user.
    printer : EventPrinter
        Prints the answer and the tool calls.

    Returns
    -------
    int
        Exit code: 0, or ``EXIT_AT_LIMIT``.
    """
    from ctxlab.agent.events import TurnFinished

    finish = "answered"
    printer.start_turn()
    try:
        with closing(session.stream(text)) as events:
            for event in events:
                printer.print_event(event)
                if isinstance(event, TurnFinished):
                    finish = event.result.finish
    finally:
        printer.end_turn()
    return EXIT_AT_LIMIT if finish == "limit" else 0


def print_events(session: AgentSession, text: str) -> int:
    """Run a turn, and print each event as a line of JSON.

    The first line has the type ``session``, with the id and the model. The last one has the type
    ``done``, or ``error`` if the turn failed.

    Parameters
    ----------
    session : AgentSession
        Session of the turn.
    text : str
        Message of the user.

    Returns
    -------
    int
        Exit code: 0, or ``EXIT_AT_LIMIT``.

    Raises
    ------
    CtxlabError
        If the turn failed, after its event was printed.
    """
    from ctxlab.agent.events import TurnFinished, event_to_dict

    finish = "answered"
    _print_line({"type": "session", "id": session.id, "model": session.agent.model})
    try:
        with closing(session.stream(text)) as events:
            for event in events:
                _print_line(event_to_dict(event))
                if isinstance(event, TurnFinished):
                    finish = event.result.finish
    except CtxlabError as error:
        _print_line({"type": "error", "error": str(error)})
        raise
    return EXIT_AT_LIMIT if finish == "limit" else 0


def _read_pipe() -> str:
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    text = sys.stdin.read()
    if "�" in text:
        print_note("parts of the input are not UTF-8; they are replaced by �")
    return text


def _print_line(row: object) -> None:
    print(dump_json(row), flush=True)
