"""Build messages from the items of a Codex rollout.

- Consecutive reasoning, text and calls form one assistant message with parallel calls. It ends when
  something else is sent or when its tokens are counted. Until late 2025 Codex wrote the items of an
  answer at the end: first the token count, then each call with its output. In such files, the calls
  of one answer continue across outputs until the next count.
- An output is placed right after the newest assistant message with calls if it answers one of them.
- ``token_count`` is the billed usage of one answer. It is written again, with the same totals, when
  nothing new was billed. It is also written for the call that summarizes, right before
  ``compacted``.
- Developer messages at the beginning become system messages. Later ones become user messages
  (``extra["role"]``), since Anthropic accepts no late system message and Codex drops them on
  compaction.
- Searches and images made by the provider have no result in the log and are counted.

References
----------
github.com/openai/codex, ``codex-rs/protocol/src/models.rs`` and ``codex-rs/core/src/codex.rs``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.codex import items
from ctxlab.formats.codex.compaction import IndexedItem, match_history, newest_user_messages
from ctxlab.formats.common.assistant_message import AssistantMessageBuilder
from ctxlab.formats.fields import get_nested, text_or_none
from ctxlab.messages.types import Compaction, Message, Recording, Role, Usage


@dataclass
class _AnswerItem(AssistantMessageBuilder):
    """An answer of the model; it has no messages if it has neither text nor calls."""

    counted_first: bool = False
    "whether its token count was written before its items"

    @property
    def messages(self) -> tuple[Message, ...]:
        return super().messages if self.texts or self.calls else ()


class _MessageItem(NamedTuple):
    """A message that was not written by the model."""

    messages: tuple[Message]
    starts_turn: bool = False
    "whether it is a prompt that begins a turn"


class _CompactionItem(NamedTuple):
    """A compaction with the indices of the items that it kept."""

    kept: frozenset[int]
    summary: str | None
    messages: tuple[Message, ...] = ()


@dataclass
class RolloutBuilder:
    """Builder of the conversation of one rollout."""

    skip: SkipCallback
    "called with a reason for each item that becomes no message"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    instructions: str | None = field(default=None, init=False)
    "base instructions that a turn names"
    _items: list[_AnswerItem | _MessageItem | _CompactionItem] = field(
        default_factory=list, init=False
    )
    _turn_starts: list[int] = field(default_factory=list, init=False)
    _compactions: list[tuple[int, _CompactionItem]] = field(default_factory=list, init=False)
    _open_answer: _AnswerItem | None = field(default=None, init=False)
    _last_answer: _AnswerItem | None = field(default=None, init=False)
    _last_caller: _AnswerItem | None = field(default=None, init=False)
    _pending_usage: Usage | None = field(default=None, init=False)
    _last_totals: Any = field(default=None, init=False)
    _model: str | None = field(default=None, init=False)
    _has_begun: bool = field(default=False, init=False)

    def add_item(self, item: dict[str, Any], time: float | None) -> None:
        """Add one item.

        Parameters
        ----------
        item : dict
            The next item.
        time : float or None
            Seconds since 1970.

        Raises
        ------
        ValueError
            If the item is invalid. Nothing is added then.
        """
        kind, role = item.get("type"), item.get("role")
        if kind == "message" and role == "assistant":
            said = items.content_texts(item.get("content"))
            self._current_answer(time).texts += said
        elif kind == "message" and role in ("user", "developer", "system"):
            self._add_message(item, role, time)
        elif kind == "reasoning":
            thoughts = items.content_texts(item.get("summary")) + items.content_texts(
                item.get("content")
            )
            self._current_answer(time).reasoning += thoughts
        elif kind in items.CALL_TYPES:
            call = items.parse_call(item)
            self._last_caller = self._current_answer(time)
            self._last_caller.calls.append(call)
        elif kind in items.OUTPUT_TYPES:
            self._add_output(items.parse_output(item, self.skip).replace(time=time))
        else:
            self.skip(f"message of role {role}" if kind == "message" else f"item of type {kind}")

    def begin_turn(self, context: dict[str, Any]) -> None:
        """Begin a turn.

        Parameters
        ----------
        context : dict
            The ``turn_context``, which names the model.
        """
        self._open_answer = self._last_answer = self._pending_usage = None
        self._model = text_or_none(context.get("model")) or self._model
        self.instructions = self.instructions or text_or_none(context.get("base_instructions"))

    def add_token_count(self, info: Any) -> None:
        """Add billed usage to the newest answer, or to the next one if that has usage.

        Parameters
        ----------
        info : Any
            The ``info`` of a ``token_count``.
        """
        billed = items.parse_usage(get_nested(info, "last_token_usage"))
        totals = get_nested(info, "total_token_usage")
        if billed is None or (totals is not None and totals == self._last_totals):
            self.skip("token count without an answer")
            return
        self._last_totals = totals
        answer = self._last_answer
        if answer and (
            answer.usage is None or (answer is self._open_answer and not answer.results)
        ):
            answer.usage = billed
        else:
            self._pending_usage = billed
        self._open_answer = None

    def add_compaction(self, payload: dict[str, Any]) -> None:
        """Add a compaction.

        Usage counted just before belongs to the call that summarizes and is dropped.

        Parameters
        ----------
        payload : dict
            The payload of a ``compacted`` line.

        Raises
        ------
        ValueError
            If an item of the replacement history is invalid.
        """
        history, summary = payload.get("replacement_history"), text_or_none(payload.get("message"))
        if isinstance(history, list):
            kept, stands_in = match_history(self._visible_items(), history)
            summary = "\n\n".join(stands_in) or summary
        else:
            kept = self._kept_on_resume()
        self._open_answer = self._last_answer = self._last_caller = self._pending_usage = None
        compaction = _CompactionItem(kept, summary)
        self._compactions.append((len(self._items), compaction))
        self._items.append(compaction)

    def roll_back(self, turns: int) -> None:
        """Remove the newest turns, with the context messages just before them.

        Parameters
        ----------
        turns : int
            Number of turns of the user.
        """
        if not self._turn_starts or not turns:
            return
        first, cut = self._turn_starts[0], self._turn_starts[max(len(self._turn_starts) - turns, 0)]
        while cut > first and _is_context_item(self._items[cut - 1]):
            cut -= 1
        for item in self._items[cut:]:
            for _ in item.messages:
                self.skip("message taken back")
        del self._items[cut:]
        while self._turn_starts and self._turn_starts[-1] >= cut:
            self._turn_starts.pop()
        while self._compactions and self._compactions[-1][0] >= cut:
            self._compactions.pop()
        self._open_answer = self._last_answer = self._last_caller = self._pending_usage = None

    def has_user_text(self, user_text: str) -> bool:
        """Return whether a message that the model did not write contains a text.

        Parameters
        ----------
        user_text : str
            The text to find.

        Returns
        -------
        bool
            True if a message contains the text.
        """
        sent = (item.messages[0] for item in self._items if isinstance(item, _MessageItem))
        return any(user_text in message.text for message in sent)

    def build_recording(self, name: str, instructions: str | None) -> Recording | None:
        """Return the conversation as a recording.

        Parameters
        ----------
        name : str
            Id of the recording.
        instructions : str or None
            Text of the system message.

        Returns
        -------
        Recording or None
            The recording, or None if no item became a message.
        """
        messages = [Message("system", instructions)] if instructions else []
        begun, starts, compactions = len(messages), [], []
        for item in self._items:
            starts.append(len(messages))
            messages += item.messages
            if isinstance(item, _AnswerItem) and not item.messages:
                self.skip("answer without text or calls")
        starts.append(len(messages))
        for index, compaction in self._compactions:
            spans = (range(starts[i], starts[i + 1]) for i in sorted(compaction.kept))
            kept = (*range(begun), *(position for span in spans for position in span))
            compactions.append(Compaction(starts[index], summary=compaction.summary, kept=kept))
        if len(messages) == begun:
            return None
        return Recording(name, tuple(messages), compactions=tuple(compactions))

    def _add_message(self, item: dict[str, Any], role: str, time: float | None) -> None:
        self._open_answer = self._last_answer = self._pending_usage = None
        content = items.parse_content(item.get("content"), self.skip)
        if not content:
            self.skip("message without content")
            return
        sent: Role = "user" if role == "user" or self._has_begun else "system"
        extra = {"role": role} if role != "user" and sent == "user" else {}
        message = Message(sent, content, time=time, extra=extra)
        own = role == "user" and not any(
            map(items.is_context_text, items.content_texts(item.get("content")))
        )
        if own:
            self._turn_starts.append(len(self._items))
        self._items.append(_MessageItem((message,), own))
        self._has_begun = self._has_begun or sent == "user"

    def _current_answer(self, time: float | None) -> _AnswerItem:
        if self._open_answer is None:
            self._open_answer = self._last_answer = _AnswerItem(time, self._pending_usage)
            self._open_answer.counted_first = self._pending_usage is not None
            self._items.append(self._open_answer)
            self._pending_usage, self._has_begun = None, True
            if self._model:
                self.models[self._model] += 1
        return self._open_answer

    def _add_output(self, result: Message) -> None:
        calls = self._last_caller.calls if self._last_caller else []
        call = next((call for call in calls if call.id == result.tool_call_id), None)
        if self._last_caller and call:
            self._last_caller.results.append(result.replace(name=call.name))
        else:
            self._items.append(_MessageItem((result,)))
        if self._open_answer and not self._open_answer.counted_first:
            self._open_answer = None

    def _visible_items(self) -> list[IndexedItem]:
        """Return the items kept by the newest compaction and the items since."""
        index, compaction = (
            self._compactions[-1] if self._compactions else (-1, _CompactionItem(frozenset(), None))
        )
        view = [*sorted(compaction.kept), *range(index + 1, len(self._items))]
        return [(i, self._items[i].messages) for i in view]

    def _kept_on_resume(self) -> frozenset[int]:
        before = range(self._turn_starts[0] if self._turn_starts else 0)
        context = (index for index in before if isinstance(self._items[index], _MessageItem))
        own = [
            (index, said)
            for index, said in self._visible_items()
            if _starts_turn(self._items[index])
        ]
        return newest_user_messages(own).union(context)


def _starts_turn(item: _AnswerItem | _MessageItem | _CompactionItem) -> bool:
    return isinstance(item, _MessageItem) and item.starts_turn


def _is_context_item(item: _AnswerItem | _MessageItem | _CompactionItem) -> bool:
    return (
        isinstance(item, _MessageItem) and not item.starts_turn and item.messages[0].role != "tool"
    )
