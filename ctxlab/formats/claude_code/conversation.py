"""Build one conversation of Claude Code from its rows.

The module ``reader`` groups the rows of a file into conversations. An attachment row becomes a user
message with ``extra["meta"]`` and the type of the attachment as ``extra["attachment"]`` (see
``attachments``). If a user row since the last answer has the same text, it is skipped. The last
attachment of type ``prompt_snapshot`` contains the system prompt, and the last one with tools contains
the tool definitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.claude_code.attachments import attachment_content, rendered_blocks
from ctxlab.formats.claude_code.reread_files import FileTracker
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.chat_format import Content, MessageBuilder, most_common_model
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.fields import (
    get_count,
    get_in,
    get_list,
    get_objects,
    get_text,
    get_time,
    require_object,
)
from ctxlab.messages.types import Compaction, Message, Recording


@dataclass
class _CompactionMarker:
    """Placeholder for a compaction among the messages of a conversation.

    When all messages are built, it is replaced by a ``Compaction``.
    """

    fields: dict[str, Any]
    "trigger and number of tokens"
    cleared: tuple[str, ...] = ()
    "ids of the calls whose results were cleared; empty if messages were summarised"
    kept: Sequence[_Item] = ()
    "messages that the compaction did not replace"
    summary: str | None = None
    reread: list[Message] = field(default_factory=list)
    "files that the product probably read again; empty if the log contains them"


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
    _system: Message | None = field(default=None, init=False)
    _tools: tuple[dict[str, Any], ...] = field(default=(), init=False)
    _said_since_answer: set[str] = field(default_factory=set, init=False)
    _files: FileTracker = field(default_factory=FileTracker, init=False)
    _logs_attachments: bool = field(default=False, init=False)

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
        elif kind == "attachment" and get_text(row, "attachment", "type") == "prompt_snapshot":
            self._add_prompt_snapshot(row["attachment"])
        elif kind == "attachment" and (content := attachment_content(row, self.skip)) is not None:
            self._logs_attachments = True
            became += self._add_attachment(row, content)
        elif kind == "system" and subtype == "compact_boundary":
            metadata = row.get("compactMetadata")
            self._add_marker(
                metadata, kept=self._find_kept(metadata), reread=self._files.pop_messages()
            )
        elif kind == "system" and subtype == "microcompact_boundary":
            metadata = row.get("microcompactMetadata")
            cleared = tuple(filter(get_text, get_list(metadata, "compactedToolIds")))
            self._add_marker(metadata, cleared=cleared)
        else:
            finer = subtype or get_in(row, "data", "type") or get_in(row, "attachment", "type")
            self.skip(f"row of type {kind}/{finer}" if get_text(finer) else f"row of type {kind}")
            return
        for key in ("sessionId", "version", "gitBranch", "agentId", "cwd"):
            if get_text(row, key):
                self.meta.setdefault(key, row[key])

    @property
    def has_messages(self) -> bool:
        """True if the conversation has a message."""
        return any(not isinstance(item, _CompactionMarker) for item in self._items)

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
        items = [*self._drop_interrupted()]
        if items and self._system:
            items.insert(0, self._system)
        messages, compactions = _flatten_items(items, self.skip, not self._logs_attachments)
        if messages:
            built = Recording(id, messages, self._tools, cluster=cluster, meta=self.meta)
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
            self._said_since_answer.clear()
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
        if "attachment" in row:  # a queued prompt
            content = rendered_blocks(row) or content
        results, said = blocks.split_tool_results(blocks.to_blocks(content), self.skip)
        time = get_time(row, "timestamp")
        self._files.add_result(row.get("toolUseResult"))
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
            self._said_since_answer.add(_comparable(said))
        return became

    def _add_attachment(self, row: dict[str, Any], content: Content) -> list[_Item]:
        kind = get_text(row, "attachment", "type")
        if _comparable(content) in self._said_since_answer:
            self.skip(f"attachment of type {kind} that repeats a user row")
            return []
        extra = {"meta": True, "attachment": kind}
        message = Message("user", content, time=get_time(row, "timestamp"), extra=extra)
        self._items.append(message)
        return [message]

    def _add_prompt_snapshot(self, snapshot: dict[str, Any]) -> None:
        if said := "\n\n".join(filter(get_text, get_list(snapshot, "systemPrompt"))):
            self._system = Message("system", said)
        if tools := [tool for tool in get_objects(snapshot, "tools") if get_text(tool, "name")]:
            self._tools = tuple(map(_to_openai_tool, tools))

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

    def _add_marker(self, metadata: Any, **values: Any) -> None:
        tokens = get_count(metadata, "preTokens") or None
        fields = {"trigger": get_text(metadata, "trigger"), "tokens_before": tokens}
        self._items.append(_CompactionMarker(fields, **values))

    def _add_summary(self, summary: str) -> None:
        markers = (each for each in reversed(self._items) if isinstance(each, _CompactionMarker))
        last = next(markers, None)
        if last and not last.cleared and last.summary is None:
            last.summary = summary
        else:
            self._add_marker(None, summary=summary)


def _comparable(content: Content) -> str:
    """Return a string that is equal for equal contents."""
    return content.strip() if isinstance(content, str) else dump_json(content)


def _to_openai_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Convert a tool of a ``prompt_snapshot``. Its schema may be a whole definition."""
    schema = get_in(tool, "schema", "input_schema") or tool.get("schema") or {"type": "object"}
    return blocks.to_openai_tool(tool | {"input_schema": schema})


def _flatten_items(
    items: Iterable[_Item], skip: SkipCallback, with_reread: bool
) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
    """Return the messages and compactions. ``with_reread`` adds the inferred messages."""
    messages: list[Message] = []
    built = CompactionBuilder(messages, skip)
    places: dict[int, range] = {}
    for item in items:
        if isinstance(item, _CompactionMarker):
            stayed = (places.get(id(each), range(0)) for each in item.kept)
            if item.cleared:
                built.add_clearing(len(messages), item.cleared, **item.fields)
            else:
                kept = (place for each in stayed for place in each)
                reread = item.reread if with_reread else ()
                built.add_summary(len(messages), item.summary, kept, reread, **item.fields)
            continue
        begin = len(messages)
        messages += item.messages if isinstance(item, MessageBuilder) else [item]
        places[id(item)] = range(begin, len(messages))
    return tuple(messages), tuple(built.compactions)
