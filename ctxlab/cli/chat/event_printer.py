"""Print the answer of a turn to standard output, and its tool calls to standard error."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.output import one_line
from ctxlab.cli.render.transcript import main_argument_text, strip_control_characters

if TYPE_CHECKING:
    from ctxlab.agent.events import AgentEvent, TurnResult
    from ctxlab.agent.tools.result import ToolResult
    from ctxlab.messages.types import ToolCall

_WAITING_SIGN = "…"
_MIN_SHOWN_SECONDS = 0.1  # shorter durations are not printed
_SECONDS_PATTERN = re.compile(r"\d s\b")


class EventPrinter(logging.Handler):
    """Print the events of turns, and the warnings that ``ctxlab`` logs.

    On a terminal, the answer is printed while it is streamed, and a tool call is printed when it
    starts. If standard output is a pipe, only the complete answer is printed to it. Warnings that are
    logged between turns are kept until ``flush_log_lines`` is called, so that they do not interrupt
    the line that the user types.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._stdout_is_tty = sys.stdout.isatty()
        self._stderr_is_tty = sys.stderr.isatty()
        self._dim = self._stderr_is_tty and not os.environ.get("NO_COLOR")
        self._text_since_call = ""  # text of the answer since the last tool call
        self._open_line = ""  # kind of the line that has no line end yet: text, call or waiting
        self._open_call_id = ""
        self._in_turn = False
        self._pending_log_lines: list[str] = []
        self._write_lock = threading.RLock()

    def start_turn(self) -> None:
        """Start a turn. On a terminal, show ``…`` until the first event is printed."""
        self._text_since_call, self._in_turn = "", True
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
            elif isinstance(event, ToolCallFinished):
                self._print_call_result(event.call, event.result)
            elif isinstance(event, TurnFinished):
                self._print_done(event.result)

    def end_turn(self) -> None:
        """End a turn, and print the log lines that were held back since the previous turn ended.

        Call this method also if the turn failed.
        """
        with self._write_lock:
            self._end_line()
            self._in_turn = False
        self.flush_log_lines()

    def print_status_line(self, text: str) -> None:
        """Print a line to standard error. If the line on the screen is unfinished, end it first.

        Parameters
        ----------
        text : str
            Line to print.
        """
        with self._write_lock:
            self._end_line()
            self._print_status(text)

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
        if self._open_line != "text":
            self._end_line()
            text = text.lstrip("\n") if self._text_since_call == text else text
        if text:
            sys.stdout.write(strip_control_characters(text))
            sys.stdout.flush()
            self._open_line = "" if text.endswith("\n") else "text"

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
            self._print_status(f" · {said}")
        else:
            self._end_line()
            self._print_status(f"  {_call_label(call)} · {said}")

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
        elif self._open_line == "text":
            sys.stdout.write("\n")
            sys.stdout.flush()
        elif self._open_line == "call":
            self._print_status("")
        self._open_line = ""

    def _print_status(self, text: str, end: str = "\n") -> None:
        text = strip_control_characters(text)
        sys.stderr.write(f"\x1b[2m{text}\x1b[0m{end}" if self._dim and text else f"{text}{end}")
        sys.stderr.flush()


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
