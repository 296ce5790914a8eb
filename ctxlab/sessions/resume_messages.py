"""Build the first messages of the context when a session is resumed.

These are system messages, then a message with a summary of the conversation, then the newest
messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import AgentPlan, ResumeState
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.strategies.helpers.text import clip_text
from ctxlab.strategies.tool_stubs import OUTCOME_KEY, describe_json
from ctxlab.tokens.images import image_parts

INTERRUPTED_RESULT = "[Interrupted before it finished: there is no result]"
"""Content of the tool result that is added to a call without a result."""


def interrupted_result(call: ToolCall) -> Message:
    """Create the tool message for a call that was interrupted before it returned a result.

    Parameters
    ----------
    call : ToolCall
        Tool call without a result.

    Returns
    -------
    Message
        Tool message with the content ``INTERRUPTED_RESULT``.
    """
    return Message("tool", INTERRUPTED_RESULT, tool_call_id=call.id, name=call.name)


class MessageUnit:
    """Message with the results of its tool calls. They must stay together in a context.

    Parameters
    ----------
    first : Message
        First message of the unit: an assistant message with tool calls, or any other message.
    """

    def __init__(self, first: Message) -> None:
        self.messages = [first]
        self.open_calls = {call.id: call for call in first.tool_calls}
        "tool calls that have no result yet, by id"

    def add_result(self, result: Message) -> None:
        """Add the result of a tool call.

        Parameters
        ----------
        result : Message
            Tool message whose ``tool_call_id`` is in ``open_calls``.
        """
        del self.open_calls[result.tool_call_id or ""]
        self.messages.append(result)

    def __len__(self) -> int:
        """Return the number of messages, plus one for each result that ``__iter__`` inserts."""
        return len(self.messages) + len(self.open_calls)

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, then a result that says "interrupted" for each call without a result."""
        yield from self.messages
        yield from map(interrupted_result, self.open_calls.values())


def pair_tool_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Rearrange messages so that each tool call is followed by exactly one result.

    Providers reject requests in which calls and results do not match. Results without a call,
    repeated results, and other messages with neither content nor tool calls are dropped. A late
    result is moved directly after its call. If two calls have the same id, a result belongs to the
    newer call. A call without a result gets a result which says that the call was interrupted. The
    order of system, user and assistant messages stays the same.

    Parameters
    ----------
    messages : iterable of Message
        Messages in order.

    Returns
    -------
    tuple of Message
        Messages in which calls and results match.

    Examples
    --------
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
"""Text appended to the content of a message that was cut."""

MAX_RESTORED_IMAGES = 3
"""Number of newest messages that keep their images when a session is resumed."""

_IMAGE_MARK = re.compile(r"\[(image|image_url|input_image)\]")

_KEPT_EXTRA = ("is_error", OUTCOME_KEY)
"keys of ``Message.extra`` that a resumed session needs, to replace tool results by stubs"


