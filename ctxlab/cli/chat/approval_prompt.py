"""Ask the user on a terminal whether the agent may call a tool."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxlab.cli.render.control_characters import escape_invisible_characters

if TYPE_CHECKING:
    from ctxlab.agent.approval import ApprovalRequest, Decision

_COLORS = {"+": "32", "-": "31", "@": "36"}


class ApprovalPrompt:
    """Shows what a tool call does and asks the user to allow it.

    Parameters
    ----------
    ask : callable
        Function that shows a question and returns the line that the user enters.
    """

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask
        self._color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def decide(self, request: ApprovalRequest) -> Decision:
        """Show a tool call and return the user's decision.

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

        print("\n".join(self._describe(request)), file=sys.stderr)
        question, kinds = _question(request)
        while True:
            try:
                answer = self._ask(question).strip()
            except EOFError:
                return Decision(False)
            key = answer.lower()
            if key in ("y", "yes"):
                return Decision(True)
            if key == "a" and kinds:
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
            diff = request.change.diff() or "(the text stays the same)"
            lines = [self._paint(line) for line in diff.splitlines()]
            what = "write" if request.change.before is None else "change"
            return [f"The agent wants to {what} {_shown(request.change.path)}:", *lines]
        name = _shown(request.call.name)
        if request.command is not None:
            others = {k: v for k, v in request.arguments.items() if k != "command"}
            beside = f" (with {_shown(repr(others))})" if others else ""
            command = _shown(request.command).replace("\n", "\n    ")
            return [f"The agent wants to run{beside}:", f"    {command}"]
        return [f"The agent wants to call {name} with:", f"    {_shown(request.call.arguments)}"]

    def _paint(self, line: str) -> str:
        color = _COLORS.get(line[:1]) if self._color else None
        return f"\x1b[{color}m{_shown(line)}\x1b[0m" if color else _shown(line)


def _question(request: ApprovalRequest) -> tuple[str, bool]:
    kind = request.kind
    choices = ["y: once"]
    if kind is not None:
        choices.append(f"a: always for {_shown(kind)}")
    choices += [f"t: always {_shown(request.call.name)}", "n: no", "or say why not"]
    return f"Allow? ({', '.join(choices)}) ", kind is not None


def _shown(text: str) -> str:
    return escape_invisible_characters(text)
