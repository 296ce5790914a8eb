"""Options of the commands that run an agent: ``chat`` and ``serve http``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxlab.cli.options import RESERVE, complete_from, complete_strategy, flag, option
from ctxlab.cli.settings import SETTINGS, env_var, resolve_settings
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.tools.tool import Tool
    from ctxlab.llm import LiteLLMClient
    from ctxlab.llm.base import Client
    from ctxlab.sessions.base import Session

SETTINGS_KEY = "settings"
"""Key of ``Session.meta`` with the settings that a resumed session keeps."""

_STRICTER = {"auto": ("ask", "read-only"), "ask": ("read-only",), "read-only": ()}
_SYSTEM_PROMPT = """\
You are an assistant at a command line, working in the folder {folder}. \
Answer briefly, in the language of the user, as plain text."""
_TOOLS_HINT = " Look with your tools before you guess; paths are relative to that folder."
_MEMORY_HINT = " What you no longer see, and earlier sessions in that folder, can be searched."


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """Options of the commands that run an agent."""

    model: str | None = option(
        "--model -m MODEL",
        "Model of the agent. Default: $CTXLAB_MODEL or the settings file; see ctxlab config.",
    )
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
    max_iterations: int | None = option(
        "--max-iterations N", "Maximum model calls per turn. Default: 10.", min=1
    )
    approval: str | None = option(
        "--approval ask|auto|read-only",
        "ask before the agent changes a file or runs a command; auto: allow everything; read-only: give "
        "the agent no tools that change something. Default: ask.",
        autocompletion=complete_from(lambda: ("ask", "auto", "read-only")),
    )
    no_tools: bool = flag("--no-tools", "Give the agent no tools.")
    no_memory: bool = flag(
        "--no-memory", "Give the agent no tools to search and read this and earlier sessions."
    )
    mcp: list[str] | None = option(
        "--mcp SERVER",
        "Give the agent the tools of an MCP server: a command, such as 'ctxlab serve desktop', or an "
        "address, such as http://127.0.0.1:9000/mcp. Addresses get the token in CTXLAB_MCP_TOKEN. "
        "May be repeated.",
    )
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

    def start_mcp_servers(self, folder: Path, stack: ExitStack) -> tuple[Tool, ...]:
        """Start the MCP servers of the option ``--mcp`` and return their tools.

        Parameters
        ----------
        folder : Path
            Working directory of the servers.
        stack : ExitStack
            Stack with which the servers end.

        Returns
        -------
        tuple of Tool
            Tools of all servers; empty if there is no server.

        Raises
        ------
        SpecError
            If the agent is to have no tools.
        CtxlabError
            If a server cannot be started.
        """
        if not self.mcp:
            return ()
        if self.no_tools:
            raise SpecError("expected --mcp or --no-tools, got both; use only one of them")
        from ctxlab.agent.tools.mcp_client import McpServers

        token = os.environ.get("CTXLAB_MCP_TOKEN")
        servers = McpServers(self.mcp, cwd=folder, keep_env=self.keep_env or (), token=token)
        return tuple(stack.enter_context(servers).tools)

    def resolve(self, session: Session | None = None) -> AgentSettings:
        """Return the settings of an agent: of these options, a session, the environment and the file.

        Parameters
        ----------
        session : Session, optional
            Session that the agent resumes. Its settings hold where no option is given. Its approval
            holds only if it is stricter than that of the environment, the file or the default.

        Returns
        -------
        AgentSettings
            Settings to create the agent with.

        Raises
        ------
        SpecError
            If the settings file or an environment variable is not valid.
        """
        stored: dict[str, Any] = {}
        approval = None
        if session is not None:
            kept = session.meta.get(SETTINGS_KEY)
            kept = kept if isinstance(kept, dict) else {}
            approval = kept.get("approval")
            stored = {"limit": kept.get("limit"), "model": session.model}
            stored |= {"strategy": session.strategy, "agent": session.agent}
        found = resolve_settings({name: getattr(self, name, None) for name in SETTINGS}, stored)
        values = {name: each.value for name, each in found.items()}
        if self.approval is None and values["approval"] in _STRICTER:
            # A folder with sessions may come from a stranger, so a session allows nothing.
            stricter = approval in _STRICTER[values["approval"]]
            values["approval"] = approval if stricter else values["approval"]
        return AgentSettings(self, values)


class AgentSettings:
    """Settings of an agent, of which each has been chosen among its sources.

    Parameters
    ----------
    options : AgentOptions
        Options of the command.
    values : dict
        Value of each setting in ``ctxlab.cli.settings.SETTINGS``.
    """

    def __init__(self, options: AgentOptions, values: dict[str, Any]) -> None:
        self._options = options
        self.values = values
        "value of each setting by name"

    @property
    def model(self) -> str | None:
        """Name of the model; None if no model is set."""
        model: str | None = self.values["model"]
        return model

    @property
    def summary_model(self) -> str | None:
        """Name of the model that writes titles, tables of contents and summaries; None for no model."""
        model: str | None = self.values["summary_model"]
        return model

    @property
    def stored(self) -> dict[str, Any]:
        """Data to store with a new session, so that it is resumed with the same settings."""
        kept = {
            name: self.values[name]
            for name in ("limit", "approval")
            if self.values[name] is not None
        }
        return {SETTINGS_KEY: kept} if kept else {}

    def make_client(self) -> LiteLLMClient:
        """Create the client that calls models.

        Returns
        -------
        LiteLLMClient
            Client with the number of retries and the delay of the settings.
        """
        from ctxlab.llm import LiteLLMClient

        # A user who sees each failure decides when to give up.
        return LiteLLMClient(
            retries=self.values["retries"], delay=self.values["retry_delay"], patience=0
        )

    def make_agent(
        self,
        folder: Path,
        client: Client,
        refusal: str = "nobody can be asked",
        extra_tools: Iterable[Tool] = (),
    ) -> Agent:
        """Create an agent that works in a folder.

        Parameters
        ----------
        folder : Path
            Folder in which the agent's tools read and write files and run commands.
        client : Client
            Client that calls the model.
        refusal : str, optional
            Reason that the model is told if a call needs approval and nobody can be asked.
        extra_tools : iterable of Tool, optional
            Tools that the agent gets in addition to those for the folder. In a read-only session, only
            those that change nothing.

        Returns
        -------
        Agent
            Agent with these settings. ``agent.processes`` runs the commands of its tools.

        Raises
        ------
        SpecError
            If no model is set.
        """
        from ctxlab.agent.approval import Approver
        from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
        from ctxlab.agent.tools.processes import ProcessManager
        from ctxlab.agent.tools.workspace import workspace_tools
        from ctxlab.strategies import parse_strategy
        from ctxlab.strategies.base import with_summary_model

        values, options = self.values, self._options
        if values["model"] is None:
            hint = f"add --model MODEL, set {env_var('model')}, or see ctxlab config"
            raise SpecError(f"no model is set; {hint}")
        strategy = parse_strategy(values["strategy"] or DEFAULT_STRATEGY)
        if values["summary_model"]:
            strategy = with_summary_model(strategy, values["summary_model"])
        processes = ProcessManager(keep_env=options.keep_env or ())
        approver = Approver(values["approval"], refusal=refusal)
        write = values["approval"] != "read-only"
        tools = () if options.no_tools else workspace_tools(folder, processes, writable=write)
        memory = not (options.no_tools or options.no_memory)
        prompt = _SYSTEM_PROMPT + (_TOOLS_HINT if tools else "") + (_MEMORY_HINT if memory else "")
        return Agent(
            values["model"],
            tools=(*tools, *(each for each in extra_tools if write or each.read_only)),
            client=client,
            strategy=strategy,
            system=(values["system_prompt"] or prompt).replace("{folder}", str(folder)),
            limit=values["limit"],
            reserve=options.reserve,
            max_iterations=values["max_iterations"],
            max_tool_failures=values["max_tool_failures"],
            processes=processes,
            enable_planning=bool(tools),
            approver=approver,
            enable_memory=memory,
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
