"""Import the modules of an agent in the background, while the user types the first message."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress

_MODULES = (
    "ctxlab.sessions.sqlite.store",
    "ctxlab.cli.chat.connection",
    "ctxlab.agent.session",
    "ctxlab.agent.loop",
    "ctxlab.agent.approval",
    "ctxlab.agent.tools.workspace",
    "ctxlab.sessions.background_summaries",
    "ctxlab.cli.chat.markdown_stream",
    "ctxlab.llm",
)


class BackgroundLoader:
    """Imports modules in a thread. They take longer than a user should wait for the first prompt."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, which imports the modules of the agent and then litellm."""
        # Not a daemon: a thread that is stopped in an import may keep a lock that the end needs.
        self._thread = threading.Thread(target=_load, name="ctxlab-imports")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the modules of the agent are imported, if the thread was started.

        Ctrl+C interrupts the waiting, but not the import, which would leave modules incomplete.
        """
        if self._thread is not None:
            self._thread.join()


def _load() -> None:
    for name in _MODULES:
        with suppress(Exception):  # raised again, and told, where the module is used
            importlib.import_module(name)
    from ctxlab.llm import LiteLLMClient

    LiteLLMClient().warm_up()
