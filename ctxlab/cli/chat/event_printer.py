"""Print the answer of a turn to standard output, and its tool calls to standard error."""

from __future__ import annotations

import difflib
import json
import logging
import re
import sys
import threading
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.chat.status_line import ChatStatus, format_status
from ctxlab.cli.chat.terminal import has_colors
from ctxlab.cli.output import one_line
from ctxlab.cli.render.control_characters import strip_control_characters
from ctxlab.cli.render.transcript import main_argument_text

if TYPE_CHECKING:
    from ctxlab.agent.events import AgentEvent, TurnResult
    from ctxlab.agent.tools.result import ToolResult
    from ctxlab.cli.chat.markdown_stream import MarkdownStream
    from ctxlab.messages.types import ToolCall

_WAITING_SIGN = "…"
_MIN_SHOWN_SECONDS = 0.1  # shorter durations are not printed
_MAX_DIFF_LINES = 12  # of an edit that the user was not asked about
_MAX_DIFF_COLUMNS = 200
_DIM, _RED, _GREEN = "2", "31", "32"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_SECONDS_PATTERN = re.compile(r"\d s\b")


class EventPrinter(logging.Handler):
    """Print the events of turns, and the warnings that ``ctxlab`` logs.

    On a terminal, the answer is printed while it is streamed, and a tool call is printed when it
    starts. Markdown is rendered if the terminal has colours. If standard output is a pipe, only the
    complete answer is printed to it. Warnings that are logged between turns are kept until
    ``flush_log_lines`` is called, so that they do not interrupt the line that the user types.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._stdout_is_tty = sys.stdout.isatty()
        self._stderr_is_tty = sys.stderr.isatty()
        self._color = has_colors(sys.stderr)
        self._renders_markdown = has_colors(sys.stdout)
        self._markdown: MarkdownStream | None = None
        self._asked_calls: set[str] = set()  # ids of calls whose change the user has seen
        self._text_since_call = ""  # text of the answer since the last tool call
        self._open_line = ""  # kind of the line that has no line end yet: text, call or waiting
        self._open_call_id = ""
        self._in_turn = False
        self._pending_log_lines: list[str] = []
        self._write_lock = threading.RLock()

    def start_turn(self) -> None:
        """Start a turn. On a terminal, show ``…`` until the first event is printed."""
        self._text_since_call, self._in_turn = "", True
        self._asked_calls.clear()
        self._show_cursor(False)
        if self._stdout_is_tty and self._stderr_is_tty:
            self._print_status(_WAITING_SIGN, end="")
            self._open_line = "waiting"

    def print_event(self, event: AgentEvent) -> None:
        """Print text, a tool call, a tool result or the end of a turn.

        Parameters
        ----------
        event : AgentEvent
            Event to print. Events of other kinds are ignored.
        """
        from ctxlab.agent.events import (
            ApprovalRequired,
            TextDelta,
            ToolCallFinished,
            ToolCallStarted,
            TurnFinished,
        )

        with self._write_lock:
            if isinstance(event, TextDelta):
                self._print_text(event.text)
            elif isinstance(event, ToolCallStarted):
                self._print_call(event.call)
            elif isinstance(event, ApprovalRequired):
                self._end_line()  # the question is printed next
                self._show_cursor(True)
                self._asked_calls.add(event.request.call.id)
            elif isinstance(event, ToolCallFinished):
                self._show_cursor(False)
                self._print_call_result(event.call, event.result)
            elif isinstance(event, TurnFinished):
                self._print_done(event.result)

    def end_turn(self) -> None:
        """End a turn, and print the log lines that were held back since the previous turn ended.

        Call this method also if the turn failed.
        """
        with self._write_lock:
            self._end_line()
            self._show_cursor(True)
            self._in_turn = False
        self.flush_log_lines()

    def print_status_line(self, text: str) -> None:
        """Print a line to standard error. If the line on the screen is unfinished, end it first.

        An unfinished block of Markdown continues below the line.

        Parameters
        ----------
        text : str
            Line to print.
        """
        with self._write_lock:
            if self._open_line == "text" and self._markdown is not None:
                self._markdown.hide()
                self._print_status(text)
                self._markdown.show()
            else:
                self._end_line()
                self._print_status(text)

    def print_chat_status(self, status: ChatStatus) -> None:
        """Print a line about the state of the chat, if standard error is a terminal with colours.

        Parameters
        ----------
        status : ChatStatus
            State after a turn.
        """
        if self._color:
            self.print_status_line(format_status(status))

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record during a turn. Between turns, keep it until ``flush_log_lines`` is called.

        Parameters
        ----------
        record : logging.LogRecord
            Record of the logger ``ctxlab``.
        """
        said = one_line(record.getMessage())
        if self._in_turn:
            self.print_status_line(f"  {said}")
        else:
            self._pending_log_lines.append(said)

    def flush_log_lines(self) -> None:
        """Print the log records that were kept between turns."""
        waiting, self._pending_log_lines = self._pending_log_lines, []
        for line in waiting:
            self.print_status_line(f"  {line}")

    def _print_text(self, text: str) -> None:
        self._text_since_call += text
        if not self._stdout_is_tty:
            return
        if self._renders_markdown:
            self._print_markdown(text)
            return
        if self._open_line != "text":
            self._end_line()
            text = text.lstrip("\n") if self._text_since_call == text else text
        if text:
            sys.stdout.write(strip_control_characters(text))
            sys.stdout.flush()
            self._open_line = "" if text.endswith("\n") else "text"

    def _print_markdown(self, text: str) -> None:
        if self._markdown is None:
            from ctxlab.cli.chat.markdown_stream import MarkdownStream

            self._markdown = MarkdownStream(sys.stdout)
        if self._open_line != "text":
            if not text.strip():
                return
            self._end_line()
            self._open_line = "text"
        self._markdown.write(text)

    def _print_call(self, call: ToolCall) -> None:
        self._end_line()
        self._text_since_call = ""
        if self._stderr_is_tty:
            self._print_status(f"  {_call_label(call)}", end="")
            self._open_line, self._open_call_id = "call", call.id

    def _print_call_result(self, call: ToolCall, result: ToolResult) -> None:
        said = describe_tool_result(result)
        if self._open_line == "call" and self._open_call_id == call.id:
            self._open_line = ""
            start = " · "
        else:
            self._end_line()
            start = f"  {_call_label(call)} · "
        if self._color and not result.ok:
            self._print_status(start, end="")
            self._print_status(f"✗ {said}", style=_RED)
        else:
            self._print_status(f"{start}{said}")
        if self._color and result.ok and call.id not in self._asked_calls:
            for line in edit_diff(call):
                style = {"-": _RED, "+": _GREEN}.get(line[:1], _DIM)
                self._print_status(f"    {line}", style=style)

    def _print_done(self, outcome: TurnResult) -> None:
        if not self._stdout_is_tty:
            sys.stdout.write(f"{outcome.text}\n")
            sys.stdout.flush()
        if outcome.finish == "limit":
            calls = pluralize(outcome.iterations, "call")
            hint = "to allow more, set a larger --max-iterations"
            self.print_status_line(f"  stopped after {calls} to the model; {hint}")

    def _end_line(self) -> None:
        if self._open_line == "waiting":
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        elif self._open_line == "text" and self._markdown is not None:
            self._markdown.finish()
        elif self._open_line == "text":
            sys.stdout.write("\n")
            sys.stdout.flush()
        elif self._open_line == "call":
            self._print_status("")
        self._open_line = ""

    def _print_status(self, text: str, end: str = "\n", style: str = _DIM) -> None:
        text = strip_control_characters(text)
        painted = f"\x1b[{style}m{text}\x1b[0m" if self._color and text else text
        sys.stderr.write(painted + end)
        sys.stderr.flush()

    def _show_cursor(self, shown: bool) -> None:
        """Hide the cursor during an answer: it is at the start of the unfinished block of Markdown."""
        if self._renders_markdown:
            sys.stdout.write(_SHOW_CURSOR if shown else _HIDE_CURSOR)
            sys.stdout.flush()


