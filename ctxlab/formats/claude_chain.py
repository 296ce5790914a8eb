"""One conversation of Claude Code is put together from its rows, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ctxlab.conversation import Compaction, Message, Recording, ToolCall, Usage
from ctxlab.formats import blocks
from ctxlab.formats.loose import iso_time, text, whole_number, within

__all__ = ["Chain"]


@dataclass
class _Answer:
    """An assistant message whose rows are still coming, and the results of its calls."""

    time: float | None
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    results: list[Message] = field(default_factory=list)

    def message(self) -> Message:
        return Message(
            "assistant",
            "\n".join(self.texts) if self.texts else None,
            tool_calls=tuple(self.calls),
            reasoning="\n".join(self.thoughts) or None,
            usage=self.usage,
            time=self.time,
        )


@dataclass
class _Mark:
    """A compaction whose position is not known yet."""

    fields: dict[str, Any]


@dataclass
class Chain:
    """The rows of one conversation, main or side, while they are read."""

    leave_out: Callable[[str], None]
    "told of each row and block that becomes no message"
    meta: dict[str, Any] = field(default_factory=dict, init=False)
    "the session, the client's version, the branch and the subagent that the rows name first"
    _items: list[_Answer | Message | _Mark] = field(default_factory=list, init=False)
    _answers: dict[str, _Answer] = field(default_factory=dict, init=False)
    _callers: dict[str, _Answer] = field(default_factory=dict, init=False)
    _models: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, row: dict[str, Any]) -> None:
        """Takes one row; ``ValueError`` says what is wrong with it, and nothing of it is taken."""
        kind, subtype = text(row.get("type")), text(row.get("subtype"))
        if kind == "assistant":
            self._assistant(row)
        elif kind == "user":
            self._user(row)
        elif kind == "system" and subtype == "compact_boundary":
            self._mark(row.get("compactMetadata"), kind="summary")
        elif kind == "system" and subtype == "microcompact_boundary":
            metadata = row.get("microcompactMetadata")
            ids = within(metadata, "compactedToolIds")
            cleared = tuple(filter(text, ids)) if isinstance(ids, list) else ()
            self._mark(metadata, kind="clear", cleared=cleared)
        else:
            finer = subtype or within(row, "data", "type") or within(row, "attachment", "type")
            self.leave_out(f"row of type {kind}/{finer}" if text(finer) else f"row of type {kind}")
            return
        for key in ("sessionId", "version", "gitBranch", "agentId"):
            if text(row.get(key)):
                self.meta.setdefault(key, row[key])

    def recording(self, id: str, cluster: str) -> Recording | None:
        """The conversation so far; None where no row became a message."""
        messages: list[Message] = []
        compactions: list[Compaction] = []
        for item in self._items:
            if isinstance(item, _Mark):
                compactions.append(Compaction(len(messages), **item.fields))
            elif isinstance(item, _Answer):
                messages += item.message(), *item.results
            else:
                messages.append(item)
        if not messages:
            return None
        model = max(self._models, key=self._models.__getitem__, default=None)
        return Recording(
            id,
            tuple(messages),
            model=model,
            compactions=tuple(compactions),
            cluster=cluster,
            meta=self.meta,
        )

    def _assistant(self, row: dict[str, Any]) -> None:
        body = _body(row)
        model = text(body.get("model"))
        if row.get("isApiErrorMessage") or model == "<synthetic>":
            self.leave_out("row of the client's own, not of a model")
            return
        said = blocks.answer(blocks.blocks_of(body.get("content")), self.leave_out)
        id = text(body.get("id"))
        answer = self._answers.get(id) if id else None
        if answer is None:
            answer = _Answer(iso_time(row.get("timestamp")))
            self._items.append(answer)
            if id:
                self._answers[id] = answer
            if model:
                self._models[model] += 1
        answer.texts += said.texts
        answer.thoughts += said.thoughts
        answer.calls += said.calls
        self._callers |= dict.fromkeys((call.id for call in said.calls), answer)
        usage = blocks.usage(body.get("usage"))
        if usage and (answer.usage is None or usage.output >= answer.usage.output):
            answer.usage = usage

    def _user(self, row: dict[str, Any]) -> None:
        parts = blocks.blocks_of(_body(row).get("content"))
        results = [blocks.result(b, self.leave_out) for b in parts if _is_result(b)]
        others = [block for block in parts if not _is_result(block)]
        said = blocks.content(others, self.leave_out)
        time = iso_time(row.get("timestamp"))
        if row.get("isCompactSummary"):
            self._summary(Message("user", said).text)
            return
        for result in results:
            caller = self._callers.get(result.tool_call_id or "")
            (caller.results if caller else self._items).append(result.replace(time=time))
        if said is not None:
            extra = {"meta": True} if row.get("isMeta") else {}
            self._items.append(Message("user", said, time=time, extra=extra))

    def _mark(self, metadata: Any, **fields: Any) -> None:
        fields["trigger"] = text(within(metadata, "trigger"))
        fields["tokens_before"] = whole_number(within(metadata, "preTokens")) or None
        self._items.append(_Mark(fields))

    def _summary(self, summary: str) -> None:
        last = next((item for item in reversed(self._items) if isinstance(item, _Mark)), None)
        if last and last.fields["kind"] == "summary" and "summary" not in last.fields:
            last.fields["summary"] = summary
        else:
            self._mark(None, kind="summary", summary=summary)


def _is_result(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _body(row: dict[str, Any]) -> dict[str, Any]:
    body = row.get("message")
    if isinstance(body, dict):
        return body
    raise ValueError(f"message is an object, not {type(body).__name__}")
