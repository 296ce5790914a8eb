"""A turn is told as it happens: the answer on standard output, what is done for it on standard error."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import many
from ctxlab.cli.output import one_line
from ctxlab.cli.render.transcript import (
    argument_of,
    clean,
)

if TYPE_CHECKING:
    from ctxlab.agent.events import (
        Event,
        Outcome,
    )
    from ctxlab.agent.tools.result import ToolResult
    from ctxlab.messages.types import ToolCall

__all__ = ["Teller", "in_few_words"]

_WAITING = "…"
_WELL = "exit code 0"
_AT_ONCE = 0.1  # seconds, of which nothing is said
_NOTE = re.compile(
    r"\[(.{1,80})\]"
)  # what the tools of a workspace say of a result, in its last line


class Teller(logging.Handler):
    """Shows the events of turns, and what ``ctxlab`` logs meanwhile.

    On a terminal the text comes piece by piece, and a call stands there before its outcome does; in a
    pipe standard output gets the answer alone, once it is whole. What is logged by a thread in the
    background while somebody types waits for ``flush_remarks``.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._live = sys.stdout.isatty()
        self._seen = sys.stderr.isatty()
        self._dim = self._seen and not os.environ.get("NO_COLOR")
        self._said = ""  # since the last call of a tool
        self._open = ""  # what stands on a line that is not ended: text, call, waiting
        self._call = ""
        self._busy = False
        self._remarks: list[str] = []
        self._writing = threading.RLock()

    def begin(self) -> None:
        """A turn begins: something is shown until its first event."""
        self._said, self._busy = "", True
        if self._live and self._seen:
            self._aside(_WAITING, end="")
            self._open = "waiting"

    def tell(self, event: Event) -> None:
        """Shows an event."""
        from ctxlab.agent.events import (
            Called,
            Done,
            Returned,
            TextPiece,
        )

        with self._writing:
            if isinstance(event, TextPiece):
                self._text(event.text)
            elif isinstance(event, Called):
                self._calling(event.call)
            elif isinstance(event, Returned):
                self._returned(event.call, event.result)
            elif isinstance(event, Done):
                self._done(event.outcome)

    def end(self) -> None:
        """A turn is over, however it ended."""
        with self._writing:
            self._end_line()
            self._busy = False
        self.flush_remarks()

    def aside(self, text: str) -> None:
        """A line that is no answer."""
        with self._writing:
            self._end_line()
            self._aside(text)

    def emit(self, record: logging.LogRecord) -> None:
        """Shows what was logged, or keeps it while somebody types."""
        said = one_line(record.getMessage())
        if self._busy:
            self.aside(f"  {said}")
        else:
            self._remarks.append(said)

    def flush_remarks(self) -> None:
        """Shows what was logged since."""
        waiting, self._remarks = self._remarks, []
        for remark in waiting:
            self.aside(f"  {remark}")

    def _text(self, text: str) -> None:
        self._said += text
        if not self._live:
            return
        if self._open != "text":
            self._end_line()
            text = text.lstrip("\n") if self._said == text else text
        if text:
            sys.stdout.write(clean(text))
            sys.stdout.flush()
            self._open = "" if text.endswith("\n") else "text"

    def _calling(self, call: ToolCall) -> None:
        self._end_line()
        self._said = ""
        if self._seen:
            self._aside(f"  {_named(call)}", end="")
            self._open, self._call = "call", call.id

    def _returned(self, call: ToolCall, result: ToolResult) -> None:
        said = in_few_words(result)
        if self._open == "call" and self._call == call.id:
            self._open = ""
            self._aside(f" · {said}")
        else:
            self._end_line()
            self._aside(f"  {_named(call)} · {said}")

    def _done(self, outcome: Outcome) -> None:
        if not self._live:
            sys.stdout.write(f"{outcome.text}\n")
            sys.stdout.flush()
        if outcome.finish == "limit":
            calls = many(outcome.iterations, "call")
            self.aside(f"  stopped after {calls} of the model; --max-iterations allows more")

    def _end_line(self) -> None:
        if self._open == "waiting":
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        elif self._open == "text":
            sys.stdout.write("\n")
            sys.stdout.flush()
        elif self._open == "call":
            self._aside("")
        self._open = ""

    def _aside(self, text: str, end: str = "\n") -> None:
        text = clean(text)
        sys.stderr.write(f"\x1b[2m{text}\x1b[0m{end}" if self._dim and text else f"{text}{end}")
        sys.stderr.flush()


def in_few_words(result: ToolResult) -> str:
    """What a tool gave, in a few words.

    >>> from ctxlab.agent.tools.result import ToolResult
    >>> in_few_words(ToolResult(ok=True, data="one\\ntwo\\n", duration_ms=1234))
    '2 lines, 1.2 s'
    >>> in_few_words(ToolResult(ok=True, data="one\\n[exit code 1]"))
    '1 line, exit code 1'
    >>> in_few_words(ToolResult(ok=True, data="one\\n[exit code 0]", duration_ms=20))
    '1 line'
    >>> in_few_words(ToolResult(ok=False, error="no such file: b.py", error_type="execution_error"))
    'execution_error: no such file: b.py'
    """
    seconds = (result.duration_ms or 0) / 1000
    took = "" if seconds < _AT_ONCE else f", {seconds:.1f} s"
    if not result.ok:
        error = one_line(result.error or "")
        return f"{result.error_type}: {error if len(error) <= 120 else error[:119] + '…'}{took}"
    lines = result.to_llm_content().splitlines()
    said = _NOTE.fullmatch(lines[-1]) if lines else None
    if said is None:
        return f"{many(len(lines), 'line')}{took}"
    note = "" if said[1] == _WELL else f", {one_line(said[1])}"
    return f"{many(len(lines) - 1, 'line')}{note}{took}"


def _named(call: ToolCall) -> str:
    return f"{one_line(call.name)} {argument_of(call)}".rstrip()
