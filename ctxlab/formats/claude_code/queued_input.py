"""What a user types while Claude Code works reaches the model in the middle of the turn.

The client queues it. A ``queue-operation`` row tells each step: ``enqueue`` with the text, then
``dequeue`` where it opens a turn and a ``user`` row follows, or ``remove`` where the running turn
took it in and none ever follows (newer clients say ``reason: absorbed_mid_turn``; other reasons are
no delivery), or ``popAll`` where the user took all of it back. Newer clients also write an
``attachment`` of type ``queued_command`` beside the ``remove``, before or after it, and it alone
where the prompt holds images. Rows are beside one another where no new answer lies between.

Source: sessions of Claude Code 2.1.5 to 2.1.39; of 2.1.2xx the shape as public readers of it, with
their tests, describe it (the hive and bordr viewers among them).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.optional_fields import (
    first_of,
    listed,
    objects_in,
    text,
    within,
)

__all__ = ["said_in", "with_queued"]

_Row: TypeAlias = dict[str, Any]
_ABSORBED = (None, "absorbed_mid_turn")


def with_queued(rows: list[_Row]) -> list[_Row]:
    """The rows, with a user's row in each place where a prompt from the queue reached the model.

    >>> queue = {"type": "queue-operation"}
    >>> rows = [queue | {"operation": "enqueue", "content": "wait"}, queue | {"operation": "remove"}]
    >>> [row["type"] for row in with_queued(rows)]
    ['queue-operation', 'user']
    """
    told = list(rows)
    queues: defaultdict[tuple[str | None, str | None], _Queue] = defaultdict(_Queue)
    for place, row in enumerate(rows):
        side = (text(row.get("agentId")) or "side") if row.get("isSidechain") else None
        queue = queues[text(row.get("sessionId")), side]
        prompt, repeated = queue.see(row, place)
        if prompt is not None:
            told[place] = row | {"type": "user", "message": {"role": "user", "content": prompt}}
        if repeated is not None:
            told[repeated] = rows[repeated]
    return told


def said_in(content: Any) -> str:
    """The texts of a message's content.

    >>> said_in("a"), said_in([{"type": "text", "text": "b"}, {"type": "image"}]), said_in(None)
    ('a', 'b', '')
    """
    if isinstance(content, str):
        return content.strip()
    return "\n".join(filter(None, (text(b.get("text")) for b in objects_in(content)))).strip()


@dataclass
class _Waiting:
    content: Any
    gone: bool = False


@dataclass
class _Queue:
    """The prompts of one conversation that wait, and those that came since the last answer."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    by_text: dict[str, deque[_Waiting]] = field(default_factory=dict)
    removed: dict[str, deque[int]] = field(default_factory=dict)
    "text → places of ``remove`` rows, while no other row carries it"
    carried: dict[str, deque[int]] = field(default_factory=dict)
    "text → places of rows that carry it, while no ``remove`` stands beside them"
    answer: Any = None

    def see(self, row: _Row, place: int) -> tuple[Any, int | None]:
        """The prompt that this row carries to the model, and the place that carried it already."""
        kind = row.get("type")
        if kind == "assistant":
            self._answered(within(row, "message", "id"))
        elif kind == "queue-operation":
            return self._operate(row, place), None
        elif kind == "attachment" and within(row, "attachment", "type") == "queued_command":
            prompt = _content(within(row, "attachment", "prompt"))
            return prompt, self._carry(prompt, place) if prompt else None
        elif kind == "user" and (content := _content(within(row, "message", "content"))):
            return None, self._carry(content, place)
        return None, None

    def _operate(self, row: _Row, place: int) -> Any:
        operation, content = row.get("operation"), _content(row.get("content"))
        if operation == "enqueue":
            waiting = _Waiting(content)
            self.waiting.append(waiting)
            self.by_text.setdefault(said_in(content), deque()).append(waiting)
        elif operation == "popAll":
            self.waiting.clear()
            self.by_text.clear()
        elif operation in ("remove", "dequeue"):
            content = self._next(content) or content
            absorbed = operation == "remove" and row.get("reason") in _ABSORBED
            if content and absorbed and _taken(self.carried, said_in(content)) is None:
                self.removed.setdefault(said_in(content), deque()).append(place)
                return content
        return None

    def _next(self, content: Any) -> Any:
        """The content of the prompt that leaves: the oldest of this text, or the oldest of all."""
        queue = self.by_text.get(said_in(content)) if content else self.waiting
        while queue:
            first = queue.popleft()
            if not first.gone:
                first.gone = True
                return first.content
        return None

    def _carry(self, content: Any, place: int) -> int | None:
        said = said_in(content)
        before = _taken(self.removed, said)
        if before is None:
            self.carried.setdefault(said, deque()).append(place)
        return before

    def _answered(self, id: Any) -> None:
        if id is None or id != self.answer:
            self.answer = id
            self.removed.clear()
            self.carried.clear()


def _taken(places: dict[str, deque[int]], said: str) -> int | None:
    return places[said].popleft() if places.get(said) else None


def _content(value: Any) -> Any:
    """Content that a message can hold; None for tool results, and where there is none."""
    if text(value):
        return value
    blocks = objects_in(value)
    if (
        not blocks
        or len(blocks) < len(listed(value))
        or first_of(value).get("type") == "tool_result"
    ):
        return None
    return value
