"""Ask the user on a terminal whether the agent may call a tool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import dump_json
from ctxlab._utils.text import show_hidden
from ctxlab.cli.chat.terminal import has_colors

if TYPE_CHECKING:
    from ctxlab.agent.approval import ApprovalRequest, Decision
    from ctxlab.agent.tools.changes import FileChange

_COLORS = {"+": "32", "-": "31", "@": "36"}
_MAX_LINES_WITHOUT_COUNT = 10  # longer texts may not fit the screen, so their length is told


class ApprovalPrompt:
    """Shows what a tool call does and asks the user to allow it.

    Parameters
    ----------
    ask : callable
        Function that shows a question and returns the line that the user enters.
    discard_typed : callable, optional
        Function that discards what the user has typed so far.
    """

    def __init__(
        self, ask: Callable[[str], str], discard_typed: Callable[[], None] = lambda: None
    ) -> None:
        self._ask, self._discard_typed = ask, discard_typed
        self._color = has_colors(sys.stderr)

    def decide(self, request: ApprovalRequest) -> Decision:
        """Show a tool call and return the user's decision.

        What the user typed before the question is discarded, so that it cannot answer it.

        Parameters
        ----------
        request : ApprovalRequest
            The tool call.

        Returns
        -------
        Decision
            The decision. An empty answer and Ctrl+D refuse the call.

        Raises
        ------
        KeyboardInterrupt
            If the user pressed Ctrl+C.
        """
        from ctxlab.agent.approval import Decision

        print("\n".join(self._describe(request)), file=sys.stderr, flush=True)
        question = _question(request)
        self._discard_typed()
        while True:
            try:
                answer = self._ask(question).strip()
                key = answer.lower()
                if key == "e":
                    return Decision(False, reason=self._ask("Why not? ").strip())
            except EOFError:
                return Decision(False)
            if key in ("y", "yes"):
                return Decision(True)
            if key == "a" and "kind" in request.choices:
                return Decision(True, "kind")
            if key == "t":
                return Decision(True, "tool")
            if key in ("n", "no", ""):
                return Decision(False)
            if len(answer) > 1:
                return Decision(False, reason=answer)
            print("type one of the letters, or why not", file=sys.stderr)

    def _describe(self, request: ApprovalRequest) -> list[str]:
        """Return the lines that show everything that a call does."""
        if request.change is not None:
            return self._describe_change(request.change)
        if request.command is not None:
            others = {
                k: v for k, v in request.arguments.items() if k != request.tool.command_argument
            }
            beside = f" with {_on_one_line(dump_json(others))}" if others else ""
            return _block(f"The agent wants to run{beside}", request.command)
        name = _on_one_line(request.call.name)
        return _block(f"The agent wants to call {name} with", dump_json(request.arguments))

    def _describe_change(self, change: FileChange) -> list[str]:
        what = "change" if change.before is not None else "replace" if change.hidden else "create"
        why = f"; its text is not shown: {_on_one_line(change.hidden)}" if change.hidden else ""
        lines = (change.diff() or "(the text stays the same)").split("\n")
        if change.before is not None and "\r\n" in change.before:
            # Each line of such a file ends with a carriage return; show those that differ.
            lines = _without_common_returns(lines)
        head = f"The agent wants to {what} {_on_one_line(change.path)}{why}{_count(lines)}:"
        return [head, *map(self._paint, lines)]

    def _paint(self, line: str) -> str:
        color = _COLORS.get(line[:1]) if self._color else None
        return f"\x1b[{color}m{show_hidden(line)}\x1b[0m" if color else show_hidden(line)


def _question(request: ApprovalRequest) -> str:
    choices = ["[y] once"]
    if request.kind is not None:
        choices.append(f'[a] always for "{_on_one_line(request.kind)}"')
    choices += [f"[t] always {_on_one_line(request.call.name)}", "[n] no", "[e] no, and say why"]
    return f"Allow? {'  '.join(choices)}: "


def _block(head: str, text: str) -> list[str]:
    lines = text.split("\n")
    return [f"{head}{_count(lines)}:", *(f"    {show_hidden(line)}" for line in lines)]


def _count(lines: list[str]) -> str:
    return f" ({pluralize(len(lines), 'line')})" if len(lines) > _MAX_LINES_WITHOUT_COUNT else ""


def _without_common_returns(lines: list[str]) -> list[str]:
    """Remove the carriage returns at the ends of lines if all lines that have a line end have one."""
    texts = [line for line in lines if line[:1] in " +-" and not line.startswith(("---", "+++"))]
    if all(line.endswith("\r") for line in texts):
        return [line.removesuffix("\r") for line in lines]
    return lines


def _on_one_line(text: str) -> str:
    return show_hidden(text, keep="")
