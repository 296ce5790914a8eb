"""Build messages from the items of a Codex rollout.

- Consecutive reasoning, text and calls form one assistant message with parallel calls. The message
  ends at the first item that is not part of an answer, or at the token count of the answer. Until
  late 2025, Codex logged the token count of an answer first, then the items of the answer, and each
  call directly before its output. In such files, a message contains all calls up to the next token
  count.
- If a tool output answers a call of the newest assistant message with calls, the output is placed
  directly after this message.
- A ``token_count`` contains the billed usage of one answer. Codex repeats it with the same totals
  if nothing new was billed, and writes one without usage to report rate limits. Both contain nothing
  new and are ignored. Codex also logs a ``token_count`` for the model call that writes a summary,
  directly before ``compacted``. Such a usage, and a usage that no answer follows, is counted as
  skipped.
- Developer messages at the beginning become system messages. Later developer messages become user
  messages with ``extra["role"]``, for two reasons: Anthropic's API accepts system messages only at
  the beginning, and Codex drops developer messages at a compaction.
- Searches and images that the provider made have no logged result. They are skipped and counted. A
  search for tools that Codex itself ran is a call of ``tool_search``; its result contains the
  definitions of the tools that were found.
- Messages of other agents (``agent_message``) become user messages with ``extra["author"]``. They may
  have encrypted parts, which are skipped and counted.
- A compaction may have a ``replacement_history``: the list of the items that replace the context.
  An item from before the compaction counts as kept if it is in this list. All other items of the list,
  such as the summary, become messages of ``Compaction.context``. If the provider wrote the summary, it
  is encrypted and cannot be read. Its size (``Compaction.hidden_tokens``) is taken from Codex's estimate
  of the new context, which is logged after the compaction.
- If a compaction has no ``replacement_history``, the kept items are those that Codex restores when
  it resumes a session: the messages before the first turn, and the newest prompts that fit in
  20,000 tokens, with four bytes counted as one token. If Codex truncates a message to fit, the
  message has changed and does not count as kept.

References
----------
github.com/openai/codex, ``codex-rs/protocol/src/models.rs``, ``codex-rs/core/src/codex.rs``,
``codex-rs/core/src/compact.rs`` (``build_compacted_history``) and
``codex-rs/core/src/codex/rollout_reconstruction.rs``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.codex import items
from ctxlab.formats.common.chat_format import MessageBuilder
from ctxlab.formats.common.stitch import match_repeated
from ctxlab.formats.fields import get_count, get_in, get_text
from ctxlab.messages.types import Compaction, Message, Role, Substitute, Usage

_MAX_USER_TOKENS = 20_000

_IndexedItems: TypeAlias = list[tuple[int, tuple[Message, ...]]]
"""Pairs of the index of an item and the messages of this item."""


@dataclass
class _AnswerItem(MessageBuilder):
    """An answer of the model, with the results of its tool calls."""

    counted_first: bool = False
    "True if the token count of the answer was logged before its items"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The assistant message and the tool results; empty if the answer has no text and no calls."""
        return super().messages if self.texts or self.calls else ()


class _MessageItem(NamedTuple):
    """A message that the model did not write."""

    messages: tuple[Message]
    starts_turn: bool = False
    "True if the message is a prompt of the user, which begins a turn"


@dataclass
class _CompactionItem:
    """A compaction, with the context that Codex continued with."""

    context: tuple[int | Message, ...]
    "the context in order: an item that was kept by its index, any other message as it was sent"
    history: list[Any]
    "the replacement history; empty if there is none"
    estimate: int | None = None
    "tokens of the new context as estimated by Codex, with the base instructions"
    messages: tuple[Message, ...] = ()

    def estimate_hidden_tokens(self, instructions: str) -> int | None:
        """Return Codex's estimate of the encrypted content, or None if it is not known.

        Codex counts four bytes as a token. Its estimate minus that of all other content remains.
        """
        shown = [item for item in self.history if not get_text(item, "encrypted_content")]
        if len(shown) == len(self.history):
            return 0
        known = [instructions, *map(dump_json, shown)]
        rest = (self.estimate or 0) - sum(map(_estimate_tokens, known))
        return rest if self.estimate and instructions and rest > 0 else None


_Item: TypeAlias = _AnswerItem | _MessageItem | _CompactionItem


