"""Find prompts that Claude Code delivered to the model in the middle of a turn.

Claude Code queues prompts that the user types while the model works, and reports each change of the
queue in a ``queue-operation`` row:

- ``enqueue`` adds a prompt. The row contains its text.
- ``dequeue`` removes a prompt that begins a new turn. A ``user`` row with the prompt follows.
- ``remove`` removes a prompt, and no ``user`` row follows. Without a ``reason``, or with the reason
  ``absorbed_mid_turn`` of newer clients, the prompt was delivered in the middle of the current turn.
  With any other reason, the prompt was not delivered.
- ``popAll`` removes all prompts because the user withdrew them.

Newer clients also write an ``attachment`` row of type ``queued_command`` with the prompt, shortly
before or after the ``remove`` row. If the prompt contains images, they write only the attachment. An
attachment belongs to a ``remove`` row with the same text if no new answer lies between the two rows.
If the attachment contains the text as it was sent (``rendered``), the message has this text.

References
----------
Session files that Claude Code 2.1.5 to 2.1.39 wrote. The format of 2.1.2xx is taken from other
open-source programs that read sessions, such as the viewers hive and bordr, and from their tests.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.fields import get_in, get_list, get_objects, get_text

_Row: TypeAlias = dict[str, Any]
_DELIVERED_REASONS = (None, "absorbed_mid_turn")


def insert_queued_prompts(rows: list[_Row]) -> list[_Row]:
    """Convert each row that reports the delivery of a queued prompt to a user row with the prompt.

    Parameters
    ----------
    rows : list of dict
        All rows of a file.

    Returns
    -------
    list of dict
        All rows in the same order, some of them converted.

    Examples
    --------
    >>> queue = {"type": "queue-operation"}
    >>> rows = [queue | {"operation": "enqueue", "content": "wait"}, queue | {"operation": "remove"}]
    >>> [row["type"] for row in insert_queued_prompts(rows)]
    ['queue-operation', 'user']
    """
    told = list(rows)
    queues: defaultdict[tuple[str | None, str | None], _PromptQueue] = defaultdict(_PromptQueue)
    for place, row in enumerate(rows):
        side = (get_text(row, "agentId") or "side") if row.get("isSidechain") else None
        queue = queues[get_text(row, "sessionId"), side]
        prompt, repeated = queue.process_row(row, place)
        if prompt is not None:
            told[place] = row | {"type": "user", "message": {"role": "user", "content": prompt}}
        if repeated is not None:
            told[repeated] = rows[repeated]
    return told


def content_text(content: Any) -> str:
    """Return the text of a message's content.

    Parameters
    ----------
    content : Any
        A string or a list of content blocks.

    Returns
    -------
    str
        The string, or the texts of the text blocks, without surrounding white space. An empty string
        if ``content`` has another type.

    Examples
    --------
    >>> content_text([{"type": "text", "text": "b"}, {"type": "image"}])
    'b'
    >>> content_text("a"), content_text(None)
    ('a', '')
    """
    if isinstance(content, str):
        return content.strip()
    return "\n".join(filter(None, (get_text(b, "text") for b in get_objects(content)))).strip()


@dataclass
class _QueuedPrompt:
    content: Any
    removed: bool = False


@dataclass
class _PromptQueue:
    """The queue of prompts of one conversation, and the prompts delivered since the last answer."""

    prompts: deque[_QueuedPrompt] = field(default_factory=deque)
    by_text: dict[str, deque[_QueuedPrompt]] = field(default_factory=dict)
    removals: dict[str, deque[int]] = field(default_factory=dict)
    "text of a prompt → indices of ``remove`` rows; no other row with this text has followed yet"
    carriers: dict[str, deque[int]] = field(default_factory=dict)
    "text of a prompt → indices of user and attachment rows; no ``remove`` row has followed yet"
    answer_id: Any = None

    def process_row(self, row: _Row, place: int) -> tuple[Any, int | None]:
        """Update the queue with the row at index ``place``.

        Return two values. The first is the prompt that this row delivered to the model, or None. The
        second is the index of an earlier ``remove`` row that was converted to the same prompt, or
        None. The caller undoes that conversion, so that the prompt is not read twice.
        """
        kind = row.get("type")
        if kind == "assistant":
            self._start_answer(get_in(row, "message", "id"))
        elif kind == "queue-operation":
            return self._apply_operation(row, place), None
        elif kind == "attachment" and get_in(row, "attachment", "type") == "queued_command":
            prompt = _prompt_content(get_in(row, "attachment", "prompt"))
            return prompt, self._match_removal(prompt, place) if prompt else None
        elif kind == "user" and (content := _prompt_content(get_in(row, "message", "content"))):
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
        """Remove the oldest prompt with this content, or the oldest of all if ``content`` is empty."""
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
    """Return ``value`` if it is the content of a user prompt, otherwise None.

    The content of a prompt is a non-empty string or a list of blocks without tool results.
    """
    if get_text(value):
        return value
    blocks = get_objects(value)
    complete = blocks and len(blocks) == len(get_list(value))
    return value if complete and blocks[0].get("type") != "tool_result" else None
