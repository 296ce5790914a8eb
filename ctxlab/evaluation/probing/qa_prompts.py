"""Requests that ask a question: the question as a user message at the end of a strategy's context.

Messages are changed only as far as providers need it. Speaker names are written into the text,
because many providers drop ``name``. Tool definitions are sent if the messages contain tool calls,
because some providers reject calls without them. They are the recorded definitions or, if there are
none, derived from the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ctxlab.evaluation.answer_matching import contains_answer
from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.messages.types import Message, Probe, Recording

UNKNOWN_ANSWER = "not mentioned"
"""What a model is told to answer if the conversation does not say."""

_ABSTENTION_PHRASES = (
    UNKNOWN_ANSWER,
    "no information available",
    "not known",
    "I do not know",
    "I don't know",
)


def format_question(probe: Probe) -> Message:
    """Format a question with instructions for the reply; the prompt is ``answer.md``.

    Parameters
    ----------
    probe : Probe
        The question.

    Returns
    -------
    Message
        A user message.
    """
    text = load_prompt("answer").replace("{unknown}", UNKNOWN_ANSWER)
    return Message("user", text.replace("{question}", probe.question))


@cache
def load_prompt(name: str) -> str:
    """Load a prompt of this package.

    Parameters
    ----------
    name : str
        File name without extension.

    Returns
    -------
    str
        The text of the prompt.
    """
    path = files("ctxlab.evaluation.probing") / "prompts" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip()


def is_abstention(reply: str) -> bool:
    """Check if a reply says that the conversation does not contain the answer.

    It looks for the words that the model was told to use, those of LoCoMo's scoring, and a few
    similar ones. A judge also understands other wordings.

    Parameters
    ----------
    reply : str
        The reply.

    Returns
    -------
    bool
        True if the reply abstains.

    Examples
    --------
    >>> is_abstention("Not mentioned."), is_abstention("No information available.")
    (True, True)
    >>> is_abstention("In May")
    False
    """
    return any(contains_answer(reply, phrase) for phrase in _ABSTENTION_PHRASES)


def inline_speaker_names(
    messages: Iterable[Message], converted: dict[int, tuple[Message, Message]]
) -> tuple[Message, ...]:
    """Write the name of each speaker into the text of the messages.

    Parameters
    ----------
    messages : iterable of Message
        The messages.
    converted : dict
        Cache of converted messages by id of the original; it is extended.

    Returns
    -------
    tuple of Message
        The converted messages.

    Examples
    --------
    >>> inline_speaker_names([Message("user", "Hi", name="Ann")], {})[0].to_dict()
    {'role': 'user', 'content': 'Ann: Hi'}
    """

    def inline(message: Message) -> Message:
        if message.name is None or message.role == "tool":
            return message
        if id(message) not in converted:  # keep the message alive, so that its id is not reused
            converted[id(message)] = message, _prefix_speaker(message, message.name)
        return converted[id(message)][1]

    return tuple(map(inline, messages))


def request_tools(recording: Recording, sent: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """Return the tool definitions to send with a request.

    Parameters
    ----------
    recording : Recording
        The recording.
    sent : sequence of Message
        Messages of the request.

    Returns
    -------
    tuple of dict
        The recorded definitions, or those derived from calls if the request contains any.
    """
    if recording.tools:
        return recording.tools
    called = any(message.tool_calls for message in sent)
    return infer_tool_definitions(recording.messages) if called else ()


def _prefix_speaker(message: Message, name: str) -> Message:
    content = message.content
    if isinstance(content, tuple):
        return message.replace(name=None, content=({"type": "text", "text": f"{name}:"}, *content))
    return message.replace(name=None, content=f"{name}: {content}" if content else content)
