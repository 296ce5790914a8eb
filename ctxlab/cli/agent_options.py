"""Options and construction of the agent that the chat and the HTTP server share."""

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
"""The environment variable that names the model if ``--model`` does not."""

_SYSTEM_PROMPT = """\
You are an assistant at a command line, working in the folder {folder}. \
Answer briefly, in the language of the user, as plain text."""
_TOOLS_HINT = " Look with your tools before you guess; paths are relative to that folder."


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """Options of the commands that run an agent."""

    model: str | None = option("--model -m MODEL", "Model that answers [$CTXLAB_MODEL].")
    strategy: str | None = option(
        "--strategy -s STRATEGY",
        "Context strategy, such as 'tool_stubs | rolling_summary | panic'.",
        autocompletion=complete_strategy,
    )
    limit: str | None = option("--limit -l N", "Context window (16000, 16k) [the model's].")
    reserve: int | None = RESERVE
    max_iterations: int = option("--max-iterations N", "Most model calls in a turn.", 10, min=1)
    read_only: bool = flag("--read-only", "Give the agent no tool that writes or runs commands.")
    no_tools: bool = flag("--no-tools", "Give the agent no tools.")
    keep_env: list[str] | None = option(
        "--keep-env NAME",
        "Let commands inherit this environment variable although its name contains KEY, TOKEN, "
        "SECRET, PASSWORD, PASSWD or CREDENTIAL. May be repeated.",
    )
    summary_model: str | None = option(
        "--summary-model MODEL",
        "Model that writes the table of contents, titles and the summary of a resumed session "
        "[none: they are extracted].",
    )

    @property
    def named_model(self) -> str | None:
        """Return the model named by the option ``--model`` or the environment, or None."""
        return self.model or os.environ.get(MODEL_ENV_VAR) or None

    def make_agent(
        self, folder: Path, client: Client, model: str | None = None, strategy: str | None = None
    ) -> Agent:
        """Return an agent with the tools of a folder and a process manager of its own.

        Parameters
        ----------
        folder : Path
            The folder that the tools work in.
        client : Client
            The client that calls the model.
        model : str, optional
            The model if no option and no variable names one.
        strategy : str, optional
            The strategy if no option names one; None takes the agent's default.

        Returns
        -------
        Agent
            The agent; its processes are in ``agent.processes``.

        Raises
        ------
        SpecError
            If no model is named.
        """
        from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
        from ctxlab.agent.tools.processes import ProcessManager
        from ctxlab.agent.tools.workspace import workspace_tools

        chosen = self.named_model or model
        if chosen is None:
            raise SpecError(f"no model named: add --model (as gpt-5-mini) or set {MODEL_ENV_VAR}")
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
