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

from ctxlab.formats.fields import first_or_none, get_nested, list_or_empty, objects_in, text_or_none

__all__ = ["content_text", "insert_queued_prompts"]

_Row: TypeAlias = dict[str, Any]
_DELIVERED_REASONS = (None, "absorbed_mid_turn")


def insert_queued_prompts(rows: list[_Row]) -> list[_Row]:
    """The rows, with a user's row in each place where a prompt from the queue reached the model.

    >>> queue = {"type": "queue-operation"}
    >>> rows = [queue | {"operation": "enqueue", "content": "wait"}, queue | {"operation": "remove"}]
    >>> [row["type"] for row in insert_queued_prompts(rows)]
    ['queue-operation', 'user']
    """
    told = list(rows)
    queues: defaultdict[tuple[str | None, str | None], _PromptQueue] = defaultdict(_PromptQueue)
    for place, row in enumerate(rows):
        side = (text_or_none(row.get("agentId")) or "side") if row.get("isSidechain") else None
        queue = queues[text_or_none(row.get("sessionId")), side]
        prompt, repeated = queue.process_row(row, place)
        if prompt is not None:
            told[place] = row | {"type": "user", "message": {"role": "user", "content": prompt}}
        if repeated is not None:
            told[repeated] = rows[repeated]
    return told


def content_text(content: Any) -> str:
    """The texts of a message's content.

    >>> content_text([{"type": "text", "text": "b"}, {"type": "image"}])
    'b'
    >>> content_text("a"), content_text(None)
    ('a', '')
    """
    if isinstance(content, str):
        return content.strip()
    return "\n".join(
        filter(None, (text_or_none(b.get("text")) for b in objects_in(content)))
    ).strip()


@dataclass
class _QueuedPrompt:
    content: Any
    removed: bool = False


@dataclass
class _PromptQueue:
    """The prompts of one conversation that wait, and those that came since the last answer."""

    prompts: deque[_QueuedPrompt] = field(default_factory=deque)
    by_text: dict[str, deque[_QueuedPrompt]] = field(default_factory=dict)
    removals: dict[str, deque[int]] = field(default_factory=dict)
    "text → places of ``remove`` rows, while no other row carries it"
    carriers: dict[str, deque[int]] = field(default_factory=dict)
    "text → places of rows that carry it, while no ``remove`` stands beside them"
    answer_id: Any = None

    def process_row(self, row: _Row, place: int) -> tuple[Any, int | None]:
        """The prompt that this row carries to the model, and the place that carried it already."""
        kind = row.get("type")
        if kind == "assistant":
            self._start_answer(get_nested(row, "message", "id"))
        elif kind == "queue-operation":
            return self._apply_operation(row, place), None
        elif kind == "attachment" and get_nested(row, "attachment", "type") == "queued_command":
            prompt = _prompt_content(get_nested(row, "attachment", "prompt"))
            return prompt, self._match_removal(prompt, place) if prompt else None
        elif kind == "user" and (content := _prompt_content(get_nested(row, "message", "content"))):
            return None, self._match_removal(content, place)
        return None, None

    def _apply_operation(self, row: _Row, place: int) -> Any:
        operation, content = row.get("operation"), _prompt_content(row.get("content"))
        if operation == "enqueue":
            waiting = _QueuedPrompt(content)
            self.prompts.append(waiting)
            self.by_text.setdefault(content_text(content), deque()).append(waiting)
        elif operation == "popAll":
            self.prompts.clear()
            self.by_text.clear()
        elif operation in ("remove", "dequeue"):
            content = self._pop_prompt(content) or content
            absorbed = operation == "remove" and row.get("reason") in _DELIVERED_REASONS
            if content and absorbed and _pop_place(self.carriers, content_text(content)) is None:
                self.removals.setdefault(content_text(content), deque()).append(place)
                return content
        return None

    def _pop_prompt(self, content: Any) -> Any:
        """The content of the prompt that leaves: the oldest of this text, or the oldest of all."""
        queue = self.by_text.get(content_text(content)) if content else self.prompts
        while queue:
            first = queue.popleft()
            if not first.removed:
                first.removed = True
                return first.content
        return None

    def _match_removal(self, content: Any, place: int) -> int | None:
        said = content_text(content)
        before = _pop_place(self.removals, said)
        if before is None:
            self.carriers.setdefault(said, deque()).append(place)
        return before

    def _start_answer(self, id: Any) -> None:
        if id is None or id != self.answer_id:
            self.answer_id = id
            self.removals.clear()
            self.carriers.clear()


def _pop_place(places: dict[str, deque[int]], said: str) -> int | None:
    return places[said].popleft() if places.get(said) else None


def _prompt_content(value: Any) -> Any:
    """Content that a message can hold; None for tool results, and where there is none."""
    if text_or_none(value):
        return value
    blocks = objects_in(value)
    if (
        not blocks
        or len(blocks) < len(list_or_empty(value))
        or first_or_none(value).get("type") == "tool_result"
    ):
        return None
    return value
