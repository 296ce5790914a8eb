"""What several adapters need: blocks of messages as objects of a package, and coroutines run at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from ctxlab.errors import SpecError
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import UnitTracker
from ctxlab.strategies.helpers.message_blocks import group_blocks
from ctxlab.strategies.upstream.base import PeerSettings

__all__ = ["Block", "ModelCaller", "TranslatedHistory", "run_coroutine", "tool_name"]

_T = TypeVar("_T")

Block = tuple[Message, ...]
"""A message, or tool results that stand next to each other."""


class TranslatedHistory:
    """A conversation as a package's own objects, and what each of them stands for.

    The system messages at the beginning are the prompt: most packages keep them apart.
    """

    def __init__(self, separate_prompt: bool = True, group_results: bool = True) -> None:
        self.prompt: list[Message] = []
        self.calls: dict[int, ToolCall] = {}
        "position of a tool result → the call that it answers"
        self._separate_prompt, self._group_results = separate_prompt, group_results
        self._seen, self._units = 0, UnitTracker()
        self._originals: dict[int, tuple[Any, Block]] = {}

    def new_blocks(self, history: Sequence[Message]) -> list[tuple[int, Block]]:
        """The blocks that were appended since, each with its position."""
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
        """Notes what an object stands for, and gives it back."""
        self._originals[id(translated)] = (translated, block)
        return translated

    def original_block(self, translated: Any) -> Block | None:
        """What an object stands for; None where the package made it."""
        known = self._originals.get(id(translated))
        return None if known is None else known[1]

    def to_messages(
        self, objects: Sequence[Any], convert: Callable[[Any], Message]
    ) -> list[Message]:
        """The prompt and what the objects stand for; ``convert`` reads those that the package made."""
        messages = list(self.prompt)
        for made in objects:
            block = self.original_block(made)
            messages.extend((convert(made),) if block is None else block)
        return messages


class ModelCaller:
    """What a package asks its model, asked of the client of the replay instead."""

    def __init__(
        self, settings: PeerSettings, model: str | None, tokens: int | None = None
    ) -> None:
        if model is None or settings.client is None:
            raise SpecError("this peer asks a model: give it model='…', and a client to ask it")
        self._client, self._model, self._tokens = settings.client, model, tokens

    def __call__(self, lines: Iterable[str]) -> str:
        """The answer to what the package sent, its messages a line each."""
        prompt = Message("user", "\n".join(lines))
        return self._client.complete(Request(self._model, (prompt,), max_tokens=self._tokens)).text


def tool_name(call: ToolCall | None, message: Message) -> str:
    """The tool that a result comes from, as far as is known."""
    return call.name if call else message.name or "tool"


def run_coroutine(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine that waits for nothing, also where an event loop is running already."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a package waits for something that never comes in a replay")
