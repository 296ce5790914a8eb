"""Check whether a provider would accept a list of messages as a request.

``RULES`` lists the rules of the APIs of OpenAI and Anthropic. If a request breaks a rule, the API
answers with HTTP status 400. The check does not depend on the strategy that created the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxlab.messages.types import Message, ToolCall


class Rule(NamedTuple):
    """A rule for the messages of a request, with the providers that enforce the rule."""

    name: str
    "name of the rule"
    providers: frozenset[str]
    "providers that enforce the rule"
    meaning: str
    "description of the rule as a sentence"


class Violation(NamedTuple):
    """A violation of a rule by one message of a request."""

    rule: str
    "name of the rule, a key of ``RULES``"
    position: int
    "index of the message in the request"


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
"""All rules by name. The provider of the model determines which of them apply to a request."""


def find_violations(messages: Sequence[Message], provider: str | None = None) -> list[Violation]:
    """Find all violations of the providers' rules in the messages of a request.

    Tool results must directly follow the message with their tool calls. A later message may use the
    same tool call ids again.

    Parameters
    ----------
    messages : sequence of Message
        All messages of the request.
    provider : {"openai", "anthropic"}, optional
        Provider whose rules are checked. By default, the rules of both providers are checked.

    Returns
    -------
    list of Violation
        The violations in order of position. The list is empty if the request is valid.

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
        All messages of the request.
    provider : {"openai", "anthropic"}, optional
        Provider whose rules are checked. By default, the rules of both providers are checked.

    Returns
    -------
    bool
        True if the messages violate none of the rules.

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
    """Groups messages into units, that is, messages that must stay together.

    A message with tool calls, the results of these calls and all messages between them form a unit.
    Any other message is a unit of its own, for example a result that does not answer an open call.

    ``starts[i]`` is the index of the first message of the unit that contains message ``i``. A
    conversation may be cut before message ``i`` if ``starts[i] == i``.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.calls_by_result: dict[int, ToolCall] = {}
        "index of a tool result → the tool call that it answers"
        self._open_calls: dict[str, tuple[int, ToolCall]] = {}

    def add(self, message: Message) -> None:
        """Add the next message of the conversation.

        Parameters
        ----------
        message : Message
            The message to add.
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
            # tau-bench reuses ids, so an id refers to the newest call with this id.
            self._open_calls = {call.id: (here, call) for call in message.tool_calls}

    def copy_prefix(self, length: int) -> UnitTracker:
        """Return a tracker of the first ``length`` messages, whose tool calls wait for no results.

        Parameters
        ----------
        length : int
            Number of messages to copy.

        Returns
        -------
        UnitTracker
            Tracker with the units of these messages. A tool result that is added later does not
            answer any of their calls.
        """
        units = UnitTracker()
        units.starts = self.starts[:length]
        answered = self.calls_by_result.items()
        units.calls_by_result = {place: call for place, call in answered if place < length}
        return units
