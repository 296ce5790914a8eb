"""Helpers for adapters: blocks of messages as a package's objects, model calls, and coroutines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from ctxlab.errors import SpecError
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import UnitTracker
from ctxlab.strategies.helpers.message_blocks import group_blocks
from ctxlab.strategies.upstream.base import PeerSettings

_T = TypeVar("_T")

Block = tuple[Message, ...]
"A single message, or consecutive tool results."


class TranslatedHistory:
    """A conversation as a package's objects, with the original messages of each object.

    Parameters
    ----------
    separate_prompt : bool, default True
        Keep leading system messages apart, as most packages do.
    group_results : bool, default True
        Convert consecutive tool results to one object.
    """

    def __init__(self, separate_prompt: bool = True, group_results: bool = True) -> None:
        self.prompt: list[Message] = []
        self.calls: dict[int, ToolCall] = {}
        "call that each tool result answers, by the position of the result"
        self._separate_prompt, self._group_results = separate_prompt, group_results
        self._seen, self._units = 0, UnitTracker()
        self._originals: dict[int, tuple[Any, Block]] = {}

    def new_blocks(self, history: Sequence[Message]) -> list[tuple[int, Block]]:
        """Return the blocks appended since the last call.

        Parameters
        ----------
        history : sequence of Message
            All messages so far.

        Returns
        -------
        list of tuple of int and Block
            Position of the first message, and the block.
        """
        position, self._seen = self._seen, len(history)
        added = history[position:]
        for message in added:
            self._units.add(message)
        self.calls = self._units.calls_by_result
        blocks: list[tuple[int, Block]] = []
        for block in (
            group_blocks(added) if self._group_results else [(message,) for message in added]
        ):
            if self._separate_prompt and block[0].role == "system" and len(self.prompt) == position:
                self.prompt.append(block[0])
            else:
                blocks.append((position, block))
            position += len(block)
        return blocks

    def link(self, translated: Any, block: Block) -> Any:
        """Record the original block of an object.

        Parameters
        ----------
        translated : object
            Object of the package.
        block : Block
            The messages that it stands for.

        Returns
        -------
        object
            The same object.
        """
        self._originals[id(translated)] = (translated, block)
        return translated

    def original_block(self, translated: Any) -> Block | None:
        """Return the original block of an object.

        Parameters
        ----------
        translated : object
            Object of the package.

        Returns
        -------
        Block or None
            The messages; None if the package created the object.
        """
        known = self._originals.get(id(translated))
        return None if known is None else known[1]

    def to_messages(
        self, objects: Sequence[Any], convert: Callable[[Any], Message]
    ) -> list[Message]:
        """Return the prompt and the original messages of objects.

        Parameters
        ----------
        objects : sequence of object
            Objects that the package would send.
        convert : callable
            Function that converts an object created by the package to a message.

        Returns
        -------
        list of Message
            The messages.
        """
        messages = list(self.prompt)
        for made in objects:
            block = self.original_block(made)
            messages.extend((convert(made),) if block is None else block)
        return messages


class ModelCaller:
    """Answers a package's model calls with the client of the replay.

    Parameters
    ----------
    settings : PeerSettings
        Settings with the client.
    model : str or None
        Name of the model to call.
    tokens : int, optional
        Maximum tokens of a reply.

    Raises
    ------
    SpecError
        If there is no client or no model.
    """

    def __init__(
        self, settings: PeerSettings, model: str | None, tokens: int | None = None
    ) -> None:
        if model is None or settings.client is None:
            raise SpecError("this peer calls a model; pass model='…' and a client")
        self._client, self._model, self._tokens = settings.client, model, tokens

    def __call__(self, lines: Iterable[str]) -> str:
        """Return the reply to the package's messages, given as one line each."""
        prompt = Message("user", "\n".join(lines))
        return self._client.complete(Request(self._model, (prompt,), max_tokens=self._tokens)).text


def tool_name(call: ToolCall | None, message: Message) -> str:
    """Return the name of the tool that produced a result.

    Parameters
    ----------
    call : ToolCall or None
        The call that the result answers.
    message : Message
        The result.

    Returns
    -------
    str
        The name; ``tool`` if it is unknown.
    """
    return call.name if call else message.name or "tool"


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, even if an event loop is running.

    Parameters
    ----------
    coroutine : coroutine
        The coroutine.

    Returns
    -------
    object
        The result of the coroutine.

    Raises
    ------
    RuntimeError
        If the coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the package awaits an event that does not occur in a replay")