def trim_message(message: Message, max_chars: int) -> Message:
    """Cut the content and tool call arguments of a message to ``max_chars`` characters.

    The content is converted to a string: images and other content that is not text are replaced by
    their type in brackets. Arguments that are cut remain valid JSON. Fields that are not sent to a
    provider are dropped, except ``file`` and what a stub says of a tool result.

    Parameters
    ----------
    message : Message
        Message to cut.
    max_chars : int
        Maximum number of characters of content and arguments together.

    Returns
    -------
    Message
        Message with cut content and arguments.

    Examples
    --------
    >>> long = ToolCall("c1", "write", '{"path": "a.py", "text": "' + "x" * 500 + '"}')
    >>> kept = trim_message(Message("assistant", "I write it.", tool_calls=(long,)), 100)
    >>> kept.tool_calls[0].arguments
    '{"path":"a.py","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"}'
    """
    text = message.content if isinstance(message.content, str) else _content_text(message)
    calls, argument_chars = message.tool_calls, sum(len(c.arguments) for c in message.tool_calls)
    extra = {key: message.extra[key] for key in _KEPT_EXTRA if key in message.extra}
    if len(text) + argument_chars > max_chars:
        if message.role == "tool" and OUTCOME_KEY not in extra:
            extra |= {OUTCOME_KEY: said} if (said := describe_json(message)) else {}
        room = max(max_chars - argument_chars, max_chars // 2 if calls else max_chars)
        text = clip_text(text, room, TRUNCATION_MARKER)
        share = (max_chars - len(text)) // max(len(calls), 1)
        calls = tuple(ToolCall(c.id, c.name, _trim_arguments(c.arguments, share)) for c in calls)
    content, kept = text or (None if calls else ""), (message.tool_call_id, message.name)
    return Message(message.role, content, calls, *kept, file=message.file, extra=extra)


def restore_images(
    recent: Sequence[Message], stored: Iterable[Message], most: int = MAX_RESTORED_IMAGES
) -> list[Message]:
    r"""Put the newest images back into messages that ``trim_message`` has cut.

    Parameters
    ----------
    recent : sequence of Message
        Newest messages of a session, as ``trim_message`` returns them.
    stored : iterable of Message
        The same messages as they are stored. There may be others between them.
    most : int, default 3
        Maximum number of messages that get their images back.

    Returns
    -------
    list of Message
        The messages, with images in the newest ones that had images.

    Examples
    --------
    >>> image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    >>> stored = Message("user", ({"type": "text", "text": "Look"}, image))
    >>> cut = trim_message(stored, 100)
    >>> cut.content, restore_images([cut], [stored]) == [stored]
    ('Look\n[image_url]', True)
    """
    restored, end, left = list(recent), len(recent), most
    for message in reversed([*stored]):
        whole, images = _content_text(message), image_parts(message)
        for index in reversed(range(end)):
            cut = restored[index]
            begin = cut.text.removesuffix(TRUNCATION_MARKER)
            is_whole = cut.content == (whole or None)
            if (cut.role, cut.tool_call_id) != (message.role, message.tool_call_id) or not (
                is_whole or (begin != cut.text and whole.startswith(begin))
            ):
                continue
            end = index
            if images and left:
                left -= 1
                text = {"type": "text", "text": cut.text}
                content = message.content if is_whole else (text, *images)
                restored[index] = cut.replace(content=content)
            break
    return restored


def has_cut_images(messages: Iterable[Message]) -> bool:
    """Return True if images may have been cut out of one of the messages.

    Parameters
    ----------
    messages : iterable of Message
        Messages as ``trim_message`` returns them.

    Returns
    -------
    bool
        False if no message had images.
    """
    return any(
        _IMAGE_MARK.search(m.text) or (m.role == "user" and m.text.endswith(TRUNCATION_MARKER))
        for m in messages
    )


def window_row_from_message(message: Message) -> dict[str, Any]:
    """Convert a message of a ``ResumeWindow`` to a JSON object in OpenAI's chat format.

    Parameters
    ----------
    message : Message
        Message as ``trim_message`` returns it.

    Returns
    -------
    dict
        The message in OpenAI's chat format. Missing content becomes an empty string.
    """
    row = message.to_dict()
    row["content"] = row["content"] or ""
    if message.file is not None:
        row["file"] = message.file
    if message.extra:
        row["extra"] = message.extra
    return row


def message_from_window_row(row: Mapping[str, Any]) -> Message:
    """Convert a JSON object of a stored ``ResumeWindow`` to a message.

    Parameters
    ----------
    row : mapping
        JSON object, written by ``window_row_from_message`` or by another program.

    Returns
    -------
    Message
        Converted message. If it has tool calls, an empty content becomes None.

    Raises
    ------
    ValueError
        If ``row`` is not a valid message.
    """
    message = message_from_dict(row)
    return message.replace(content=None) if message.tool_calls and not message.content else message


def _content_text(message: Message) -> str:
    parts = message.content if isinstance(message.content, tuple) else ()
    kinds = (str(p.get("type") or "part") for p in parts if p.get("type") != "text")
    return "\n".join([*filter(None, [message.text]), *(f"[{kind}]" for kind in kinds)])


def _trim_arguments(arguments: str, limit: int) -> str:
    """Shorten tool call arguments to at most ``limit`` characters of valid JSON.

    Return ``{}`` if the limit is too small.
    """
    if len(arguments) <= limit:
        return arguments
    try:
        value = parse_json(arguments)
    except ValueError:
        value = None
    # Shorten the strings in the JSON object. If that is not enough, keep the start of the JSON text.
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
"""Last sentence of the resume message."""


def build_resume_message(resume: ResumeState) -> Message | None:
    """Build the message that tells the model that the conversation is resumed.

    The message contains the saved summary, the current step of the plan and the instruction to
    continue. It is a user message, since providers expect a user message first.

    Parameters
    ----------
    resume : ResumeState
        State to resume from.

    Returns
    -------
    Message or None
        The resume message. None if it is not needed: there is neither a summary nor a current step,
        and ``resume.recent``, without its system messages, is empty or begins with a user message.

    Examples
    --------
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
    """Build the first messages of the context of a resumed session.

    These are the system messages at the start of ``resume.recent``, then the resume message (see
    ``build_resume_message``), then the other recent messages.

    Parameters
    ----------
    resume : ResumeState
        State to resume from.

    Returns
    -------
    tuple of Message
        Messages at the beginning of the context, in order.

    Examples
    --------
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
    """Describe the current step of a plan in one sentence.

    Return an empty string if there is no plan or no current step.
    """
    if plan is None or plan.current is None or not 0 <= plan.current < len(plan.steps):
        return ""
    said = f"Current step of the plan ({plan.current + 1} of {len(plan.steps)}): "
    said += plan.steps[plan.current]
    if plan.awaiting_continuation:
        said += " (it waits to be continued)"
    return f"{said} (it is paused)" if plan.paused else said
