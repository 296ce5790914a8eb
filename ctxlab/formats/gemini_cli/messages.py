"""Convert rows of a Gemini CLI session, and the parts of their contents, to messages.

- Calls that came without text and thoughts are written to the previous ``gemini`` message. The id
  of a call contains the time at which it was made, ``timestamp`` is the time at which it finished.
  A call made after all earlier ones had finished belongs to a separate answer, whose usage is not
  recorded.
- If a notice of the client (``info``, ``warning``, ``error``; all are counted) was the last
  message, calls get a ``gemini`` message that holds nothing else. They belong to the answer before
  the notice.
- ``input`` includes ``cached``. ``output`` does not include ``thoughts``, which are billed as
  output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, make_call, text_part
from ctxlab.formats.fields import get_count, get_in, get_list, get_text, get_time
from ctxlab.messages.types import ContentPart, Message, Usage

_Row: TypeAlias = dict[str, Any]
_CALL_TIME = re.compile(r"-(\d{13})-")


@dataclass
class ChatBuilder:
    """Builder of the messages of one session."""

    skip: SkipCallback
    "called with a reason for each message and part that is left out"
    messages: list[Message] = field(default_factory=list, init=False)
    "messages so far"
    models: Counter[str] = field(default_factory=Counter, init=False)
    "model → number of its answers"
    _answered_ids: set[str] = field(default_factory=set, init=False)

    def add(self, row: _Row) -> None:
        """Add one row.

        Parameters
        ----------
        row : dict
            The next message of the session.

        Raises
        ------
        ValueError
            If the row is invalid.
        """
        kind = row.get("type")
        if kind == "user":
            self._add_user_row(row)
        elif kind == "gemini":
            self._add_gemini_row(row)
        else:
            self.skip(f"message of type {kind}")

    def _add_user_row(self, row: _Row) -> None:
        sent = to_parts(row.get("content"))
        time = get_time(row, "timestamp")
        for part in sent:
            if not isinstance(response := part.get("functionResponse"), dict):
                continue
            id, name = get_text(response, "id"), get_text(response, "name")
            if id is None:
                self.skip("result without a call")
            elif id not in self._answered_ids:  # else the call already holds the result
                self._answered_ids.add(id)
                said = _result_content(part, self.skip)
                self.messages.append(Message("tool", said, tool_call_id=id, name=name, time=time))
        content = parse_content(sent, self.skip)
        if content:
            self.messages.append(Message("user", content, time=time))
        elif not any("functionResponse" in part for part in sent):
            self.skip("message without content")

    def _add_gemini_row(self, row: _Row) -> None:
        sent = to_parts(row.get("content"))
        calls, content = _collect_calls(row, sent), None
        if any("functionCall" not in part for part in sent):
            content = parse_content(sent, self.skip) or None
        if not (content or calls):
            self.skip("answer without content")
            return
        thoughts = _reasoning_texts(row.get("thoughts")) + part_texts(sent, thought=True)
        reasoning, time = "\n".join(thoughts) or None, get_time(row, "timestamp")
        usage = _parse_usage(row.get("tokens"))
        answer = Message("assistant", content, reasoning=reasoning, usage=usage, time=time)
        new: list[Message] = []
        for batch in _group_calls(calls):
            made = [make_call(each.get("id"), each.get("name"), each.get("args")) for each in batch]
            results = [self._parse_result(call) for call in batch if call.get("result")]
            new += answer.replace(tool_calls=tuple(made)), *results
            answer = Message("assistant")
        self.messages += new
        self._answered_ids.update(each.tool_call_id or "" for each in new if each.role == "tool")
        if model := get_text(row, "model"):
            self.models[model] += 1

    def _parse_result(self, call: _Row) -> Message:
        said, id = _result_content(call["result"], self.skip), str(call.get("id") or "")
        name, time = get_text(call, "name"), get_time(call, "timestamp")
        extra = {"is_error": True} if call.get("status") == "error" else {}
        return Message("tool", said, tool_call_id=id, name=name, time=time, extra=extra)


def join_split_calls(rows: Sequence[_Row | None]) -> list[_Row | None]:
    """Move calls back to their answer if a notice separated the two.

    Parameters
    ----------
    rows : sequence of dict or None
        The rows of a session.

    Returns
    -------
    list of dict or None
        The rows, with None for each row that was merged.
    """
    whole = list(rows)
    lone: int | None = None
    for index, row in enumerate(rows):
        kind = row.get("type") if row else None
        if row is None or kind not in ("user", "gemini"):
            continue
        answer = whole[lone] if lone is not None else None
        if kind == "gemini" and answer and lone is not None and _has_only_calls(row):
            whole[lone], whole[index], lone = answer | {"toolCalls": row["toolCalls"]}, None, None
        else:
            lone = index if kind == "gemini" and not row.get("toolCalls") else None
    return whole


def _has_only_calls(row: _Row) -> bool:
    said = row.get("content") or row.get("thoughts") or _parse_usage(row.get("tokens"))
    return bool(row.get("toolCalls")) and not said


def _collect_calls(row: _Row, sent: list[_Row]) -> list[_Row]:
    """Return the recorded calls, and those that only the content holds."""
    calls = get_list(row, "toolCalls")
    if not all(isinstance(call, dict) for call in calls):
        raise ValueError("toolCalls must be objects")
    known = {get_text(call, "id") for call in calls} | ({None} if calls else set())
    alone = [part["functionCall"] for part in sent if isinstance(part.get("functionCall"), dict)]
    return [*(call for call in alone if get_text(call, "id") not in known), *calls]


def _group_calls(calls: list[_Row]) -> list[list[_Row]]:
    """Group calls by answer; a call made after all earlier ones finished begins a new group."""
    batches: list[list[_Row]] = [[]]
    done: float | None = None
    for call in calls:
        came = _CALL_TIME.search(get_text(call, "id") or "")
        if came and done is not None and int(came[1]) / 1000 > done:
            batches.append([])
            done = None
        batches[-1].append(call)
        ended = get_time(call, "timestamp")
        done = max(filter(None, (done, ended)), default=None)
    return batches


def _reasoning_texts(value: Any) -> list[str]:
    said = ((get_in(each, "subject"), get_in(each, "description")) for each in get_list(value))
    return [": ".join(filter(get_text, pair)) for pair in said if any(map(get_text, pair))]


def _parse_usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    tokens = {key: get_count(count) for key, count in value.items()}
    cached, thoughts = tokens.get("cached", 0), tokens.get("thoughts", 0)
    usage = Usage(
        input=max(tokens.get("input", 0) - cached, 0) + tokens.get("tool", 0),
        cache_read=cached,
        output=tokens.get("output", 0) + thoughts,
        reasoning=thoughts,
    )
    return usage if usage != Usage() else None


def to_parts(value: Any) -> list[dict[str, Any]]:
    """Return the parts of a content.

    Parameters
    ----------
    value : Any
        A text, a part, a list of both, or None.

    Returns
    -------
    list of dict
        The parts; a text becomes a part with ``text``.

    Raises
    ------
    ValueError
        If ``value`` has another type.
    """
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    if all(isinstance(part, dict) for part in parts):
        return parts
    raise ValueError("content must be text, a part, or a list of them")


def part_texts(parts: Iterable[dict[str, Any]], *, thought: bool = False) -> list[str]:
    """Return the non-empty texts of the parts.

    Parameters
    ----------
    parts : iterable of dict
        The parts of a content.
    thought : bool, default False
        Return thoughts instead of text.

    Returns
    -------
    list of str
        The texts, in order.
    """
    said = (part for part in parts if bool(part.get("thought")) is thought)
    return [value for part in said if (value := get_text(part, "text"))]


def parse_content(parts: Iterable[dict[str, Any]], skip: SkipCallback) -> Content | None:
    """Convert the texts and images of the parts.

    Thoughts, calls and results are not content. Other types are skipped.

    Parameters
    ----------
    parts : iterable of dict
        The parts of a content.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    str, tuple of dict or None
        The content, joined by ``join_parts``.
    """
    said: list[ContentPart] = []
    for part in parts:
        if part.get("thought") or "functionCall" in part or "functionResponse" in part:
            continue
        if isinstance(part.get("text"), str):
            said.append(text_part(part["text"]))
        elif url := _image_url(part.get("inlineData")):
            said.append(image_part(url))
        else:
            skip(f"part of type {', '.join(part)}")
    return join_parts(said)


def _result_content(value: Any, skip: SkipCallback) -> Content:
    """Return the content of a tool result as the model received it.

    A ``functionResponse`` holds it in ``response.output`` or ``response.error``. Images are in its
    ``parts`` or in parts next to it.
    """
    said: list[dict[str, Any]] = []
    for part in to_parts(value):
        response = part.get("functionResponse")
        if isinstance(response, dict):
            text = _response_text(response.get("response"))
            said += {"text": text}, *to_parts(response.get("parts"))
        else:
            said.append(part)
    return parse_content(said, skip) or ""


def result_text(value: Any) -> str:
    """Return a tool result as one text, to compare results.

    Parameters
    ----------
    value : Any
        The recorded result.

    Returns
    -------
    str
        The text, or JSON if there are images.

    Raises
    ------
    ValueError
        If ``value`` is invalid.
    """
    said = _result_content(value, ignore_skip)
    return said if isinstance(said, str) else dump_json(said)


def _response_text(value: Any) -> str:
    for key in ("output", "error"):
        said = get_in(value, key)
        if isinstance(said, str):
            return said
    return "" if value is None else dump_json(value)


def _image_url(data: Any) -> str | None:
    media, encoded = get_text(data, "mimeType"), get_text(data, "data")
    if media and encoded and media.startswith("image/"):
        return f"data:{media};base64,{encoded}"
    return None
