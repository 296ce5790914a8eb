"""Build the messages with which a session is resumed: a summary first, then whole, trimmed units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan, ResumeState
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.strategies.helpers.text import clip_text

__all__ = [
    "CONTINUE_INSTRUCTION",
    "INTERRUPTED_RESULT",
    "TRUNCATION_MARKER",
    "MessageUnit",
    "build_resume_message",
    "build_resumed_messages",
    "interrupted_result",
    "message_from_window_row",
    "pair_tool_results",
    "trim_message",
    "window_row_from_message",
]

INTERRUPTED_RESULT = "[Interrupted before it finished: there is no result]"
"""What stands as the result of a call that has none."""


def interrupted_result(call: ToolCall) -> Message:
    """The result of a call that never got one."""
    return Message("tool", INTERRUPTED_RESULT, tool_call_id=call.id, name=call.name)


class MessageUnit:
    """A message with the results of its calls: what is kept or left out as one."""

    def __init__(self, first: Message) -> None:
        self.messages = [first]
        self.open_calls = {call.id: call for call in first.tool_calls}
        "the calls that have no result yet"

    def add_result(self, result: Message) -> None:
        """The result of one of its open calls."""
        del self.open_calls[result.tool_call_id or ""]
        self.messages.append(result)

    def __len__(self) -> int:
        return len(self.messages) + len(self.open_calls)

    def __iter__(self) -> Iterator[Message]:
        """Its messages, with a result for each open call."""
        yield from self.messages
        yield from map(interrupted_result, self.open_calls.values())


def pair_tool_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages as a provider takes them: each call is answered, right after it and once.

    A result without its call is left out, and so are a second one and a message that says nothing. A
    result that came late moves to its call; an id that is used again means the newest call. A call
    that has no result gets one that says it was interrupted. What is valid stays as it is. Where system
    messages stand and who speaks first is not changed.

    >>> call = ToolCall("c1", "run", "{}")
    >>> cut = [Message("tool", "ok", tool_call_id="c0"), Message("assistant", tool_calls=(call,))]
    >>> [(m.role, m.content) for m in pair_tool_results(cut)]
    [('assistant', None), ('tool', '[Interrupted before it finished: there is no result]')]
    """
    units: list[MessageUnit] = []
    waiting: dict[str, MessageUnit] = {}
    for message in messages:
        if message.role == "tool":
            if (unit := waiting.pop(message.tool_call_id or "", None)) is not None:
                unit.add_result(message)
        elif message.tool_calls or message.content:
            unit = MessageUnit(message)
            units.append(unit)
            waiting.update(dict.fromkeys(unit.open_calls, unit))
    return tuple(message for unit in units for message in unit)


TRUNCATION_MARKER = "\n\n[truncated]"
"""What a text that was cut ends with."""


