"""One conversation of Claude Code is put together from its rows, in their order.

The reader (``claude_code``) says which rows are of one conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.assistant_message import (
    Answer,
    model_of,
)
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.optional_fields import (
    iso_time,
    listed,
    text,
    whole_number,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Compaction,
    Message,
    Recording,
)

__all__ = ["Chain"]


@dataclass
class _Mark:
    """A compaction whose position is not known yet."""

    fields: dict[str, Any]
    stayed: list[_Item]
    "what was not replaced by the summary"


_Item: TypeAlias = Answer | Message | _Mark


@dataclass
class Chain:
    """The rows of one conversation, main or side, while they are read."""

    leave_out: LeaveOut
    "told of each row and block that becomes no message"
    meta: dict[str, Any] = field(default_factory=dict, init=False)
    "the session, the client's version, the branch and the subagent that the rows name first"
    _items: list[_Item] = field(default_factory=list, init=False)
    _answers: dict[str, Answer] = field(default_factory=dict, init=False)
    _callers: dict[str, Answer] = field(default_factory=dict, init=False)
    _seen: dict[str, list[_Item]] = field(default_factory=dict, init=False)
    "uuid of each row so far → what it became, in their order; results are with their answer"
    _models: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: dict[str, Any]) -> None:
        """Takes one row; ``ValueError`` says what is wrong with it, and nothing of it is taken."""
        kind, subtype = text(row.get("type")), text(row.get("subtype"))
        became = self._seen.setdefault(text(row.get("uuid")) or "", [])
        if kind == "assistant":
            became += self._assistant(row)
        elif kind == "user":
            became += self._user(row)
        elif kind == "system" and subtype == "compact_boundary":
            metadata = row.get("compactMetadata")
            self._mark(metadata, self._stayed(metadata), kind="summary")
        elif kind == "system" and subtype == "microcompact_boundary":
            metadata = row.get("microcompactMetadata")
            cleared = tuple(filter(text, listed(within(metadata, "compactedToolIds"))))
            self._mark(metadata, [], kind="clear", cleared=cleared)
        else:
            finer = subtype or within(row, "data", "type") or within(row, "attachment", "type")
            self.leave_out(f"row of type {kind}/{finer}" if text(finer) else f"row of type {kind}")
            return
        for key in ("sessionId", "version", "gitBranch", "agentId"):
            if text(row.get(key)):
                self.meta.setdefault(key, row[key])

    def recording(self, id: str, cluster: str) -> Recording | None:
        """The conversation so far; None where no row became a message."""
        messages, compactions = _laid_out(self._without_broken_off())
        if not messages:
            return None
        return Recording(
            id,
            messages,
            model=model_of(self._models),
            compactions=compactions,
            cluster=cluster,
            meta=self.meta,
        )

    def _without_broken_off(self) -> Iterator[_Item]:
        """The items less the answers that hold no word and no call and after which it went on.

        What is the last may still have been on its way when the file was copied.
        """
        spoken = [at for at, item in enumerate(self._items) if not isinstance(item, _Mark)]
        for at, item in enumerate(self._items):
            said = not isinstance(item, Answer) or any(item.texts) or item.calls
            if said or at == spoken[-1]:
                yield item
            else:
                self.leave_out("answer that was broken off")

    def _assistant(self, row: dict[str, Any]) -> list[_Item]:
        body = _body(row)
        model = text(body.get("model"))
        if row.get("isApiErrorMessage") or model == "<synthetic>":
            self.leave_out("row of the client's own, not of a model")
            return []
        said = blocks.answer(blocks.blocks_of(body.get("content")), self.leave_out)
        id = text(body.get("id"))
        answer = self._answers.get(id) if id else None
        if answer is None:
            answer = Answer(iso_time(row.get("timestamp")))
            self._items.append(answer)
            if id:
                self._answers[id] = answer
            if model:
                self._models[model] += 1
        answer.texts += said.texts
        answer.thoughts += said.thoughts
        answer.calls += said.calls
        self._callers |= dict.fromkeys((call.id for call in said.calls), answer)
        usage = anthropic_usage(body.get("usage"))
        if usage and (answer.usage is None or usage.output >= answer.usage.output):
            answer.usage = usage
        return [answer]

    def _user(self, row: dict[str, Any]) -> list[_Item]:
        parts = blocks.blocks_of(_body(row).get("content"))
        results, said = blocks.results_and_content(parts, self.leave_out)
        time = iso_time(row.get("timestamp"))
        if row.get("isCompactSummary"):
            self._summary(Message("user", said).text)
            return []
        became: list[_Item] = []
        for result in (each.replace(time=time) for each in results):
            caller = self._callers.get(result.tool_call_id or "")
            (caller.results if caller else self._items).append(result)
            became.append(caller or result)
        if said is not None:
            extra = {"meta": True} if row.get("isMeta") else {}
            message = Message("user", said, time=time, extra=extra)
            self._items.append(message)
            became.append(message)
        return became

    def _stayed(self, metadata: Any) -> list[_Item]:
        """What the rows became that a compaction kept, as far as they are known."""
        uuids = [*filter(text, listed(within(metadata, "preservedMessages", "uuids")))]
        head = text(within(metadata, "preservedSegment", "headUuid"))
        tail = text(within(metadata, "preservedSegment", "tailUuid"))
        if not uuids and head in self._seen and tail in self._seen:
            uuids = [*self._seen]
            uuids = uuids[uuids.index(head) : uuids.index(tail) + 1]
        return [item for uuid in uuids for item in self._seen.get(uuid, ())]

    def _mark(self, metadata: Any, stayed: list[_Item], **fields: Any) -> None:
        fields["trigger"] = text(within(metadata, "trigger"))
        fields["tokens_before"] = whole_number(within(metadata, "preTokens")) or None
        self._items.append(_Mark(fields, stayed))

    def _summary(self, summary: str) -> None:
        last = next((item for item in reversed(self._items) if isinstance(item, _Mark)), None)
        if last and last.fields["kind"] == "summary" and "summary" not in last.fields:
            last.fields["summary"] = summary
        else:
            self._mark(None, [], kind="summary", summary=summary)


def _laid_out(items: Iterable[_Item]) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
    messages: list[Message] = []
    compactions: list[Compaction] = []
    places: dict[int, range] = {}
    for item in items:
        if isinstance(item, _Mark):
            stayed = (places.get(id(each), range(0)) for each in item.stayed)
            kept = sorted({place for each in stayed for place in each})
            compactions.append(Compaction(len(messages), kept=tuple(kept), **item.fields))
            continue
        begin = len(messages)
        messages += item.messages if isinstance(item, Answer) else [item]
        places[id(item)] = range(begin, len(messages))
    return tuple(messages), tuple(compactions)


def _body(row: dict[str, Any]) -> dict[str, Any]:
    return an_object(row.get("message"), "message")
