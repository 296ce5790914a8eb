"""AutoGen's model contexts, run by the package: messages are added, and it is asked what to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Setting
from ctxlab.strategies.upstream.message_blocks import (
    Block,
    Translated,
    finish,
    tool_name,
)

__all__ = ["buffered", "head_and_tail", "token_limited"]


class _Chat:
    """A conversation in one of AutoGen's contexts."""

    def __init__(self, context: ChatCompletionContext, known: Translated) -> None:
        self._context, self._known = context, known

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._known.new(history):
            made = self._known.stands(_made(self._known, position, block), block)
            finish(self._context.add_message(made))
        return self._known.sent(finish(self._context.get_messages()), _line)


def buffered(setting: Setting, buffer_size: int = 40) -> _Chat:
    """The newest messages."""
    return _Chat(BufferedChatCompletionContext(buffer_size), Translated())


def head_and_tail(setting: Setting, head_size: int = 10, tail_size: int = 30) -> _Chat:
    """The oldest and the newest messages."""
    return _Chat(HeadAndTailChatCompletionContext(head_size, tail_size), Translated())


def token_limited(setting: Setting, token_limit: int | None = None) -> _Chat:
    """What fits, the middle left out."""
    known = Translated()
    counting: Any = _Counting(setting, known)
    return _Chat(TokenLimitedChatCompletionContext(counting, token_limit=token_limit), known)


class _Counting:
    """The part of AutoGen's model client that counts tokens."""

    def __init__(self, setting: Setting, known: Translated) -> None:
        self._setting, self._known = setting, known
        self._counted: dict[int, int] = {}

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """Tokens of the messages, counted by us."""
        for made in messages:
            if id(made) not in self._counted:
                block = self._known.back(made) or ()
                self._counted[id(made)] = sum(map(self._setting.counter.message, block))
        return sum([self._counted[id(made)] for made in messages])

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """What the budget leaves."""
        return self._setting.available - self.count_tokens(messages)


def _made(known: Translated, position: int, block: Block) -> Any:
    message = block[0]
    if message.role == "system":
        return SystemMessage(content=message.text)
    if message.role == "user":
        return UserMessage(content=message.text, source="user")
    if message.role == "tool":
        return FunctionExecutionResultMessage(
            content=[
                FunctionExecutionResult(
                    content=result.text,
                    name=tool_name(known.calls.get(position + i), result),
                    call_id=result.tool_call_id or "",
                )
                for i, result in enumerate(block)
            ]
        )
    if not message.tool_calls:
        return AssistantMessage(content=message.text, source="assistant")
    calls = [FunctionCall(call.id, call.arguments, call.name) for call in message.tool_calls]
    return AssistantMessage(content=calls, thought=message.text or None, source="assistant")


def _line(made: UserMessage) -> Message:
    return Message("user", str(made.content))
