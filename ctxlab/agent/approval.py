"""Ask the user before a tool changes something, and remember what the user allowed.

An agent with an ``Approver`` asks before each call of a tool that may change something. The user allows
the call once, allows all calls of its kind for the rest of the session, or refuses it. A command is of
the kind of an allowed one only if it begins with the same words and contains no shell operator.
"""

from __future__ import annotations

import re
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

_PROGRAM = re.compile(r"[\w./+-]+", re.ASCII)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*", re.IGNORECASE | re.ASCII)
_VERSION = re.compile(r"[\d.-]+$|\.exe$")

_RUNNERS = frozenset(
    {
        *(".", "ash", "at", "awk", "bash", "batch", "builtin", "bun", "busybox", "chroot"),
        *("cmd", "command", "coproc", "crontab", "dash", "deno", "direnv", "doas", "docker"),
        *("ed", "emacs", "entr", "env", "eval", "exec", "expect", "fd", "fdfind", "find"),
        *("fish", "flock", "gawk", "gdb", "go-task", "ionice", "java", "just", "ksh", "ltrace"),
        *("lua", "make", "mawk", "nawk", "nerdctl", "nice", "ninja", "node", "nodejs", "nohup"),
        *("nox", "npm", "npx", "nsenter", "osascript", "parallel", "perl", "php", "pkexec"),
        *("pnpm", "podman", "powershell", "pwsh", "pypy", "python", "pythonw", "rake"),
        *("rscript", "rsync", "ruby", "runuser", "screen", "script", "sed", "setsid", "sh"),
        *("source", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "tar", "task"),
        *("tclsh", "time", "timeout", "tmux", "tox", "trap", "unshare", "uv", "uvx", "vi"),
        *("vim", "watch", "wine", "xargs", "xvfb-run", "yarn", "zsh"),
    }
)
"""Programs that run what their arguments say, so that their first words say little."""

_ALWAYS_ASKED = frozenset(
    {
        *("chmod", "chown", "curl", "dd", "ftp", "kill", "killall", "mkfs", "nc", "ncat"),
        *("pkill", "rm", "rmdir", "scp", "sftp", "shred", "truncate", "unlink", "wget"),
    }
)
"""Programs that delete, or send something to others, whose arguments decide what."""

_WITH_SUBCOMMANDS = frozenset(
    {
        *("apt", "apt-get", "aws", "az", "brew", "cargo", "conda", "dnf", "gcloud", "gh"),
        *("git", "go", "helm", "hg", "ip", "kubectl", "mamba", "pacman", "pip", "pipx"),
        *("poetry", "rustup", "snap", "svn", "systemctl", "terraform", "tofu", "yum", "zypper"),
    }
)
"""Programs that mean something else with each subcommand, which options may precede."""

_RUNNING_SUBCOMMANDS = frozenset(
    {
        *("alias", "bisect", "config", "difftool", "dlx", "eval", "exec", "extension"),
        *("filter-branch", "foreach", "mergetool", "rebase", "run", "shell", "submodule", "x"),
    }
)
"""Subcommands that run what their arguments say, or change what other subcommands run."""


