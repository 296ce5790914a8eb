"""Resume window: the newest messages of a session and a summary of older messages.

The size of the window is limited, so that resuming a long session costs as much as resuming a short
one. The window does no I/O: a session store adds messages to the window and saves it.

References
----------
Design document "Workspace-scoped sessions" (``recent_messages``, rolling summary, retention; see
``tests/SEEDS.md``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from ctxlab._utils.jsonio import dump_json, repair_surrogates
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.sessions.base import AgentPlan, ResumeState
from ctxlab.sessions.resume_messages import (
    INTERRUPTED_RESULT,
    MessageUnit,
    interrupted_result,
    trim_message,
    window_row_from_message,
)
from ctxlab.strategies.helpers.text import clip_text
from ctxlab.strategies.summaries.extractive import extract_summary

SummaryWriter: TypeAlias = Callable[[str, Sequence[Message], int], str]
"""Function that extends a summary.

Arguments: the current summary, the messages to add and the maximum number of characters. It returns
the new summary.
"""

_MIN_CAPS = {"messages": 1, "message_chars": 64, "total_chars": 256, "summary_chars": 0}
_MIN_BATCH = 64


@dataclass(frozen=True)
class ResumeCaps:
    """Maximum numbers of messages and characters that are loaded when a session is resumed.

    Examples
    --------
    >>> ResumeCaps(messages=0)
    Traceback (most recent call last):
    ctxlab.errors.SpecError: ResumeCaps: messages must be at least 1, got 0
    """

    messages: int = 40
    "maximum number of recent messages"
    message_chars: int = 4000
    "maximum number of characters of a message's text and tool call arguments together"
    total_chars: int = 60_000
    "maximum number of characters of the recent messages as JSON"
    summary_chars: int = 6000
    "maximum number of characters of the summary"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a value is below the smallest allowed value."""
        for each in fields(self):
            if (value := getattr(self, each.name)) < (least := _MIN_CAPS[each.name]):
                raise SpecError(f"ResumeCaps: {each.name} must be at least {least}, got {value}")


