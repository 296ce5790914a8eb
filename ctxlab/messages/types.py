"""Types of recorded conversations: immutable data in OpenAI's chat format.

The whole package uses these types: formats create them, strategies replace them, metrics read them.
They hold what was recorded, and no state of the context management.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import iter_leaves, parse_json
from ctxlab.errors import SpecError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)

CLEARED_RESULT_TEXT = "[Old tool result content cleared]"
"""Text in place of a cleared tool result, for recordings that do not record one."""

ContentPart: TypeAlias = dict[str, Any]
"""One part of a message's content in OpenAI's format: ``{"type": "text" | "image_url" | …}``."""


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call of the assistant."""

    id: str
    "id that the tool result refers to"
    name: str
    "name of the tool"
    arguments: str = "{}"
    "arguments as JSON text, as sent by the provider"

    def parse_arguments(self) -> Any:
        """Return the arguments as data, or as the raw text if they are not JSON.

        Returns
        -------
        Any
            The data; an empty dict if there are no arguments.
        """
        try:
            return parse_json(self.arguments) if self.arguments else {}
        except ValueError:
            return self.arguments

    def argument_leaves(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the leaf values of the arguments with their paths.

        Returns
        -------
        iterator of (str, Any)
            Path and value of each leaf; one leaf with the raw text if the arguments are not JSON.

        Examples
        --------
        >>> list(ToolCall("c1", "read", '{"path": "a.py", "lines": [1, 9]}').argument_leaves())
        [('path', 'a.py'), ('lines[0]', 1), ('lines[1]', 9)]
        """
        return iter_leaves(self.parse_arguments())

    def to_dict(self) -> dict[str, Any]:
        """Return the tool call in OpenAI's format.

        Returns
        -------
        dict
            The tool call, as sent to a provider.
        """
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that the provider billed for the request that a message answers."""

    input: int = 0
    "input tokens that were neither read from a cache nor written to one"
    cache_read: int = 0
    "input tokens read from the prompt cache"
    cache_write: int = 0
    "input tokens written to the prompt cache"
    output: int = 0
    "output tokens, including hidden reasoning if the provider includes it"
    reasoning: int = 0
    "output tokens that were hidden reasoning, if the provider reports them"

    @property
    def total_input(self) -> int:
        """All input tokens of the request."""
        return self.input + self.cache_read + self.cache_write


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    Messages are immutable, so that token counts can be cached by identity.

    Examples
    --------
    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> Message("assistant", tool_calls=(call,)).to_dict()["tool_calls"][0]["function"]["name"]
    'read'
    """

    role: Role
    "author of the message"
    content: str | tuple[ContentPart, ...] | None = None
    "text or content parts"
    tool_calls: tuple[ToolCall, ...] = ()
    "tool calls that this assistant message makes"
    tool_call_id: str | None = None
    "id of the tool call that this tool result answers"
    name: str | None = None
    "name of the tool that returned a result, or name of a speaker"
    reasoning: str | None = None
    """hidden reasoning as recorded; neither sent nor counted, because chat requests do not contain
    it"""
    usage: Usage | None = None
    "tokens billed for the request that this message answers"
    time: float | None = None
    "seconds since 1970"
    file: str | None = None
    "file that the user had open"
    extra: dict[str, Any] = {}
    "other data of the recording; never sent"

    def __deepcopy__(self, memo: dict[int, Any]) -> Message:
        """Return the message itself: it is immutable, and copies may be looked up by identity."""
        return self

    def __hash__(self) -> int:
        """Hash what is cheap to hash and differs between most messages."""
        content = self.content if isinstance(self.content, str) else self.role
        return hash((content, self.tool_call_id, self.time))

    @property
    def text(self) -> str:
        """The text of the content, without parts that are not text."""
        content = self.content
        if content is None or isinstance(content, str):
            return content or ""
        return "\n".join(str(p.get("text") or "") for p in content if p.get("type") == "text")

    def to_dict(self) -> dict[str, Any]:
        """Return the message in OpenAI's chat format.

        Returns
        -------
        dict
            Role, content, tool calls, tool call id and name, as sent to a provider; nothing else.
        """
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
        """Return a copy with some fields changed.

        Parameters
        ----------
        **changes : Any
            Field names with their new values.

        Returns
        -------
        Message
            The copy.

        Examples
        --------
        >>> Message("user", "hi").replace(content="bye").content
        'bye'
        """
        return msgspec.structs.replace(self, **changes)


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about a recording, with its answers and evidence."""

    id: str
    "id of the probe, unique in its recording"
    question: str
    "text of the question"
    answers: tuple[str, ...] = ()
    "accepted answers; one of them is enough"
    evidence: tuple[int, ...] = ()
    "positions of the messages that hold the answer"
    position: int | None = None
    "the question is asked before the message at this position; None: after the last message"
    category: str | None = None
    "category of the question in its data set"


class Compaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compaction by the recording system itself: where it happened and what it put in place."""

    position: int
    "the compaction happened before the message at this position"
    kind: Literal["summary", "clear"] = "summary"
    "``summary``: a summary replaced messages; ``clear``: tool results were cleared"
    summary: str | None = None
    "text of the summary"
    kept: tuple[int, ...] = ()
    "positions of the earlier messages that stayed unchanged"
    cleared: tuple[str, ...] = ()
    "ids of the tool calls whose results were cleared (kind ``clear``)"
    trigger: str | None = None
    "cause of the compaction as recorded, such as ``auto`` or ``manual``"
    tokens_before: int | None = None
    "tokens of the context before the compaction, as recorded"

    @property
    def summary_message(self) -> Message | None:
        """The summary as the message that a model reads; None if there is no summary."""
        return Message("user", self.summary) if self.summary else None


class Recording(msgspec.Struct, frozen=True, omit_defaults=True):
    """A complete recorded conversation.

    Examples
    --------
    >>> Recording("a", (Message("user", "hi"), Message("assistant", "hello"))).request_positions
    (1,)
    """

    id: str
    "id of the recording"
    messages: tuple[Message, ...]
    "all messages, in order"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's format"
    model: str | None = None
    "model that wrote the assistant's messages"
    probes: tuple[Probe, ...] = ()
    "questions about the recording"
    compactions: tuple[Compaction, ...] = ()
    "compactions by the recording system"
    cluster: str | None = None
    """shared by recordings that are not independent, such as trials of one task; None: the
    recording is a cluster of its own"""
    meta: dict[str, Any] = {}
    "other data of the source, such as scores or a task"
    format: str | None = None
    "name of the format that the recording was read from"
    source: str | None = None
    "file that the recording was read from"
    skipped: dict[str, int] = {}
    "number of items that the reader left out, by reason"

    def __repr__(self) -> str:
        """Return a one-line description; a whole conversation is too long for a notebook.

        >>> Recording("a", (Message("user", "hi"), Message("assistant", "hello")), model="gpt-5")
        <Recording a: 2 messages, 1 request, gpt-5>
        """
        shown = [
            pluralize(len(self.messages), "message"),
            pluralize(len(self.request_positions), "request"),
            self.model,
            pluralize(len(self.compactions), "compaction") if self.compactions else None,
        ]
        return f"<Recording {self.id}: {', '.join(filter(None, shown))}>"

    @property
    def request_positions(self) -> tuple[int, ...]:
        """Positions of the assistant messages that a model wrote, one per request."""
        return find_request_positions(self.messages)


def find_request_positions(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the positions of the messages that a model wrote: the assistant messages.

    An assistant message before the first message of the user is a fixed greeting and does not
    count.

    Parameters
    ----------
    messages : sequence of Message
        The conversation.

    Returns
    -------
    tuple of int
        The positions, ascending.

    Examples
    --------
    >>> said = [Message("assistant", "Hello!"), Message("user", "hi"), Message("assistant")]
    >>> find_request_positions(said)
    (2,)
    """
    roles = [message.role for message in messages]
    begun = next((i for i, role in enumerate(roles) if role in ("user", "tool")), len(roles))
    return tuple(i for i in range(begun, len(roles)) if roles[i] == "assistant")


def check_recordings(recordings: object) -> None:
    """Raise SpecError if an argument is not an iterable of recordings.

    The items of an iterator are not checked.

    Parameters
    ----------
    recordings : object
        The argument to check.

    Raises
    ------
    SpecError
        If the argument is a path, a single recording, or not iterable, or if a list holds other
        items; the message says what to pass instead.

    Examples
    --------
    >>> check_recordings("logs/")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: expected recordings, got the path 'logs/'; pass ctxlab.load('logs/')
    """
    if isinstance(recordings, Recording):
        raise SpecError("expected a list of recordings, got one Recording; pass [recording]")
    listed = recordings if isinstance(recordings, (list, tuple)) else None
    for each in (recordings,) if listed is None else listed:
        if isinstance(each, (str, PurePath)):
            path = repr(str(each))
            raise SpecError(f"expected recordings, got the path {path}; pass ctxlab.load({path})")
        if not isinstance(each, Iterable if listed is None else Recording):
            kind = type(each).__name__
            raise SpecError(f"expected recordings, got {kind}; read them with ctxlab.load")


def message_text(message: Message) -> str:
    r"""Return all text of a message that a model can read: content, tool names and argument values.

    Arguments are decoded, so that a path in them reads as in the output of a tool.

    Parameters
    ----------
    message : Message
        The message.

    Returns
    -------
    str
        The text; each part starts a new line.

    Examples
    --------
    >>> message_text(Message("assistant", "Reading.", (ToolCall("c1", "read", '{"path": "a.py"}'),)))
    'Reading.\nread\na.py'
    """
    if not message.tool_calls:
        return message.text
    parts = [message.text]
    for call in message.tool_calls:
        parts.append(call.name)
        parts.extend(str(leaf) for _, leaf in call.argument_leaves() if leaf is not None)
    return "\n".join(parts)
