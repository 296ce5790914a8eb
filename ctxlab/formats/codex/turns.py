"""The items of a Codex rollout become messages: what a model said at once is one message.

- Reasoning, text and calls that follow one another are one answer with its calls in parallel, until
  something else is sent or their tokens are counted. Until late 2025 Codex wrote the items of an answer
  when all was done: the count first, then each call with its output. There, calls go on with the
  answer across outputs until the next count.
- An output stands right behind the newest answer with calls where it answers one of them.
- ``token_count`` is what the provider billed for one answer. It is also written when nothing new was
  billed, with the same totals, and for the call that summarises, right before ``compacted``.
- Developer messages that open the conversation are system messages. Later ones become the user's
  (``extra["role"]``): Anthropic accepts no late system message, and Codex drops them when it compacts.
- Searches and images that the provider makes have no result in the log and are counted.

Source: github.com/openai/codex, ``codex-rs/protocol/src/models.rs`` and ``codex-rs/core/src/codex.rs``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.codex import items
from ctxlab.formats.codex.compaction import (
    Item,
    newest_own,
    said_again,
)
from ctxlab.formats.common.assistant_message import Answer
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import (
    Compaction,
    Message,
    Recording,
    Role,
    Usage,
)

__all__ = ["Turns"]


@dataclass
class _Answer(Answer):
    """An answer, and whether it comes to anything."""

    counted_first: bool = False
    "whether its tokens were counted before its items were written"

    @property
    def messages(self) -> tuple[Message, ...]:
        return super().messages if self.texts or self.calls else ()


class _Said(NamedTuple):
    """A message that no model wrote."""

    messages: tuple[Message]
    own: bool = False
    "whether the user began a turn with it"


class _Mark(NamedTuple):
    """A compaction, with the items that it kept."""

    kept: frozenset[int]
    summary: str | None
    messages: tuple[Message, ...] = ()


@dataclass
class Turns:
    """The items of one rollout while they are read."""

    leave_out: LeaveOut
    "told of each item that becomes no message"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → how many answers it gave"
    instructions: str | None = field(default=None, init=False)
    "base instructions that a turn names"
    _items: list[_Answer | _Said | _Mark] = field(default_factory=list, init=False)
    _own: list[int] = field(default_factory=list, init=False)
    _marks: list[tuple[int, _Mark]] = field(default_factory=list, init=False)
    _open: _Answer | None = field(default=None, init=False)
    _newest: _Answer | None = field(default=None, init=False)
    _caller: _Answer | None = field(default=None, init=False)
    _counted: Usage | None = field(default=None, init=False)
    _totals: Any = field(default=None, init=False)
    _model: str | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)

    def item(self, item: dict[str, Any], time: float | None) -> None:
        """The next item; ``ValueError`` says what is wrong with it, and nothing of it is taken."""
        kind, role = item.get("type"), item.get("role")
        if kind == "message" and role == "assistant":
            said = items.texts(item.get("content"))
            self._answer(time).texts += said
        elif kind == "message" and role in ("user", "developer", "system"):
            self._message(item, role, time)
        elif kind == "reasoning":
            thoughts = items.texts(item.get("summary")) + items.texts(item.get("content"))
            self._answer(time).thoughts += thoughts
        elif kind in items.CALLS:
            call = items.call(item)
            self._caller = self._answer(time)
            self._caller.calls.append(call)
        elif kind in items.OUTPUTS:
            self._output(items.output(item, self.leave_out).replace(time=time))
        else:
            self.leave_out(
                f"message of role {role}" if kind == "message" else f"item of type {kind}"
            )

    def context(self, context: dict[str, Any]) -> None:
        """A turn begins, with the model that it goes to."""
        self._open = self._newest = self._counted = None
        self._model = text(context.get("model")) or self._model
        self.instructions = self.instructions or text(context.get("base_instructions"))

    def token_count(self, info: Any) -> None:
        """What was billed: for the newest answer where that is not known, else for the next."""
        billed = items.usage(within(info, "last_token_usage"))
        totals = within(info, "total_token_usage")
        if billed is None or (totals is not None and totals == self._totals):
            self.leave_out("token count of no answer")
            return
        self._totals = totals
        answer = self._newest
        if answer and (answer.usage is None or (answer is self._open and not answer.results)):
            answer.usage = billed
        else:
            self._counted = billed
        self._open = None

    def compacted(self, compacted: dict[str, Any]) -> None:
        """The history was replaced; what was counted last was the summary's own call."""
        history, summary = compacted.get("replacement_history"), text(compacted.get("message"))
        if isinstance(history, list):
            kept, stands_in = said_again(self._in_view(), history)
            summary = "\n\n".join(stands_in) or summary
        else:
            kept = self._put_together()
        self._open = self._newest = self._caller = self._counted = None
        mark = _Mark(kept, summary)
        self._marks.append((len(self._items), mark))
        self._items.append(mark)

    def roll_back(self, turns: int) -> None:
        """The newest turns of the user are taken back, with what was told of them beforehand."""
        if not self._own or not turns:
            return
        first, cut = self._own[0], self._own[max(len(self._own) - turns, 0)]
        while cut > first and _is_context(self._items[cut - 1]):
            cut -= 1
        for item in self._items[cut:]:
            for _ in item.messages:
                self.leave_out("message taken back")
        del self._items[cut:]
        while self._own and self._own[-1] >= cut:
            self._own.pop()
        while self._marks and self._marks[-1][0] >= cut:
            self._marks.pop()
        self._open = self._newest = self._caller = self._counted = None

    def says(self, said: str) -> bool:
        """Whether a message of the user says a text."""
        sent = (item.messages[0] for item in self._items if isinstance(item, _Said))
        return any(said in message.text for message in sent)

    def recording(self, name: str, instructions: str | None) -> Recording | None:
        """The conversation so far; None where no item became a message."""
        messages = [Message("system", instructions)] if instructions else []
        begun, starts, compactions = len(messages), [], []
        for item in self._items:
            starts.append(len(messages))
            messages += item.messages
            if isinstance(item, _Answer) and not item.messages:
                self.leave_out("answer without text or calls")
        starts.append(len(messages))
        for index, mark in self._marks:
            spans = (range(starts[i], starts[i + 1]) for i in sorted(mark.kept))
            kept = (*range(begun), *(position for span in spans for position in span))
            compactions.append(Compaction(starts[index], summary=mark.summary, kept=kept))
        if len(messages) == begun:
            return None
        return Recording(name, tuple(messages), compactions=tuple(compactions))

    def _message(self, item: dict[str, Any], role: str, time: float | None) -> None:
        self._open = self._newest = self._counted = None
        content = items.content(item.get("content"), self.leave_out)
        if not content:
            self.leave_out("message without content")
            return
        sent: Role = "user" if role == "user" or self._begun else "system"
        extra = {"role": role} if role != "user" and sent == "user" else {}
        message = Message(sent, content, time=time, extra=extra)
        own = role == "user" and not any(map(items.is_context, items.texts(item.get("content"))))
        if own:
            self._own.append(len(self._items))
        self._items.append(_Said((message,), own))
        self._begun = self._begun or sent == "user"

    def _answer(self, time: float | None) -> _Answer:
        if self._open is None:
            self._open = self._newest = _Answer(time, self._counted)
            self._open.counted_first = self._counted is not None
            self._items.append(self._open)
            self._counted, self._begun = None, True
            if self._model:
                self.models[self._model] += 1
        return self._open

    def _output(self, result: Message) -> None:
        calls = self._caller.calls if self._caller else []
        call = next((call for call in calls if call.id == result.tool_call_id), None)
        if self._caller and call:
            self._caller.results.append(result.replace(name=call.name))
        else:
            self._items.append(_Said((result,)))
        if self._open and not self._open.counted_first:
            self._open = None

    def _in_view(self) -> list[Item]:
        """The items that the newest compaction kept, and those since."""
        index, mark = self._marks[-1] if self._marks else (-1, _Mark(frozenset(), None))
        view = [*sorted(mark.kept), *range(index + 1, len(self._items))]
        return [(i, self._items[i].messages) for i in view]

    def _put_together(self) -> frozenset[int]:
        before = range(self._own[0] if self._own else 0)
        context = (index for index in before if isinstance(self._items[index], _Said))
        own = [(index, said) for index, said in self._in_view() if _is_own(self._items[index])]
        return newest_own(own).union(context)


def _is_own(item: _Answer | _Said | _Mark) -> bool:
    return isinstance(item, _Said) and item.own


def _is_context(item: _Answer | _Said | _Mark) -> bool:
    return isinstance(item, _Said) and not item.own and item.messages[0].role != "tool"
