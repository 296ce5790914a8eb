"""Join logged requests, which repeat earlier messages, into conversations.

Proxies, tracers and agents log model calls. If a request contains the last messages of an earlier
request, it continues the same conversation, and each repeated message is stored only once. If
earlier messages are missing or replaced, the agent has compacted its context. The conversation then
keeps all messages, and a ``Compaction`` contains the messages of the request: kept, new, cleared or
restored ones. Any other request starts a new conversation. Examples
are the request of a subagent, a request for a title, or a request after the user took back a turn.
The readers for request logs (``request_log``), traces (``traces``) and OpenHands completions use
this module.
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
from ctxlab.messages.types import Compaction, Message, Recording, Substitute

_EndKey: TypeAlias = tuple[MessageKey | None, MessageKey]
"""The key of the first message of a request, or None, and the key of one of its last messages."""

_MAX_CANDIDATES = 8  # conversations that a request is compared with; keeps reading linear


def match_repeated(before: Sequence[Hashable], after: Sequence[Hashable]) -> dict[int, int]:
    """Match equal items of two sequences, such as the messages before and after a compaction.

    Each item is matched at most once. If equal items occur several times, the last occurrences are
    matched first. The order of the items is otherwise ignored, because some agents reorder the
    messages that they keep.

    Parameters
    ----------
    before : sequence of Hashable
        The items of the earlier sequence.
    after : sequence of Hashable
        The items of the later sequence.

    Returns
    -------
    dict of int to int
        Index in ``after`` → index of the matched item in ``before``.

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
    """One logged model call: a request and its answer."""

    messages: tuple[Message, ...]
    "the messages of the request"
    answer: Message | None = None
    "the message that the model returned, with its usage and time; None if none was logged"
    tools: tuple[dict[str, Any], ...] = ()
    "the tool definitions of the request, in OpenAI's format"
    model: str | None = None
    "name of the model"


