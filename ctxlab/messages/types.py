"""A recorded conversation is frozen data in the shape of OpenAI's chat messages.

Everything else in ctxlab reads these types: formats make them, strategies replace them, metrics
look at them. They hold what was recorded and nothing about how it is managed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import iter_leaves, parse_json
from ctxlab.errors import SpecError

__all__ = [
    "CLEARED_RESULT_TEXT",
    "ROLES",
    "Compaction",
    "ContentPart",
    "Message",
    "Probe",
    "Recording",
    "Role",
    "ToolCall",
    "Usage",
    "check_recordings",
    "find_request_positions",
    "message_text",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)

CLEARED_RESULT_TEXT = "[Old tool result content cleared]"
"""What stands in the place of a cleared result where a recording does not say."""

ContentPart: TypeAlias = dict[str, Any]
"""One part of a message's content as OpenAI writes it: ``{"type": "text" | "image_url" | …}``."""


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool by the assistant; ``arguments`` is JSON text, as it is on the wire."""

    id: str
    name: str
    arguments: str = "{}"

    def argument_leaves(self) -> Iterator[tuple[str, Any]]:
        """The leaf values of the arguments with their paths; the raw text where it is not JSON."""
        try:
            value = parse_json(self.arguments) if self.arguments else {}
        except ValueError:
            value = self.arguments
        return iter_leaves(value)

    def to_dict(self) -> dict[str, Any]:
        """As a provider takes it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the provider billed for the request that this message answers, in tokens."""

    input: int = 0
    "input tokens that were neither read from a cache nor written to one"
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    "output tokens, hidden reasoning included where the provider includes it"
    reasoning: int = 0
    "of them, those that were hidden reasoning, where the provider says so"

    @property
    def total_input(self) -> int:
        """All input tokens of the request."""
        return self.input + self.cache_read + self.cache_write


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message; immutable, so that its token count and its identity can be relied on.

    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> Message("assistant", tool_calls=(call,)).to_dict()["tool_calls"][0]["function"]["name"]
    'read'
    """

    role: Role
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    "calls that this assistant message makes"
    tool_call_id: str | None = None
    "the call that this tool result answers"
    name: str | None = None
    "the tool that a result comes from, or the name of a speaker"
    reasoning: str | None = None
    "hidden reasoning as recorded; neither sent nor counted, since a chat request carries none"
    usage: Usage | None = None
    time: float | None = None
    "seconds since 1970"
    file: str | None = None
    "the file that the user had open"
    extra: dict[str, Any] = {}
    "what a recording said beyond this; never sent"

    def __deepcopy__(self, memo: dict[int, Any]) -> Message:
        """Itself, for it cannot be changed, and what holds a copy may go by its identity."""
        return self

    def __hash__(self) -> int:
        content = self.content if isinstance(self.content, str) else self.role
        return hash((content, self.tool_call_id, self.time))

    @property
    def text(self) -> str:
        """The text of the content; parts that are no text are left out."""
        content = self.content
        if content is None or isinstance(content, str):
            return content or ""
        return "\n".join(str(p.get("text") or "") for p in content if p.get("type") == "text")

    def to_dict(self) -> dict[str, Any]:
        """As a provider takes it: role, content, calls, and no bookkeeping of ours."""
        content: Any = list(self.content) if isinstance(self.content, tuple) else self.content
        wire: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            wire["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            wire["name"] = self.name
        return wire

    def replace(self, **changes: Any) -> Message:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about the conversation with its answers, and where the evidence stands."""

    id: str
    question: str
    answers: tuple[str, ...] = ()
    "any of these is right"
    evidence: tuple[int, ...] = ()
    "positions of the messages that hold the answer"
    position: int | None = None
    "asked before this message; None: after the last"
    category: str | None = None


class Compaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the recording system itself compacted, and what it put in place of what it dropped."""

    position: int
    "it happened before this message"
    kind: Literal["summary", "clear"] = "summary"
    summary: str | None = None
    kept: tuple[int, ...] = ()
    "positions before it that stayed as they were"
    cleared: tuple[str, ...] = ()
    "ids of the tool calls whose results were cleared (kind ``clear``)"
    trigger: str | None = None
    tokens_before: int | None = None

    @property
    def summary_message(self) -> Message | None:
        """The summary as the message in which a model reads it; None where there is none."""
        return Message("user", self.summary) if self.summary else None


class Recording(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conversation as it was recorded, whole.

    >>> Recording("a", (Message("user", "hi"), Message("assistant", "hello"))).request_positions
    (1,)
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's shape"
    model: str | None = None
    probes: tuple[Probe, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    cluster: str | None = None
    "recordings that repeat one task share it; None: the recording stands for itself"
    meta: dict[str, Any] = {}
    format: str | None = None
    source: str | None = None
    "the file that it was read from"
    skipped: dict[str, int] = {}
    "what the reader left out: reason → how many"

    def __repr__(self) -> str:
        """One line: a whole conversation would flood a notebook.

        >>> Recording("a", (Message("user", "hi"), Message("assistant", "hello")), model="gpt-5")
        <Recording a: 2 messages, 1 request, gpt-5>
        """
        counts = {
            "message": len(self.messages),
            "request": len(self.request_positions),
            "compaction": len(self.compactions),
        }
        said = [pluralize(n, what) for what, n in counts.items()]
        shown = [
            *said[:2],
            *([self.model] if self.model else []),
            *said[2:][: counts["compaction"]],
        ]
        return f"<Recording {self.id}: {', '.join(shown)}>"

    @property
    def request_positions(self) -> tuple[int, ...]:
        """Positions of the assistant messages before each of which a model was called."""
        return find_request_positions(self.messages)


def find_request_positions(messages: Sequence[Message]) -> tuple[int, ...]:
    """Positions of the messages that a model wrote: the assistant's.

    A greeting, before which nobody had said anything, was written by none.

    >>> said = [Message("assistant", "Hello!"), Message("user", "hi"), Message("assistant")]
    >>> find_request_positions(said)
    (2,)
    """
    begun = False
    calls = []
    for position, message in enumerate(messages):
        if message.role == "assistant" and begun:
            calls.append(position)
        begun = begun or message.role in ("user", "tool")
    return tuple(calls)


def check_recordings(recordings: object) -> None:
    """Refuses, where recordings belong, what is easily given in their place.

    Raises ``SpecError`` that says what to write: for a path, for one recording, and for what cannot
    be gone through. What an iterator will give is not looked at.

    >>> check_recordings("logs/")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: recordings are wanted, not the path 'logs/': ctxlab.load('logs/') gives them
    """
    if isinstance(recordings, Recording):
        raise SpecError("recordings are wanted, and this is one of them: put it in a list")
    listed = recordings if isinstance(recordings, (list, tuple)) else None
    for each in (recordings,) if listed is None else listed:
        if isinstance(each, (str, PurePath)):
            path = str(each)
            raise SpecError(
                f"recordings are wanted, not the path {path!r}: ctxlab.load({path!r}) gives them"
            )
        if not isinstance(each, Iterable if listed is None else Recording):
            kind = type(each).__name__
            raise SpecError(f"recordings are wanted, not {kind}: ctxlab.load gives them")


def message_text(message: Message) -> str:
    """All text of a message that a model could read: content, tool names, argument values.

    Arguments are decoded, so that a path in them reads as it does in a tool's output.
    """
    if not message.tool_calls:
        return message.text
    parts = [message.text]
    for call in message.tool_calls:
        parts.append(call.name)
        parts.extend(str(leaf) for _, leaf in call.argument_leaves() if leaf is not None)
    return "\n".join(parts)
