"""Build one conversation of Claude Code from its rows.

The module ``reader`` groups the rows of a file into conversations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.chat_format import MessageBuilder, most_common_model
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.fields import get_count, get_in, get_list, get_text, get_time, require_object
from ctxlab.messages.types import Compaction, Message, Recording


@dataclass
class _CompactionMarker:
    """Placeholder for a compaction among the messages of a conversation.

    When all messages are built, it is replaced by a ``Compaction`` with the positions of the kept
    messages. ``fields`` contains the other fields of this ``Compaction``.
    """

    fields: dict[str, Any]
    kept: list[_Item]
    "messages that the compaction did not replace"


_Item: TypeAlias = MessageBuilder | Message | _CompactionMarker


@dataclass
class ConversationBuilder:
    """Builder that converts the rows of the main conversation or of a subagent to a recording."""

    skip: SkipCallback
    "called with a description of each row or block that is skipped"
    meta: dict[str, Any] = field(default_factory=dict, init=False)
    "first session id, client version, git branch and subagent id that the rows contain"
    _items: list[_Item] = field(default_factory=list, init=False)
    _answers_by_id: dict[str, MessageBuilder] = field(default_factory=dict, init=False)
    _answers_by_call: dict[str, MessageBuilder] = field(default_factory=dict, init=False)
    _items_by_uuid: dict[str, list[_Item]] = field(default_factory=dict, init=False)
    """uuid of a row → the messages built from the row, in order; for a tool result, the assistant
    message with the call"""
    _model_counts: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: dict[str, Any]) -> None:
        """Add the next row of the conversation.

        Parameters
        ----------
        row : dict
            The row as recorded.

        Raises
        ------
        ValueError
            If the row is malformed. In this case the conversation is not changed.
        """
        kind, subtype = get_text(row, "type"), get_text(row, "subtype")
        became = self._items_by_uuid.setdefault(get_text(row, "uuid") or "", [])
        if kind == "assistant":
            became += self._add_assistant_row(row)
        elif kind == "user":
            became += self._add_user_row(row)
        elif kind == "system" and subtype == "compact_boundary":
            metadata = row.get("compactMetadata")
            self._add_marker(metadata, self._find_kept(metadata), kind="summary")
        elif kind == "system" and subtype == "microcompact_boundary":
            metadata = row.get("microcompactMetadata")
            cleared = tuple(filter(get_text, get_list(metadata, "compactedToolIds")))
            self._add_marker(metadata, [], kind="clear", cleared=cleared)
        else:
            finer = subtype or get_in(row, "data", "type") or get_in(row, "attachment", "type")
            self.skip(f"row of type {kind}/{finer}" if get_text(finer) else f"row of type {kind}")
            return
        for key in ("sessionId", "version", "gitBranch", "agentId"):
            if get_text(row, key):
                self.meta.setdefault(key, row[key])

    def build_recordings(self, id: str, cluster: str) -> Iterator[Recording]:
        """Yield the conversation as a recording.

        Parameters
        ----------
        id, cluster : str
            Id and cluster of the recording.

        Yields
        ------
        Recording
            The recording. Nothing is yielded if the conversation has no messages.
        """
        messages, compactions = _flatten_items(self._drop_interrupted())
        if messages:
            built = Recording(id, messages, cluster=cluster, meta=self.meta)
            model = most_common_model(self._model_counts)
            yield replace(built, model=model, compactions=compactions)

    def _drop_interrupted(self) -> Iterator[_Item]:
        """Yield all messages and compactions except interrupted answers.

        An interrupted answer has neither text nor calls. An empty answer at the end is kept, because it
        may have been incomplete when the file was copied.
        """
        spoken = (each for each in reversed(self._items) if not isinstance(each, _CompactionMarker))
        last = next(spoken, None)
        for item in self._items:
            said = not isinstance(item, MessageBuilder) or any(item.texts) or item.calls
            if said or item is last:
                yield item
            else:
                self.skip("interrupted answer")

    def _add_assistant_row(self, row: dict[str, Any]) -> list[_Item]:
        body = require_object(row.get("message"), "message")
        model = get_text(body, "model")
        if row.get("isApiErrorMessage") or model == "<synthetic>":
            self.skip("row written by the client, not by a model")
            return []
        said = blocks.parse_assistant_blocks(blocks.to_blocks(body.get("content")), self.skip)
        id = get_text(body, "id")
        answer = self._answers_by_id.get(id) if id else None
        if answer is None:
            answer = MessageBuilder(get_time(row, "timestamp"))
            self._items.append(answer)
            if id:
                self._answers_by_id[id] = answer
            if model:
                self._model_counts[model] += 1
        answer.texts += said.texts
        answer.reasoning += said.reasoning
        answer.calls += said.calls
        self._answers_by_call |= dict.fromkeys((call.id for call in said.calls), answer)
        usage = anthropic_usage(body.get("usage"))
        if usage and (answer.usage is None or usage.output >= answer.usage.output):
            answer.usage = usage
        return [answer]

    def _add_user_row(self, row: dict[str, Any]) -> list[_Item]:
        content = require_object(row.get("message"), "message").get("content")
        results, said = blocks.split_tool_results(blocks.to_blocks(content), self.skip)
        time = get_time(row, "timestamp")
        if row.get("isCompactSummary"):
            self._add_summary(Message("user", said).text)
            return []
        became: list[_Item] = []
        for result in (each.replace(time=time) for each in results):
            caller = self._answers_by_call.get(result.tool_call_id or "")
            (caller.results if caller else self._items).append(result)
            became.append(caller or result)
        if said is not None:
            extra = {"meta": True} if row.get("isMeta") else {}
            became.append(Message("user", said, time=time, extra=extra))
            self._items.append(became[-1])
        return became

    def _find_kept(self, metadata: Any) -> list[_Item]:
        """Return the messages that a compaction kept, given the metadata of the compaction.

        Messages are left out if their rows are not in the conversation.
        """
        uuids = [*filter(get_text, get_list(metadata, "preservedMessages", "uuids"))]
        head = get_text(metadata, "preservedSegment", "headUuid")
        tail = get_text(metadata, "preservedSegment", "tailUuid")
        if not uuids and head in self._items_by_uuid and tail in self._items_by_uuid:
            uuids = [*self._items_by_uuid]
            uuids = uuids[uuids.index(head) : uuids.index(tail) + 1]
        return [item for uuid in uuids for item in self._items_by_uuid.get(uuid, ())]

    def _add_marker(self, metadata: Any, kept: list[_Item], **fields: Any) -> None:
        fields["trigger"] = get_text(metadata, "trigger")
        fields["tokens_before"] = get_count(metadata, "preTokens") or None
        self._items.append(_CompactionMarker(fields, kept))

    def _add_summary(self, summary: str) -> None:
        markers = (each for each in reversed(self._items) if isinstance(each, _CompactionMarker))
        last = next(markers, None)
        if last and last.fields["kind"] == "summary" and "summary" not in last.fields:
            last.fields["summary"] = summary
        else:
            self._add_marker(None, [], kind="summary", summary=summary)


def _flatten_items(items: Iterable[_Item]) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
    messages: list[Message] = []
    compactions: list[Compaction] = []
    places: dict[int, range] = {}
    for item in items:
        if isinstance(item, _CompactionMarker):
            stayed = (places.get(id(each), range(0)) for each in item.kept)
            kept = sorted({place for each in stayed for place in each})
            compactions.append(Compaction(len(messages), kept=tuple(kept), **item.fields))
            continue
        begin = len(messages)
        messages += item.messages if isinstance(item, MessageBuilder) else [item]
        places[id(item)] = range(begin, len(messages))
    return tuple(messages), tuple(compactions)
