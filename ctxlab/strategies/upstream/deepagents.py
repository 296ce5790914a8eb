"""Adapters for the middleware of deepagents that summarises, and the one that saves long messages.

Files that the middleware would save are kept in memory. If a request does not fit even after
summarization, the middleware raises an error. The request is then sent without a new summary.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from deepagents.backends import protocol
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.exceptions import ContextOverflowError

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.deepagents.files import USER_MESSAGE_PATH
from ctxlab.strategies.upstream.base import Block, PeerSettings
from ctxlab.strategies.upstream.langchain import as_size_list
from ctxlab.strategies.upstream.langchain_messages import LangChainAdapter

_RANDOM_PATH = re.compile(r"/conversation_history/[0-9a-f-]{36}\.md")
_TRIGGER, _KEEP = ("fraction", 0.85), ("fraction", 0.1)


class _SummarizationAdapter(LangChainAdapter):
    """Adapter for ``SummarizationMiddleware``, with a model that has a known context window."""

    def __init__(
        self,
        settings: PeerSettings,
        trigger: Any = _TRIGGER,
        keep: Any = _KEEP,
        truncate_trigger: Any = _TRIGGER,
        truncate_keep: Any = _KEEP,
        max_length: int = 2000,
        model: str | None = None,
    ) -> None:
        super().__init__(settings)
        arguments = {"trigger": truncate_trigger, "keep": truncate_keep, "max_length": max_length}
        self._middleware: Any = SummarizationMiddleware(
            self.make_chat_model(model),
            backend=_MemoryBackend(),
            trigger=as_size_list(trigger),
            keep=keep,
            token_counter=self.count_tokens,
            trim_tokens_to_summarize=None,
            truncate_args_settings=arguments,  # type: ignore[arg-type]
        )
        self._messages: list[Any] = []
        # Id in the file name of the saved history. Without it, the name would be random.
        self._state: dict[str, Any] = {"_summarization_session_id": "session"}

    def add(self, position: int, block: Block) -> None:
        self._messages.append(self.load(position))

    def select(self) -> list[Message]:
        request: Any = ModelRequest(
            model=self._middleware.model,
            messages=list(self._messages),
            system_message=self.to_system_message(),
            state={**self._state, "messages": list(self._messages)},
        )
        sent: list[Any] = []

        def answer(request: Any) -> Any:
            sent[:] = request.messages

        try:
            result = self._middleware.wrap_model_call(request, answer)
        except ContextOverflowError:
            sent = self._middleware._get_effective_messages(request)
        else:
            self._apply_update(getattr(result, "command", None))
        return self.from_langchain(sent)

    def _apply_update(self, command: Any) -> None:
        update = dict(command.update) if command else {}
        changed = {message.id: message for message in update.pop("messages", ())}
        self._messages = [changed.get(message.id, message) for message in self._messages]
        self._state.update(update)


class _FilesystemAdapter(LangChainAdapter):
    """Adapter for ``FilesystemMiddleware``, which saves long tool results and user messages."""

    def __init__(
        self,
        settings: PeerSettings,
        tool_tokens: int | None = 20_000,
        user_tokens: int | None = 50_000,
    ) -> None:
        super().__init__(settings)
        self._middleware: Any = FilesystemMiddleware(
            backend=_MemoryBackend(),
            tool_token_limit_before_evict=tool_tokens,
            human_message_token_limit_before_evict=user_tokens,
        )
        self._messages: list[Any] = []

    def add(self, position: int, block: Block) -> None:
        made: Any = self.load(position)
        if block[0].role == "tool":
            call: Any = {"name": self.tool_name(position), "id": block[0].tool_call_id, "args": {}}
            request: Any = SimpleNamespace(tool_call=call, state={"messages": []}, tool=None)
            made = self._middleware.wrap_tool_call(request, lambda _: made)
        self._messages.append(made)

    def select(self) -> list[Message]:
        unused: Any = None
        state: Any = {"messages": list(self._messages)}
        request: Any = ModelRequest(model=unused, messages=list(self._messages), state=state)
        sent: list[Any] = []

        def answer(request: Any) -> Any:
            sent[:] = request.messages

        result = self._middleware.wrap_model_call(request, answer)
        command = getattr(result, "command", None)
        changed = {made.id: made for made in (command.update["messages"] if command else ())}
        self._messages = [changed.get(made.id, made) for made in self._messages]
        return [_with_fixed_path(message) for message in self.from_langchain(sent)]


def _with_fixed_path(message: Message) -> Message:
    """Replace the random name of the file of a user message."""
    if message.role != "user" or not isinstance(message.content, str):
        return message
    content = _RANDOM_PATH.sub(USER_MESSAGE_PATH, message.content, count=1)
    return message if content == message.content else message.replace(content=content)


class _MemoryBackend(protocol.BackendProtocol):
    """Backend for deepagents that keeps files in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def write(self, file_path: str, content: str) -> protocol.WriteResult:
        self._texts[file_path] = content
        return protocol.WriteResult(path=file_path)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> protocol.EditResult:
        self._texts[file_path] = new_string
        return protocol.EditResult(path=file_path, occurrences=1)

    def download_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        data = {path: text.encode() for path, text in self._texts.items()}
        return [protocol.FileDownloadResponse(path=p, content=data.get(p)) for p in paths]

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        return [protocol.FileUploadResponse(path=path) for path, _ in files]


FACTORIES = {"": _SummarizationAdapter, "offload": _FilesystemAdapter}
