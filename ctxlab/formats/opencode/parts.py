"""Convert the parts of one opencode message to messages.

The texts in capitals are those that opencode sends to the model for parts that have no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import (
    Content,
    MessageBuilder,
    image_part,
    join_parts,
    make_call,
    text_part,
)
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    first_text,
    get_count,
    get_in,
    get_number,
    get_objects,
    get_text,
    require_object,
    require_text,
)
from ctxlab.messages.types import ContentPart, Message, Usage

SUMMARY_QUESTION = "What did we do so far?"
SUBTASK_NOTE = "The following tool was executed by the user"
UNFINISHED_RESULT = "[Tool execution was interrupted]"

_SHAPE = UsageShape(
    *("input", "output", "cache.read", "cache.write", "reasoning"), includes_cache=False
)
_SESSION_KEYS = ("sessionId", "sessionID")
_COPIED_FILE_TYPES = ("text/plain", "application/x-directory")


@dataclass
class Step:
    """One request to the model: the answer and the results of its tool calls."""

    answer: MessageBuilder
    "the answer, with the results of its calls"
    cost: float | None = None
    "cost of the request in US dollars"
    cleared: dict[str, float] = field(default_factory=dict)
    "id of a call → time at which its result was cleared, in seconds since 1970"

    @property
    def is_empty(self) -> bool:
        """True if the answer has neither texts nor reasoning nor calls."""
        return not (self.answer.texts or self.answer.reasoning or self.answer.calls)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The answer and the results of its calls. The cost is stored in ``extra["cost"]``."""
        extra = {"cost": self.cost} if self.cost else {}
        return (self.answer.message.replace(extra=extra), *self.answer.results)


def parse_milliseconds(value: Any, *keys: str) -> float | None:
    """Return the time at a path of keys, converted from milliseconds to seconds since 1970.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    float or None
        The time. None if it is missing or not a number.
    """
    time = get_number(value, *keys)
    return None if time is None else time / 1000


def parse_usage(tokens: Any) -> Usage | None:
    """Parse the token counts of a step.

    Parameters
    ----------
    tokens : Any
        The object ``tokens`` of a step or a message.

    Returns
    -------
    Usage or None
        The token counts. ``output`` includes the reasoning. None if all counts are 0.

    Examples
    --------
    >>> counts = {"input": 5, "output": 3, "reasoning": 2, "cache": {"read": 10, "write": 0}}
    >>> parse_usage(counts | {"total": 20}).output, parse_usage(counts | {"total": 18}).output
    (5, 3)
    """
    usage = _SHAPE.parse_billed(tokens)
    if usage is None:
        return None
    both = usage.output + usage.reasoning
    apart = get_count(tokens, "total") >= usage.total_input + both
    return replace(usage, output=both) if apart or usage.reasoning > usage.output else usage


def convert_user_parts(
    parts: Iterable[dict[str, Any]], skip: SkipCallback, *, is_compacted: bool
) -> Content | None:
    """Convert the parts of a user message to its content.

    Parameters
    ----------
    parts : iterable of dict
        The parts of the message.
    skip : Callable
        Called with a description of each skipped part.
    is_compacted : bool
        True if a ``compaction`` part of the message led to a summary. In this case, the part has no
        text of its own.

    Returns
    -------
    str, tuple of dict, or None
        The content as opencode sends it to the model. None if no part is sent.

    Raises
    ------
    ValueError
        If a part is malformed.
    """
    said: list[ContentPart] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text" and part.get("ignored"):
            skip("text that is not sent to the model")
        elif kind == "text":
            said += _text_parts(require_text(part.get("text"), "text of a part"))
        elif kind == "file":
            said += _convert_file(part, skip)
        elif kind == "compaction":
            said += () if is_compacted else (text_part(SUMMARY_QUESTION),)
        elif kind == "subtask":
            said.append(text_part(SUBTASK_NOTE))
        else:
            skip(f"part of type {kind}")
    return join_parts(said)


def convert_steps(
    parts: Iterable[dict[str, Any]], time: float | None, skip: SkipCallback
) -> list[Step]:
    """Convert the parts of an assistant message to steps.

    Parameters
    ----------
    parts : iterable of dict
        The parts of the message. Each ``step-start`` part begins a new step.
    time : float or None
        Time of the message, in seconds since 1970.
    skip : Callable
        Called with a description of each skipped part.

    Returns
    -------
    list of Step
        The steps in order. At least one, which may be empty.

    Raises
    ------
    ValueError
        If a part is malformed.
    """
    steps = [Step(MessageBuilder(time))]
    for part in parts:
        step, kind = steps[-1], part.get("type")
        if kind == "step-start":
            if not step.is_empty:
                steps.append(Step(MessageBuilder(time)))
        elif kind == "step-finish":
            step.answer.usage, step.cost = parse_usage(part.get("tokens")), get_number(part, "cost")
        elif kind == "tool":
            _add_tool(step, part, skip)
        elif kind == "text" or kind == "reasoning":
            said = require_text(part.get("text"), f"text of a {kind} part")
            if said:
                (step.answer.texts if kind == "text" else step.answer.reasoning).append(said)
            else:
                skip(f"{kind} part without text")
        else:
            skip(f"part of type {kind}")
    return steps


def _text_parts(text: str) -> Iterator[ContentPart]:
    if text:
        yield text_part(text)


def _convert_file(part: dict[str, Any], skip: SkipCallback) -> Iterator[ContentPart]:
    kind, url = get_text(part, "mime"), get_text(part, "url")
    if kind and kind.startswith("image/") and url:
        yield image_part(url)
    elif kind in _COPIED_FILE_TYPES:
        skip(f"file of type {kind}, which is also stored as a text")
    else:
        skip(f"file of type {kind}")


def _add_tool(step: Step, part: dict[str, Any], skip: SkipCallback) -> None:
    state = require_object(part.get("state"), "state of a tool part")
    call = make_call(part.get("callID"), part.get("tool"), state.get("input"))
    content, failed = _convert_result(state, skip)
    extra: dict[str, Any] = {"is_error": True} if failed else {}
    if started := first_text(get_in(state, "metadata", key) for key in _SESSION_KEYS):
        extra["subagent"] = started
    time = parse_milliseconds(state, "time", "end") or step.answer.time
    result = Message("tool", content, tool_call_id=call.id, name=call.name, time=time, extra=extra)
    step.answer.calls.append(call)
    step.answer.results.append(result)
    if cleared := parse_milliseconds(state, "time", "compacted"):
        step.cleared[call.id] = cleared


def _convert_result(state: dict[str, Any], skip: SkipCallback) -> tuple[Content, bool]:
    """Return the content of a tool result, and whether the tool failed."""
    status = state.get("status")
    if status == "completed":
        said = [*_text_parts(require_text(state.get("output"), "output of a tool part"))]
        for file in get_objects(state, "attachments"):
            said += _convert_file(file, skip)
        return join_parts(said) or "", False
    if status == "error":
        output = get_text(state, "metadata", "output")
        stopped = (
            output and require_object(state["metadata"], "metadata").get("interrupted") is True
        )
        if output and stopped:
            return output, False
        return require_text(state.get("error"), "error of a tool part"), True
    if status in ("pending", "running"):
        return UNFINISHED_RESULT, True
    raise ValueError(f"status of a tool part must be known, got {status!r:.80}")
