"""Options and construction of the agent that the chat and the HTTP server share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.llm.base import Client

MODEL_ENV_VAR = "CTXLAB_MODEL"
"""The environment variable that names the model if ``--model`` does not."""

AgentModel: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Model that answers [$CTXLAB_MODEL]."),
]
AgentStrategy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-s",
        metavar="STRATEGY",
        help="Context strategy, such as 'tool_stubs | rolling_summary | panic'.",
    ),
]
AgentLimit: TypeAlias = Annotated[
    str | None,
    typer.Option("--limit", "-l", metavar="N", help="Context window (16000, 16k) [the model's]."),
]
MaxIterations: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="Most model calls in one turn.")
]
ReadOnly: TypeAlias = Annotated[
    bool, typer.Option("--read-only", help="Give the agent no tool that writes or runs commands.")
]
KeepEnv: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-env",
        metavar="NAME",
        help="Let commands inherit this environment variable although its name contains KEY, TOKEN, "
        "SECRET, PASSWORD, PASSWD or CREDENTIAL. May be repeated.",
    ),
]
NoTools: TypeAlias = Annotated[bool, typer.Option("--no-tools", help="Give the agent no tools.")]
SummaryModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Model that writes the table of contents, titles and the summary of a resumed session "
        "[none: they are extracted].",
    ),
]

_SYSTEM_PROMPT = """\
You are an assistant at a command line, working in the folder {folder}. \
Answer briefly, in the language of the user, as plain text."""
_TOOLS_HINT = " Look with your tools before you guess; paths are relative to that folder."


def make_agent(
    folder: Path,
    model: str,
    client: Client,
    *,
    strategy: str | None = None,
    limit: str | None = None,
    reserve: int | None = None,
    max_iterations: int = 10,
    read_only: bool = False,
    no_tools: bool = False,
    keep_env: Sequence[str] = (),
) -> Agent:
    """Return an agent with the tools of a folder and a process manager of its own.

    Parameters
    ----------
    folder : Path
        The folder that the tools work in.
    model : str
        The model that answers.
    client : Client
        The client that calls it.
    strategy : str, optional
        Text of the context strategy; None takes the agent's default.
    limit : str, optional
        Context window, such as ``"16k"``; None takes the model's.
    reserve : int, optional
        Tokens kept for the reply.
    max_iterations : int
        Most model calls in one turn.
    read_only : bool
        Leave out tools that write or run commands.
    no_tools : bool
        Leave out all tools.
    keep_env : sequence of str
        Environment variables that commands inherit although their names look secret.

    Returns
    -------
    Agent
        The agent; its processes are in ``agent.processes``.
    """
    from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
    from ctxlab.agent.tools.processes import ProcessManager
    from ctxlab.agent.tools.workspace import workspace_tools

    processes = ProcessManager(keep_env=keep_env)
    tools = () if no_tools else workspace_tools(folder, processes, writable=not read_only)
    return Agent(
        model,
        tools=tools,
        client=client,
        strategy=strategy or DEFAULT_STRATEGY,
        system=_SYSTEM_PROMPT.format(folder=folder) + (_TOOLS_HINT if tools else ""),
        limit=limit,
        reserve=reserve,
        max_iterations=max_iterations,
        processes=processes,
        enable_planning=bool(tools),
    )


def resolve_workspace(path: str | Path) -> Path:
    """Return an existing folder with links followed.

    Parameters
    ----------
    path : str or Path
        The folder; ``~`` is expanded.

    Returns
    -------
    Path
        The absolute path.

    Raises
    ------
    SpecError
        If it is not an existing folder.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise SpecError(f"--workspace: {path} is not a folder; name an existing one")
    return folder


def model_from_option_or_env(model: str | None) -> str | None:
    """Return the model of the option, or that of the environment.

    Parameters
    ----------
    model : str, optional
        The value of the option.

    Returns
    -------
    str or None
        The model; None if neither names one.
    """
    return model or os.environ.get(MODEL_ENV_VAR) or None


def missing_model_error() -> SpecError:
    """Return the error to raise if no model was named.

    Returns
    -------
    SpecError
        The error.
    """
    return SpecError(
        f"no model named: add --model gpt-5-mini (or any model that litellm knows), or set "
        f"{MODEL_ENV_VAR}"
    )