@dataclass
class RolloutBuilder:
    """Builder that converts the items of one rollout to a conversation."""

    skip: SkipCallback
    "called with a description of each skipped or removed item"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    instructions: str | None = field(default=None, init=False)
    "base instructions from the first turn that contains them; None if no turn contains them"
    _items: list[_Item] = field(default_factory=list, init=False)
    _open_answer: _AnswerItem | None = field(default=None, init=False)
    _last_answer: _AnswerItem | None = field(default=None, init=False)
    _last_caller: _AnswerItem | None = field(default=None, init=False)
    _pending_usage: Usage | None = field(default=None, init=False)
    _last_totals: Any = field(default=None, init=False)
    _model: str | None = field(default=None, init=False)
    _has_begun: bool = field(default=False, init=False)

    def add_item(self, item: dict[str, Any], time: float | None) -> None:
        """Add the next item of the rollout.

        Parameters
        ----------
        item : dict
            The JSON object of the item.
        time : float or None
            Time of the item in seconds since 1970.

        Raises
        ------
        ValueError
            If the item is malformed. In this case it is not added.
        """
        kind, role = item.get("type"), item.get("role")
        if kind == "message" and role == "assistant":
            texts = items.content_texts(item.get("content"))
            self._current_answer(time).texts += texts
        elif kind == "message" and role in ("user", "developer", "system"):
            self._add_message(item, role, time)
        elif kind == "agent_message":
            self._add_message(item, "user", time, get_text(item, "author"))
        elif kind == "reasoning":
            summary, texts = (items.content_texts(item.get(key)) for key in ("summary", "content"))
            self._current_answer(time).reasoning += summary + texts
        elif items.is_provider_call(item):
            self._current_answer(time)
            self.skip(f"item of type {kind}")
        elif kind in items.CALL_TYPES:
            call = items.parse_call(item)
            self._last_caller = self._current_answer(time)
            self._last_caller.calls.append(call)
        elif kind in items.OUTPUT_TYPES:
            self._add_output(items.parse_output(item, self.skip).replace(time=time))
        else:
            self.skip(f"message of role {role}" if kind == "message" else f"item of type {kind}")

    def begin_turn(self, context: dict[str, Any]) -> None:
        """Begin the next turn, and read the model and the base instructions from its context.

        Parameters
        ----------
        context : dict
            The payload of the ``turn_context`` line.
        """
        self._end_answer()
        self._model = get_text(context, "model") or self._model
        self.instructions = self.instructions or get_text(context, "base_instructions")

    def add_token_count(self, info: Any) -> None:
        """Add the billed usage of an answer.

        It becomes the usage of the newest answer and replaces a usage set before. If that answer is
        complete and already has usage, the new usage becomes that of the next answer. A token count
        without usage and a repeated one are ignored, because they contain nothing new. Directly after
        a compaction, a token count without usage contains Codex's estimate of the new context.

        Parameters
        ----------
        info : Any
            The value of ``info`` in a ``token_count`` event.
        """
        billed = items.parse_usage(get_in(info, "last_token_usage"))
        totals = get_in(info, "total_token_usage")
        last = self._items[-1] if self._items else None
        if billed is None and isinstance(last, _CompactionItem):
            last.estimate = get_count(info, "last_token_usage", "total_tokens") or None
        if billed is None or (totals is not None and totals == self._last_totals):
            return
        self._last_totals = totals
        answer, still_open = self._last_answer, self._last_answer is self._open_answer
        if answer and (answer.usage is None or (still_open and not answer.results)):
            if answer.usage:
                self.skip("token count without an answer")
            answer.usage = billed
        else:
            self._drop_pending_usage()
            self._pending_usage = billed
        self._open_answer = None

    def add_compaction(self, payload: dict[str, Any]) -> None:
        """Add a compaction after the items that were added so far.

        A token count that was logged directly before the compaction belongs to the model call that
        wrote the summary. Its usage is not part of the conversation and is counted as skipped.

        Parameters
        ----------
        payload : dict
            The payload of a ``compacted`` line.

        Raises
        ------
        ValueError
            If an item of the replacement history is malformed.
        """
        history, summary = payload.get("replacement_history"), get_text(payload, "message")
        context: list[int | Message]
        if isinstance(history, list):
            context = _match_history(self._visible_items(), history)
        else:
            history, context = [], [*sorted(self._kept_on_resume())]
            context += [Message("user", summary)] if summary else []
        self._end_answer()
        self._last_caller = None
        self._items.append(_CompactionItem(tuple(context), history))

    def roll_back(self, turns: int) -> None:
        """Remove the newest turns.

        Messages that Codex inserted immediately before the removed turns are removed too. Messages
        before the first turn of the session are always kept.

        Parameters
        ----------
        turns : int
            Number of turns to remove.
        """
        starts = self._turn_starts()
        if not starts or not turns:
            return
        first, cut = starts[0], starts[max(len(starts) - turns, 0)]
        while cut > first and _is_context_item(self._items[cut - 1]):
            cut -= 1
        for item in self._items[cut:]:
            for _ in item.messages:
                self.skip("message taken back")
        del self._items[cut:]
        self._end_answer()
        self._last_caller = None

    def has_user_text(self, user_text: str) -> bool:
        """Check whether a message that the model did not write contains a given text.

        Parameters
        ----------
        user_text : str
            The text to search for.

        Returns
        -------
        bool
            True if at least one such message contains the text.
        """
        sent = (item.messages[0] for item in self._items if isinstance(item, _MessageItem))
        return any(user_text in message.text for message in sent)

    def build_messages(
        self, instructions: str | None
    ) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """Return the messages and compactions that were built from the items.

        Parameters
        ----------
        instructions : str or None
            Text of a system message to add at the beginning. None: add no system message.

        Returns
        -------
        messages : tuple of Message
            The messages in order. Empty if no item became a message.
        compactions : tuple of Compaction
            The compactions in order.
        """
        self._end_answer()
        opening = (Message("system", instructions),) if instructions else ()
        messages, spans, compactions = [*opening], [], []
        for item in self._items:
            spans.append(range(len(messages), len(messages) + len(item.messages)))
            if isinstance(item, _CompactionItem):
                context: list[int | Substitute] = [*range(len(opening))]
                for each in item.context:
                    context += [Substitute(each)] if isinstance(each, Message) else spans[each]
                hidden = item.estimate_hidden_tokens(instructions or "")
                if hidden is None:
                    self.skip("encrypted summary of unknown size")
                here = len(messages)
                compactions.append(Compaction(here, tuple(context), hidden_tokens=hidden or 0))
            elif isinstance(item, _AnswerItem) and not item.messages:
                self.skip("answer without text or calls")
            messages += item.messages
        return tuple(messages) if any(spans) else (), tuple(compactions)

    def _end_answer(self) -> None:
        """End the newest answer, so that later items and token counts do not belong to it."""
        self._open_answer = self._last_answer = None
        self._drop_pending_usage()

    def _drop_pending_usage(self) -> None:
        if self._pending_usage:
            self.skip("token count without an answer")
        self._pending_usage = None

    def _add_message(
        self, item: dict[str, Any], role: str, time: float | None, author: str | None = None
    ) -> None:
        self._end_answer()
        content = items.parse_content(item.get("content"), self.skip)
        if not content:
            self.skip("message without content")
            return
        sent: Role = "user" if role == "user" or self._has_begun else "system"
        extra = {"role": role} if role != "user" and sent == "user" else {}
        extra |= {"author": author} if author else {}
        message = Message(sent, content, time=time, extra=extra)
        texts = items.content_texts(item.get("content"))
        own = role == "user" and not author and not any(map(items.is_context_text, texts))
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

    def _visible_items(self) -> _IndexedItems:
        """Return the items that the newest compaction kept, and all items after it."""
        view: list[int] = []
        for index, item in enumerate(self._items):
            if isinstance(item, _CompactionItem):
                view = sorted(each for each in item.context if isinstance(each, int))
            else:
                view.append(index)
        return [(index, self._items[index].messages) for index in view]

    def _turn_starts(self) -> list[int]:
        sent = [(i, item) for i, item in enumerate(self._items) if isinstance(item, _MessageItem)]
        return [index for index, item in sent if item.starts_turn]

    def _kept_on_resume(self) -> frozenset[int]:
        starts = self._turn_starts()
        before = range(starts[0] if starts else 0)
        context = (index for index in before if isinstance(self._items[index], _MessageItem))
        turns = frozenset(starts)
        prompts = [each for each in self._visible_items() if each[0] in turns]
        return _newest_user_messages(prompts).union(context)


