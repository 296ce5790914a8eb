"""deepagents' summarization middleware as a strategy, with the defaults of its agent.

Files that it would save are kept in memory. If it refuses a request that does not fit even when
summarised, the request is sent unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents.backends.protocol import (
    BackendProtocol,
    EditResult,
    FileDownloadResponse,
    FileUploadResponse,
    WriteResult,
)
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.exceptions import ContextOverflowError

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings
from ctxlab.strategies.upstream.langchain import as_size_list, count_leading_system_messages
from ctxlab.strategies.upstream.langchain_messages import MessageConverter, make_chat_model

_DEFAULT_TRIGGER = ("fraction", 0.85)
_DEFAULT_KEEP = ("fraction", 0.1)


def default(
    settings: PeerSettings,
    trigger: Any = _DEFAULT_TRIGGER,
    keep: Any = _DEFAULT_KEEP,
    truncate_trigger: Any = _DEFAULT_TRIGGER,
    truncate_keep: Any = _DEFAULT_KEEP,
    max_length: int = 2000,
    model: str | None = None,
) -> PeerAdapter:
    """Return an adapter for ``SummarizationMiddleware``, configured for a model with a known window.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    trigger : tuple
        Size, or several sizes, from which messages are summarised.
    keep : tuple
        Size of the newest part to keep.
    truncate_trigger : tuple
        Size from which arguments are truncated.
    truncate_keep : tuple
        Size of the newest part whose arguments are kept.
    max_length : int, default 2000
        An argument with more characters than this is truncated.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    arguments: Any = {
        "trigger": truncate_trigger,
        "keep": truncate_keep,
        "max_length": max_length,
    }
    converter = MessageConverter(settings)
    middleware = SummarizationMiddleware(
        make_chat_model(settings, model, converter),
        backend=_MemoryBackend(),
        trigger=as_size_list(trigger),
        keep=keep,
        token_counter=converter.count_tokens,
        trim_tokens_to_summarize=None,
        truncate_args_settings=arguments,
    )
    return _SummarizationAdapter(converter, middleware)


class _MemoryBackend(BackendProtocol):
    """A backend that keeps files in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def write(self, file_path: str, content: str) -> WriteResult:
        self._texts[file_path] = content
        return WriteResult(path=file_path)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        self._texts[file_path] = new_string
        return EditResult(path=file_path, occurrences=1)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        texts = [(path, self._texts.get(path)) for path in paths]
        return [
            FileDownloadResponse(path=path, content=None if text is None else text.encode())
            for path, text in texts
        ]

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path) for path, _ in files]


class _SummarizationAdapter:
    def __init__(self, converter: MessageConverter, middleware: Any) -> None:
        self._converter, self._middleware = converter, middleware
        self._messages: list[Any] = []
        self._seen = 0
        # Name of the file of the history; otherwise it would be random.
        self._state: dict[str, Any] = {"_summarization_session_id": "session"}

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        head, converter = count_leading_system_messages(history), self._converter
        self._messages += converter.to_langchain(history, max(head, self._seen))
        self._seen = len(history)
        request: Any = ModelRequest(
            model=self._middleware.model,
            messages=list(self._messages),
            system_message=converter.to_system_message(history[:head]),
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
        return [*history[:head], *converter.from_langchain(sent)]

    def _apply_update(self, command: Any) -> None:
        update = dict(command.update) if command else {}
        changed = {message.id: message for message in update.pop("messages", ())}
        self._messages = [changed.get(message.id, message) for message in self._messages]
        self._state.update(update)