def trim_message(message: Message, max_chars: int) -> Message:
    """The message in at most ``max_chars`` characters of content and arguments together.

    The content becomes text: an image or another part is named in brackets. Arguments stay JSON.
    What is never sent goes, but for the file that it was said about.

    >>> long = ToolCall("c1", "write", '{"path": "a.py", "text": "' + "x" * 500 + '"}')
    >>> kept = trim_message(Message("assistant", "I write it.", tool_calls=(long,)), 100)
    >>> kept.tool_calls[0].arguments
    '{"path":"a.py","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"}'
    """
    text = message.content if isinstance(message.content, str) else _content_text(message)
    calls = message.tool_calls
    if len(text) + sum(len(call.arguments) for call in calls) > max_chars:
        argument_chars = sum(len(call.arguments) for call in calls)
        text = clip_text(
            text,
            max(max_chars - argument_chars, max_chars // 2 if calls else max_chars),
            TRUNCATION_MARKER,
        )
        share = (max_chars - len(text)) // max(len(calls), 1)
        calls = tuple(ToolCall(c.id, c.name, _trim_arguments(c.arguments, share)) for c in calls)
    return Message(
        message.role,
        text or (None if calls else ""),
        calls,
        message.tool_call_id,
        message.name,
        file=message.file,
    )


def window_row_from_message(message: Message) -> dict[str, Any]:
    """A trimmed message in OpenAI's chat shape; its content is always a text."""
    row = message.to_dict()
    row["content"] = row["content"] or ""
    if message.file is not None:
        row["file"] = message.file
    return row


def message_from_window_row(row: Mapping[str, Any]) -> Message:
    """The message that ``window_row_from_message`` gave, or somebody wrote; raises ``ValueError``."""
    message = message_from_dict(row)
    return message.replace(content=None) if message.tool_calls and not message.content else message


def _content_text(message: Message) -> str:
    parts = message.content if isinstance(message.content, tuple) else ()
    kinds = (str(p.get("type") or "part") for p in parts if p.get("type") != "text")
    return "\n".join([*filter(None, [message.text]), *(f"[{kind}]" for kind in kinds)])


def _trim_arguments(arguments: str, limit: int) -> str:
    """Arguments as JSON of at most ``limit`` characters; an empty object where that is too few."""
    if len(arguments) <= limit:
        return arguments
    try:
        value = parse_json(arguments)
    except ValueError:
        value = None
    # What is no object, or has too many values, keeps its beginning as one text.
    for shorter in (
        lambda n: _clip_strings(value, n),
        lambda n: {"truncated": clip_text(arguments, n)},
    ):
        chars = limit // 2
        while chars > 8:
            if isinstance(each := shorter(chars), dict) and len(cut := dump_json(each)) <= limit:
                return cut
            chars //= 2
    return "{}"


def _clip_strings(value: Any, chars: int) -> Any:
    if isinstance(value, str):
        return clip_text(value, chars)
    if isinstance(value, dict):
        return {key: _clip_strings(item, chars) for key, item in value.items()}
    return [_clip_strings(item, chars) for item in value] if isinstance(value, list) else value


CONTINUE_INSTRUCTION = "Continue from here. Do not repeat what is already done."
"""The instruction that the message ends with."""


def build_resume_message(resume: ResumeState) -> Message | None:
    """The one message that a resumed context begins with; None where there is nothing to tell.

    It holds the saved summary, the current step of the plan where there is one, and the instruction to
    go on. It is the user's, since providers want a user to speak first.

    >>> resume = ResumeState("- user: Fix the bug", plan=AgentPlan(("read", "fix", "test"), current=1))
    >>> print(build_resume_message(resume).content)
    This conversation is resumed.
    <BLANKLINE>
    Summary of the conversation so far:
    - user: Fix the bug
    <BLANKLINE>
    Current step of the plan (2 of 3): fix
    <BLANKLINE>
    Continue from here. Do not repeat what is already done.
    """
    said = [message for message in resume.recent if message.role != "system"]
    begins = not said or said[0].role == "user"
    step = _plan_step_text(resume.plan)
    if not resume.summary and not step and begins:
        return None
    parts = ["This conversation is resumed."]
    if resume.summary:
        parts.append(f"Summary of the conversation so far:\n{resume.summary}")
    text = "\n\n".join([*parts, *filter(None, [step]), CONTINUE_INSTRUCTION])
    return Message("user", text, extra={ENGINE_MESSAGE_KEY: True})


def build_resumed_messages(resume: ResumeState) -> tuple[Message, ...]:
    """The messages that a resumed context begins with: system, the engine's message, the rest.

    >>> system, hi = Message("system", "Be brief."), Message("user", "hi")
    >>> [m.role for m in build_resumed_messages(ResumeState("- user: hello", (system, hi)))]
    ['system', 'user', 'user']
    """
    recent, seed = resume.recent, build_resume_message(resume)
    if seed is None:
        return recent
    head = next((i for i, m in enumerate(recent) if m.role != "system"), len(recent))
    return (*recent[:head], seed, *recent[head:])


def _plan_step_text(plan: AgentPlan | None) -> str:
    """Where the plan stands; empty where there is none."""
    if plan is None or plan.current is None or not 0 <= plan.current < len(plan.steps):
        return ""
    said = f"Current step of the plan ({plan.current + 1} of {len(plan.steps)}): "
    said += plan.steps[plan.current]
    if plan.awaiting_continuation:
        said += " (it waits to be continued)"
    return f"{said} (it is paused)" if plan.paused else said
