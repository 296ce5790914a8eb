"""Types of recorded conversations: immutable data in OpenAI's chat format.

The whole package uses these types: formats create messages, strategies replace them and metrics read
them. The types contain only recorded data. The state of context management is kept elsewhere, in
``ctxlab.context``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.jsonio import iter_leaves, parse_json
from ctxlab.errors import SpecError

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)

CLEARED_RESULT_TEXT = "[Old tool result content cleared]"
"""Text that replaces a cleared tool result, for recordings that do not contain such a text."""

ContentPart: TypeAlias = dict[str, Any]
"""One part of a message's content in OpenAI's format, such as ``{"type": "text", "text": "hi"}``."""


# Leaves of longer arguments are not cached, because the cache keeps them in memory.
_MAX_CACHED_CHARS = 20_000


def _parse_arguments(arguments: str) -> Any:
    try:
        return parse_json(arguments) if arguments else {}
    except ValueError:
        return arguments


@lru_cache(maxsize=2048)
def _parse_leaves(arguments: str) -> tuple[tuple[str, Any], ...]:
    return tuple(iter_leaves(_parse_arguments(arguments)))


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call in an assistant message.

    Examples
    --------
    >>> from ctxlab import Message
    >>> call = ToolCall("c1", "read_file", '{"path": "a.py"}')
    >>> Message("assistant", None, tool_calls=(call,)).tool_calls[0].name
    'read_file'
    """

    id: str
    "id of the call; the tool result has the same id"
    name: str
    "name of the tool"
    arguments: str = "{}"
    "arguments as a JSON string, exactly as the provider sent them"

    def parse_arguments(self) -> Any:
        """Parse the JSON string of the arguments.

        Returns
        -------
        Any
            The parsed value, usually a dict. An empty dict if the string is empty, and the string
            itself if it is not valid JSON.
        """
        return _parse_arguments(self.arguments)

    def argument_leaves(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the leaf values of the arguments and their paths.

        A leaf is a value that is neither an object nor a list.

        Returns
        -------
        iterator of (str, Any)
            Path and value of each leaf. If the arguments are not valid JSON, the only leaf is the
            argument string, with an empty path.

        Examples
        --------
        >>> list(ToolCall("c1", "read", '{"path": "a.py", "lines": [1, 9]}').argument_leaves())
        [('path', 'a.py'), ('lines[0]', 1), ('lines[1]', 9)]
        """
        if len(self.arguments) <= _MAX_CACHED_CHARS:
            return iter(_parse_leaves(self.arguments))
        return iter_leaves(self.parse_arguments())

    def to_dict(self) -> dict[str, Any]:
        """Return the tool call in OpenAI's format.

        Returns
        -------
        dict
            The tool call as it is sent to a provider.
        """
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of tokens that the provider billed for one request and its reply.

    Examples
    --------
    >>> usage = Usage(input=200, cache_read=9000, cache_write=800, output=150)
    >>> usage.total_input
    10000
    """

    input: int = 0
    "number of input tokens that were neither read from the prompt cache nor written to it"
    cache_read: int = 0
    "number of input tokens that were read from the prompt cache"
    cache_write: int = 0
    "number of input tokens that were written to the prompt cache"
    output: int = 0
    "number of output tokens, including hidden reasoning if the provider counts it as output"
    reasoning: int = 0
    "number of output tokens of hidden reasoning, if the provider reports it; otherwise 0"
    cache_write_1h: int = 0
    """number of the tokens in ``cache_write`` that the cache keeps for an hour; Anthropic charges more
    for them than for the others, which the cache keeps for five minutes"""

    @property
    def total_input(self) -> int:
        """Number of all input tokens of the request, cached or not."""
        return self.input + self.cache_read + self.cache_write


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    Messages are immutable, so that the token count of a message object can be cached.

    Examples
    --------
    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> Message("assistant", tool_calls=(call,)).to_dict()["tool_calls"][0]["function"]["name"]
    'read'
    """

    role: Role
    "author of the message"
    content: str | tuple[ContentPart, ...] | None = None
    "a string or content parts; None if the message has only tool calls"
    tool_calls: tuple[ToolCall, ...] = ()
    "tool calls of an assistant message"
    tool_call_id: str | None = None
    "for a tool message, the id of the tool call that it answers"
    name: str | None = None
    "for a tool message, the name of the tool; for other messages, the name of the speaker"
    reasoning: str | None = None
    """hidden reasoning as recorded, which may be a summary; ``to_dict`` leaves it out, because chat
    requests do not contain it, and token counts include it only in an evaluation that says so
    (``ctxlab.tokens.reasoning``)"""
    usage: Usage | None = None
    "for an assistant message, the tokens that were billed for its request"
    time: float | None = None
    "time of the message, in seconds since 1970"
    file: str | None = None
    "path of the file that the user had open in the editor"
    extra: dict[str, Any] = {}
    "other recorded data of the message; never sent to a provider"

    def __deepcopy__(self, memo: dict[int, Any]) -> Message:
        """Return the message itself, because it is immutable and some caches identify it by ``id()``."""
        return self

    def __hash__(self) -> int:
        """Return a hash of the fields that are fast to hash and differ between most messages."""
        content = self.content if isinstance(self.content, str) else self.role
        return hash((content, self.tool_call_id, self.time))

    @property
    def text(self) -> str:
        """Text of the content. Text parts are joined by line breaks and other parts are left out."""
        content = self.content
        if content is None or isinstance(content, str):
            return content or ""
        return "\n".join(str(p.get("text") or "") for p in content if p.get("type") == "text")

    def to_dict(self) -> dict[str, Any]:
        """Return the message in OpenAI's chat format.

        Returns
        -------
        dict
            Role, content, tool calls, tool call id and name, as they are sent to a provider.
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
        """Return a copy of the message with new values for some fields.

        Parameters
        ----------
        **changes : Any
            Field names and their new values.

        Returns
        -------
        Message
            Copy of the message with the new values.

        Examples
        --------
        >>> Message("user", "hi").replace(content="bye").content
        'bye'
        """
        return msgspec.structs.replace(self, **changes)


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question about a recording, with accepted answers and the messages that contain the answer.

    Examples
    --------
    >>> probe = Probe("q1", "Which port does the server use?", ("8080",), evidence=(4,))
    >>> probe.position is None  # asked after the last message
    True
    """

    id: str
    "id of the probe, unique within the recording"
    question: str
    "text of the question"
    answers: tuple[str, ...] = ()
    "accepted answers; a reply is correct if it contains one of them"
    evidence: tuple[int, ...] = ()
    "positions of the messages that contain the answer"
    position: int | None = None
    "position of the message before which the question is asked; None: after the last message"
    category: str | None = None
    "category of the question in its data set, such as ``multi-hop``"


class Substitute(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that a product put into its context during a compaction, such as a summary.

    Examples
    --------
    >>> from ctxlab import Compaction, Message
    >>> summary = Substitute(Message("user", "So far: the port is 8080."))
    >>> Compaction(40, (0, summary, 38, 39)).summary
    'So far: the port is 8080.'
    """

    message: Message
    "the message as it was sent"
    source: int | None = None
    """position of the recorded message that this message replaces, for example the position of a
    cleared tool result; None if it replaces several messages or none"""


class Compaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded compaction: the product dropped, summarised or cleared messages of its context.

    Examples
    --------
    >>> summary = Substitute(Message("user", "so far: two rounds"))
    >>> compaction = Compaction(4, (0, summary, 3))
    >>> compaction.kept, compaction.summary
    ((0, 3), 'so far: two rounds')
    """

    position: int
    "position of the first message after the compaction"
    context: tuple[int | Substitute, ...] = ()
    """all messages that the product held after the compaction, in order: a recorded message by its
    position, any other message as a ``Substitute``"""
    kind: Literal["summary", "clear"] = "summary"
    "``clear``: only contents of tool results were removed; ``summary``: messages were removed"
    trigger: str | None = None
    "recorded cause of the compaction, such as ``auto`` or ``manual``"
    tokens_before: int | None = None
    "recorded number of tokens in the context before the compaction"
    hidden_tokens: int = 0
    """number of tokens that the context also contained, but that the log does not contain in clear text,
    such as an encrypted summary; as estimated by the product"""

    def __post_init__(self) -> None:
        """Raise ValueError if a position of the context is not a message before the compaction."""
        for item in self.context:
            place = item if isinstance(item, int) else item.source
            if place is not None and not 0 <= place < self.position:
                raise ValueError(
                    f"Expected positions in 0–{self.position - 1} in the context of a compaction "
                    f"at message {self.position}, got {place}"
                )

    @property
    def kept(self) -> tuple[int, ...]:
        """Positions of the messages that stayed unchanged."""
        return tuple(item for item in self.context if isinstance(item, int))

    @property
    def substitutes(self) -> tuple[Substitute, ...]:
        """Messages of the context that are not recorded messages."""
        return tuple(item for item in self.context if isinstance(item, Substitute))

    @property
    def summary(self) -> str | None:
        """Texts of the messages that replace several messages or none; None if there is no text."""
        added = (each.message.text for each in self.substitutes if each.source is None)
        return "\n\n".join(filter(None, added)) or None

    def sent_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that the product held after the compaction.

        Parameters
        ----------
        messages : sequence of Message
            Messages of the recording.

        Returns
        -------
        list of Message
            Messages in the order in which they were sent.
        """
        return [messages[each] if isinstance(each, int) else each.message for each in self.context]


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
    "name of the model that wrote the assistant messages"
    probes: tuple[Probe, ...] = ()
    "questions about the recording"
    compactions: tuple[Compaction, ...] = ()
    "compactions of the context that the recorded agent made"
    cluster: str | None = None
    """name shared by recordings that are not independent, such as repeated trials of a task. None: the
    recording is independent of all others"""
    meta: dict[str, Any] = {}
    "other data of the source file, such as scores or the task"
    format: str | None = None
    "name of the format that the recording was read from, such as ``claude-code``"
    source: str | None = None
    "path of the file that the recording was read from"
    skipped: dict[str, int] = {}
    "reason → number of rows, messages or content parts that the reader left out for this reason"

    def __repr__(self) -> str:
        """Return a one-line description of the recording, without its messages.

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

    def _repr_html_(self) -> str:
        from ctxlab.messages.timeline import recording_html

        return recording_html(self)

    @property
    def request_positions(self) -> tuple[int, ...]:
        """Positions of the assistant messages that a model wrote. Each one answers one request."""
        return find_request_positions(self.messages)


def find_request_positions(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the positions of the assistant messages that a model wrote in reply to a request.

    Assistant messages before the first user or tool message are fixed greetings and are left out.

    Parameters
    ----------
    messages : sequence of Message
        All messages of the conversation, in order.

    Returns
    -------
    tuple of int
        Positions of these assistant messages in ascending order.

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

    The elements of a list or tuple are checked. Other iterables, such as generators, are not consumed,
    so their elements are not checked.

    Parameters
    ----------
    recordings : object
        The argument to check.

    Raises
    ------
    SpecError
        If the argument is a path, a single recording or not iterable, or if a list contains an
        object that is not a recording. The error message says which argument to pass instead.

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


def count_message_chars(message: Message) -> int:
    """Count the characters of the text and of the tool call arguments of a message.

    Parameters
    ----------
    message : Message
        Message to measure.

    Returns
    -------
    int
        Number of characters.

    Examples
    --------
    >>> count_message_chars(Message("assistant", "ok", tool_calls=(ToolCall("c", "ls", "{}"),)))
    4
    """
    return len(message.text) + sum(len(call.arguments) for call in message.tool_calls)


def message_text(message: Message) -> str:
    r"""Return all text of a message that a model can read: content, tool names and argument values.

    The arguments are parsed first, so that a path in an argument is written without JSON escapes, as
    in the output of a tool.

    Parameters
    ----------
    message : Message
        Message of any role.

    Returns
    -------
    str
        The content, the tool names and the argument values, joined by line breaks.

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
