"""A message of Gemini CLI is an answer with its calls and their results, or what the user sent.

- Calls that came with neither text nor thoughts are written to the ``gemini`` message before them. An
  id says when a call came, ``timestamp`` when it was done: a call that came after the ones before it
  were done is an answer of its own, whose usage is not recorded.
- Where a notice of the client (``info``, ``warning``, ``error``, all counted) was written last, calls
  get a ``gemini`` message with nothing but them; they belong to the answer before the notice.
- ``input`` includes ``cached``; ``output`` does not include ``thoughts``, which are billed as output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.gemini_cli import parts
from ctxlab.formats.optional_fields import (
    iso_time,
    listed,
    text,
    whole_number,
    within,
)
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import (
    Message,
    ToolCall,
    Usage,
)

__all__ = ["Chat", "joined"]

_Row: TypeAlias = dict[str, Any]
_CAME = re.compile(r"-(\d{13})-")


@dataclass
class Chat:
    """The conversation that the rows so far make."""

    leave_out: LeaveOut
    "told of each message and part that becomes nothing"
    messages: list[Message] = field(default_factory=list, init=False)
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → how many answers it gave"
    _answered: set[str] = field(default_factory=set, init=False)

    def add(self, row: _Row) -> None:
        """The next row; ``ValueError`` says what is wrong with it."""
        kind = row.get("type")
        if kind == "user":
            self._user(row)
        elif kind == "gemini":
            self._gemini(row)
        else:
            self.leave_out(f"message of type {kind}")

    def _user(self, row: _Row) -> None:
        sent = parts.parts_of(row.get("content"))
        time = iso_time(row.get("timestamp"))
        for part in sent:
            if not isinstance(response := part.get("functionResponse"), dict):
                continue
            id, name = text(response.get("id")), text(response.get("name"))
            if id is None:
                self.leave_out("result without a call")
            elif id not in self._answered:  # otherwise it says again what the call holds
                self._answered.add(id)
                said = parts.result(part, self.leave_out)
                self.messages.append(Message("tool", said, tool_call_id=id, name=name, time=time))
        content = parts.content(sent, self.leave_out)
        if content:
            self.messages.append(Message("user", content, time=time))
        elif not any("functionResponse" in part for part in sent):
            self.leave_out("message without content")

    def _gemini(self, row: _Row) -> None:
        sent = parts.parts_of(row.get("content"))
        calls, content = _calls(row, sent), None
        if any("functionCall" not in part for part in sent):
            content = parts.content(sent, self.leave_out) or None
        if not (content or calls):
            self.leave_out("answer without content")
            return
        thoughts = _thoughts(row.get("thoughts")) + parts.texts(sent, thought=True)
        first, *others = [(_tool_calls(batch), self._results(batch)) for batch in _batches(calls)]
        answer = Message(
            "assistant",
            content,
            tool_calls=first[0],
            reasoning="\n".join(thoughts) or None,
            usage=_usage(row.get("tokens")),
            time=iso_time(row.get("timestamp")),
        )
        self.messages += answer, *first[1]
        for made, results in others:
            self.messages += Message("assistant", tool_calls=made), *results
        for _, results in (first, *others):
            self._answered.update(result.tool_call_id or "" for result in results)
        if model := text(row.get("model")):
            self.models[model] += 1

    def _results(self, calls: list[_Row]) -> list[Message]:
        return [
            Message(
                "tool",
                parts.result(call["result"], self.leave_out),
                tool_call_id=str(call.get("id") or ""),
                name=text(call.get("name")),
                time=iso_time(call.get("timestamp")),
                extra={"is_error": True} if call.get("status") == "error" else {},
            )
            for call in calls
            if call.get("result")
        ]


def joined(rows: Sequence[_Row | None]) -> list[_Row | None]:
    """The rows with every call in its answer, where a notice had parted the two."""
    whole = list(rows)
    lone: int | None = None
    for index, row in enumerate(rows):
        kind = row.get("type") if row else None
        if row is None or kind not in ("user", "gemini"):
            continue
        answer = whole[lone] if lone is not None else None
        if kind == "gemini" and answer and lone is not None and _is_only_calls(row):
            whole[lone], whole[index], lone = answer | {"toolCalls": row["toolCalls"]}, None, None
        else:
            lone = index if kind == "gemini" and not row.get("toolCalls") else None
    return whole


def _is_only_calls(row: _Row) -> bool:
    said = row.get("content") or row.get("thoughts") or _usage(row.get("tokens"))
    return bool(row.get("toolCalls")) and not said


def _calls(row: _Row, sent: list[_Row]) -> list[_Row]:
    """The recorded calls, and those that stand in the content alone."""
    calls = listed(row.get("toolCalls"))
    if not all(isinstance(call, dict) for call in calls):
        raise ValueError("toolCalls are objects")
    known = {text(call.get("id")) for call in calls} | ({None} if calls else set())
    alone = [part["functionCall"] for part in sent if isinstance(part.get("functionCall"), dict)]
    return [*(call for call in alone if text(call.get("id")) not in known), *calls]


def _batches(calls: list[_Row]) -> list[list[_Row]]:
    """Calls of one answer together: one that came after those before it were done is of the next."""
    batches: list[list[_Row]] = [[]]
    done: float | None = None
    for call in calls:
        came = _CAME.search(text(call.get("id")) or "")
        if came and done is not None and int(came[1]) / 1000 > done:
            batches.append([])
            done = None
        batches[-1].append(call)
        ended = iso_time(call.get("timestamp"))
        done = max(filter(None, (done, ended)), default=None)
    return batches


def _tool_calls(calls: list[_Row]) -> tuple[ToolCall, ...]:
    return tuple(tool_call_from_dict(call | {"arguments": call.get("args")}) for call in calls)


def _thoughts(value: Any) -> list[str]:
    said = ((within(each, "subject"), within(each, "description")) for each in listed(value))
    return [": ".join(filter(text, pair)) for pair in said if any(map(text, pair))]


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    tokens = {key: whole_number(count) for key, count in value.items()}
    cached, thoughts = tokens.get("cached", 0), tokens.get("thoughts", 0)
    usage = Usage(
        input=max(tokens.get("input", 0) - cached, 0) + tokens.get("tool", 0),
        cache_read=cached,
        output=tokens.get("output", 0) + thoughts,
        reasoning=thoughts,
    )
    return usage if usage != Usage() else None