class ResumeWindow:
    r"""Newest messages of a session within size limits, and a summary of older messages.

    Long messages are shortened when they are added. If the window exceeds its limits, the oldest
    messages are dropped and added to the summary. A tool call and its results are dropped together.
    A call without a result is counted as if it had one. A result whose call is not in the window is
    added to the summary only. The run time of ``add`` does not depend on the length of the session.

    Parameters
    ----------
    caps : ResumeCaps, optional
        Size limits of the window. By default, ``ResumeCaps()``.
    summary : str, default ''
        Summary to continue, from a window that was saved.
    recent : iterable of Message, optional
        Newest messages, from a window that was saved.
    write_summary : SummaryWriter, optional
        Function that extends the summary. By default, the summary is extracted without a model.
    min_dropped : int, default 1
        Minimum number of messages to drop at a time. A higher number calls an expensive
        ``write_summary`` less often.

    Examples
    --------
    >>> window = ResumeWindow(ResumeCaps(messages=2))
    >>> window.extend(Message("user", f"line {i}") for i in range(4))
    >>> [m.content for m in window.recent], window.summary
    (['line 2', 'line 3'], '- user: line 0\n- user: line 1')
    """

    def __init__(
        self,
        caps: ResumeCaps | None = None,
        summary: str = "",
        recent: Iterable[Message] = (),
        *,
        write_summary: SummaryWriter = extract_summary,
        min_dropped: int = 1,
    ) -> None:
        self.caps = caps or ResumeCaps()
        self._write_summary = write_summary
        self._min_dropped = min(min_dropped, self.caps.messages)
        self._units: deque[_SizedUnit] = deque()
        self._open_units: dict[str, _SizedUnit] = {}
        self._dropped: list[Message] = []
        self._message_count, self._size = 0, 1
        self._summary = _clip_summary(summary, self.caps.summary_chars)
        self.extend(recent)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add the next messages of the conversation.

        Parameters
        ----------
        messages : iterable of Message
            Messages to add, in order.
        """
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Add the next message of the conversation.

        Parameters
        ----------
        message : Message
            Message to add.
        """
        kept = trim_message(message, self.caps.message_chars)
        if kept.role == "tool":
            unit = self._open_units.get(kept.tool_call_id or "")
            if kept.content == INTERRUPTED_RESULT:
                return  # a placeholder: the call stays open, since its real result may still follow
            if unit is None:
                self._queue_for_summary([kept])
                return
            del self._open_units[kept.tool_call_id or ""]
            self._size -= unit.json_size
            unit.add_result(kept)
            self._size += unit.json_size
        elif kept.content or kept.tool_calls:
            unit = _SizedUnit(kept)
            self._units.append(unit)
            self._open_units.update(dict.fromkeys(unit.open_calls, unit))
            self._message_count += len(unit)
            self._size += unit.json_size
        self._enforce_caps()

    @property
    def summary(self) -> str:
        """Summary of all messages before ``recent``. Reading it may call ``write_summary``."""
        if self._dropped:
            said = self._write_summary(self._summary, tuple(self._dropped), self.caps.summary_chars)
            self._summary = repair_surrogates(_clip_summary(said, self.caps.summary_chars))
            self._dropped.clear()
        return self._summary

    @property
    def recent(self) -> tuple[Message, ...]:
        """Newest messages. A tool call without a result gets a result that says "interrupted"."""
        return tuple(message for unit in self._units for message in unit)

    @property
    def recent_json(self) -> str:
        """The newest messages as a JSON array in OpenAI's chat format.

        It has at most ``ResumeCaps.total_chars`` characters.
        """
        rows = (dump_json(window_row_from_message(message)) for message in self.recent)
        return f"[{','.join(rows)}]"

    def resume_state(self, plan: AgentPlan | None = None) -> ResumeState:
        """Return the state that a session is resumed from.

        Parameters
        ----------
        plan : AgentPlan, optional
            Saved plan of the session.

        Returns
        -------
        ResumeState
            Summary and recent messages of the window, with the plan.
        """
        return ResumeState(self.summary, self.recent, plan)

    def _enforce_caps(self) -> None:
        caps = self.caps
        if self._message_count <= caps.messages and self._size <= caps.total_chars:
            return
        most = caps.messages - self._min_dropped + 1
        room = caps.total_chars * most // caps.messages
        while len(self._units) > 1 and (self._message_count > most or self._size > room):
            self._drop_oldest()
        if self._units and self._size > caps.total_chars:
            self._shrink_unit(self._units[0])
        if self._message_count > caps.messages or self._size > caps.total_chars:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest message with its tool results, and queue them for the summary."""
        unit = self._units.popleft()
        self._message_count -= len(unit)
        self._size -= unit.json_size
        for id in unit.open_calls:
            if self._open_units.get(id) is unit:
                del self._open_units[id]
        self._queue_for_summary(unit.messages)

    def _shrink_unit(self, unit: _SizedUnit) -> None:
        """Shorten a message and its tool results until they fit into ``total_chars``.

        This is needed if they are the only messages of the window and still exceed the limit.
        """
        limit, self._size = self.caps.message_chars // 2, self._size - unit.json_size
        while unit.json_size + self._size > self.caps.total_chars and limit >= _MIN_BATCH:
            unit.shorten(limit)
            limit //= 2
        self._size += unit.json_size

    def _queue_for_summary(self, messages: Iterable[Message]) -> None:
        for message in messages:
            # Leave a leading system prompt out of the summary: a resume reads the prompt from the
            # transcript, and in a short summary the prompt would displace the task.
            if message.role != "system" or self._dropped or self._summary:
                self._dropped.append(message)
        if len(self._dropped) >= max(4 * self.caps.messages, _MIN_BATCH):
            _ = self.summary  # summarize now, so that the queue stays bounded


class _SizedUnit(MessageUnit):
    """Message of the window with its tool results, and their total size as JSON."""

    def __init__(self, first: Message) -> None:
        super().__init__(first)
        self.json_size = sum(map(_json_size, self))

    def add_result(self, result: Message) -> None:
        call = self.open_calls[result.tool_call_id or ""]
        super().add_result(result)
        self.json_size += _json_size(result) - _json_size(interrupted_result(call))

    def shorten(self, limit: int) -> None:
        self.messages = [trim_message(message, limit) for message in self.messages]
        self.json_size = sum(map(_json_size, self))


def _json_size(message: Message) -> int:
    """Return the number of characters that a message takes in a JSON array, including the comma."""
    return len(dump_json(window_row_from_message(message))) + 1


def _clip_summary(summary: str, limit: int) -> str:
    """Shorten a summary to ``limit`` characters: cut long lines, then drop lines in the middle."""
    if len(summary) <= limit:
        return summary
    lines = [clip_text(line, max(limit // 4, 1)) for line in summary.splitlines()]
    return extract_summary("\n".join(lines), (), limit)