def stitch_requests(
    requests: Iterable[LoggedRequest], name: str, skip: SkipCallback, cluster: str | None = None
) -> Iterator[Recording]:
    """Join logged requests, which repeat earlier messages, into conversations.

    Parameters
    ----------
    requests : iterable of LoggedRequest
        The requests in the order in which they were made.
    name : str
        Id of the first recording. The others have the ids ``name/2``, ``name/3`` and so on.
    skip : Callable
        Called with a description of each repeated or empty request.
    cluster : str, optional
        Cluster of all recordings. By default, the cluster is ``name`` if there are several
        recordings, and not set otherwise.

    Yields
    ------
    Recording
        A conversation with its messages, compactions, tool definitions and model.
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
    """Replace the messages of a request by equal messages of earlier requests, to save memory.

    Parameters
    ----------
    request : LoggedRequest
        A request.
    seen : dict
        Messages of earlier requests. The new messages of this request are added.

    Returns
    -------
    LoggedRequest
        An equal request that shares its repeated messages with earlier requests.
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
    """A conversation that is being built from its requests."""

    first_key: MessageKey | None
    "key of the first message that is not a system prompt"
    messages: list[Message] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    tools: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    previous: list[SentMessage] = field(default_factory=list)
    "messages of the latest request, and its answer"
    has_answer: bool = False
    earlier_answers: list[Message] = field(default_factory=list)
    "if the latest request was made several times: its answers, except for the last one"
    positions_by_key: dict[MessageKey, list[int]] = field(default_factory=dict)
    "message key → indices of the messages with this key"

    def add_request(self, request: LoggedRequest, current: SentMessages, found: Alignment) -> bool:
        """Add the next request of the conversation. Return True if it repeats the previous request.

        ``current`` are the messages of the request, and ``found`` is their alignment with the
        messages of the previous request.
        """
        matched = found.matched
        end = max(matched, default=-1) + 1
        again = end == len(current) and matched[end - 1] == len(self.previous) - 1 - self.has_answer
        if not again:
            self._settle_answer(request, current, matched)
            self.earlier_answers.clear()
        elif self.has_answer:
            self.earlier_answers.append(self._pop_message())
        self._record_compaction(request.messages[:end], current[:end], matched)
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
        """Replace the last answer if the new request contains a different one.

        An agent may repeat a request and continue with an earlier answer, or change the answer. The
        conversation then contains the answer that is in the new request.
        """
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

    def _record_compaction(
        self, sent_messages: Sequence[Message], current: SentMessages, matched: dict[int, int]
    ) -> None:
        """Record a compaction if the request lacks, replaces, clears or restores earlier messages.

        ``sent_messages`` are the messages of the request up to the last repeated one, and ``current``
        their keys.
        """
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
        changed = any(sent.key[0] == "tool" and sent.text != was.text for sent, was in pairs)
        is_whole = len(matched) == max(len(current), len(old))
        if changed or not is_whole:
            context = tuple(map(self._context_item, self.previous, sent_messages))
            self.compactions.append(Compaction(here, context, "clear" if is_whole else "summary"))

    def _context_item(self, sent: SentMessage, message: Message) -> int | Substitute:
        """Return the position of a sent message, or the message if it is not a recorded one."""
        if sent.position is None:
            return Substitute(message)
        same = self.messages[sent.position].text.strip() == sent.text.strip()
        return sent.position if same else Substitute(message, sent.position)

    def _restore_dropped(
        self, current: SentMessages, positions: list[int | None], matched: dict[int, int]
    ) -> None:
        """Find messages that an earlier compaction dropped and the new request contains again.

        Their indices in the conversation are stored in ``positions``.
        """
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
    """The conversations found so far, and lookup tables to find the one that a request continues."""

    conversations: list[_Conversation] = field(default_factory=list)
    conversations_by_end: dict[_EndKey, dict[int, _Conversation]] = field(default_factory=dict)
    first_keys: set[MessageKey | None] = field(default_factory=set)
    call_owners: dict[str, _Conversation | None] = field(default_factory=dict)
    "call id → conversation with the call; None if the id is not unique, such as ``call_1``"

    def find_conversation(self, current: SentMessages) -> tuple[_Conversation, Alignment]:
        """Find the conversation that a request continues, or start a new one.

        Conversations with the same first message are preferred.
        """
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
        """Remove the last answer of a conversation and the message before it from the index.

        Call this method before a request is added to the conversation.
        """
        for end in self._end_keys(conversation):
            self.conversations_by_end.get(end, {}).pop(id(conversation), None)

    def index_conversation(self, conversation: _Conversation, new: Sequence[Message]) -> None:
        """Add messages and calls of a conversation to the index.

        These are its last answer, the message before it, and the tool calls in ``new``.
        """
        for end in self._end_keys(conversation):
            self.conversations_by_end.setdefault(end, {})[id(conversation)] = conversation
        for call in (call for message in new for call in message.tool_calls):
            only = call.id not in self.call_owners and call.id != call.name
            self.call_owners[call.id] = conversation if only else None

    def _end_keys(self, conversation: _Conversation) -> Iterator[_EndKey]:
        """Yield the keys under which a conversation is indexed.

        There are keys for the last answer and for the message before it. Each key exists with and
        without the first message of the conversation.
        """
        begins = first_message_key(conversation.previous)
        for each in conversation.previous[-2 if conversation.has_answer else -1 :]:
            yield begins, each.exact_key
            yield None, each.exact_key

    def _candidates(self, begins: MessageKey | None, current: SentMessages) -> list[_Conversation]:
        """Find conversations whose last answer, or the message before it, is in the request.

        If ``begins`` is not None, only conversations whose first message has this key are returned.
        """
        found: dict[int, _Conversation] = {}
        for each in reversed(current):
            if ending := self.conversations_by_end.get((begins, each.exact_key)):
                found |= islice(reversed(ending.items()), _MAX_CANDIDATES)
            if len(found) >= _MAX_CANDIDATES:
                break
        return list(found.values())

    def _continues(self, thread: _Conversation, current: SentMessages, found: Alignment) -> bool:
        """Check whether a request is the next request of a conversation.

        ``found`` is the alignment of its messages with the previous request of the conversation.
        """
        held = thread.previous
        if found.last_match is None:
            return False
        index, place = found.last_match
        if thread.has_answer and place < len(held) - 1:
            # If the answer is missing, a different system prompt shows that this is another
            # conversation, such as a request for a title.
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
            return False  # the request contains neither the first message nor the answer
        first = next((i for i, each in enumerate(current) if each.key != SYSTEM_KEY), 0)
        if (altered := found.altered.get(first)) is not None:
            question = held[altered]
            if question.position is not None and not is_similar(question, current[first]):
                return False  # the first question was replaced by a different one
        shared = found.count_shared_tail(held, current)
        return shared == 2 or found.omits_only_user_messages(held)
