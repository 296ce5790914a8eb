"""Ask the user before a tool changes something, and remember what the user allowed.

An agent with an ``Approver`` asks before each call of a tool that may change something. The user allows
the call once, allows all calls of its kind for the rest of the session, or refuses it. A command is of
the kind of an allowed one only if it begins with the same words and contains no shell operator.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from ctxlab.agent.tools.changes import FileChange
from ctxlab.agent.tools.result import ToolResult, failed_result
from ctxlab.agent.tools.tool import Tool, validate_arguments
from ctxlab.errors import SpecError
from ctxlab.messages.types import ToolCall

ApprovalMode: TypeAlias = Literal["ask", "auto", "read-only"]
"""Whether an agent asks before it changes something, may do everything, or may change nothing."""

APPROVAL_MODES: tuple[str, ...] = get_args(ApprovalMode)
"""All values of ``ApprovalMode``."""

Scope: TypeAlias = Literal["once", "kind", "tool"]
"""What a decision holds for: this call, all calls of its kind, or all calls of the tool."""

_SHELL_OPERATORS = frozenset(";&|<>`$()\n\r\\")
"""Characters that let a shell do more than run one program with the given words."""

_RUNNERS = frozenset(
    {
        *("ash", "awk", "bash", "busybox", "dash", "doas", "docker", "env", "eval", "exec", "find"),
        *("ksh", "make", "node", "npm", "npx", "perl", "php", "podman", "python", "python2"),
        *("python3", "ruby", "sh", "ssh", "su", "sudo", "tclsh", "time", "uv", "uvx", "watch"),
        *("xargs", "zsh"),
    }
)
"""Programs that run what their arguments say, so that their first words say little."""


@dataclass(frozen=True)
class ApprovalRequest:
    """A tool call that needs the user's approval."""

    call: ToolCall
    "the tool call"
    arguments: dict[str, Any] = field(hash=False)
    "its arguments, which are valid"
    command: str | None = None
    "shell command that the call runs; None if it runs none"
    change: FileChange | None = None
    "change of a file that the call makes; None if it changes none"
    kind: str | None = None
    """what the scope ``kind`` of a decision allows, such as ``git diff`` or the path of a file; None if
    the call cannot be allowed beyond itself, except by allowing the tool"""


@dataclass(frozen=True)
class Decision:
    """Decision of the user about a tool call."""

    allowed: bool
    "True if the call may be made"
    scope: Scope = "once"
    "what the decision holds for; a refusal holds for this call only"
    reason: str = ""
    "reason of a refusal, which the model is told"


class Approver:
    """Decides whether tool calls may be made. It remembers what the user allowed.

    Parameters
    ----------
    mode : {"ask", "auto", "read-only"}
        ``auto`` allows all calls. ``read-only`` refuses calls of tools that may change something.
    ask : callable, optional
        Function that gets an ``ApprovalRequest``, waits for the user, and returns a ``Decision``. None
        if nobody can be asked: calls that need approval are then refused.
    refusal : str, optional
        Reason that the model is told if nobody can be asked.

    Raises
    ------
    SpecError
        If the mode is unknown.

    Examples
    --------
    >>> call = ToolCall("c1", "run", '{"command": "rm a"}')
    >>> tool = Tool("run", "", {}, lambda command: "done")
    >>> approver = Approver("ask", lambda request: Decision(False, reason="keep it"))
    >>> approver.decide(approver.request(tool, call)).error
    'The user did not allow this call: keep it'
    """

    def __init__(
        self,
        mode: str = "ask",
        ask: Callable[[ApprovalRequest], Decision] | None = None,
        refusal: str = "nobody can be asked",
    ) -> None:
        if mode not in APPROVAL_MODES:
            raise SpecError(f"Expected approval {', '.join(APPROVAL_MODES)}, got {mode!r}")
        self.mode = mode
        self.ask = ask
        self.refusal = refusal
        self._tools: set[str] = set()
        self._kinds: set[tuple[str, str]] = set()

    def request(self, tool: Tool, call: ToolCall) -> ApprovalRequest | None:
        """Return a request for approval of a tool call.

        Parameters
        ----------
        tool : Tool
            Tool that is called.
        call : ToolCall
            The call.

        Returns
        -------
        ApprovalRequest or None
            The request; None if the call needs no approval, or cannot change anything because its
            arguments are not valid.
        """
        if tool.read_only or self.mode == "auto":
            return None
        try:
            arguments = validate_arguments(tool, call.arguments)
            change = None if tool.preview is None else tool.preview(**arguments)
        except Exception:  # the call itself fails in the same way, with a message for the model
            return None
        command = arguments.get("command")
        command = command if isinstance(command, str) else None
        kind = change.path if change is not None else command and command_kind(command)
        made = ApprovalRequest(call, arguments, command, change, kind)
        return None if self._is_allowed(made) else made

    def decide(self, request: ApprovalRequest) -> ToolResult | None:
        """Ask the user about a call, and remember the decision.

        Parameters
        ----------
        request : ApprovalRequest
            The call.

        Returns
        -------
        ToolResult or None
            Failed result with the error type ``refused``; None if the call may be made.
        """
        if self.mode == "read-only":
            return _refused("this session is read-only")
        if self.ask is None:
            return _refused(self.refusal)
        decision = self.ask(request)
        if not decision.allowed:
            return _refused(decision.reason)
        if decision.scope == "tool":
            self._tools.add(request.call.name)
        elif decision.scope == "kind" and request.kind is not None:
            self._kinds.add((request.call.name, request.kind))
        return None

    def _is_allowed(self, request: ApprovalRequest) -> bool:
        name = request.call.name
        return name in self._tools or (name, request.kind) in self._kinds


def command_kind(command: str) -> str | None:
    """Return the words by which a command is recognised as one of the kind that the user allowed.

    Parameters
    ----------
    command : str
        Shell command.

    Returns
    -------
    str or None
        The program, with its subcommand if it has one. None if the command contains shell operators, or
        if the program runs what its arguments say.

    Examples
    --------
    >>> command_kind("git diff --stat"), command_kind("ls -la"), command_kind("git diff; rm -r .")
    ('git diff', 'ls', None)
    >>> command_kind("python setup.py"), command_kind("PATH=. ls")
    (None, None)
    """
    if _SHELL_OPERATORS.intersection(command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark without its counterpart
        return None
    if not words or "=" in words[0] or words[0].rsplit("/", 1)[-1] in _RUNNERS:
        return None
    return " ".join(words[: 2 if len(words) > 1 and words[1].isalpha() else 1])


def _refused(reason: str) -> ToolResult:
    said = f"The user did not allow this call: {reason}" if reason else (
        "The user did not allow this call. Do not try it again; ask what to do instead."
    )  # fmt: skip
    return failed_result(said, "refused")
