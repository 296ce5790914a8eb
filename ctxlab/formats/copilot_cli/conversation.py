"""Build one conversation of Copilot CLI from its events.

The module ``reader`` distributes the events of a file to the conversations of the main agent and of
its subagents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import MessageBuilder
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.copilot_cli import events
from ctxlab.formats.fields import get_count, get_text, require_text
from ctxlab.messages.types import Compaction, Message, Usage

_NOTIFICATION_TAG = "<system_notification"


@dataclass
class _CompactionItem:
    """A compaction among the items of a conversation."""

    summary: str | None
    "text that replaced the earlier messages; None if the log does not contain it"
    first_kept: int
    "index of the first item that the compaction did not replace"
    fields: dict[str, Any]
    "other fields of the compaction"


_Item: TypeAlias = MessageBuilder | Message | _CompactionItem


@dataclass
class ConversationBuilder:
    """Builder that converts the events of one agent to a conversation."""

    skip: SkipCallback
    "called with a description of each event or part that is skipped"
    assets: events.Assets
    "the binary assets of the session"
    model: str | None = None
    "model that is selected; used for answers that do not name their model"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    _system: Message | None = field(default=None, init=False)
    _system_text: str | None = field(default=None, init=False)
    _items: list[_Item] = field(default_factory=list, init=False)
    _answers_by_id: dict[str, MessageBuilder] = field(default_factory=dict, init=False)
    _answers_by_call: dict[str, MessageBuilder] = field(default_factory=dict, init=False)
    _last_answer: MessageBuilder | None = field(default=None, init=False)
    _open_answer: MessageBuilder | None = field(default=None, init=False)
    "answer without an id to which the next part of the turn belongs"
    _in_turn: bool = field(default=False, init=False)
    _usages_by_id: dict[str, Usage] = field(default_factory=dict, init=False)
    _pending_reasoning: list[str] = field(default_factory=list, init=False)
    _prompts: list[str] = field(default_factory=list, init=False)
    _first_kept: int | None = field(default=None, init=False)
    _replaced_prompts: int = field(default=0, init=False)

    def add(self, kind: str, data: dict[str, Any], time: float | None) -> None:
        """Add the next event of the conversation.

        Parameters
        ----------
        kind : str
            Type of the event, a key of ``EVENT_METHODS``.
        data : dict
            Data of the event.
        time : float or None
            Time of the event, in seconds since 1970.

        Raises
        ------
        ValueError
            If the event is malformed. In this case the conversation is not changed.
        """
        EVENT_METHODS[kind](self, data, time)

    @property
    def call_ids(self) -> Collection[str]:
        """Ids of all tool calls of the conversation so far."""
        return self._answers_by_call.keys()

    def build(self) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """Return the messages and the compactions of the conversation.

        Returns
        -------
        messages : tuple of Message
            The messages in order. Empty if the agent and the user wrote no message.
        compactions : tuple of Compaction
            The compactions in order.
        """
        for _ in self._usages_by_id:
            self.skip("usage without an answer")
        for _ in self._pending_reasoning:
            self.skip("reasoning without an answer")
        opening = (self._system,) if self._system else ()
        messages = [*opening]
        built = CompactionBuilder(messages)
        starts: list[int] = []
        for item in self._items:
            starts.append(len(messages))
            if isinstance(item, Message):
                messages.append(item)
            elif isinstance(item, _CompactionItem):
                kept = range(starts[item.first_kept], len(messages))
                built.add_summary(len(messages), item.summary, kept, **item.fields)
            elif item.texts or item.calls:
                messages += item.messages
            else:
                self.skip("answer without text or calls")
        return tuple(messages) if len(messages) > len(opening) else (), tuple(built.compactions)

    def _add_system(self, data: dict[str, Any], time: float | None) -> None:
        text = require_text(data.get("content"), "content")
        if self._system is None:
            self._system = Message("system", text, time=time)
        else:
            same = text == self._system_text
            self.skip("system prompt written again" if same else "changed system prompt")
        self._system_text = text

    def _add_user(self, data: dict[str, Any], time: float | None) -> None:
        content = events.parse_prompt(data, self.assets, self.skip)
        if not content:
            self.skip("message without content")
            return
        source = get_text(data, "source")
        extra = {"source": source} if source and source != "user" else {}
        self._items.append(Message("user", content, time=time, extra=extra))
        if data["content"] and (not extra or extra["source"].startswith("agent-")):
            self._prompts.append(data["content"])

    def _add_notification(self, data: dict[str, Any], time: float | None) -> None:
        text = require_text(data.get("content"), "content")
        if text.lstrip().startswith(_NOTIFICATION_TAG):
            self._items.append(Message("user", text, time=time, extra={"source": "system"}))
        else:
            self.skip(f"notification of type {get_text(data, 'kind', 'type')}")

    def _add_mode_notice(self, data: dict[str, Any], time: float | None) -> None:
        if text := get_text(data, "content"):
            self._items.append(Message("user", text, time=time, extra={"source": "system"}))
        else:
            self.skip("mode notice without content")

    def _begin_turn(self, data: dict[str, Any], time: float | None) -> None:
        self._in_turn, self._open_answer = True, None

    def _add_answer(self, data: dict[str, Any], time: float | None) -> None:
        text = require_text(data.get("content"), "content")
        calls = events.parse_calls(data)
        id = get_text(data, "apiCallId") or ""
        answer = self._answers_by_id.get(id) if id else self._open_answer
        if answer is None:
            answer = MessageBuilder(time, self._usages_by_id.pop(id, None))
            self._items.append(answer)
            if id:
                self._answers_by_id[id] = answer
            if model := get_text(data, "model") or self.model:
                self.models[model] += 1
        self._last_answer = answer
        self._open_answer = answer if self._in_turn and not id else None
        if text:
            answer.texts.append(text)
        answer.calls += calls
        self._answers_by_call |= dict.fromkeys((call.id for call in calls), answer)
        self._add_reasoning_to(answer, data)
        if answer.usage is None:
            answer.usage = events.parse_usage({"outputTokens": data.get("outputTokens")})

    def _add_reasoning_to(self, answer: MessageBuilder, data: dict[str, Any]) -> None:
        own = get_text(data, "reasoningText")
        answer.reasoning += [text for text in self._pending_reasoning if text not in (own or "")]
        self._pending_reasoning.clear()
        if own:
            answer.reasoning.append(own)
        elif get_text(data, "reasoningOpaque") or get_text(data, "encryptedContent"):
            self.skip("encrypted reasoning")

    def _add_reasoning(self, data: dict[str, Any], time: float | None) -> None:
        text = require_text(data.get("content"), "content")
        if self._last_answer is None or text not in self._last_answer.reasoning:
            self._pending_reasoning.append(text)

    def _add_usage(self, data: dict[str, Any], time: float | None) -> None:
        usage, id = events.parse_usage(data), get_text(data, "apiCallId")
        answer = self._answers_by_id.get(id) if id else self._last_answer
        if usage is None:
            self.skip("usage without tokens")
        elif data.get("interactionType") == "conversation-compaction":
            self.skip("usage of a compaction")
        elif answer:
            answer.usage = usage
        elif id:
            self._usages_by_id[id] = usage
        else:
            self.skip("usage without an answer")

    def _add_result(self, data: dict[str, Any], time: float | None) -> None:
        if data.get("isUserRequested") is True:
            self.skip("result of a command of the user")
            return
        id = require_text(data.get("toolCallId"), "toolCallId")
        content = events.parse_result(data, self.assets, self.skip)
        caller = self._answers_by_call.get(id)
        name = next((call.name for call in caller.calls if call.id == id), None) if caller else None
        extra = {"is_error": True} if data.get("success") is False else {}
        self._open_answer = None
        result = Message("tool", content, tool_call_id=id, name=name, time=time, extra=extra)
        (caller.results if caller else self._items).append(result)

    def _begin_compaction(self, data: dict[str, Any], time: float | None) -> None:
        self._first_kept, self._replaced_prompts = len(self._items), len(self._prompts)

    def _add_compaction(self, data: dict[str, Any], time: float | None) -> None:
        if self._first_kept is None:
            self._begin_compaction(data, time)
        first_kept, self._first_kept = self._first_kept or 0, None
        if data.get("success") is False:
            self.skip("failed compaction")
            return
        summary, trigger = get_text(data, "summaryContent"), get_text(data, "trigger")
        if summary:
            summary = _build_summary_text(summary, self._prompts[: self._replaced_prompts])
        tokens = get_count(data, "preCompactionTokens") or None
        fields = {"trigger": trigger, "tokens_before": tokens}
        self._items.append(_CompactionItem(summary, first_kept, fields))

    def _clear_context(self, data: dict[str, Any], time: float | None) -> None:
        self._prompts.clear()
        summary = get_text(data, "initialMessage")
        self._items.append(_CompactionItem(summary, len(self._items), {"trigger": "clear"}))


EVENT_METHODS: dict[str, Callable[[ConversationBuilder, dict[str, Any], float | None], None]] = {
    "system.message": ConversationBuilder._add_system,
    "user.message": ConversationBuilder._add_user,
    "system.notification": ConversationBuilder._add_notification,
    "session.mode_notice_delivered": ConversationBuilder._add_mode_notice,
    "assistant.turn_start": ConversationBuilder._begin_turn,
    "assistant.message": ConversationBuilder._add_answer,
    "assistant.reasoning": ConversationBuilder._add_reasoning,
    "assistant.usage": ConversationBuilder._add_usage,
    "tool.execution_complete": ConversationBuilder._add_result,
    "session.compaction_start": ConversationBuilder._begin_compaction,
    "session.compaction_complete": ConversationBuilder._add_compaction,
    "session.context_cleared": ConversationBuilder._clear_context,
}
"""Type of an event → method that adds the event to a conversation."""


def _build_summary_text(summary: str, prompts: list[str]) -> str:
    """Return the user message that Copilot CLI sends in place of the messages it replaced.

    It contains the replaced prompts, also those of earlier compactions, and the summary.
    """
    lines = ["Some of the conversation history has been summarized to free up context.\n"]
    if prompts:
        lines.append(
            "You were originally given instructions from a user over one or more turns. "
            "Here were the user messages:"
        )
        lines += [f"<user_message>\n{prompt}\n</user_message>" for prompt in prompts]
        lines.append("")
    lines.append(f"Here is a summary of the prior context:\n<summary>\n{summary}\n</summary>\n")
    return "\n".join(lines)
