"""A recording's question is put to a model as one user message at the end of what a strategy would send.

What is sent is shaped only as far as providers need it: who speaks is written before the text, for many
drop the ``name`` of a message; and tool definitions go along where calls do, for some refuse calls
without them. They are the recorded ones or, where a log holds none, what its calls show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ctxlab.evaluation.answer_matching import contains_answer
from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.messages.types import Message, Probe, Recording

__all__ = [
    "UNKNOWN_ANSWER",
    "format_question",
    "inline_speaker_names",
    "is_abstention",
    "load_prompt",
    "request_tools",
]

UNKNOWN_ANSWER = "not mentioned"
"""What a model is told to answer where the conversation does not say."""

_ABSTENTION_PHRASES = (
    UNKNOWN_ANSWER,
    "no information available",
    "not known",
    "I do not know",
    "I don't know",
)


def format_question(probe: Probe) -> Message:
    """The question with what to answer and how, as the user's message; the prompt is ``answer.md``."""
    text = load_prompt("answer").replace("{unknown}", UNKNOWN_ANSWER)
    return Message("user", text.replace("{question}", probe.question))


@cache
def load_prompt(name: str) -> str:
    """The text of a prompt that comes with ctxlab."""
    return (
        files("ctxlab.evaluation.probing")
        .joinpath("prompts", f"{name}.md")
        .read_text(encoding="utf-8")
        .strip()
    )


def is_abstention(reply: str) -> bool:
    """Whether a reply says that the conversation does not say.

    It does so in the words that the model was told to use, or in those of LoCoMo's scoring and a few
    like them; a judge also understands others.

    >>> is_abstention("Not mentioned."), is_abstention("No information available.")
    (True, True)
    >>> is_abstention("In May")
    False
    """
    return any(contains_answer(reply, phrase) for phrase in _ABSTENTION_PHRASES)


def inline_speaker_names(
    messages: Iterable[Message], converted: dict[int, tuple[Message, Message]]
) -> tuple[Message, ...]:
    """The messages with every speaker's name in the text.

    ``converted``: what was made of which message before, by its id; what is made is added.

    >>> inline_speaker_names([Message("user", "Hi", name="Ann")], {})[0].to_dict()
    {'role': 'user', 'content': 'Ann: Hi'}
    """
    made = []
    for message in messages:
        if message.name is None or message.role == "tool":
            made.append(message)
            continue
        if (
            id(message) not in converted
        ):  # the message is kept, so that its id is not given to another
            converted[id(message)] = message, _prefix_speaker(message, message.name)
        made.append(converted[id(message)][1])
    return tuple(made)


def request_tools(recording: Recording, sent: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """The tool definitions that go along with what is sent."""
    if recording.tools:
        return recording.tools
    called = any(message.tool_calls for message in sent)
    return infer_tool_definitions(recording.messages) if called else ()


def _prefix_speaker(message: Message, name: str) -> Message:
    content = message.content
    if isinstance(content, tuple):
        return message.replace(name=None, content=({"type": "text", "text": f"{name}:"}, *content))
    return message.replace(name=None, content=f"{name}: {content}" if content else content)
