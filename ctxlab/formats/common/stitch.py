"""Stitch logged requests, each of which repeats earlier messages, into conversations.

Proxies, tracers and agents log model calls. A request that contains the end of an earlier request
continues its conversation, and repeated messages are taken once. If earlier messages are missing or
replaced, the system compacted: the conversation keeps all messages, and a ``Compaction`` says what
was kept, what replaced the rest and which results were cleared. Any other request begins a new
conversation, such as a subagent, a title, or a turn that was taken back. The readers of request
logs (``request_log``), traces (``traces``) and OpenHands completions use this module.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.alignment import (
    SYSTEM_KEY,
    Alignment,
    MessageKey,
    SentMessage,
    SentMessages,
    align_messages,
    first_message_key,
    is_similar,
)
from ctxlab.messages.types import Compaction, Message, Recording

_EndKey: TypeAlias = tuple[MessageKey | None, MessageKey]
"""The first key of the newest request, or None for any; and a key of its end."""

_MAX_CANDIDATES = 8  # newest conversations with the same end to compare; keeps reading linear


def match_repeated(before: Sequence[Hashable], after: Sequence[Hashable]) -> dict[int, int]:
    """Match equal items of two sequences, each once, beginning with the newest.

    The order of the items is ignored, because products reorder the messages they keep.

    Parameters
    ----------
    before : sequence of Hashable
        The earlier items.
    after : sequence of Hashable
        The later items.

    Returns
    -------
    dict of int to int
        Index in ``after`` → index in ``before``.

    Examples
    --------
    >>> match_repeated(["hi", "go on", "go on"], ["in short", "go on"])
    {1: 2}
    """
    places: dict[Hashable, list[int]] = {}
    for index, key in enumerate(before):
        places.setdefault(key, []).append(index)
    found = {}
    for index in range(len(after) - 1, -1, -1):
        if waiting := places.get(after[index]):
            found[index] = waiting.pop()
    return found


class LoggedRequest(NamedTuple):
    """One logged model call."""

    messages: tuple[Message, ...]
    "the messages that were sent"
    answer: Message | None = None
    "the message that came back, with its usage and time"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions in OpenAI's shape"
    model: str | None = None
    "the model that was asked"


def stitch_requests(
    requests: Iterable[LoggedRequest], name: str, skip: SkipCallback, cluster: str | None = None
) -> Iterator[Recording]:
    """Stitch requests into conversations.

    Parameters
    ----------
    requests : iterable of LoggedRequest
        The requests in the order in which they were made.
    name : str
        The id of the first conversation. The others are ``name/2`` and so on.
    skip : Callable
        Called with a description of each repeated or empty request.
    cluster : str, optional
        The cluster of the conversations. By default, several conversations share the cluster
        ``name``.

    Yields
    ------
    Recording
        A conversation.
    """
    log = _ConversationIndex()
    for request in requests:
        if not request.messages:
            skip("request without messages")
            continue
        sent = [SentMessage.from_message(message) for message in request.messages]
        thread, found = log.find_conversation(sent)
        log.remove_ends(thread)
        known = len(thread.messages)
        if thread.add_request(request, sent, found):
            skip("request made again")
        log.index_conversation(thread, thread.messages[known:])
    shared = cluster or (name if len(log.conversations) > 1 else None)
    for number, thread in enumerate(log.conversations, start=1):
        yield Recording(
            id=name if number == 1 else f"{name}/{number}",
            messages=tuple(thread.messages),
            tools=thread.tools,
            model=thread.model,
            compactions=tuple(thread.compactions),
            cluster=shared,
        )


def intern_messages(request: LoggedRequest, seen: dict[Any, Message]) -> LoggedRequest:
    """Replace messages of a request with equal ones seen earlier, to save memory.

    Parameters
    ----------
    request : LoggedRequest
        The request.
    seen : dict
        The messages seen so far. Those of this request are added.

    Returns
    -------
    LoggedRequest
        The request with shared messages.
    """
    messages = []
    for message in request.messages:
        content = message.content if isinstance(message.content, str) else None
        form = (message.role, content, message.tool_call_id, message.tool_calls)
        known = seen.setdefault(form, message)
        messages.append(known if known == message else message)
    return request._replace(messages=tuple(messages))


@dataclass(eq=False)
class _Conversation:
    """One conversation, rebuilt from its requests."""

    first_key: MessageKey | None
    "key of its first message"
    messages: list[Message] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    tools: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    previous: list[SentMessage] = field(default_factory=list)
    "the newest request and its answer"
    has_answer: bool = False
    earlier_answers: list[Message] = field(default_factory=list)
    "earlier answers to the newest request"
    positions_by_key: dict[MessageKey, list[int]] = field(default_factory=dict)
    "positions of the messages with a key"

    def add_request(self, request: LoggedRequest, current: SentMessages, found: Alignment) -> bool:
        """Add the next request; return True if it repeats the newest one."""
        matched = found.matched
        end = max(matched, default=-1) + 1
        again = end == len(current) and matched[end - 1] == len(self.previous) - 1 - self.has_answer
        if not again:
            self._settle_answer(request, current, matched)
            self.earlier_answers.clear()
        elif self.has_answer:
            self.earlier_answers.append(self._pop_message())
        self._record_compaction(current[:end], matched)
        for message in request.messages[end:]:
            self._append_message(message)
        answers = [*(self.earlier_answers if again else ()), request.answer]
        answer = next((each for each in reversed(answers) if each), None)
        self.has_answer = answer is not None
        if answer is not None:
            self._append_message(answer)
        self.tools, self.model = request.tools or self.tools, request.model or self.model
        return again

    def _settle_answer(
        self, request: LoggedRequest, current: SentMessages, matched: dict[int, int]
    ) -> None:
        """Keep the answer that the agent continued with."""
        index = next(reversed(matched), -1)
        if not self.has_answer or matched.get(index) != len(self.previous) - 1:
            return
        if current[index].exact_key == self.previous[-1].exact_key:
            return
        here, answers = current[index], (*self.earlier_answers, self.messages[-1])
        sent = [(message, SentMessage.from_message(message)) for message in answers]
        same = [message for message, its in sent if its.exact_key == here.exact_key]
        same = same or [message for message, its in sent if is_similar(its, here)]
        self._pop_message()
        self._append_message(same[-1] if same else request.messages[index])

    def _record_compaction(self, current: SentMessages, matched: dict[int, int]) -> None:
        """Compare the request with the previous one, and record a compaction if they differ."""
        old, here = self.previous, len(self.messages)
        before = [old[matched[i]] if i in matched else None for i in range(len(current))]
        positions = [known.position if known else None for known in before]
        if len(matched) < len(current):
            self._restore_dropped(current, positions, matched)
        self.previous = [
            known if known and known.text == each.text else each._replace(position=position)
            for known, each, position in zip(before, current, positions, strict=True)
        ]
        pairs = ((current[index], old[place]) for index, place in matched.items())
        cleared = tuple(sent.key[1] for sent, was in pairs if self._is_cleared(sent, was))
        if cleared:
            self.compactions.append(Compaction(here, "clear", cleared=cleared))
        if len(matched) < max(len(current), len(old)):
            kept = tuple(p for p in positions if p is not None)
            stands_in = (each.text for each in self.previous if each.position is None)
            summary = "\n\n".join(stands_in) or None
            self.compactions.append(Compaction(here, "summary", summary, kept))

    def _is_cleared(self, sent: SentMessage, was: SentMessage) -> bool:
        """Check whether a result has another text than in the last request and at first."""
        if sent.key[0] != "tool" or sent.text == was.text:
            return False
        return was.position is None or self.messages[was.position].text != sent.text

    def _restore_dropped(
        self, current: SentMessages, positions: list[int | None], matched: dict[int, int]
    ) -> None:
        """Reuse a dropped message that appears again between the same neighbours."""
        lows = list(accumulate((-1 if p is None else p for p in positions), max))
        high = len(self.messages)
        for index in range(len(current) - 1, -1, -1):
            if index not in matched:
                places = self.positions_by_key.get(current[index].exact_key, [])
                nearest = bisect_left(places, high) - 1
                if nearest >= 0 and places[nearest] > lows[index]:
                    positions[index] = places[nearest]
            position = positions[index]
            high = high if position is None else position

    def _append_message(self, message: Message) -> None:
        here = SentMessage.from_message(message, len(self.messages))
        self.previous.append(here)
        self.positions_by_key.setdefault(here.exact_key, []).append(len(self.messages))
        self.messages.append(message)

    def _pop_message(self) -> Message:
        self.positions_by_key[self.previous.pop().exact_key].pop()
        return self.messages.pop()


@dataclass
class _ConversationIndex:
    """The conversations so far, with indices to find the one that a request continues."""

    conversations: list[_Conversation] = field(default_factory=list)
    conversations_by_end: dict[_EndKey, dict[int, _Conversation]] = field(default_factory=dict)
    first_keys: set[MessageKey | None] = field(default_factory=set)
    call_owners: dict[str, _Conversation | None] = field(default_factory=dict)
    "conversation that made a call; None if several messages did, as with ids such as ``call_1``"

    def find_conversation(self, current: SentMessages) -> tuple[_Conversation, Alignment]:
        """Return the conversation that a request continues, preferably one with the same beginning."""
        for begins in (first_message_key(current), None):
            best: tuple[int, _Conversation, Alignment] | None = None
            for thread in self._candidates(begins, current):
                found = align_messages(thread.previous, current, thread.has_answer)
                if not self._continues(thread, current, found):
                    continue
                if found.extends_previous and len(found.matched) == len(thread.previous):
                    return thread, found
                if best is None or len(found.matched) > best[0]:
                    best = len(found.matched), thread, found
            if best is not None:
                return best[1:]
        thread = _Conversation(first_message_key(current))
        self.conversations.append(thread)
        self.first_keys.add(thread.first_key)
        return thread, align_messages((), current, False)

    def remove_ends(self, conversation: _Conversation) -> None:
        """Remove the end keys of a conversation before it continues."""
        for end in self._end_keys(conversation):
            self.conversations_by_end.get(end, {}).pop(id(conversation), None)

    def index_conversation(self, conversation: _Conversation, new: Sequence[Message]) -> None:
        """Add the end keys and calls of a conversation after it continued."""
        for end in self._end_keys(conversation):
            self.conversations_by_end.setdefault(end, {})[id(conversation)] = conversation
        for call in (call for message in new for call in message.tool_calls):
            only = call.id not in self.call_owners and call.id != call.name
            self.call_owners[call.id] = conversation if only else None

    def _end_keys(self, conversation: _Conversation) -> Iterator[_EndKey]:
        """Yield keys that a continuing request contains: of the answer, or of what it answers."""
        begins = first_message_key(conversation.previous)
        for each in conversation.previous[-2 if conversation.has_answer else -1 :]:
            yield begins, each.exact_key
            yield None, each.exact_key

    def _candidates(self, begins: MessageKey | None, current: SentMessages) -> list[_Conversation]:
        """Return conversations whose end the request contains, searched from its newest message."""
        found: dict[int, _Conversation] = {}
        for each in reversed(current):
            if ending := self.conversations_by_end.get((begins, each.exact_key)):
                found |= islice(reversed(ending.items()), _MAX_CANDIDATES)
            if len(found) >= _MAX_CANDIDATES:
                break
        return list(found.values())

    def _continues(self, thread: _Conversation, current: SentMessages, found: Alignment) -> bool:
        """Check whether a request that contains an end of a conversation continues it."""
        held = thread.previous
        if found.last_match is None:
            return False
        index, place = found.last_match
        if thread.has_answer and place < len(held) - 1:
            # Without the answer, the system prompt tells it from a request for a title, for example.
            new, old = ([e.text for e in of if e.key == SYSTEM_KEY] for of in (current, held))
            if new != old:
                return False
        if found.extends_previous:
            return True
        if any(self.call_owners.get(call) is thread for call in current[index].call_ids):
            return True
        begins, began = first_message_key(current), first_message_key(held)
        if begins in self.first_keys and begins not in (thread.first_key, began):
            return False
        if begins != began and place < len(held) - 1:
            return False  # the request has neither the beginning nor the answer
        first = next((i for i, each in enumerate(current) if each.key != SYSTEM_KEY), 0)
        if (altered := found.altered.get(first)) is not None:
            question = held[altered]
            if question.position is not None and not is_similar(question, current[first]):
                return False  # the first question was replaced by a different one
        shared = found.count_shared_tail(held, current)
        return shared == 2 or found.omits_only_user_messages(held)
