"""The agent of a chat and of the HTTP server is made of the same options, and told the same."""

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

__all__ = [
    "MODEL_ENV_VAR",
    "AgentLimit",
    "AgentModel",
    "AgentStrategy",
    "KeepEnv",
    "MaxIterations",
    "NoTools",
    "ReadOnly",
    "SummaryModel",
    "make_agent",
    "missing_model_error",
    "model_from_option_or_env",
    "resolve_workspace",
]

MODEL_ENV_VAR = "CTXLAB_MODEL"
"""The variable that names the model where ``--model`` does not."""

AgentModel: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Who answers [what CTXLAB_MODEL says]."),
]
AgentStrategy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-s",
        metavar="STRATEGY",
        help="How the context is managed, such as 'tool_stubs | rolling_summary | panic'.",
    ),
]
AgentLimit: TypeAlias = Annotated[
    str | None,
    typer.Option("--limit", "-l", metavar="N", help="Context window (16000, 16k) [the model's]."),
]
MaxIterations: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="Calls of the model in a turn at most.")
]
ReadOnly: TypeAlias = Annotated[
    bool, typer.Option("--read-only", help="No tool that writes or runs commands.")
]
KeepEnv: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-env",
        metavar="NAME",
        help="A variable that commands inherit though its name contains KEY, TOKEN, SECRET, PASSWORD, "
        "PASSWD or CREDENTIAL; may be repeated.",
    ),
]
NoTools: TypeAlias = Annotated[bool, typer.Option("--no-tools", help="No tools at all.")]
SummaryModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Writes contents, titles and the summary that a resume begins with [none: they are "
        "extracted].",
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
    """An agent with the tools of a folder, whose managed processes are its own (``agent.processes``)."""
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
    """A folder that is there, with links followed; ``SpecError`` for anything else."""
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise SpecError(f"{path}: is no folder; --workspace takes one that is there")
    return folder


def model_from_option_or_env(model: str | None) -> str | None:
    """The model of the option, else of the environment."""
    return model or os.environ.get(MODEL_ENV_VAR) or None


def missing_model_error() -> SpecError:
    """What is raised where nobody named one."""
    return SpecError(
        f"no model is named: add --model gpt-5-mini, say, or set {MODEL_ENV_VAR}; any that litellm "
        "knows will do"
    )