def describe_tool_result(result: ToolResult) -> str:
    r"""Describe a tool result in a few words: its outcome or error, and its duration.

    Durations below 0.1 seconds are left out.

    Parameters
    ----------
    result : ToolResult
        Result to describe.

    Returns
    -------
    str
        Description on one line.

    Examples
    --------
    >>> from ctxlab.agent.tools.result import ToolResult
    >>> describe_tool_result(ToolResult(ok=True, data="one\ntwo\n", duration_ms=1234))
    '2 lines, 1.2 s'
    >>> describe_tool_result(ToolResult(ok=True, data="…", outcome={"summary": "3 matches in 1 file"}))
    '3 matches in 1 file'
    >>> describe_tool_result(ToolResult(ok=False, error="exit code 1", error_type="command_failed"))
    'failed: exit code 1'
    >>> describe_tool_result(ToolResult(ok=False, error="no such file", error_type="execution_error"))
    'execution_error: no such file'
    """
    if not result.ok:
        error = one_line(result.error or "")
        kind = "failed" if result.error_type == "command_failed" else result.error_type
        said = f"{kind}: {error if len(error) <= 120 else error[:119] + '…'}"
    elif result.outcome and isinstance(summary := result.outcome.get("summary"), str):
        said = one_line(summary.partition("\n")[0])
    else:
        said = pluralize(len(result.to_llm_content().splitlines()), "line")
    seconds = (result.duration_ms or 0) / 1000
    told = seconds < _MIN_SHOWN_SECONDS or _SECONDS_PATTERN.search(said)
    return said if told else f"{said}, {seconds:.1f} s"


def _call_label(call: ToolCall) -> str:
    return f"{one_line(call.name)} {main_argument_text(call)}".rstrip()


def edit_diff(call: ToolCall) -> list[str]:
    r"""Return the lines that a call of ``edit_file`` removes and adds.

    Parameters
    ----------
    call : ToolCall
        Tool call of any tool.

    Returns
    -------
    list of str
        Lines that start with ``-`` or ``+``, and a line that counts the rest of a longer change. Empty
        if the call is not an edit.

    Examples
    --------
    >>> from ctxlab.messages.types import ToolCall
    >>> edit_diff(ToolCall("c1", "edit_file", '{"path": "a", "old": "x\\ny", "new": "x\\nz"}'))
    ['-y', '+z']
    """
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return []
    if call.name != "edit_file" or not isinstance(arguments, dict):
        return []
    old, new = arguments.get("old"), arguments.get("new")
    if not (isinstance(old, str) and isinstance(new, str)):
        return []
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    lines = [line for line in list(diff)[2:] if line[:1] in "+-"]
    more = len(lines) - _MAX_DIFF_LINES
    left_out = [f"… ({pluralize(more, 'more line')})"] if more > 0 else []
    return [line[:_MAX_DIFF_COLUMNS] for line in lines[:_MAX_DIFF_LINES]] + left_out