@dataclass(frozen=True)
class ApprovalRequest:
    """A tool call that needs the user's approval."""

    tool: Tool = field(repr=False)
    "tool that is called"
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

    @property
    def choices(self) -> tuple[str, ...]:
        """Answers that the user may give: the scopes that are possible, and ``no``."""
        return ("once", *(() if self.kind is None else ("kind",)), "tool", "no")


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
    >>> approver.decide(approver.request(tool, call))
    Decision(allowed=False, scope='once', reason='keep it')
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

    @property
    def can_ask(self) -> bool:
        """True if somebody is asked; False if calls that need approval are refused."""
        return self.mode == "ask" and self.ask is not None

    def request(self, tool: Tool, call: ToolCall) -> ApprovalRequest | ToolResult | None:
        """Return a request for approval of a tool call.

        Parameters
        ----------
        tool : Tool
            Tool that is called.
        call : ToolCall
            The call.

        Returns
        -------
        ApprovalRequest, ToolResult or None
            The request. None if the call needs no approval, or if its arguments are not valid, so that
            nothing is called. A failed result if the tool cannot make the change, so that there is
            nothing to ask; the tool must then not be called.
        """
        if tool.read_only or self.mode == "auto":
            return None
        try:
            arguments = validate_arguments(tool, call.arguments)
        except Exception:  # the call fails in the same way, with a message for the model
            return None
        change: FileChange | ToolResult | None = None
        if tool.preview is not None:
            try:
                change = tool.preview(**arguments)
            except Exception:
                change = None  # the user sees the arguments instead
        if isinstance(change, ToolResult):
            return change.model_copy(update={"tool_name": tool.name, "duration_ms": 0})
        command = arguments.get(tool.command_argument or "")
        command = command if isinstance(command, str) else None
        kind = change.path if change is not None else command and command_kind(command)
        made = ApprovalRequest(tool, call, arguments, command, change, kind)
        return None if self._is_allowed(made) else made

    def decide(self, request: ApprovalRequest) -> Decision:
        """Ask the user about a call, and remember the decision.

        Parameters
        ----------
        request : ApprovalRequest
            The call.

        Returns
        -------
        Decision
            Decision of the user. A refusal if nobody can be asked.
        """
        if self.mode == "read-only":
            return Decision(False, reason="this session is read-only")
        if self.ask is None:
            return Decision(False, reason=self.refusal)
        decision = self.ask(request)
        if not decision.allowed:
            return decision
        if decision.scope == "tool":
            self._tools.add(request.call.name)
        elif decision.scope == "kind" and request.kind is not None:
            self._kinds.add((request.call.name, request.kind))
        return decision

    def _is_allowed(self, request: ApprovalRequest) -> bool:
        name = request.call.name
        return name in self._tools or (name, request.kind) in self._kinds


def refused_result(decision: Decision) -> ToolResult:
    """Build the result of a call that the user refused.

    Parameters
    ----------
    decision : Decision
        The refusal.

    Returns
    -------
    ToolResult
        Failed result with the error type ``refused``.

    Examples
    --------
    >>> print(refused_result(Decision(False, reason="keep it.")).error)
    The call was not allowed: keep it. Do not try it again.
    """
    reason = decision.reason.strip()
    if not reason:
        why = "The user did not allow this call. Do not try it again; ask what to do instead."
        return failed_result(why, "refused")
    end = "" if reason[-1] in ".!?" else "."
    return failed_result(f"The call was not allowed: {reason}{end} Do not try it again.", "refused")


def changed_meanwhile(request: ApprovalRequest) -> ToolResult | None:
    """Check that an allowed call still makes the change that the user saw.

    Parameters
    ----------
    request : ApprovalRequest
        The call.

    Returns
    -------
    ToolResult or None
        Failed result if the file has changed since the user was asked; None if the call may be made.
    """
    if request.change is None or request.tool.preview is None:
        return None
    try:
        now = request.tool.preview(**request.arguments)
    except Exception:
        now = None
    if now == request.change:
        return None
    path = request.change.path
    why = f"{path} changed while the user was asked, so it was not written. Read it and try again."
    return failed_result(why, "execution_error")


def command_kind(command: str) -> str | None:
    """Return the words by which a command is recognised as one of the kind that the user allowed.

    The kind says which program and which subcommand run. It says nothing about their options.

    Parameters
    ----------
    command : str
        Command for ``/bin/sh``.

    Returns
    -------
    str or None
        The program, with the next word if it may be a subcommand. None if the command contains shell
        operators or invisible characters, if the program runs or deletes what its arguments say, or if
        options before a subcommand could change what it does.

    Examples
    --------
    >>> command_kind("git diff --stat"), command_kind("ls -la"), command_kind("git diff; rm -r .")
    ('git diff', 'ls', None)
    >>> command_kind("python3.12 setup.py"), command_kind("PATH=. ls"), command_kind("git -C .. diff")
    (None, None, None)
    """
    if _SHELL_OPERATORS.intersection(command) or not command.replace("\t", " ").isprintable():
        return None
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark without its counterpart
        return None
    if not words or not _PROGRAM.fullmatch(words[0]):
        return None
    name = words[0].rsplit("/", 1)[-1].lower()
    if {name, _VERSION.sub("", name)} & (_RUNNERS | _ALWAYS_ASKED):
        return None
    if len(words) > 1 and _SUBCOMMAND.fullmatch(words[1]):
        return None if words[1].lower() in _RUNNING_SUBCOMMANDS else f"{words[0]} {words[1]}"
    return None if name in _WITH_SUBCOMMANDS else words[0]
