"""A request is valid when a provider would accept it; each rule is a small named thing.

The rules are what OpenAI's and Anthropic's APIs answer with a 400 error. ``find_violations`` looks
at plain messages and knows nothing of how they were made, so that it can judge every strategy
alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxlab.messages.types import Message, ToolCall

__all__ = [
    "RULES",
    "Rule",
    "UnitTracker",
    "Violation",
    "find_violations",
    "is_valid",
    "safe_cuts",
]


class Rule(NamedTuple):
    """One thing that a provider insists on."""

    name: str
    providers: frozenset[str]
    meaning: str


class Violation(NamedTuple):
    """A rule that a message breaks; ``position`` is the index of the message."""

    rule: str
    position: int


_ALL_PROVIDERS = frozenset({"openai", "anthropic"})
_ANTHROPIC = frozenset({"anthropic"})

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "unanswered_call", _ALL_PROVIDERS, "every tool call is answered right after its message"
        ),
        Rule(
            "orphaned_result",
            _ALL_PROVIDERS,
            "every tool result answers a call of the message before it",
        ),
        Rule("repeated_result", _ALL_PROVIDERS, "a tool call is answered once"),
        Rule(
            "empty_request",
            _ALL_PROVIDERS,
            "a request holds a message that is not the system prompt",
        ),
        Rule("empty_message", _ANTHROPIC, "a user or assistant message is not empty"),
        Rule("late_system", _ANTHROPIC, "system messages stand before all others"),
        Rule(
            "starts_with_user", _ANTHROPIC, "the first message but the system prompt is the user's"
        ),
    )
}
"""By name. Which of them a request must keep depends on the model that it is sent to."""


def find_violations(messages: Sequence[Message], provider: str | None = None) -> list[Violation]:
    """Every rule that the messages break as one request, in order; empty where it is valid.

    ``provider`` is ``"openai"`` or ``"anthropic"``; None applies the rules of both. A tool result
    belongs to the message right before its block: ids that are used again later do not matter.

    >>> find_violations([Message("user", "hi"), Message("tool", "42", tool_call_id="c1")])
    [Violation(rule='orphaned_result', position=1)]
    """
    found = sorted(_iter_violations(messages), key=lambda v: v.position)
    if provider is None:
        return found
    return [v for v in found if provider in RULES[v.rule].providers]


def is_valid(messages: Sequence[Message], provider: str | None = None) -> bool:
    """Whether a provider would accept the messages as one request."""
    return not find_violations(messages, provider)


def _iter_violations(messages: Sequence[Message]) -> Iterator[Violation]:
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    spoken = False
    for i, message in enumerate(messages):
        role = message.role
        if role == "tool":
            call = message.tool_call_id or ""
            if call in open_calls:
                del open_calls[call]
                answered.add(call)
            else:
                yield Violation("repeated_result" if call in answered else "orphaned_result", i)
        else:
            for place in open_calls.values():
                yield Violation("unanswered_call", place)
            open_calls = {call.id: i for call in message.tool_calls}
            answered = set()
            if role == "system":
                if spoken:
                    yield Violation("late_system", i)
                continue
            if not message.tool_calls and not message.content:
                yield Violation("empty_message", i)
        if not spoken and role != "user":
            yield Violation("starts_with_user", i)
        spoken = True
    for place in open_calls.values():
        yield Violation("unanswered_call", place)
    if not spoken:
        yield Violation("empty_request", max(len(messages) - 1, 0))


class UnitTracker:
    """Groups messages that only make sense together, as they arrive: a call with its results.

    ``starts[i]`` is where the unit of message ``i`` begins, so ``i`` is a safe place to cut when
    ``starts[i] == i``. A result that answers no open call stands alone; messages that stand between a
    call and its late result belong to the call's unit, so that no cut can part the two.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.calls_by_result: dict[int, ToolCall] = {}
        "position of a tool result → the call that it answers"
        self._open_calls: dict[str, tuple[int, ToolCall]] = {}

    def add(self, message: Message) -> None:
        """The next message of the conversation."""
        starts, here = self.starts, len(self.starts)
        starts.append(here)
        if message.role == "tool":
            place, call = self._open_calls.pop(message.tool_call_id or "", (here, None))
            if call is not None:
                self.calls_by_result[here] = call
                self._merge_into_unit(starts[place], here)
        elif message.tool_calls:
            # An id that is used again means the newest call (tau-bench recycles ids).
            self._open_calls = {call.id: (here, call) for call in message.tool_calls}

    def copy_prefix(self, length: int) -> UnitTracker:
        """Those of the first messages, as they are known here; no call waits for a result there."""
        units = UnitTracker()
        units.starts = self.starts[:length]
        units.calls_by_result = {
            place: call for place, call in self.calls_by_result.items() if place < length
        }
        return units

    def _merge_into_unit(self, start: int, here: int) -> None:
        for i in range(here, start, -1):
            if self.starts[i] == start:
                break
            self.starts[i] = start


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Places where a conversation can be cut without parting a call from its results.

    ``messages[cut:]`` for any of them holds no result whose call is before the cut.

    >>> safe_cuts([Message("user", "a"), Message("assistant", "b"), Message("user", "c")])
    [0, 1, 2]
    """
    units = UnitTracker()
    for message in messages:
        units.add(message)
    return [i for i, start in enumerate(units.starts) if start == i]
