"""Options of the commands that run an agent: ``chat`` and ``serve http``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.cli.options import RESERVE, complete_strategy, flag, option
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.llm.base import Client

MODEL_ENV_VAR = "CTXLAB_MODEL"
"""Environment variable with the name of the model to use if ``--model`` is not given."""

_SYSTEM_PROMPT = """\
You are an assistant at a command line, working in the folder {folder}. \
Answer briefly, in the language of the user, as plain text."""
_TOOLS_HINT = " Look with your tools before you guess; paths are relative to that folder."


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """Options of the commands that run an agent."""

    model: str | None = option("--model -m MODEL", "Model of the agent. Default: $CTXLAB_MODEL.")
    strategy: str | None = option(
        "--strategy -s STRATEGY",
        "Context strategy, such as 'tool_stubs | rolling_summary | panic'; ctxlab strategies lists "
        "the names. The default shortens tool results and summarizes older messages.",
        autocompletion=complete_strategy,
    )
    limit: str | None = option(
        "--limit -l N",
        "Maximum size of a request and its reply in tokens (16000, 16k). Default: the model's "
        "context window.",
    )
    reserve: int | None = RESERVE
    max_iterations: int = option("--max-iterations N", "Maximum model calls per turn.", 10, min=1)
    read_only: bool = flag("--read-only", "Give the agent no tools to write files or run commands.")
    no_tools: bool = flag("--no-tools", "Give the agent no tools.")
    keep_env: list[str] | None = option(
        "--keep-env NAME",
        "Pass this environment variable to the commands that the agent runs. Without this option, "
        "variables are removed if their name contains KEY, TOKEN, SECRET, PASSWORD, PASSWD or "
        "CREDENTIAL. May be repeated.",
    )
    summary_model: str | None = option(
        "--summary-model MODEL",
        "Model that writes session titles, tables of contents and summaries of resumed sessions. "
        "Default: no model. Titles and summaries are then extracted from the messages.",
    )

    @property
    def named_model(self) -> str | None:
        """Model named by ``--model``, else by ``$CTXLAB_MODEL``; None if neither is set."""
        return self.model or os.environ.get(MODEL_ENV_VAR) or None

    def make_agent(
        self, folder: Path, client: Client, model: str | None = None, strategy: str | None = None
    ) -> Agent:
        """Create an agent that works in a folder.

        Parameters
        ----------
        folder : Path
            Folder in which the agent's tools read and write files and run commands.
        client : Client
            Client that calls the model.
        model : str, optional
            Model to use if ``named_model`` is None.
        strategy : str, optional
            Strategy to use if ``--strategy`` is not given. None uses ``DEFAULT_STRATEGY`` of
            ``ctxlab.agent.loop``.

        Returns
        -------
        Agent
            Agent with the options of the user. ``agent.processes`` runs the commands of its tools.

        Raises
        ------
        SpecError
            If ``named_model`` and ``model`` are both None.
        """
        from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
        from ctxlab.agent.tools.processes import ProcessManager
        from ctxlab.agent.tools.workspace import workspace_tools

        chosen = self.named_model or model
        if chosen is None:
            raise SpecError(f"no model is set; add --model MODEL or set {MODEL_ENV_VAR}")
        processes = ProcessManager(keep_env=self.keep_env or ())
        write = not self.read_only
        tools = () if self.no_tools else workspace_tools(folder, processes, writable=write)
        return Agent(
            chosen,
            tools=tools,
            client=client,
            strategy=self.strategy or strategy or DEFAULT_STRATEGY,
            system=_SYSTEM_PROMPT.format(folder=folder) + (_TOOLS_HINT if tools else ""),
            limit=self.limit,
            reserve=self.reserve,
            max_iterations=self.max_iterations,
            processes=processes,
            enable_planning=bool(tools),
        )


def resolve_workspace(path: str | Path) -> Path:
    """Return the absolute path of the folder that ``--workspace`` names.

    Parameters
    ----------
    path : str or Path
        Path of the folder. ``~`` is expanded.

    Returns
    -------
    Path
        Absolute path with symbolic links resolved.

    Raises
    ------
    SpecError
        If ``path`` is not an existing folder.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise SpecError(f"--workspace: expected an existing folder, got {str(path)!r}")
    return folder
