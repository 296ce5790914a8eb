"""Check whether a provider would accept a list of messages as a request.

The rules are those that the APIs of OpenAI and Anthropic answer with a 400 error.
``find_violations`` looks at plain messages only, so that it treats all strategies alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxlab.messages.types import Message, ToolCall


class Rule(NamedTuple):
    """A rule that a provider enforces."""

    name: str
    "name of the rule"
    providers: frozenset[str]
    "providers that enforce the rule"
    meaning: str
    "the rule as a sentence"


class Violation(NamedTuple):
    """A broken rule and the message that breaks it."""

    rule: str
    "name of the rule"
    position: int
    "index of the message"


_ANTHROPIC = frozenset({"anthropic"})
_ALL = _ANTHROPIC | {"openai"}
_RULES = (
    Rule("unanswered_call", _ALL, "every tool call is answered right after its message"),
    Rule("orphaned_result", _ALL, "every tool result answers a call of the message before it"),
    Rule("repeated_result", _ALL, "a tool call is answered once"),
    Rule("empty_request", _ALL, "a request has a message besides the system prompt"),
    Rule("empty_message", _ANTHROPIC, "a user or assistant message is not empty"),
    Rule("late_system", _ANTHROPIC, "system messages come before all others"),
    Rule("starts_with_user", _ANTHROPIC, "the first message after the system prompt is the user's"),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _RULES}
"""Rules by name. The model of a request decides which of them apply."""


def find_violations(messages: Sequence[Message], provider: str | None = None) -> list[Violation]:
    """Return all rules that the messages break as one request.

    A tool result belongs to the message right before its block of results. Ids may be reused later.

    Parameters
    ----------
    messages : sequence of Message
        The request.
    provider : {"openai", "anthropic"}, optional
        Provider whose rules apply. None: the rules of both.

    Returns
    -------
    list of Violation
        The violations by position; empty if the request is valid.

    Examples
    --------
    >>> find_violations([Message("user", "hi"), Message("tool", "42", tool_call_id="c1")])
    [Violation(rule='orphaned_result', position=1)]
    """
    found = sorted(_iter_violations(messages), key=lambda v: v.position)
    return [v for v in found if provider is None or provider in RULES[v.rule].providers]


def is_valid(messages: Sequence[Message], provider: str | None = None) -> bool:
    """Return whether a provider would accept the messages as one request.

    Parameters
    ----------
    messages : sequence of Message
        The request.
    provider : {"openai", "anthropic"}, optional
        Provider whose rules apply. None: the rules of both.

    Returns
    -------
    bool
        True if no rule is broken.

    Examples
    --------
    >>> is_valid([Message("user", "hi")])
    True
    """
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
    """Groups messages into units that must stay together: a tool call with its results.

    Messages are added one by one. ``starts[i]`` is the index at which the unit of message ``i``
    begins, so a conversation can safely be cut before message ``i`` if ``starts[i] == i``. A result
    that answers no open call is a unit of its own. Messages between a call and its late result
    belong to the unit of the call, so that no cut can separate the two.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.calls_by_result: dict[int, ToolCall] = {}
        "position of a tool result → the tool call that it answers"
        self._open_calls: dict[str, tuple[int, ToolCall]] = {}

    def add(self, message: Message) -> None:
        """Add the next message of the conversation.

        Parameters
        ----------
        message : Message
            The message.
        """
        starts, here = self.starts, len(self.starts)
        starts.append(here)
        if message.role == "tool":
            place, call = self._open_calls.pop(message.tool_call_id or "", (here, None))
            if call is not None:
                self.calls_by_result[here] = call
                start = starts[place]
                for i in range(here, start, -1):
                    if starts[i] == start:
                        break
                    starts[i] = start
        elif message.tool_calls:
            # A reused id refers to the newest call (tau-bench reuses ids).
            self._open_calls = {call.id: (here, call) for call in message.tool_calls}

    def copy_prefix(self, length: int) -> UnitTracker:
        """Return the units of the first messages, without open calls.

        Parameters
        ----------
        length : int
            Number of messages.

        Returns
        -------
        UnitTracker
            The copy.
        """
        units = UnitTracker()
        units.starts = self.starts[:length]
        answered = self.calls_by_result.items()
        units.calls_by_result = {place: call for place, call in answered if place < length}
        return units
