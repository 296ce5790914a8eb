"""A piece of a conversation can be sent once every call in it is answered and every result has its call.

A process that was killed leaves a call without a result, a window that was cut a result without its
call, and two writers at once a result that comes late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ctxlab.messages.types import (
    Message,
    ToolCall,
)

__all__ = ["INTERRUPTED", "Unit", "interrupted", "paired"]

INTERRUPTED = "[Interrupted before it finished: there is no result]"
"""What stands as the result of a call that has none."""


def interrupted(call: ToolCall) -> Message:
    """The result of a call that never got one."""
    return Message("tool", INTERRUPTED, tool_call_id=call.id, name=call.name)


class Unit:
    """A message with the results of its calls: what is kept or left out as one."""

    def __init__(self, first: Message) -> None:
        self.said = [first]
        self.open = {call.id: call for call in first.tool_calls}
        "the calls that have no result yet"

    def answer(self, result: Message) -> None:
        """The result of one of its open calls."""
        del self.open[result.tool_call_id or ""]
        self.said.append(result)

    def __len__(self) -> int:
        return len(self.said) + len(self.open)

    def __iter__(self) -> Iterator[Message]:
        """Its messages, with a result for each open call."""
        yield from self.said
        yield from map(interrupted, self.open.values())


def paired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as a provider takes them: each call is answered, right after it and once.

    A result without its call is left out, and so are a second one and a message that says nothing. A
    result that came late moves to its call; an id that is used again means the newest call. A call
    that has no result gets one that says it was interrupted. What is valid stays as it is. Where system
    messages stand and who speaks first is not changed.

    >>> call = ToolCall("c1", "run", "{}")
    >>> cut = [Message("tool", "ok", tool_call_id="c0"), Message("assistant", tool_calls=(call,))]
    >>> [(m.role, m.content) for m in paired(cut)]
    [('assistant', None), ('tool', '[Interrupted before it finished: there is no result]')]
    """
    units: list[Unit] = []
    waiting: dict[str, Unit] = {}
    for message in messages:
        if message.role == "tool":
            if (unit := waiting.pop(message.tool_call_id or "", None)) is not None:
                unit.answer(message)
        elif message.tool_calls or message.content:
            unit = Unit(message)
            units.append(unit)
            waiting.update(dict.fromkeys(unit.open, unit))
    return tuple(message for unit in units for message in unit)