def _is_context_item(item: _Item) -> bool:
    if not isinstance(item, _MessageItem) or item.starts_turn:
        return False
    return item.messages[0].role != "tool" and "author" not in item.messages[0].extra


def _match_history(visible: _IndexedItems, history: list[Any]) -> list[int | Message]:
    """Compare the items before a compaction with its replacement history.

    Returns the context after the compaction, as in ``_CompactionItem``. An item of the history is an
    earlier item if all messages of the earlier item are in the history. Other items are converted to
    messages.
    """
    keys = [(i, key) for i, messages in visible for m in messages for key in items.message_keys(m)]
    found = match_repeated([key for _, key in keys], [items.item_key(item) for item in history])
    repeated = Counter(keys[old][0] for old in found.values())
    total = Counter(index for index, _ in keys)
    kept = {new: keys[old][0] for new, old in found.items()}
    kept = {new: index for new, index in kept.items() if repeated[index] == total[index]}
    context: list[int | Message] = []
    for index, group in groupby(range(len(history)), kept.get):
        if index is None:
            context += _convert_items([history[new] for new in group])
        elif index not in context:
            context.append(index)
    return context


def _convert_items(history: list[Any]) -> tuple[Message, ...]:
    """Convert items of a replacement history to messages. Encrypted items are left out."""
    builder = RolloutBuilder(ignore_skip)
    builder._has_begun = True
    for item in history:
        if isinstance(item, dict):
            builder.add_item(item, None)
    return builder.build_messages(None)[0]


def _newest_user_messages(visible: _IndexedItems) -> frozenset[int]:
    """Return the indices of the newest user messages that fit in ``_MAX_USER_TOKENS``."""
    kept, left = set(), _MAX_USER_TOKENS
    for index, (message, *_) in reversed(visible):
        left -= _estimate_tokens(message.text)
        if left < 0:
            break
        kept.add(index)
    return frozenset(kept)


def _estimate_tokens(text: str) -> int:
    """Return the number of tokens as Codex estimates it: four bytes are one token."""
    return -(-len(text.encode("utf-8", "replace")) // 4)
