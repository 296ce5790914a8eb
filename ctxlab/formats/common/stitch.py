"""A conversation is put together from logged requests, each of which says again what was said before.

Proxies, tracers and agents log model calls. A request that still holds the end of an earlier one goes on
with that conversation, whose messages are taken once. Where it lacks some of them, or holds others in
their place, the system compacted: the conversation stays whole, and a ``Compaction`` says what was
kept, what stood in place of the rest and which results were cleared. Any other request begins a
conversation of its own: a subagent, a title, a turn that was taken back. Readers of request logs
(``request_bodies``), of traces (``traced_calls``) and of OpenHands' completions use it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.alignment import (
    SYSTEM,
    Alignment,
    Key,
    Sent,
    align,
    alike,
    opening,
)
from ctxlab.messages.types import (
    Compaction,
    Message,
    Recording,
)

__all__ = ["Request", "shared", "stitch"]

_MOST_CANDIDATES = 8  # of conversations that end alike, the newest: reading stays linear


class Request(NamedTuple):
    """One logged model call."""

    messages: tuple[Message, ...]
    "what was sent"
    answer: Message | None = None
    "what came back, with its usage and time"
    tools: tuple[dict[str, Any], ...] = ()
    model: str | None = None


def stitch(
    requests: Iterable[Request],
    name: str,
    leave_out: LeaveOut,
    cluster: str | None = None,
) -> Iterator[Recording]:
    """The conversations of requests that come in the order in which they were made.

    The first is called ``name``, the others ``name/2`` and so on; they share a cluster where there
    are several. ``leave_out`` is told of a request that is made again, and of one that is empty.
    """
    log = _Log()
    for request in requests:
        if not request.messages:
            leave_out("request without messages")
            continue
        sent = [Sent.of(message) for message in request.messages]
        thread, found = log.thread_of(sent)
        log.forget_ends(thread)
        known = len(thread.messages)
        if thread.take(request, sent, found):
            leave_out("request made again")
        log.learn(thread, thread.messages[known:])
    shared = cluster or (name if len(log.threads) > 1 else None)
    for number, thread in enumerate(log.threads, start=1):
        yield Recording(
            id=name if number == 1 else f"{name}/{number}",
            messages=tuple(thread.messages),
            tools=thread.tools,
            model=thread.model,
            compactions=tuple(thread.compactions),
            cluster=shared,
        )


def shared(request: Request, seen: dict[Any, Message]) -> Request:
    """The request with messages that are equal to earlier ones being those: it takes no memory twice.

    ``seen`` holds the earlier ones, and those of this request from then on.
    """
    messages = []
    for message in request.messages:
        content = message.content if isinstance(message.content, str) else None
        form = (message.role, content, message.tool_call_id, message.tool_calls)
        known = seen.setdefault(form, message)
        messages.append(known if known == message else message)
    return request._replace(messages=tuple(messages))


@dataclass(eq=False)
class _Thread:
    """One conversation as its requests tell it."""

    first: Key | None
    "what it began with"
    messages: list[Message] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    tools: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    held: list[Sent] = field(default_factory=list)
    "the newest request and its answer"
    answered: bool = False
    others: list[Message] = field(default_factory=list)
    "earlier answers to the newest request"
    places: dict[Key, list[int]] = field(default_factory=dict)
    "where a message of this form stands"

    def take(self, request: Request, sent: Sequence[Sent], found: Alignment) -> bool:
        """The next request of this conversation; whether it is the newest one made again."""
        matched = found.matched
        end = max(matched, default=-1) + 1
        again = end == len(sent) and matched[end - 1] == len(self.held) - 1 - self.answered
        if not again:
            self._settle(request, sent, matched)
            self.others.clear()
        elif self.answered:
            self.others.append(self._take_back())
        self._compact(sent[:end], matched)
        for message in request.messages[end:]:
            self._add(message)
        answer = request.answer or (self.others[-1] if again and self.others else None)
        self.answered = answer is not None
        if answer is not None:
            self._add(answer)
        self.tools, self.model = request.tools or self.tools, request.model or self.model
        return again

    def _settle(self, request: Request, sent: Sequence[Sent], matched: dict[int, int]) -> None:
        """The answer that stands is the one that the agent went on with."""
        index = next(reversed(matched), -1)
        if not self.answered or matched.get(index) != len(self.held) - 1:
            return
        if sent[index].form == self.held[-1].form:
            return
        answers = [*self.others, self.messages[-1]]
        same = [each for each in answers if Sent.of(each).form == sent[index].form]
        same = same or [each for each in answers if alike(Sent.of(each), sent[index])]
        self._take_back()
        self._add(same[-1] if same else request.messages[index])

    def _compact(self, sent: Sequence[Sent], matched: dict[int, int]) -> None:
        """What the request holds of the one before; where that is not all, the system compacted."""
        old, here = self.held, len(self.messages)
        positions = [old[matched[i]].position if i in matched else None for i in range(len(sent))]
        if len(matched) < len(sent):
            self._come_back(sent, positions, matched)
        self.held = [
            old[matched[i]]
            if i in matched and old[matched[i]].text == each.text
            else each._replace(position=positions[i])
            for i, each in enumerate(sent)
        ]
        cleared = tuple(
            sent[index].key[1]
            for index, place in matched.items()
            if sent[index].key[0] == "tool"
            and sent[index].text != old[place].text
            and self._differs(sent[index], old[place].position)
        )
        if cleared:
            self.compactions.append(Compaction(here, "clear", cleared=cleared))
        if len(matched) < max(len(sent), len(old)):
            kept = tuple(p for p in positions if p is not None)
            stands_in = (each.text for each in self.held if each.position is None)
            summary = "\n\n".join(stands_in) or None
            self.compactions.append(Compaction(here, "summary", summary, kept))

    def _differs(self, sent: Sent, position: int | None) -> bool:
        return position is None or self.messages[position].text != sent.text

    def _come_back(
        self, sent: Sequence[Sent], positions: list[int | None], matched: dict[int, int]
    ) -> None:
        """What was dropped, and is there again between the same neighbours, is the old message."""
        lows = list(accumulate((-1 if p is None else p for p in positions), max))
        high = len(self.messages)
        for index in range(len(sent) - 1, -1, -1):
            if index not in matched:
                places = self.places.get(sent[index].form, [])
                nearest = bisect_left(places, high) - 1
                if nearest >= 0 and places[nearest] > lows[index]:
                    positions[index] = places[nearest]
            position = positions[index]
            high = high if position is None else position

    def _add(self, message: Message) -> None:
        here = Sent.of(message, len(self.messages))
        self.held.append(here)
        self.places.setdefault(here.form, []).append(len(self.messages))
        self.messages.append(message)

    def _take_back(self) -> Message:
        self.places[self.held.pop().form].pop()
        return self.messages.pop()


@dataclass
class _Log:
    """The conversations so far, and what tells to which of them a request belongs."""

    threads: list[_Thread] = field(default_factory=list)
    ends: dict[tuple[Key | None, Key], dict[int, _Thread]] = field(default_factory=dict)
    "how a newest request begins, or None for any, with how it ends"
    firsts: set[Key | None] = field(default_factory=set)
    callers: dict[str, _Thread | None] = field(default_factory=dict)
    "which conversation made a call; None: several messages did, as ids such as ``call_1`` say"

    def thread_of(self, sent: Sequence[Sent]) -> tuple[_Thread, Alignment]:
        """The conversation that a request goes on with: one that begins like it, if there is one."""
        for begins in (opening(sent), None):
            best: tuple[int, _Thread, Alignment] | None = None
            for thread in self._candidates(begins, sent):
                found = align(thread.held, sent, thread.answered)
                if not self._goes_on(thread, sent, found):
                    continue
                if found.whole and len(found.matched) == len(thread.held):
                    return thread, found
                if best is None or len(found.matched) > best[0]:
                    best = len(found.matched), thread, found
            if best is not None:
                return best[1:]
        thread = _Thread(opening(sent))
        self.threads.append(thread)
        self.firsts.add(thread.first)
        return thread, align((), sent, False)

    def forget_ends(self, thread: _Thread) -> None:
        """Before a conversation goes on."""
        for end in self._ends(thread):
            self.ends.get(end, {}).pop(id(thread), None)

    def learn(self, thread: _Thread, new: Sequence[Message]) -> None:
        """After a conversation went on."""
        for end in self._ends(thread):
            self.ends.setdefault(end, {})[id(thread)] = thread
        for call in (call for message in new for call in message.tool_calls):
            only = call.id not in self.callers and call.id != call.name
            self.callers[call.id] = thread if only else None

    def _ends(self, thread: _Thread) -> Iterator[tuple[Key | None, Key]]:
        """What a request that goes on holds: the answer, or what it answers."""
        begins = opening(thread.held)
        for each in thread.held[-2 if thread.answered else -1 :]:
            yield begins, each.form
            yield None, each.form

    def _candidates(self, begins: Key | None, sent: Sequence[Sent]) -> list[_Thread]:
        """Those whose end the request holds, looked for from its newest message on."""
        found: dict[int, _Thread] = {}
        for each in reversed(sent):
            ending = self.ends.get((begins, each.form))
            if ending:
                found |= islice(reversed(ending.items()), _MOST_CANDIDATES)
            if len(found) >= _MOST_CANDIDATES:
                break
        return list(found.values())

    def _goes_on(self, thread: _Thread, sent: Sequence[Sent], found: Alignment) -> bool:
        """Whether a request that holds an end of a conversation does go on with it."""
        held = thread.held
        if found.newest is None:
            return False
        index, place = found.newest
        if thread.answered and place < len(held) - 1:
            # Where the answer is not there, the prompt tells it from one that asks for a title, say.
            prompts, before = ([e.text for e in of if e.key == SYSTEM] for of in (sent, held))
            if prompts != before:
                return False
        if found.whole:
            return True
        if any(self.callers.get(call) is thread for call in sent[index].calls):
            return True
        begins = opening(sent)
        if begins in self.firsts and begins not in (thread.first, opening(held)):
            return False
        if begins != opening(held) and place < len(held) - 1:
            return False  # it holds neither the beginning nor the answer
        first = next((i for i, each in enumerate(sent) if each.key != SYSTEM), 0)
        old = found.altered.get(first, -1)
        if old >= 0 and held[old].position is not None and not alike(held[old], sent[first]):
            return False  # in place of what was asked stands another question
        return found.last_shared(held, sent) == 2 or found.lacks_only_users(held)
